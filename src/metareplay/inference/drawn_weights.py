"""Weight samples that were drawn before: predictions use the same ones each time, so they need not be redrawn."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, final

import torch
from torch import Generator, Tensor

MOST_BYTES = 64 * 2**20
"""Of all samples that are kept; those of a task that would need more are redrawn each time."""

Key = tuple[int, ...]


@dataclass(eq=False)
class Drawn:
    """The samples of one task, drawn part by part as they are asked for."""

    theta: Tensor
    """What they were drawn from (P,): a posterior with another theta has other samples."""
    generator: Generator
    size: int
    """In bytes, once all are drawn."""
    parts: list[Tensor] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def part(self, number: int, draw: Callable[[Generator], Tensor]) -> Tensor:
        """One part (S, W), the same bits as when all are drawn in turn; it must not be modified."""
        with self.lock:
            if number == len(self.parts):
                self.parts.append(draw(self.generator))
            return self.parts[number]


@final
class DrawnWeights:
    """Keeps the samples of the tasks asked last, within a bound on memory; several threads may ask."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._kept: OrderedDict[Key, Drawn] = OrderedDict()
        self._lock = Lock()

    def of(self, key: Key, theta: Tensor, size: int, generator: Generator) -> Drawn | None:
        """The samples known by this key, if they were drawn from this theta, else an empty place for them.

        None if ``size`` bytes are too many. The generator is that of the first sample.
        """
        if size > self.most_bytes:
            return None
        with self._lock:
            drawn = self._kept.pop(key, None)
            if drawn is None or not torch.equal(drawn.theta, theta):
                drawn = Drawn(theta.detach().clone(), generator, size)
            self._kept[key] = drawn
            while sum(entry.size for entry in self._kept.values()) > self.most_bytes:
                self._kept.popitem(last=False)
            return drawn

    def __deepcopy__(self, memo: dict[int, Any]) -> "DrawnWeights":
        return DrawnWeights(self.most_bytes)
