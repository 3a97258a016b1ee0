"""A stored model follows a CSV stream: text in pieces, and the command."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from metareplay.cli.main import app
from metareplay.errors import MetaReplayError
from metareplay.estimators import load_estimator
from metareplay.learner.store import read_history
from metareplay.living.changes import undo
from metareplay.living.overview import tasks_of
from metareplay.living.streaming import text_chunks

SETTINGS = ("--set", "grace=120", "--set", "window=15")


def test_text_comes_in_pieces_with_the_header() -> None:
    pieces = list(text_chunks(io.BytesIO(b"a,b\n1,2\n3,4\n\n5,6\n"), first=2, then=1))
    assert pieces == [b"a,b\n1,2\n3,4\n", b"a,b\n\n5,6\n"]


def test_a_row_may_span_lines() -> None:
    assert len(list(text_chunks(io.BytesIO(b'a,b\n1,"x\ny"\n2,z\n'), first=1, then=1))) == 2


def table(places: list[float], count: int = 170) -> str:
    """Rows of two classes around several centres, told apart by a text column."""
    rng, lines = np.random.default_rng(0), ["size,colour,kind"]
    for place in places:
        for _ in range(count):
            kind = int(rng.integers(0, 2))
            lines.append(f"{rng.normal(place, 0.5):.3f},{'red' if kind else 'blue'},{'ab'[kind]}{place:.0f}")
    return "\n".join(lines) + "\n"


def call(*arguments: str, text: str | None = None) -> str:
    done = CliRunner().invoke(app, arguments, input=text, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, object]]]:
    folder = tmp_path_factory.mktemp("stream") / "model"
    call("new", str(folder), "--network", "mlp-10", "--set", "training.iterations=60", "--set", "inference.samples=5")
    said = call("stream", str(folder), "-", "--label", "kind", *SETTINGS, text=table([0, 9, 0]))
    return folder, [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def test_new_and_returning_tasks_are_told_as_they_appear(followed: tuple[Path, list[dict[str, object]]]) -> None:
    told = [(event["kind"], event["task"]) for event in followed[1] if event["kind"] != "boundary"]
    assert told == [("learned", "task-0"), ("learned", "task-1"), ("returned", "task-0")]


def test_the_stored_model_knows_the_tasks_and_how_it_came_to_them(
    followed: tuple[Path, list[dict[str, object]]], tmp_path: Path
) -> None:
    model = load_estimator(followed[0])
    assert model.task_names == ["task-0", "task-1"]
    assert [column["name"] for column in model.inputs["columns"]] == ["size", "colour"]
    last = read_history(followed[0])[-2:]
    assert [entry.verb for entry in last] == ["stream: learned", "stream: learned"]
    assert all(entry.examples for entry in last)
    assert all(row.date for row in tasks_of(followed[0]))
    copy = Path(shutil.copytree(followed[0], tmp_path / "copy"))
    undo(copy)
    assert load_estimator(copy).task_names == ["task-0"]


def test_a_stored_model_goes_on(followed: tuple[Path, list[dict[str, object]]], tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text(table([9], 40))
    said = call("stream", str(followed[0]), str(tmp_path / "more.csv"), *SETTINGS)
    assert '"kind": "returned"' in said
    assert '"task": "task-1"' in said


def test_mistakes_are_named(followed: tuple[Path, list[dict[str, object]]], tmp_path: Path) -> None:
    with pytest.raises(MetaReplayError, match="cannot be read"):
        call("stream", str(followed[0]), str(tmp_path / "nothing.csv"))
    with pytest.raises(MetaReplayError, match=r"stream\.windw is unknown"):
        call("stream", str(followed[0]), "-", "--set", "windw=3", text="a,b\n")
    with pytest.raises(MetaReplayError, match="the stream has no rows"):
        call("stream", str(followed[0]), "-", text="size,colour,kind\n")
