"""NumPy archives: what they may hold, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metareplay.data.base import Examples
from metareplay.data.reading import read_examples
from metareplay.data.settings import DataSettings
from metareplay.errors import DataError

X, Y = np.arange(8.0).reshape(4, 2), np.array([3, 1, 3, 1])


def read(path: Path, **settings: Any) -> Examples:
    return read_examples(DataSettings(path=str(path), **settings))


def saved(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "data.npz", **arrays)
    return folder / "data.npz"


def test_inputs_labels_and_tasks(tmp_path: Path) -> None:
    examples = read(saved(tmp_path, X=X, y=Y, task=np.array(["b", "b", "a", "a"])))
    assert examples.x.tolist() == X.tolist()
    assert (examples.labels, examples.y.tolist()) == ((1, 3), [1, 0, 1, 0])
    assert examples.tasks == ("b", "a")  # in the order of appearance
    assert examples.where(2).endswith("data.npz, row 2")


def test_a_test_set_inside_or_in_another_file(tmp_path: Path) -> None:
    inside = read(saved(tmp_path, x_train=X, y_train=Y, x_test=X[:1], y_test=Y[:1]))
    np.savez(tmp_path / "test.npz", x=X[:1], y=Y[:1])
    outside = read(saved(tmp_path, x=X, y=Y), test_path=str(tmp_path / "test.npz"))
    for examples in (inside, outside):
        assert examples.test is not None
        assert examples.test.tolist() == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((4, 6, 5), (1, 6, 5)), ((4, 6, 5, 3), (3, 6, 5)), ((4, 3, 6, 5), (3, 6, 5)), ((4, 5), (5,))],
)
def test_pixels_come_with_the_channels_first(shape: tuple[int, ...], expected: tuple[int, ...], tmp_path: Path) -> None:
    examples = read(saved(tmp_path, x=np.zeros(shape, dtype=np.uint8), y=Y))
    assert tuple(examples.x.shape[1:]) == expected


def test_several_real_targets(tmp_path: Path) -> None:
    assert read(saved(tmp_path, x=X, y=X)).y.tolist() == X.tolist()


NAN = X.copy()
NAN[2, 1] = np.nan
BAD: list[tuple[dict[str, Any], str]] = [
    ({"x": X}, r"data\.npz has no x and y; the arrays must be called"),
    ({"x": X, "y": Y[:3]}, "different numbers of rows \\(4 in x, 3 in y\\)"),
    ({"x": X[:0], "y": Y[:0]}, "has no rows"),
    ({"x": NAN, "y": Y}, r"data\.npz: x has NaN or infinite values \(first in row 2"),
    ({"x": X, "y": np.array([1, 2, np.nan, 1])}, r"data\.npz, row 2 has no label"),
    ({"x": X.astype(str), "y": Y}, "x has values of type <U"),
    ({"x": X, "y": Y.astype(complex)}, "label has values of type complex128"),
    ({"x": X, "y": np.array(3)}, r"data\.npz: y is a single value"),
    ({"x": X[:, 0], "y": Y}, r"x has shape \(4,\)"),
    ({"x": X, "y": Y, "task": np.array([0.5] * 4)}, "task has values of type float64"),
    ({"x": X, "y": Y, "x_test": X}, "has no x_test and y_test"),
    ({"x": X, "y": Y, "x_test": X[:, :1], "y_test": Y}, "they must match"),
    ({"x": X, "y": Y, "x_test": X, "y_test": Y.astype(str)}, "of different kinds"),
    ({"x": X, "y": np.array([{}, 1, 2, 3], dtype=object)}, "holds pickled objects, which can run code"),
]


@pytest.mark.parametrize(("arrays", "message"), BAD, ids=[message[:25] for _, message in BAD])
def test_bad_arrays(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read(saved(tmp_path, **arrays))


def test_a_broken_archive_and_a_bare_array(tmp_path: Path) -> None:
    path = saved(tmp_path, x=X, y=Y)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"data\.npz cannot be read"):
        read(path)
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(DataError, match=r"x\.npy is one array without labels"):
        read(tmp_path / "x.npy")


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_labels_that_floats_cannot_tell_apart_are_refused(kind: type, tmp_path: Path) -> None:
    y = np.array([2**53 + 1, 2**53 + 2, 2**53 + 4, 2**53 + 8]).astype(kind)
    np.savez(tmp_path / "a.npz", x=np.eye(4), y=y)
    with pytest.raises(DataError, match=r"row 0: the .* is an integer beyond 2\^53.*write it as text"):
        read_examples(DataSettings(path=str(tmp_path / "a.npz")))


@pytest.mark.parametrize("name", ["x", "y"])
def test_complex_numbers_are_refused(name: str, tmp_path: Path) -> None:
    arrays = {"x": np.eye(4), "y": np.arange(4.0)}
    np.savez(tmp_path / "a.npz", **{**arrays, name: arrays[name] + 1j})
    with pytest.raises(DataError, match="complex"):
        read_examples(DataSettings(path=str(tmp_path / "a.npz")))
