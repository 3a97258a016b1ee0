"""A user's own examples as tasks: what is predicted, which tasks there are, what is kept for testing."""

from pathlib import Path
from typing import Any

import pytest
import torch

from metareplay.benchmarks.base import Scenario
from metareplay.benchmarks.own import benchmark_of, own_benchmark
from metareplay.data.base import Examples, Place
from metareplay.data.settings import DataSettings
from metareplay.errors import ConfigError, DataError


def examples(labels: list[Any], tasks: list[str] | None = None, **more: Any) -> Examples:
    """Ten examples of each label; inputs identify the example, and tasks are given per label."""
    known = sorted(set(labels))
    y = torch.tensor([known.index(label) for label in labels]).repeat_interleave(10)
    x = torch.arange(len(y) * 2, dtype=torch.float32).view(-1, 2)
    names = tuple(dict.fromkeys(tasks or []))
    task = torch.tensor([names.index(name) for name in tasks]).repeat_interleave(10) if tasks else None
    return Examples(x, y, tuple(known), (Place("rows.csv, line ", range(len(y))),), task, names, **more)


def real(count: int = 40) -> Examples:
    x = torch.randn(count, 3, generator=torch.Generator().manual_seed(0))
    task = torch.arange(count) % 2
    return Examples(5 + 3 * x, 100 * x[:, :1].double(), (), (Place("row ", range(count)),), task, ("odd", "even"))


def made(data: Examples, **settings: Any) -> Any:
    scenario = settings.pop("scenario", None)
    return benchmark_of(
        data, DataSettings(**settings), "custom:rows", 11, None if scenario is None else Scenario(scenario)
    )


NINE = list("abcdefghi")


def test_tasks_of_different_sizes_by_classes() -> None:
    benchmark = made(examples(NINE), tasks_by="classes:2,3,4")
    assert [task.name for task in benchmark] == ["classes-a-b", "classes-c-d-e", "classes-f-g-h-i"]
    assert [task.classes for task in benchmark] == [("a", "b"), ("c", "d", "e"), ("f", "g", "h", "i")]
    assert (benchmark.problem, benchmark.scenario, benchmark.input_shape) == ("classification", Scenario.CLASS, (2,))
    for task in benchmark:
        assert len(task.test.x) == 2 * len(task.classes)
        assert task.test.y.bincount().tolist() == [2] * len(task.classes)  # a fifth of each class
        assert task.train.y.bincount().tolist() == [8] * len(task.classes)


def test_tasks_by_a_column_keep_their_own_classes_and_names() -> None:
    benchmark = made(examples([3, 1, 2, 1], ["june", "june", "may", "may"]), task_order=["may", "june"])
    assert [(task.name, task.classes) for task in benchmark] == [("may", (1, 2)), ("june", (1, 3))]
    assert benchmark.scenario is Scenario.CLASS


@pytest.mark.parametrize("order", [[], ["may"], ["may", "june", "june"], ["may", "july"]])
def test_an_order_names_every_task_once(order: list[str]) -> None:
    with pytest.raises(ConfigError, match="--task-order must name every task of the data once"):
        made(examples([3, 1, 2, 1], ["june", "june", "may", "may"]), task_order=order)


def test_months_are_learned_in_order_of_time_with_a_note() -> None:
    data = examples(["x", "y", "x", "y"], ["mar 2024", "mar 2024", "jan 2024", "jan 2024"])
    benchmark = made(data)
    assert [task.name for task in benchmark] == ["jan 2024", "mar 2024"]
    assert "tasks are learned in chronological order (jan 2024, mar 2024), not as they appear" in benchmark.notes[-1]
    given = made(data, task_order=["mar 2024", "jan 2024"])
    assert [task.name for task in given] == ["mar 2024", "jan 2024"]
    numbered = examples(["x", "y", "x", "y"], ["10", "10", "9", "9"])
    assert [task.name for task in made(numbered, tasks_by="month")] == ["9", "10"]
    unknown = made(numbered, tasks_by="plot")
    assert [task.name for task in unknown] == ["10", "9"]
    assert not any("chronological order" in note for note in (*given.notes, *unknown.notes))
    assert "tasks are learned in the order in which they appear (10, 9); --task-order" in unknown.notes[-1]
    german = made(examples(["x", "y", "x", "y"], ["März", "März", "Januar", "Januar"]))
    assert [task.name for task in german] == ["Januar", "März"]
    assert "chronological order (Januar, März)" in german.notes[-1]
    in_order = made(examples(["x", "y", "x", "y"], ["Januar", "Januar", "März", "März"]))
    assert not any("order" in note for note in (*in_order.notes, *given.notes))


