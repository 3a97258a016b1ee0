"""A user's data in every form, and the message for what is refused."""

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from metareplay.arrays import bytes_of, inputs_and_targets, plain_labels, to_inputs, to_real_targets
from metareplay.errors import DataError

ROWS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


class Pairs(Dataset[Any]):
    """A map-style dataset of the given items."""

    def __init__(self, *items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Stream(IterableDataset[Any]):
    """A dataset without a length."""

    def __iter__(self) -> Iterator[Any]:
        return iter([])


KINDS: dict[str, Any] = {
    "list": ROWS,
    "tuple": tuple(map(tuple, ROWS)),
    "float64": np.array(ROWS),
    "int": np.array(ROWS, dtype=np.int16),
    "uint8 tensor": torch.tensor(ROWS).to(torch.uint8),
    "float64 tensor": torch.tensor(ROWS, dtype=torch.float64),
    "with gradient": torch.tensor(ROWS, requires_grad=True),
    "turned": np.asfortranarray(np.array(ROWS)),
    "list of arrays": [np.array(row) for row in ROWS],
    "read-only": np.broadcast_to(np.array(ROWS), (3, 2)),
}


@pytest.mark.parametrize("x", KINDS.values(), ids=KINDS)
def test_inputs_of_every_kind(x: Any) -> None:
    actual = to_inputs(x, None)
    assert actual.dtype == torch.float32
    assert not actual.requires_grad
    assert actual.tolist() == ROWS


def test_inputs_are_copied() -> None:
    x = np.array(ROWS, dtype=np.float32)
    actual = to_inputs(x, (2,))
    x[:] = 0
    assert actual.tolist() == ROWS


BAD_INPUTS: list[tuple[Any, tuple[int, ...] | None, str]] = [
    ([1.0, 2.0], None, r"shape \(2,\).*reshape\(-1, 1\)"),
    (5.0, None, r"shape \(\)"),
    (np.zeros((0, 3)), None, "no inputs"),
    (np.zeros((4, 3)), (2,), r"shape \(3,\) per example, but this model was trained on inputs of shape \(2,\)"),
    (np.zeros((4, 2, 2)), (4,), r"trained on inputs of shape \(4,\)"),
    ([[1.0, float("nan")]], None, r"NaN or infinite values \(first in row 0, column 1\)"),
    ([[1.0, 1.0], [1.0, float("inf")]], None, r"first in row 1"),
    (torch.tensor([[1.0], [2.0], [float("-inf")]]), None, r"first in row 2"),
    ([["a", "b"]], None, "are not numbers"),
    ([[1.0], [1.0, 2.0]], None, "are not numbers"),
    ([[object()]], None, "are not numbers"),
    ({"a": 1}, None, "are not numbers"),
]


@pytest.mark.parametrize(("x", "shape", "message"), BAD_INPUTS)
def test_bad_inputs(x: Any, shape: tuple[int, ...] | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        to_inputs(x, shape)


DATASETS: dict[str, Dataset[Any]] = {
    "tensors": TensorDataset(torch.tensor(ROWS), torch.tensor([0, 1, 0])),
    "arrays": Pairs(*((np.array(row), label) for row, label in zip(ROWS, [0, 1, 0], strict=True))),
    "lists": Pairs(*([row, np.int64(label)] for row, label in zip(ROWS, [0, 1, 0], strict=True))),
    "more than pairs": Pairs(*((row, label, "weight") for row, label in zip(ROWS, [0, 1, 0], strict=True))),
}


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=DATASETS)
def test_datasets_of_every_kind(dataset: Dataset[Any]) -> None:
    x, y = inputs_and_targets(dataset, None, (2,))
    assert x.tolist() == ROWS
    assert plain_labels(y) == [0, 1, 0]
    assert to_real_targets(y).tolist() == [[0.0], [1.0], [0.0]]


BAD_DATASETS: list[tuple[Dataset[Any], str]] = [
    (Pairs(), "the dataset is empty"),
    (Pairs(torch.zeros(2)), r"must be \(input, target\)"),
    (Pairs((torch.zeros(2),)), r"must be \(input, target\)"),
    (Pairs((torch.zeros(2), 0), (torch.zeros(3), 1)), r"different shapes \(\(2,\), \(3,\)\)"),
    (Stream(), "the dataset has no length; give a map-style dataset"),
]


@pytest.mark.parametrize(("dataset", "message"), BAD_DATASETS)
def test_bad_datasets(dataset: Dataset[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        inputs_and_targets(dataset, None, None)


def test_a_dataset_brings_its_own_targets() -> None:
    with pytest.raises(DataError, match="leave y out"):
        inputs_and_targets(DATASETS["tensors"], [1, 2, 3], None)


def test_arrays_need_targets() -> None:
    with pytest.raises(DataError, match="targets are missing"):
        inputs_and_targets(ROWS, None, None)


LABELS: list[tuple[Any, list[Hashable]]] = [
    (["a", "b"], ["a", "b"]),
    (np.array(["a", "b"]), ["a", "b"]),
    (np.array([1, 2], dtype=np.int8), [1, 2]),
    (np.array([[1], [2]]), [1, 2]),
    (torch.tensor([True, False]), [True, False]),
    ([np.float64(1.5), torch.tensor(2.5)], [1.5, 2.5]),
    ([("a", 1), (None,), 3], [("a", 1), (None,), 3]),
    (np.array([("a", 1), "b"], dtype=object), [("a", 1), "b"]),
    (range(3), [0, 1, 2]),
]


@pytest.mark.parametrize(("y", "expected"), LABELS)
def test_labels_become_plain_values(y: Any, expected: list[Hashable]) -> None:
    actual = plain_labels(y)
    assert actual == expected
    assert [type(label) for label in actual] == [type(label) for label in expected]


BAD_LABELS: list[tuple[Any, str]] = [
    ([[1], [2]], r"the label \[1\] in row 0 is not hashable; use strings, numbers or tuples"),
    (["a", {"b": 1}], "in row 1 is not hashable"),
    (np.eye(2), r"labels have shape \(2, 2\); give one label per example"),
    (torch.zeros(2, 1, 1), r"labels have shape \(2, 1, 1\)"),
    ([1.0, float("nan")], r"the label in row 1 is missing \(NaN\)"),
    (np.array([np.nan, 1.0]), r"the label in row 0 is missing"),
    (["a", "b", None], r"the label in row 2 is missing \(None\); every example needs a label"),
    (np.array([0, None], dtype=object), r"the label in row 1 is missing \(None\)"),
]


@pytest.mark.parametrize(("y", "message"), BAD_LABELS)
def test_bad_labels(y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        plain_labels(y)


TARGETS: list[Any] = [[1, 2, 3], np.array([1.0, 2.0, 3.0]), torch.tensor([[1], [2], [3]]), [[1.0], [2.0], [3.0]]]


@pytest.mark.parametrize("y", TARGETS)
def test_real_targets_of_every_kind(y: Any) -> None:
    actual: Tensor = to_real_targets(y)
    assert actual.dtype == torch.float32
    assert actual.tolist() == [[1.0], [2.0], [3.0]]


def test_several_real_targets_keep_their_columns() -> None:
    assert to_real_targets(ROWS).tolist() == ROWS


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a"], "are not numbers"),
        ([[1.0], [1.0, 2.0]], "are not numbers"),
        (np.zeros((2, 1, 1)), r"targets have shape \(2, 1, 1\)"),
        (3.0, r"targets have shape \(\)"),
        ([1.0, float("nan")], "NaN or infinite"),
        ([1.0, None], r"a missing value, None \(row 1, column 0\)"),
    ],
)
def test_bad_real_targets(y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        to_real_targets(y)


def test_bytes_of_a_single_number_with_an_odd_stride() -> None:
    number = torch.tensor([1.5, 2.0])[::2]
    assert number.stride() == (2,)
    assert bytes(bytes_of(number)) == bytes(bytes_of(torch.tensor([1.5])))
