"""The two simple references: what they are trained on, how they are tested, and that they leave the run alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from metareplay.benchmarks.base import Benchmark, Scenario, Task, TaskData
from metareplay.experiments import references
from metareplay.experiments.labels import Labels, chance
from metareplay.experiments.plan import Plan
from metareplay.experiments.references import train_references
from metareplay.experiments.results import read_results
from metareplay.experiments.run import Run
from metareplay.learner.config import RunConfig
from metareplay.scaling import Scaling

MIDDLES = torch.tensor([[-4.0, 0.0], [4.0, 0.0], [0.0, -4.0], [0.0, 4.0]])


def clusters(classes: list[tuple[str, ...]], middles: list[list[int]], rows: int = 30) -> Benchmark:
    """Classes as far-apart clusters of the plane; a class of every task lies at the middle that is named for it."""
    generator = torch.Generator().manual_seed(0)

    def data(task: int) -> TaskData:
        y = torch.arange(rows) % len(classes[task])
        places = MIDDLES[torch.tensor(middles[task])[y]]  # (N, 2)
        return TaskData(places + 0.1 * torch.randn(rows, 2, generator=generator), y)

    tasks = [Task(f"t{task}", data(task), data(task), names) for task, names in enumerate(classes)]
    return Benchmark("clusters", "classification", Scenario.CLASS, (2,), len(tasks), lambda task: tasks[task])


def data_of(benchmark: Benchmark) -> list[TaskData]:
    return [task.test for task in benchmark]


def test_a_model_of_all_tasks_knows_them_all_and_that_of_the_last_task_only_the_last() -> None:
    benchmark = clusters([("a", "b"), ("c", "d")], [[0, 1], [2, 3]])
    found = train_references(benchmark, data_of(benchmark), seed=0)
    assert found.joint is not None
    assert found.last_task is not None
    assert (found.joint.score, found.joint.known, found.joint.by_task) == (100.0, 100.0, [100.0, 100.0])
    assert (found.last_task.score, found.last_task.by_task) == (50.0, [0.0, 100.0])
    assert (found.joint.rows, found.joint.of_rows, found.last_task.rows) == (60, 60, 30)
    assert found.joint.model in ("logistic regression", "random forest")


def test_labels_are_those_of_the_user_and_may_be_shared_by_tasks() -> None:
    benchmark = clusters([("a", "b"), ("b", "c")], [[0, 1], [1, 2]])
    assert Labels.of(benchmark).names == ["a", "b", "c"]
    found = train_references(benchmark, data_of(benchmark), seed=0)
    assert found.last_task is not None
    assert found.last_task.by_task == [50.0, 100.0]  # it knows b


def test_the_answer_may_be_limited_to_the_tasks_labels() -> None:
    benchmark = clusters([("a", "b"), ("c", "d")], [[0, 1], [0, 1]])  # the tasks look the same
    found = train_references(benchmark, data_of(benchmark), seed=0)
    assert found.joint is not None
    assert found.joint.known == 100.0
    assert found.joint.score < 80.0


def test_few_rows_are_used_of_many_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "MOST_ROWS", 20)
    monkeypatch.setattr(references, "FEWEST_ROWS", 10)
    benchmark = clusters([("a", "b"), ("c", "d")], [[0, 1], [2, 3]])
    found = train_references(benchmark, data_of(benchmark), seed=0)
    assert found == train_references(benchmark, data_of(benchmark), seed=0)
    assert found.joint is not None
    assert found.last_task is not None
    assert (found.joint.rows, found.joint.of_rows) == (20, 60)
    assert (found.last_task.rows, found.last_task.of_rows) == (20, 30)


def test_a_last_task_with_one_class_is_answered_with_it() -> None:
    benchmark = clusters([("a", "b"), ("c",)], [[0, 1], [2]])
    found = train_references(benchmark, data_of(benchmark), seed=0)
    assert found.last_task is not None
    assert found.last_task.by_task == [0.0, 100.0]


@pytest.mark.parametrize("curved", [False, True])
def test_regression_takes_what_fits_better_and_errors_are_in_the_users_units(curved: bool) -> None:
    def data(task: int) -> TaskData:
        x = torch.linspace(-1, 1, 80)[:, None] + 3 * task
        noise = 0.1 * torch.randn(80, 1, generator=torch.Generator().manual_seed(task))
        return TaskData(x, (torch.sin(6 * x) if curved else 2 * x) + noise)

    tasks = [Task(f"t{task}", data(task), data(task)) for task in (0, 1)]
    benchmark = Benchmark("lines", "regression", Scenario.DOMAIN, (1,), 2, lambda task: tasks[task])
    scaled = Benchmark(
        *("lines", "regression", Scenario.DOMAIN, (1,), 2, lambda task: tasks[task]),
        scaling=Scaling({"y_scale": torch.tensor([10.0])}),
    )
    found, larger = (train_references(each, data_of(each), seed=0).joint for each in (benchmark, scaled))
    assert found is not None
    assert larger is not None
    assert found.model == ("random forest" if curved else "ridge regression")
    assert found.score < 0.05
    assert larger.score == pytest.approx(100 * found.score)
    for each, factor in ((benchmark, 1.0), (scaled, 100.0)):
        targets = torch.cat([test.y for test in data_of(each)])
        assert chance(each, data_of(each)).inferred == pytest.approx(factor * float(targets.var(correction=0)))


def test_guessing_answers_with_the_most_frequent_label() -> None:
    x, rare = torch.zeros(10, 2), torch.tensor([0] * 8 + [1] * 2)
    tasks = [Task("one", TaskData(x, rare), TaskData(x, rare), ("a", "b"))]
    tasks.append(Task("two", TaskData(x, 1 - rare), TaskData(x, 1 - rare), ("a", "c")))
    benchmark = Benchmark("rare", "classification", Scenario.CLASS, (2,), 2, lambda task: tasks[task])
    found = chance(benchmark, data_of(benchmark))
    assert found.by_task == [80.0, 80.0]
    assert (found.known, found.inferred) == (80.0, pytest.approx(50.0))  # a: 80 % of one task, 20 % of the other


def test_references_change_nothing_else_and_can_be_switched_off(
    tmp_path: Path, tiny_config: Callable[..., RunConfig], small_maps: None
) -> None:
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()  # type: ignore[union-attr]
    contents: list[dict[str, Any]] = []
    for wanted in (True, False):
        config = tiny_config("pr-bbb", {"report.references": wanted, "training.iterations": 4})
        Run(Plan.of(config, tmp_path / str(wanted))).execute()
        contents.append(read_results(tmp_path / str(wanted) / "results.json").content())
        for volatile in ("seconds", "peak_memory_mib"):
            contents[-1].pop(volatile)
        contents[-1]["continual"].pop("model_bytes")  # a model stores its settings, and false is longer than true
    assert contents[0].pop("references")["joint"]["rows"] == 60
    assert contents[1].pop("references") is None
    against = [(content["continual"].pop("intransigence"), content["continual"].pop("joint")) for content in contents]
    assert against[0][0] is not None  # which needs the joint reference
    assert against[1] == (None, None)
    assert contents[0] == contents[1]
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # type: ignore[index]
    assert torch.equal(torch.get_rng_state(), torch_state)
    fingerprints = {tiny_config("pr-bbb", {"report.references": wanted}).fingerprint() for wanted in (True, False)}
    assert len(fingerprints) == 1
    labels = contents[0]["labels"]
    assert np.array(labels["confusion"]).shape == (6, 6)
    assert np.array(labels["confusion"]).sum() == 600
    right = 100 * np.trace(labels["confusion"]) / 600
    assert right == pytest.approx(contents[0]["answers"]["label_accuracy"])