def test_a_stored_fingerprint_of_another_order_is_recognised(tmp_path: Path) -> None:
    rows = [f"{row},{'xy'[row % 2]},{month}" for month in ("march", "january") for row in range(10)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,label,task", *rows]) + "\n")
    settings = DataSettings(path=str(tmp_path / "rows.csv"))
    earlier = own_benchmark(settings.model_copy(update={"task_order": ("march", "january")}), data_seed=1)
    assert [task.name for task in own_benchmark(settings, data_seed=1)] == ["january", "march"]
    stored = settings.model_copy(update={"fingerprint": earlier.fingerprint})
    assert [task.name for task in own_benchmark(stored, data_seed=1)] == ["march", "january"]
    with pytest.raises(DataError, match="changed since the run started"):
        own_benchmark(stored, data_seed=2)


def test_a_class_may_come_alone() -> None:
    assert [task.classes for task in made(examples(["a", "b", "c"], ["x", "x", "y"]))] == [("a", "b"), ("c",)]
    assert [task.classes for task in made(examples(NINE[:3]), tasks_by="classes:2,1")] == [("a", "b"), ("c",)]


def test_tasks_with_the_same_classes_are_domains() -> None:
    data = examples(["x", "y", "x", "y"], ["june", "june", "may", "may"])
    assert made(data).scenario is Scenario.DOMAIN
    assert made(data, scenario="task").scenario is Scenario.TASK


def test_the_order_of_classes_can_be_given() -> None:
    benchmark = made(examples(NINE[:4]), tasks_by="classes:2", task_order="d,a,c,b")
    assert [task.classes for task in benchmark] == [("a", "d"), ("b", "c")]


def test_inputs_and_targets_are_standardised_by_the_first_task() -> None:
    benchmark = made(real())
    first = benchmark[0].train
    assert benchmark.problem == "regression"
    assert torch.allclose(first.x.mean(0), torch.zeros(3), atol=1e-5)
    assert torch.allclose(first.x.std(0, correction=0), torch.ones(3), atol=1e-5)
    assert float(first.y.std(correction=0)) == pytest.approx(1, abs=1e-5)
    again = benchmark[1].train.x * benchmark.scaling.tensors["x_scale"] + benchmark.scaling.tensors["x_mean"]
    assert abs(float(again.mean()) - 5) < 2


def test_pixels_are_standardised_by_one_mean() -> None:
    pixels = torch.randint(0, 256, (40, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = examples(NINE[:4])
    task = made(Examples(pixels, data.y, data.labels, data.places), tasks_by="classes:2")[0]
    assert task.train.x.dtype == torch.float32
    assert abs(float(task.train.x.mean())) < 1e-5


def test_the_data_seed_chooses_the_test_examples() -> None:
    data = examples(NINE[:4])
    one, same, other = (benchmark_of(data, DataSettings(tasks_by="classes:2"), "n", seed) for seed in (1, 1, 2))
    assert torch.equal(one[0].test.x, same[0].test.x)
    assert not torch.equal(one[0].test.x, other[0].test.x)
    assert one.fingerprint == same.fingerprint != other.fingerprint


def test_a_given_test_set_is_used() -> None:
    data = examples(NINE[:4], test=torch.arange(40) % 10 == 3)
    assert [len(task.test.x) for task in made(data, tasks_by="classes:2")] == [2, 2]


def test_the_fingerprint_sees_every_change() -> None:
    data = examples(NINE[:4])
    changed = data.x.clone()
    changed[7, 1] += 1e-3
    relabelled = data.y.clone()
    relabelled[7] = 3
    variants = [
        made(data, tasks_by="classes:2"),
        made(Examples(changed, data.y, data.labels, data.places), tasks_by="classes:2"),
        made(Examples(data.x, relabelled, data.labels, data.places), tasks_by="classes:2"),
        made(Examples(data.x, data.y, ("a", "b", "c", "z"), data.places), tasks_by="classes:2"),
        made(data, tasks_by="classes:4"),
        made(data, tasks_by="classes:2", test_share=0.3),
    ]
    assert len({benchmark.fingerprint for benchmark in variants}) == len(variants)


def test_gaps_are_filled_with_the_first_tasks_mean() -> None:
    data = examples(NINE[:4], test=torch.arange(40) % 10 == 3)
    data.x[[0, 25], 1] = torch.nan
    benchmark = made(data, tasks_by="classes:2")
    assert all(bool(part.x.isfinite().all()) for task in benchmark for part in (task.train, task.test))
    rows = [row for row in range(1, 20) if row % 10 != 3]
    assert benchmark.inputs["fill"][1] == pytest.approx(float(data.x[rows, 1].mean()))
    data.x[:20, 0] = torch.nan
    with pytest.raises(DataError, match="input 0 has no values in the first task"):
        made(data, tasks_by="classes:2")


@pytest.mark.parametrize(
    ("labels", "problem", "words"),
    [
        (["a", "b"], "classification", "the labels are 2 names"),
        ([0, 1], "classification", "the labels are 2 integers"),
        ([False, True], "classification", "the labels are 2 integers"),
    ],
)
def test_the_problem_follows_from_the_labels(labels: list[Any], problem: str, words: str) -> None:
    benchmark = made(examples(labels), tasks_by="classes:2")
    assert benchmark.problem == problem
    assert f"{problem}: {words}" in benchmark.notes[0]


def test_integers_can_be_real_targets_and_real_ones_classes() -> None:
    numbers = examples([1, 2, 3, 4], ["a", "a", "b", "b"])
    benchmark = made(numbers, problem="regression")
    assert (benchmark.problem, benchmark[0].train.y.shape[1]) == ("regression", 1)
    halves = Examples(numbers.x, numbers.y.double().unsqueeze(1) / 2, (), numbers.places)
    assert made(halves, problem="classification", tasks_by="classes:2")[0].classes == (0.0, 0.5)


def sparse(labels: list[Any], rows: int) -> Examples:
    """So many rows of each label, in two tasks."""
    y = torch.arange(len(labels)).repeat(rows)
    x = torch.arange(len(y) * 2, dtype=torch.float32).view(-1, 2)
    return Examples(x, y, tuple(labels), (Place("row ", range(len(y))),), torch.arange(len(y)) % 2, ("odd", "even"))


def test_few_rows_of_many_labels_are_classes_if_requested() -> None:
    assert made(sparse(list(range(30)), 6)).problem == "classification"
    assert made(sparse(list(range(30)), 2), problem="regression").problem == "regression"
    assert made(sparse([f"person {row}" for row in range(30)], 4)).problem == "classification"


REFUSED: list[tuple[Examples, dict[str, Any], type[Exception], str]] = [
    (examples(NINE), {}, ConfigError, "add --tasks-by classes:2"),
    (
        examples(NINE),
        {"tasks_by": "classes:2"},
        ConfigError,
        "classes:2 does not fit 9 classes; write sizes that add up to 9, e.g. classes:2,7",
    ),
    (
        examples(NINE[:3]),
        {"tasks_by": "classes:2"},
        ConfigError,
        "does not fit 3 classes; write sizes that add up to 3, e.g. classes:3",
    ),
    (examples(NINE[:1]), {"tasks_by": "classes:2"}, ConfigError, "the data has a single class"),
    (examples(NINE), {"tasks_by": "classes:2,3"}, ConfigError, "sizes that add up to 9"),
    (examples(NINE), {"tasks_by": "classes:0,9"}, ConfigError, "at least one class"),
    (examples(NINE), {"tasks_by": "classes:two"}, ConfigError, "write the number of classes"),
    (
        examples(NINE),
        {"tasks_by": "classes:3", "task_order": "a,b"},
        ConfigError,
        "--task-order must name every class .*check 'c'",
    ),
    (
        examples(["a", "b"], ["x", "y"]),
        {"task_order": "x,z"},
        ConfigError,
        "--task-order must name every task .*check 'z'",
    ),
    (examples(["a", "a"], ["x", "y"]), {}, DataError, "all examples have the class 'a'"),
    (
        examples(["a", "b", "c", "d"], ["x", "x", "y", "y"]),
        {"scenario": "domain"},
        ConfigError,
        "domain needs the same classes",
    ),
    (real(), {"tasks_by": "classes:2"}, ConfigError, "classes:k needs classes"),
    (real(), {"scenario": "class"}, ConfigError, "the scenario class needs classes"),
    (
        examples(["a", "b"], ["x", "x"]),
        {"problem": "regression"},
        DataError,
        r"rows\.csv, line 0: the label 'a' is not a number",
    ),
    (examples(list(range(101))), {"tasks_by": "classes:101"}, ConfigError, "101 different integers in .*--problem"),
    (sparse(list(range(30)), 2), {}, ConfigError, "30 different integers in 60 rows, which may be classes or real"),
    (sparse([f"order {row}" for row in range(30)], 1), {}, ConfigError, "30 different names in 30 rows.*--label"),
    (examples(["a", "b"], ["x", "x"], test=torch.arange(20) < 0), {}, DataError, "task 'x' has no test examples"),
    (examples(["a", "b"], ["x", "x"], test=torch.arange(20) >= 0), {}, DataError, "task 'x' has no training examples"),
    (
        examples(["a", "b"], ["x", "x"], test=torch.arange(20) >= 10),
        {},
        DataError,
        r"line 10: the test example's class 'b' has no training",
    ),
]


@pytest.mark.parametrize(
    ("data", "settings", "kind", "message"), REFUSED, ids=[message[:30] for *_, message in REFUSED]
)
def test_what_makes_no_tasks_is_refused(
    data: Examples, settings: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        made(data, **settings)
