"""Text from data on a terminal: neither markup nor control codes."""

import io

import pytest
from rich.console import Console

from metareplay.terminal import LONGEST, shortened, shown
from metareplay.training.progress import LiveProgress, Stage


@pytest.mark.parametrize("text", ["[/x]0", "[bold]b[/]", "[red", "[link=http://x]y[/link]", "plain"])
def test_brackets_stay_brackets(text: str) -> None:
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    with console.capture() as captured:
        console.print(f"[bold]name:[/] {shown(text)}", highlight=False)
    assert captured.get() == f"\x1b[1mname:\x1b[0m {text}\n"


def test_control_codes_are_written_out() -> None:
    assert shown("a\x1b]0;title\x07b\n\u202e") == "a\\x1b]0;title\\x07b\n\\u202e"


def test_a_task_may_be_called_like_markup() -> None:
    console = Console(file=io.StringIO(), width=200)
    progress = LiveProgress(console)
    progress.message("see [/x]0")
    progress.stage_ends(Stage(0, 1, "[/x]0"), [1.0])
    assert "([/x]0) learned" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_very_long_message_keeps_its_beginning_and_end() -> None:
    assert shortened("a message") == "a message"
    short = shortened("begin " + "x" * 10**6 + " end")
    assert short.startswith("begin x")
    assert short.endswith("x end")
    assert len(short) < LONGEST
