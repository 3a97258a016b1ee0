"""The commands of a living model: what they say, and with which exit code."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Command = Callable[..., Any]
VERBS = (
    *("new", "add-task", "update-task", "remove-task", "rename-task", "tasks", "audit", "history", "undo"),
    "compact",
)


def table(path: Path, labels: str, seed: int, shift: float = 0.0) -> Path:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((24, 2)) + np.arange(24)[:, None] % 2 * 3 + shift
    lines = [f"{a:.3f},{b:.3f},{labels[index % 2]}" for index, (a, b) in enumerate(x)]
    path.write_text("\n".join(["a,b,label", *lines]))
    return path


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_examples(verb: str, command: Command) -> None:
    result = command(verb, "--help")
    assert result.code == 0
    assert f"metareplay {verb}" in result.out


def test_a_model_lives(tmp_path: Path, command: Command) -> None:
    shop, first, second = tmp_path / "shop", table(tmp_path / "1.csv", "xy", 0), table(tmp_path / "2.csv", "xz", 1, 1.0)
    tiny = ("training.iterations=8", "inference.samples=3", "hypernet.hidden=[6]")
    made = command("new", shop, "--network", "mlp-4", *(word for each in tiny for word in ("--set", each)))
    assert (made.code, made.out.count("\n")) == (0, 1)
    assert "no tasks yet" in command("tasks", shop).out
    assert json.loads(command("tasks", shop, "--json").out) == []
    added = command("add-task", shop, first, "--name", "one")
    assert added.out == "task 'one' learned as task 1 from 24 examples\n"
    assert "note: classification" in added.err
    refused = command("add-task", shop, second, "--name", "two", "--gate", "--max-change", "0", "-q")
    assert refused.code == 1
    assert refused.err.startswith("refused:")
    assert command("add-task", shop, second, "--name", "two", "--gate").code == 2
    assert command("add-task", shop, second, "--name", "two", "-q").code == 0
    assert command("update-task", shop, table(tmp_path / "3.csv", "xw", 2), "--name", "one", "-q").code == 0
    listed = json.loads(command("tasks", shop, "--json").out)
    assert [(task["name"], task["classes"]) for task in listed] == [("one", ["x", "y", "w"]), ("two", ["x", "z"])]
    audit = command("audit", shop, "--json", "--max-change", "0", "--page", tmp_path / "audit.html")
    assert audit.code == 1
    assert json.loads(audit.out)["exceeded"] == ["two"]
    page = (tmp_path / "audit.html").read_text()
    assert "past the limit" in page
    assert "<script src" not in page
    assert command("audit", shop, "--max-change", "1").code == 0
    assert "accuracy" in command("audit", shop, "--data", second, "--name", "two").out
    assert command("remove-task", shop, "two").code == 0
    assert command("rename-task", shop, "one", "first").code == 0
    told = command("history", shop).out
    assert all(verb in told for verb in ("add-task", "update-task", "remove-task", "rename-task"))
    assert len(json.loads(command("history", shop, "--json").out)) == 5
    assert "undone: rename-task" in command("undo", shop).out
    assert "freed" in command("compact", shop).out
    assert command("undo", shop).code == 2


def test_users_errors_are_one_message(tmp_path: Path, command: Command) -> None:
    for arguments in (
        ("add-task", tmp_path / "nowhere", "x.csv", "--name", "a"),
        ("tasks", tmp_path),
        ("undo", tmp_path / "nowhere"),
        ("new", tmp_path / "m", "--method", "nothing"),
        ("new", tmp_path / "m", "--set", "data.path=x"),
    ):
        result = command(*arguments)
        assert result.code == 2
        assert result.err.startswith("error:")
        assert "Traceback" not in result.err
