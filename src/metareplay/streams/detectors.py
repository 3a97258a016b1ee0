"""Detectors of change: they see a signal in [0, 1], example by example, and say when it has risen."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, final

import torch
from torch import Tensor

from metareplay.errors import ConfigError
from metareplay.streams.settings import StreamSettings

LEAST_STD = 0.05
"""The smallest standard deviation of a signal: held-out examples may all be alike."""


class Reference(NamedTuple):
    """What a signal is like on a task's own examples that were not learned."""

    mean: float
    std: float

    @classmethod
    def of(cls, values: Tensor) -> "Reference":
        """From the values of held-out examples (N,), on the safe side: few examples say little.

        One unlucky example is added, and the mean is the highest within two standard errors.
        """
        values = torch.cat([values.double(), torch.ones(1, dtype=torch.float64)])  # (N,) -> (N + 1,)
        std = max(float(values.std(correction=0)), LEAST_STD)
        return cls(float(values.mean()) + 2 * std / len(values) ** 0.5, std)

    def highest_mean(self, count: int, errors: float) -> float:
        """The highest mean of this many examples of the task, by this many standard errors."""
        return self.mean + errors * self.std / count**0.5


class Detector(Protocol):
    """Notices that a signal has risen."""

    def update(self, value: float) -> bool:
        """See one more value; whether the signal has risen."""
        ...


@final
class WindowDetector:
    """The mean over a window exceeds a threshold [Henning2021, sm:sec:task:boundary:detection]."""

    def __init__(self, reference: Reference, settings: StreamSettings) -> None:
        self.values: deque[float] = deque(maxlen=settings.window)
        self.threshold = reference.highest_mean(settings.window, settings.threshold)

    def update(self, value: float) -> bool:
        self.values.append(value)
        full = len(self.values) == self.values.maxlen
        return full and sum(self.values) / len(self.values) > self.threshold


@final
class AdwinDetector:
    """River's ADWIN: two parts of an adaptive window have different means, and the later one is higher."""

    def __init__(self, reference: Reference, settings: StreamSettings) -> None:
        try:
            from river.drift import ADWIN
        except ImportError as error:
            raise ConfigError(
                'stream.detector=adwin needs river; install it with: pip install "metareplay[stream]", or choose window'
            ) from error
        self.adwin = ADWIN(delta=settings.delta, clock=1, min_window_length=5, grace_period=settings.window)
        for _ in range(settings.window):  # it begins with what the task's own examples are like
            self.adwin.update(reference.mean)

    def update(self, value: float) -> bool:
        before = self.adwin.estimation
        self.adwin.update(value)
        return bool(self.adwin.drift_detected and self.adwin.estimation > before)


DETECTORS: Mapping[str, Callable[[Reference, StreamSettings], Detector]] = {
    "window": WindowDetector,
    "adwin": AdwinDetector,
}


def change_point(values: Tensor, reference: Reference) -> int:
    """Where in the recent values (n,) a change most likely began: the start of the suffix that exceeds most."""
    excess = values.double() - (reference.mean + reference.std)
    suffixes = excess.flip(0).cumsum(0).flip(0)  # the sum from each value to the last (n,)
    return int(suffixes.argmax())
