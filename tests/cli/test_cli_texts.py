"""Texts in a column of a table, read by an encoder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SETTINGS = ("--set", "training.iterations=5", "--set", "inference.samples=5", "--set", "report.references=false")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two months of reviews."""
    monkeypatch.chdir(tmp_path)
    lines = ["id,review,label,month"]
    for month, subject in (("may", "film"), ("june", "meal")):
        for row in range(40):
            word = ("good", "fine", "bad", "awful")[row % 4]
            lines.append(f"{row},the {subject} was very {word},{'yes' if row % 4 < 2 else 'no'},{month}")
    Path("reviews.csv").write_text("\n".join(lines))


@pytest.mark.usefixtures("table")
def test_a_model_learns_and_answers(text_encoder: Path, command: Callable[..., Any]) -> None:
    assert command("new", "model", "--network", f"features:{text_encoder}+mlp-10", *SETTINGS[:4]).code == 0
    first = ("add-task", "model", "reviews.csv", "--text", "review", "--name", "may", "--ignore", "month", "--quiet")
    assert command(*first).code == 0
    assert len(command("predict", "model", "reviews.csv").out.splitlines()) == 81


@pytest.mark.slow
@pytest.mark.usefixtures("table")
def test_a_run_of_texts(text_encoder: Path, command: Callable[..., Any]) -> None:
    run = ("run", "--data", "reviews.csv", "--text", "review", "--tasks-by", "month", "--quiet", "--out", "run")
    assert command(*run, "--network", f"features:{text_encoder}+mlp-10", *SETTINGS).code == 0
    assert command("predict", "run", "reviews.csv", "--score").code == 0


@pytest.mark.usefixtures("table")
def test_what_cannot_be_read_is_refused(text_encoder: Path, command: Callable[..., Any]) -> None:
    run = ("run", "--data", "reviews.csv", "--tasks-by", "month", "--out", "run")
    assert "column 'review' holds texts" in command(*run, "--text", "review", "--network", "mlp-10").err
    network = f"features:{text_encoder}"
    assert "no column 'title' (--text names it)" in command(*run, "--text", "title", "--network", network).err
    assert (
        "reads texts; name the column that holds them with --text"
        in command(*run, "--ignore", "review", "--network", network).err
    )
