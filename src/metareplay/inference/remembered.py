"""What was computed for inputs that are asked about several times, as a run's test inputs are at its end."""

from hashlib import sha256
from typing import Any, NamedTuple

from torch import Tensor

from metareplay.arrays import bytes_of

MOST = 2**25
"""The most numbers that are kept."""


class _Result(NamedTuple):
    value: Any
    numbers: int


class Remembered:
    """Results by the content of the inputs, within a bound on memory; for a single thread, while no model changes."""

    def __init__(self, most: int = MOST) -> None:
        self.most, self.held = most, 0
        self._results: dict[tuple[object, ...], _Result] = {}

    @staticmethod
    def mark(x: Tensor) -> str:
        """Equal inputs have the same mark: a benchmark may make its test data anew each time."""
        content = bytes_of(x)
        return sha256(f"{x.dtype}{tuple(x.shape)}".encode() + sha256(content).digest()).hexdigest()

    def get(self, *key: object) -> Any:
        """What was put there; None if nothing was, or if there was no room."""
        result = self._results.get(key)
        return None if result is None else result.value

    def put(self, *key: object, value: object, numbers: int) -> None:
        """Keep a result of so many numbers, in place of what was there, if there is room."""
        self.take(*key)
        if self.held + numbers <= self.most:
            self._results[key] = _Result(value, numbers)
            self.held += numbers

    def take(self, *key: object) -> Any:
        """What was put there, which is no longer kept."""
        result = self._results.pop(key, None)
        if result is None:
            return None
        self.held -= result.numbers
        return result.value
