"""Streams of PyTorch datasets as benchmarks, with and without task labels in their items."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

from metareplay.benchmarks.base import Benchmark, Scenario
from metareplay.benchmarks.streams import dataset_benchmark, stream_benchmark
from metareplay.errors import ConfigError, DataError


def dataset(labels: tuple[Any, Any], task: int | None = None, size: int = 10) -> TensorDataset:
    y = torch.tensor(labels).repeat(size)
    x = torch.randn(len(y), 3, generator=torch.Generator().manual_seed(sum(labels))) + y[:, None]
    return TensorDataset(x, y) if task is None else TensorDataset(x, y, torch.full_like(y, task))


class Experience:
    """What other libraries hand out: the dataset is an attribute."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset


class Plain:
    """A map-style dataset that is not a subclass of PyTorch's."""

    def __init__(self, inner: TensorDataset) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Any:
        return self.inner[index]


class Broken(Plain):
    """A dataset with an item that cannot be read."""

    def __getitem__(self, index: int) -> Any:
        if index == 7:
            raise OSError("the disk is full of holes")
        return self.inner[index]


def generator() -> Iterator[Any]:
    yield dataset((0, 1))
    yield dataset((2, 3))


STREAMS: dict[str, Any] = {
    "list": [dataset((0, 1)), dataset((2, 3))],
    "generator": generator,
    "task labels": [dataset((0, 1), 0), dataset((2, 3), 1)],
    "one dataset with task labels": ConcatDataset([dataset((0, 1), 0), dataset((2, 3), 1)]),
    "the same task label": [dataset((0, 1), 0), dataset((2, 3), 0)],
    "experiences": [Experience(dataset((0, 1), 0)), Experience(dataset((2, 3), 1))],
    "loaders": [DataLoader(dataset((0, 1))), DataLoader(dataset((2, 3)))],
    "other classes": [Plain(dataset((0, 1))), Plain(dataset((2, 3)))],
    "subsets": [Subset(dataset((0, 1)), range(20)), Subset(dataset((2, 3)), range(20))],
    "arrays": [tuple(part.numpy() for part in dataset(labels).tensors) for labels in ((0, 1), (2, 3))],
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_of_every_kind(name: str) -> None:
    stream = STREAMS[name]
    benchmark = stream_benchmark(
        stream() if callable(stream) else stream, test=[dataset((0, 1), size=2), dataset((2, 3), size=2)]
    )
    assert isinstance(benchmark, Benchmark)
    assert [(task.name, task.classes) for task in benchmark] == [("task-0", (0, 1)), ("task-1", (2, 3))]
    assert benchmark.scenario is Scenario.CLASS
    assert [len(task.train.x) for task in benchmark] == [20, 20]
    assert [len(task.test.x) for task in benchmark] == [4, 4]
    assert abs(float(benchmark[0].train.x.mean())) < 1e-5  # standardised by the first task


def test_a_share_is_kept_for_testing_without_a_test_stream() -> None:
    benchmark = stream_benchmark([dataset((0, 1)), dataset((2, 3))], standardise=False, test_share=0.3)
    assert [task.test.y.bincount().tolist() for task in benchmark] == [[3, 3], [3, 3]]
    together = torch.cat([benchmark[0].train.x, benchmark[0].test.x])
    assert torch.equal(together.sort(0).values, dataset((0, 1)).tensors[0].sort(0).values)


def test_test_sets_are_found_by_their_task_labels() -> None:
    benchmark = stream_benchmark(
        [dataset((0, 1), 3), dataset((2, 3), 5)], test=[dataset((2, 3), 5, size=2), dataset((0, 1), 3, size=4)]
    )
    assert [len(task.test.x) for task in benchmark] == [8, 4]


def test_an_unknown_scenario_is_refused() -> None:
    with pytest.raises(ConfigError, match="scenario='all' is unknown; choose task, domain, class"):
        stream_benchmark([dataset((0, 1))], scenario="all")


def test_a_stream_of_real_targets() -> None:
    benchmark = stream_benchmark([(np.eye(6), np.arange(6.0)), (np.eye(6), np.arange(6.0))], problem="regression")
    assert (benchmark.problem, benchmark.scenario) == ("regression", Scenario.DOMAIN)
    assert benchmark[0].train.y.shape[1] == 1


def test_one_dataset_is_split_by_classes() -> None:
    data = ConcatDataset([dataset((0, 1)), dataset((2, 3))])
    benchmark = dataset_benchmark(data, tasks_by="classes:2", task_order=["3", "0", "1", "2"])
    assert [task.classes for task in benchmark] == [(0, 3), (1, 2)]
    given = dataset_benchmark(data, test=dataset((0, 1)), tasks_by="classes:4")
    assert len(given[0].test.x) == 20


def test_pillow_images_come_as_torchvision_gives_them() -> None:
    image = pytest.importorskip("PIL.Image").fromarray(np.full((3, 4, 3), 255, dtype=np.uint8))
    benchmark = stream_benchmark(_pairs(image), standardise=False)
    assert benchmark.input_shape == (3, 3, 4)
    assert float(benchmark[0].train.x.max()) == 1.0


def _pairs(image: Any) -> Any:
    class Images(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> Any:
            return image, index % 2

    return [Images()]


BAD: list[tuple[Any, Any, str]] = [
    ([], None, "the stream is empty"),
    ([dataset((0, 1))], [], "the test stream is empty"),
    ([dataset((0, 1))], [dataset((0, 1))] * 2, "the stream has 1 tasks but the test stream 2"),
    ([dataset((0, 1)), 5], None, "dataset 1 of the stream: it is a int"),
    ([TensorDataset(torch.zeros(0, 2), torch.zeros(0))], None, "dataset 0 of the stream: the dataset is empty"),
    ([TensorDataset(torch.zeros(3, 2))], None, "item 0 of the dataset is not a pair"),
    ([dataset((0, 0))], None, "all examples have the class 0"),
    (
        [dataset((0, 1)), (np.zeros((4, 5)), [0, 1, 0, 1])],
        None,
        r"'task-1' has inputs of shape \(5,\), the first task \(3,\)",
    ),
    (
        [dataset((0, 1))],
        [(np.zeros((4, 5)), [0, 1, 0, 1])],
        r"'task-0' has test inputs of shape \(5,\), the first task \(3,\)",
    ),
    ([dataset((0, 1), 0)], [dataset((0, 1), 4)], "the test stream has a task labelled 4, the stream only 0"),
    (
        [Broken(dataset((0, 1)))],
        None,
        r"dataset 0 of the stream: item 7 of the dataset cannot be read \(OSError: the disk is full of holes\)",
    ),
    ([dataset((0, 1))], [dataset((0, 5))], "the test label 5 has no training examples"),
    ([(np.full((4, 2), np.nan), [0, 1, 0, 1])], None, "NaN or infinite values"),
    ([(np.zeros((4, 2)), [0, 1, 0])], None, "4 inputs but 3 targets"),
    ([(np.zeros((4, 2)), [0, 1, float("nan"), 0])], None, "label in row 2 is missing"),
    ([([["a"], ["b"]], [0, 1])], None, "are not numbers"),
]


@pytest.mark.parametrize(("stream", "test", "message"), BAD, ids=[message[:30] for *_, message in BAD])
def test_bad_streams(stream: Any, test: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        stream_benchmark(stream, test=test)


def test_data_frames_of_tasks_have_the_columns_of_the_first() -> None:
    pandas = pytest.importorskip("pandas")
    first = pandas.DataFrame({"a": range(20), "colour": ["red", "blue"] * 10, "kind": ["x", "y"] * 10})
    later = first[["kind", "colour", "a"]].assign(kind=["y", "z"] * 10)
    benchmark = stream_benchmark([(first, "kind"), (later, "kind")], standardise=False)
    assert benchmark.inputs["columns"] == [{"name": "a"}, {"name": "colour", "values": ["blue", "red"]}]
    assert [task.classes for task in benchmark] == [("x", "y"), ("y", "z")]
    assert {tuple(row) for task in benchmark for row in task.train.x[:, 1:].tolist()} == {(0, 1), (1, 0)}
    with pytest.raises(DataError, match="dataset 1 of the stream: the data frame has no column 'a'"):
        stream_benchmark([(first, "kind"), (later[["colour", "kind"]], "kind")])
    with pytest.raises(DataError, match=r"measurements or classes\? To predict numbers .*, use problem='regres"):
        stream_benchmark([(np.zeros((30, 2)), np.arange(30) / 7)])
