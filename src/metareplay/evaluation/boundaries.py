"""Detect where a new task begins by a threshold on loss or uncertainty [Henning2021, sm:sec:task:boundary:detection].

A detector that monitors the mean over a window of iterations, and pauses for a grace period after a boundary, makes no
error if its threshold lies below the signal at every boundary and above it everywhere else. The wider that range, the
less tuning it needs.
"""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from metareplay.errors import DataError
from metareplay.files import refuse_waiting

SIGNALS = "signals"
"""The folder of a run that holds the signals."""
NAMES = ("loss", "uncertainty")
WINDOW, GRACE = 10, 1000
"""Iterations that are averaged, and those after a boundary in which nothing is detected, as in the paper."""


class Thresholds(NamedTuple):
    """What bounds a threshold, and the range of the signal itself."""

    at_boundaries: float
    """The lowest value at a boundary: a higher threshold would miss it."""
    elsewhere: float
    """The highest value away from boundaries: a lower threshold would give a false alarm there."""
    lowest: float
    highest: float

    @property
    def viable_share(self) -> float:
        """Thresholds without error, in percent of the signal's range; negative where there is none."""
        return 100.0 * (self.at_boundaries - self.elsewhere) / max(self.highest - self.lowest, 1e-12)


def read_signals(run: Path) -> Tensor:
    """Loss and uncertainty of every iteration of a run's tasks: (T, I, 2)."""
    files = sorted((run / SIGNALS).glob("task-*.safetensors"))
    if not files:
        raise DataError(f"{run} holds no signals; run it with --set training.record_signals=true")
    try:
        for file in files:
            refuse_waiting(file)
        return torch.stack([load_file(file)["signals"] for file in files])  # (T, I, 2)
    except (SafetensorError, OSError, KeyError, RuntimeError) as error:
        raise DataError(f"the signals in {run / SIGNALS} are damaged ({error}); repeat the run") from error


def thresholds(signal: Tensor, *, window: int = WINDOW, grace: int = GRACE) -> Thresholds:
    """What bounds the threshold of one signal (T, I) over tasks and iterations; the first task has no boundary."""
    grace = grace_period(signal.shape[1], window=window, grace=grace)
    window = min(window, signal.shape[1])
    means = signal.double().unfold(1, window, 1).mean(-1)  # (T, I) -> (T, I - window + 1)
    boundaries = means[1:, 0]  # the first window of each later task
    if len(boundaries) == 0:
        raise DataError("a single task has no boundary; record the signals of two tasks or more")
    return Thresholds(float(boundaries.min()), float(means[:, grace:].max()), float(means.min()), float(means.max()))


def grace_period(iterations: int, *, window: int = WINDOW, grace: int = GRACE) -> int:
    """The first iterations of a task, in which nothing is detected; of a shorter task only the last window counts."""
    return min(grace, iterations - min(window, iterations))


def over_runs(runs: list[Thresholds]) -> Thresholds:
    """The thresholds that make no error in any of several runs."""
    return Thresholds(
        min(run.at_boundaries for run in runs),
        max(run.elsewhere for run in runs),
        min(run.lowest for run in runs),
        max(run.highest for run in runs),
    )


def boundary_figures(signals: Tensor) -> dict[str, dict[str, Any]] | None:
    """Both signals' thresholds as a run's results hold them; None for a single task."""
    if len(signals) < 2:
        return None
    by_name = {name: thresholds(signals[..., number]) for number, name in enumerate(NAMES)}
    return {name: {**bounds._asdict(), "viable_share": bounds.viable_share} for name, bounds in by_name.items()}
