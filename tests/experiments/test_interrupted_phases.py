"""A signal ends a run in every phase that takes long, and the run continues to the same bits."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from metareplay import interrupts
from metareplay.benchmarks.base import Benchmark
from metareplay.evaluation.evaluate import Evaluator
from metareplay.experiments import run as run_module
from metareplay.experiments.plan import Plan
from metareplay.experiments.run import Run
from metareplay.interrupts import Interrupted, stop_on_signal
from metareplay.learner.config import RunConfig
from metareplay.learner.learner import ContinualLearner

PHASES = {
    "data or features": (Benchmark, "__getitem__", 2),
    "beginning of a task": (ContinualLearner, "begin_task", 2),
    "statistics": (ContinualLearner, "finish_task", 2),
    "test after a task": (Evaluator, "tested", 3),
    "tests at the end": (Evaluator, "inferred", 1),
    "unknown inputs": (run_module, "assess", 1),
    "references": (run_module, "train_references", 1),
    "picture": (run_module, "predictive_picture", 1),
    "after a restart": (ContinualLearner, "revisit", 1),
}


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr(interrupts, "_signals", interrupts._Signals())
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tiny_config: Callable[..., RunConfig]) -> Path:
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    Run(Plan.of(tiny_config(settings={"report.references": True}), folder)).execute()
    return folder


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.usefixtures("signals")
def test_a_signal_ends_a_run_where_it_is(
    phase: str,
    whole: Path,
    tmp_path: Path,
    tiny_config: Callable[..., RunConfig],
    assert_same_run: Callable[[Path, Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner, name, call = PHASES[phase]
    original: Callable[..., Any] = getattr(owner, name)
    calls, went_on = 0, False

    def interrupted(*args: Any, **options: Any) -> Any:
        nonlocal calls, went_on
        calls += 1
        if calls == call:
            signal.raise_signal(signal.SIGTERM if call % 2 else signal.SIGINT)
            went_on = True
        return original(*args, **options)

    plan = Plan.of(tiny_config(settings={"report.references": True}), tmp_path / "run")
    resume = phase == "after a restart"
    if resume:
        left = iter([False] * 12)
        with pytest.raises(Interrupted):
            Run(plan, should_stop=lambda: next(left, True)).execute()
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, interrupted)
        with pytest.raises(Interrupted, match=r"stopped; the state is saved in .*; continue with --resume"):
            Run(plan, should_stop=stop_on_signal()).execute(resume=resume)
    assert calls == call
    assert not went_on
    assert not (plan.folder / "results.json").exists()
    Run(plan, should_stop=stop_on_signal()).execute(resume=True)
    assert_same_run(whole, plan.folder)
