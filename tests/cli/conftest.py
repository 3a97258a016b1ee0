"""The command in this process: exit code, what it printed, and no trace afterwards."""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from metareplay.cli.main import main
from metareplay.errors import MetaReplayError
from metareplay.experiments import seeds
from metareplay.experiments.engines.base import Job, Report
from metareplay.experiments.engines.local import Local


class Answer(NamedTuple):
    """What a command gave back."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Answer]]:
    """Runs ``metareplay`` with some arguments as a shell would."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setenv("COLUMNS", "300")  # nothing is wrapped
    monkeypatch.setenv("NO_COLOR", "1")

    def call(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["metareplay", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1 if end.code else 0
        return Answer(code, *capsys.readouterr())

    yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of a tiny run's time; the tests of the report itself do without this."""
    monkeypatch.setattr("metareplay.report.write_report", lambda folders, out: out)


@pytest.fixture
def no_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report without predictions over the input space, the slowest of its drawings: tests/report/ has them."""
    for module in ("page", "comparison"):
        monkeypatch.setattr(f"metareplay.report.{module}.predictive_pictures", lambda groups, prefix: "")


@pytest.fixture
def seeds_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds run one after another in this process; in processes of their own: tests/experiments/test_many_seeds.py."""

    def run(engine: Local, jobs: Sequence[Job], *, report: Report, **_: Any) -> dict[int, str]:
        failures: dict[int, str] = {}
        for index, job in enumerate(jobs):
            try:
                seeds._child(job.folder)
            except MetaReplayError as problem:
                failures[index] = str(problem)
            report(set(), failures.keys())
        return failures

    monkeypatch.setattr(Local, "run", run)


@pytest.fixture(scope="module", autouse=True)
def maps_have_few_points(small_maps: None) -> None:
    """Runs of commands draw few points."""


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    """Options that make a run take a fraction of a second; task statistics are tested with data of one's own."""
    settings = (
        "training.iterations=8",
        "training.checkpoint_every=3",
        "inference.samples=3",
        "inference.test_inputs=20",
        "statistics.collect=false",
        "inference.batch_wise=20",
        "report.references=false",
    )
    return ["--quiet", *(word for setting in settings for word in ("--set", setting))]
