"""Every method learns every kind of problem: finite, the same for the same seed or after a restart, another for another
seed.
"""

from collections.abc import Mapping, Sequence

import pytest
import torch
from torch import Tensor

from metareplay.benchmarks.base import Benchmark, TaskData
from metareplay.benchmarks.toy import modes_2d, regression_1d
from metareplay.errors import ConfigError
from metareplay.evaluation.evaluate import Evaluator, Inference
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.methods import METHODS

BENCHMARKS = {"modes-2d": modes_2d(), "regression-1d": regression_1d()}
SMALL = {"hypernet.hidden": (6,), "hypernet.task_embedding_size": 3, "hypernet.chunk_embedding_size": 2}

ONLY_CLASSES = {method.name for method in METHODS.values() if method.for_regression is not None}
"""They refuse regression."""
PAIRS = [
    (method, name)
    for name in BENCHMARKS
    for method in METHODS
    if not (name == "regression-1d" and method in ONLY_CLASSES)
]
every_method = pytest.mark.parametrize(
    ("method", "name"),
    [
        pytest.param(method, name, marks=pytest.mark.representative if name == "regression-1d" else ())
        for method, name in PAIRS
    ],
)
"""Classes by every method; real targets by those that bring a part which earlier ones do not have, the rest slow."""


def unlearned(method: str, benchmark: Benchmark, seed: int) -> ContinualLearner:
    defaults = {
        "method": method,
        "network": METHODS[method].network or "mlp-4",
        "seed": seed,
        **(SMALL if METHODS[method].task_map_part.generated else {}),
    }
    steps = {} if METHODS[method].closed_form else {"training.iterations": 3, "training.batch_size": 8}
    given = {**steps, "inference.samples": 5}
    config = build_config(defaults, given, "test")
    return ContinualLearner(config, benchmark.problem, benchmark.scenario, benchmark.input_shape, total_outputs=6)


def learn(method: str, benchmark: Benchmark, seed: int, after: list[Tensor] | None = None) -> ContinualLearner:
    """Learn all tasks; ``after`` gets what was learned so far after each of them."""
    learner = unlearned(method, benchmark, seed)
    for task in benchmark:
        for step in learner.begin_task(task.train, len(task.classes) or task.train.y.shape[1]):
            assert step.terms.total.isfinite()
        if after is not None:
            after.append(thetas(learner).clone())
    return learner


def thetas(learner: ContinualLearner) -> Tensor:
    return learner.model.task_map.thetas(range(learner.num_tasks)).detach()


def inferred(learner: ContinualLearner, tests: Sequence[TaskData]) -> dict[str, tuple[object, ...]]:
    """All figures of task inference as plain numbers."""
    return plain(Evaluator(learner.predictor).inferred(tests))


def plain(figures: Mapping[str, Inference]) -> dict[str, tuple[object, ...]]:
    return {name: (*each[:-1], each.counts.tolist()) for name, each in figures.items()}


@every_method
def test_learning_is_finite_and_a_seed_fixes_everything(method: str, name: str) -> None:
    benchmark, after = BENCHMARKS[name], list[Tensor]()
    learner, tests = learn(method, benchmark, 0, after), [task.test for task in benchmark]
    assert learner.num_tasks == len(benchmark)
    assert learner.is_finite()
    assert thetas(learner).isfinite().all()
    for task, test in enumerate(tests):
        score = Evaluator(learner.predictor).given(task, test)
        assert 0 <= score <= (100 if benchmark.problem == "classification" else float("inf"))
    figures = Evaluator(learner.predictor).inferred(tests)
    for inference in figures.values():
        assert all(abs(sum(row) - 100) < 1e-9 for row in inference.confusion)
    torch.manual_seed(123)  # whatever the global generator does
    again = learn(method, benchmark, 0)
    assert torch.equal(thetas(learner), thetas(again))
    assert plain(figures) == plain(Evaluator(again.predictor).inferred(tests))
    other = learn(method, benchmark[:1], 1)
    assert torch.equal(after[0], thetas(other)) == METHODS[method].closed_form  # which draws nothing


