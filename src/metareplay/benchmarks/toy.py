"""The two low-dimensional problems of [Henning2021], supplement, "Experimental Details", generated from a seed.

The seed ``PUBLISHED_SEED`` gives the data of the paper's own runs; any other draws its own.

[Henning2021] Posterior Meta-Replay for Continual Learning, NeurIPS 2021.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from metareplay.benchmarks.base import Benchmark, Scenario, Task, TaskData
from metareplay.seeding import generator_for

REGRESSION_NOISE = 0.05
"""Standard deviation of the noise on regression-1d's training targets."""
REGRESSION_TRAIN_SAMPLES = 20
REGRESSION_TEST_SAMPLES = 100
PUBLISHED_TEST_SAMPLES = 50
"""Test points of each task in the paper's own runs."""
DATA_SEED = 11
"""Seed of generated data: the first with no gap of 0.3 between inputs (or at the ends) of any regression domain."""
PUBLISHED_SEED = 42
"""The default of the toy problems: the draws of the paper's own runs, by NumPy's legacy generator with this seed."""

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


def _falling_cubic(x: Tensor) -> Tensor:
    return -((x - 3) ** 3)  # g^(3) of the published runs; the paper prints the other sign


REGRESSION_FUNCTIONS: tuple[Callable[[Tensor], Tensor], ...] = (_cubic_left, _parabola, _cubic_right)
"""The noise-free target of each task of regression-1d, as printed."""
PUBLISHED_FUNCTIONS: tuple[Callable[[Tensor], Tensor], ...] = (_cubic_left, _parabola, _falling_cubic)
"""The same, of the paper's own runs."""


def regression_functions(seed: int) -> tuple[Callable[[Tensor], Tensor], ...]:
    """The noise-free target of each task, by the data seed."""
    return PUBLISHED_FUNCTIONS if seed == PUBLISHED_SEED else REGRESSION_FUNCTIONS


def mode_centres() -> Tensor:
    """The centres of the six modes of modes-2d, in the order of their classes: (6, 2)."""
    position = torch.arange(1, MODES_COUNT + 1, dtype=torch.float64)
    angle = (position - 0.5) / MODES_COUNT * 2 * math.pi  # alpha^(t), sm:sec:exp:details:gmm
    centres = MODES_RADIUS * torch.stack([angle.sin(), angle.cos()], dim=1)  # mu^(t), same section; (6,) -> (6, 2)
    return centres.float()


def regression_1d(seed: int = PUBLISHED_SEED) -> Benchmark:
    """Three polynomials on disjoint intervals, each with 20 noisy training samples and noise-free test points."""
    functions = regression_functions(seed)
    tasks = [_polynomial_task(seed, index) for index in range(len(functions))]

    def truth(index: int, x: Tensor) -> Tensor:
        """The noise-free target of a task on its domain, NaN elsewhere: (N,) -> (N,)."""
        low, high = REGRESSION_DOMAINS[index]
        return torch.where((x >= low) & (x <= high), functions[index](x), torch.nan)

    return Benchmark("regression-1d", "regression", Scenario.DOMAIN, (1,), len(tasks), tasks.__getitem__, truth=truth)


def modes_2d(seed: int = PUBLISHED_SEED) -> Benchmark:
    """Six Gaussian modes on a circle; each of three tasks separates two neighbours; 10 training samples per mode."""
    tasks = [_modes_task(seed, index) for index in range(MODES_COUNT // MODES_PER_TASK)]
    return Benchmark("modes-2d", "classification", Scenario.CLASS, (2,), len(tasks), tasks.__getitem__)


def _polynomial_task(seed: int, index: int) -> Task:
    low, high = REGRESSION_DOMAINS[index]
    function, published = regression_functions(seed)[index], seed == PUBLISHED_SEED
    position, noise = _published_draws() if published else _own_draws(seed, index)  # (20, 1) each
    x = low + (high - low) * position
    y = function(x) + REGRESSION_NOISE * noise
    points = PUBLISHED_TEST_SAMPLES if published else REGRESSION_TEST_SAMPLES
    test_x = torch.linspace(low, high, points).unsqueeze(1)  # (n,) -> (n, 1)
    return Task(f"polynomial-{index + 1}", TaskData(x.float(), y.float()), TaskData(test_x, function(test_x)))


def _own_draws(seed: int, index: int) -> tuple[Tensor, Tensor]:
    generator, size = generator_for(seed, "regression-1d", index, "train"), (REGRESSION_TRAIN_SAMPLES, 1)
    return torch.rand(*size, generator=generator), torch.randn(*size, generator=generator)


def _published_draws() -> tuple[Tensor, Tensor]:
    """The generator is restarted for every task, so that all share relative positions and noise."""
    generator, size = np.random.RandomState(PUBLISHED_SEED), (REGRESSION_TRAIN_SAMPLES, 1)
    return torch.from_numpy(generator.random_sample(size)), torch.from_numpy(generator.standard_normal(size))


def _modes_task(seed: int, index: int) -> Task:
    classes = tuple(range(MODES_PER_TASK * index, MODES_PER_TASK * (index + 1)))
    if seed == PUBLISHED_SEED:
        train, test = _published_modes(classes)
    else:
        train = _sample_modes(classes, MODES_TRAIN_SAMPLES, generator_for(seed, "modes-2d", index, "train"))
        test = _sample_modes(classes, MODES_TEST_SAMPLES, generator_for(seed, "modes-2d", index, "test"))
    return Task("modes-" + "-".join(str(label + 1) for label in classes), train, test, classes)


def _sample_modes(classes: tuple[int, ...], per_mode: int, generator: torch.Generator) -> TaskData:
    return _around(classes, torch.randn(per_mode * len(classes), 2, generator=generator))


def _published_modes(classes: tuple[int, ...]) -> tuple[TaskData, TaskData]:
    """Each mode has its own generator: training draws, then test draws."""
    generators = [np.random.RandomState(PUBLISHED_SEED + mode) for mode in classes]
    noise = (
        torch.from_numpy(np.concatenate([generator.standard_normal((size, 2)) for generator in generators]))
        for size in (MODES_TRAIN_SAMPLES, MODES_TEST_SAMPLES)
    )
    train, test = (_around(classes, drawn.float()) for drawn in noise)
    return train, test


def _around(classes: tuple[int, ...], noise: Tensor) -> TaskData:
    """Equally many examples of each mode, in the order of the modes: (N, 2) -> (N, 2), (N,)."""
    y = torch.arange(len(classes)).repeat_interleave(len(noise) // len(classes))  # (modes,) -> (N,)
    return TaskData(mode_centres()[list(classes)][y] + MODES_STD * noise, y)
