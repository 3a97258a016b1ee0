"""The two low-dimensional problems of [Henning2021], supplement, "Experimental Details", generated from a seed.

[Henning2021] Posterior Meta-Replay for Continual Learning, NeurIPS 2021.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from metareplay.benchmarks.base import Benchmark, Scenario, Task, TaskData
from metareplay.seeding import generator_for

REGRESSION_NOISE = 0.05
"""Standard deviation of the noise on regression-1d's training targets."""
REGRESSION_TRAIN_SAMPLES = 20
REGRESSION_TEST_SAMPLES = 100
DATA_SEED = 11
"""Seed of generated data: the first with no gap of 0.3 between inputs (or at the ends) of any regression domain."""

REGRESSION_DOMAINS: tuple[tuple[float, float], ...] = ((-4.0, -2.0), (-1.0, 1.0), (2.0, 4.0))
"""Inputs of task t are uniform between these bounds: p^(t)(X), sm:sec:exp:details:regression."""

MODES_RADIUS = 5.0
MODES_STD = 0.2
"""Standard deviation of each mode in each direction."""
MODES_COUNT = 6
MODES_PER_TASK = 2
MODES_TRAIN_SAMPLES = 10
"""Training samples per mode."""
MODES_TEST_SAMPLES = 100
"""Test samples per mode."""


def _cubic_left(x: Tensor) -> Tensor:
    return (x + 3) ** 3  # g^(1), sm:sec:exp:details:regression


def _parabola(x: Tensor) -> Tensor:
    return 2 * x**2 - 1  # g^(2), sm:sec:exp:details:regression


def _cubic_right(x: Tensor) -> Tensor:
    return (x - 3) ** 3  # g^(3), sm:sec:exp:details:regression


REGRESSION_FUNCTIONS: tuple[Callable[[Tensor], Tensor], ...] = (_cubic_left, _parabola, _cubic_right)
"""The noise-free target of each task of regression-1d."""


def mode_centres() -> Tensor:
    """The centres of the six modes of modes-2d, in the order of their classes: (6, 2)."""
    position = torch.arange(1, MODES_COUNT + 1, dtype=torch.float64)
    angle = (position - 0.5) / MODES_COUNT * 2 * math.pi  # alpha^(t), sm:sec:exp:details:gmm
    centres = MODES_RADIUS * torch.stack([angle.sin(), angle.cos()], dim=1)  # mu^(t), same section; (6,) -> (6, 2)
    return centres.float()


def regression_1d(seed: int = DATA_SEED) -> Benchmark:
    """Three polynomials on disjoint intervals, each with 20 noisy training samples and 100 noise-free test points."""
    tasks = [_polynomial_task(seed, index) for index in range(len(REGRESSION_FUNCTIONS))]
    return Benchmark(
        "regression-1d", "regression", Scenario.DOMAIN, (1,), len(tasks), tasks.__getitem__, truth=_polynomial
    )


def modes_2d(seed: int = DATA_SEED) -> Benchmark:
    """Six Gaussian modes on a circle; each of three tasks separates two neighbours; 10 training samples per mode."""
    tasks = [_modes_task(seed, index) for index in range(MODES_COUNT // MODES_PER_TASK)]
    return Benchmark("modes-2d", "classification", Scenario.CLASS, (2,), len(tasks), tasks.__getitem__)


def _polynomial(index: int, x: Tensor) -> Tensor:
    """The noise-free target of a task on its domain, NaN elsewhere: (N,) -> (N,)."""
    low, high = REGRESSION_DOMAINS[index]
    return torch.where((x >= low) & (x <= high), REGRESSION_FUNCTIONS[index](x), torch.nan)


def _polynomial_task(seed: int, index: int) -> Task:
    low, high = REGRESSION_DOMAINS[index]
    function = REGRESSION_FUNCTIONS[index]
    generator = generator_for(seed, "regression-1d", index, "train")
    x = low + (high - low) * torch.rand(REGRESSION_TRAIN_SAMPLES, 1, generator=generator)
    y = function(x) + REGRESSION_NOISE * torch.randn(REGRESSION_TRAIN_SAMPLES, 1, generator=generator)
    test_x = torch.linspace(low, high, REGRESSION_TEST_SAMPLES).unsqueeze(1)  # (100,) -> (100, 1)
    return Task(f"polynomial-{index + 1}", TaskData(x, y), TaskData(test_x, function(test_x)))


def _modes_task(seed: int, index: int) -> Task:
    classes = tuple(range(MODES_PER_TASK * index, MODES_PER_TASK * (index + 1)))
    train = _sample_modes(classes, MODES_TRAIN_SAMPLES, generator_for(seed, "modes-2d", index, "train"))
    test = _sample_modes(classes, MODES_TEST_SAMPLES, generator_for(seed, "modes-2d", index, "test"))
    return Task("modes-" + "-".join(str(label + 1) for label in classes), train, test, classes)


def _sample_modes(classes: tuple[int, ...], per_mode: int, generator: torch.Generator) -> TaskData:
    y = torch.arange(len(classes)).repeat_interleave(per_mode)  # (modes,) -> (modes * per_mode,)
    noise = torch.randn(len(y), 2, generator=generator)
    return TaskData(mode_centres()[list(classes)][y] + MODES_STD * noise, y)
