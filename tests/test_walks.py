"""The two walks of docs/design.md, traced: their files are entered in that order, each named once."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import metareplay
from metareplay import ContinualClassifier
from metareplay.cli.main import main
from metareplay.experiments import plan
from metareplay.learner.recipe_book import default_settings
from metareplay.training.loop import TaskTrainer

PACKAGE = Path(metareplay.__file__).parent
PAGE = (Path(__file__).parents[1] / "docs" / "design.md").read_text(encoding="utf-8")


def files_of(walk: str) -> list[str]:
    """The files that a walk names, in its order."""
    section = PAGE.partition(f"### {walk}\n")[2]
    steps = re.split(r"^#", section, maxsplit=1, flags=re.MULTILINE)[0].partition("\n1. ")[2]
    return re.findall(r"`((?:\w+/)*\w+\.py)`", steps)


@contextmanager
def entered(last: str) -> Iterator[list[str]]:
    """The package's files in the order in which a function of theirs is first called, up to one, without imports."""
    files: list[str] = []
    known: set[str] = set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if name not in known and name.startswith(str(PACKAGE)) and not _importing(frame):
            known.add(name)
            files.append(Path(name).relative_to(PACKAGE).as_posix())
            if files[-1] == last:
                sys.settrace(None)

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield files
    finally:
        sys.settrace(before)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def check(named: list[str], traced: list[str]) -> None:
    assert len(named) > 15
    assert [file for file in traced if file in named] == named


def shortened(*names: str, published: bool = False) -> tuple[dict[str, Any], str]:
    """The recipe's settings, but for two steps a task."""
    settings, source = default_settings(*names, published=published)
    return {**settings, "training.iterations": 2, "inference.samples": 2}, source


def test_a_csv_from_command_to_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"{x},{-x},{'ab'[x % 2]}{season},{season}" for season in ("spring", "summer") for x in range(20)]
    (tmp_path / "sales.csv").write_text("\n".join(["price,weight,product,season", *rows]))
    options = "--data sales.csv --label product --tasks-by season --quiet"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["metareplay", "run", *options.split()])
    monkeypatch.setattr(plan, "default_settings", shortened)
    named = files_of("A CSV from command to report")
    with entered(named[-1]) as traced, pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    check(named, traced)


def test_one_training_step(monkeypatch: pytest.MonkeyPatch) -> None:
    named, step, traces = files_of("One training step"), TaskTrainer._step, []

    def traced_step(trainer: TaskTrainer) -> object:
        with entered(named[-1]) as traced:
            terms = step(trainer)
        traces.append(traced)
        return terms

    monkeypatch.setattr(TaskTrainer, "_step", traced_step)
    settings = {"training.iterations": 2, "strategy.penalty": "mse", "posterior.local_reparametrisation": False}
    settings |= {"hypernet.kind": "chunked"}
    model = ContinualClassifier("pr-bbb", "mlp-10-10", settings=settings)
    x = np.random.default_rng(0).normal(size=(20, 4))
    for name in ("first", "second"):
        model.learn_task(x, x[:, 0] > 0, name=name)
    check(named, traces[-1])