@every_method
def test_a_task_is_learned_and_continued_after_a_restart(method: str, name: str) -> None:
    """Bit for bit, from the tensors of a checkpoint; runs that are stopped: tests/experiments/."""
    benchmark = BENCHMARKS[name]
    learner, again = learn(method, benchmark[:1], 0), unlearned(method, benchmark, 0)
    steps = iter(learner.begin_task(benchmark[1].train, len(benchmark[1].classes) or benchmark[1].train.y.shape[1]))
    before = thetas(learner).clone()
    if METHODS[method].closed_form:  # which takes no steps
        list(steps)
        _assert_moved(method, before, thetas(learner))
        return
    next(steps)
    stored = {key: tensor.clone() for key, tensor in learner.tensors(training=True).items()}
    again.restore(learner.facts(), stored)
    again.revisit(0, lambda: benchmark[0].train)
    expected = [step.terms.total for step in steps]
    _assert_moved(method, before, thetas(learner))
    assert [step.terms.total for step in again.continue_task(benchmark[1].train, stored)] == expected
    ours, theirs = learner.tensors(training=True), again.tensors(training=True)
    assert ours.keys() == theirs.keys()
    assert [key for key in ours if not torch.equal(ours[key], theirs[key])] == []


def _assert_moved(method: str, before: Tensor, after: Tensor) -> None:
    """Training moves the task that is learned, and only separate tasks cannot touch each other."""
    assert not torch.equal(after[1], before[1])
    assert torch.equal(after[0], before[0]) == METHODS[method].task_map.startswith("per-task")


def fine_tuned(method: str, benchmark: Benchmark, seed: int) -> ContinualLearner:
    """After three steps on the coresets of all tasks, and three on that of the last one."""
    learner = learn(method, benchmark, seed)
    for trainer in (learner.begin_update(), learner.begin_update(len(benchmark) - 1, again=True)):
        before, steps = thetas(learner), list(trainer)
        assert len(steps) == 3
        assert all(step.terms.total.isfinite() for step in steps)
        assert not torch.equal(thetas(learner), before)
    return learner


@pytest.mark.parametrize(
    ("method", "name"), [(method, name) for method, name in PAIRS if (METHODS[method].strategy == "coreset-replay")]
)
def test_kept_examples_fine_tune(method: str, name: str) -> None:
    benchmark = BENCHMARKS[name]
    first, again = (fine_tuned(method, benchmark, 0) for _ in range(2))
    assert first.is_finite()
    assert torch.equal(thetas(first), thetas(again))
    tests = [task.test for task in benchmark]
    assert inferred(first, tests) == inferred(again, tests)
    with pytest.raises(ConfigError, match="counts their evidence twice"):
        first.begin_update()


def test_methods_that_keep_no_examples_say_so() -> None:
    assert {name for name, method in METHODS.items() if method.strategy == "coreset-replay"} == {
        name for name in METHODS if name.endswith("-cs")
    }
    for method, name in PAIRS:
        if METHODS[method].strategy != "coreset-replay":
            with pytest.raises(ConfigError, match="keeps no examples"):
                unlearned(method, BENCHMARKS[name], 0).begin_update()


ONE_SOFTMAX = [name for name, method in METHODS.items() if method.outputs == "growing" and not method.closed_form]


@pytest.mark.parametrize("method", ONE_SOFTMAX)
def test_outputs_of_later_tasks_do_not_compete(method: str) -> None:
    """With all outputs from the start, neither loss nor replay moves those whose tasks have not come yet."""
    benchmark, network = BENCHMARKS["modes-2d"], METHODS[method].network or "mlp-4"
    given = {"training.iterations": 3, "training.batch_size": 8, "outputs_from_start": True}
    config = build_config({"method": method, "network": network, "seed": 0}, given, "test")
    learner = ContinualLearner(config, "classification", benchmark.scenario, (2,), total_outputs=6)
    rows = []
    for task in (0, 1):
        trainer = learner.begin_task(benchmark[task].train, 2)
        names = learner.model.spec.unflatten(learner.model.central_weights(task))
        last = names["gates" if method == "ebm" else max(names)]  # one row for each output
        rows.append(last[4:].clone())
        for _ in trainer:
            pass
        learner.finish_task(benchmark[task].train)
    now = learner.model.spec.unflatten(learner.model.central_weights(1))
    assert len(rows[0]) == 2
    if config.kind().strategy not in ("ewc", "prior-focused"):  # whose prior holds all weights
        assert torch.equal(now["gates" if method == "ebm" else max(now)][4:], rows[0])
