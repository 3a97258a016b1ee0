"""The facts of the supplement's "Experimental Details", checked on the generated data."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from metareplay.benchmarks.base import Benchmark, Scenario
from metareplay.benchmarks.toy import (
    PUBLISHED_FUNCTIONS,
    PUBLISHED_SEED,
    REGRESSION_DOMAINS,
    REGRESSION_FUNCTIONS,
    mode_centres,
    modes_2d,
    regression_1d,
)

SEEDS = [seed for seed in range(61) if seed != PUBLISHED_SEED]


def test_regression_shapes() -> None:
    benchmark = regression_1d(0)
    assert (benchmark.problem, benchmark.scenario, benchmark.input_shape, len(benchmark)) == (
        "regression",
        Scenario.DOMAIN,
        (1,),
        3,
    )
    for task in benchmark:
        assert task.train.x.shape == task.train.y.shape == (20, 1)
        assert task.test.x.shape == task.test.y.shape == (100, 1)
        assert {part.dtype for split in (task.train, task.test) for part in split} == {torch.float32}
        assert task.classes == ()


@pytest.mark.parametrize(
    ("index", "points"),
    [
        (0, {-4.0: -1.0, -3.0: 0.0, -2.0: 1.0, -2.5: 0.125}),
        (1, {-1.0: 1.0, 0.0: -1.0, 0.5: -0.5}),
        (2, {2.0: -1.0, 3.0: 0.0, 3.5: 0.125}),
    ],
)
def test_the_ground_truth_is_the_papers(index: int, points: dict[float, float]) -> None:
    x, y = torch.tensor(list(points)), torch.tensor(list(points.values()))
    truth = regression_1d(0)[index:].truth  # of the tasks that are left
    assert truth is not None
    assert torch.equal(truth(0, x), y)
    assert truth(0, torch.tensor([-9.0, 9.0])).isnan().all()  # outside its domain


def test_regression_test_points_are_equidistant_and_without_noise() -> None:
    for task, (low, high), function in zip(regression_1d(0), REGRESSION_DOMAINS, REGRESSION_FUNCTIONS, strict=True):
        assert (task.test.x[0].item(), task.test.x[-1].item()) == (low, high)
        torch.testing.assert_close(task.test.x.diff(dim=0), torch.full((99, 1), (high - low) / 99), atol=1e-5, rtol=0)
        assert torch.equal(task.test.y, function(task.test.x))


@pytest.mark.parametrize("index", range(3))
def test_regression_noise_has_the_papers_deviation_and_inputs_are_uniform(index: int) -> None:
    assert REGRESSION_DOMAINS == ((-4, -2), (-1, 1), (2, 4))
    splits = [regression_1d(seed)[index].train for seed in SEEDS]
    x, y = torch.cat([split.x for split in splits]), torch.cat([split.y for split in splits])
    noise = y - REGRESSION_FUNCTIONS[index](x)
    error = 1 / math.sqrt(len(x))
    assert abs(noise.mean()) < 4 * 0.05 * error
    assert abs(noise.std() / 0.05 - 1) < 4 * error / math.sqrt(2)
    assert noise.abs().max() < 0.05 * 6
    position = (x - REGRESSION_DOMAINS[index][0]) / 2  # to [0, 1]
    assert 0 <= position.min() < 0.01
    assert 0.99 < position.max() <= 1
    assert abs(position.mean() - 0.5) < 4 * error / math.sqrt(12)
    assert abs(torch.corrcoef(torch.cat([x, noise], dim=1).T)[0, 1]) < 4 * error


def test_modes_shapes_and_classes() -> None:
    benchmark = modes_2d(0)
    assert (benchmark.problem, benchmark.scenario, benchmark.input_shape, len(benchmark)) == (
        "classification",
        Scenario.CLASS,
        (2,),
        3,
    )
    assert [task.classes for task in benchmark] == [(0, 1), (2, 3), (4, 5)]
    for task in benchmark:
        assert (task.train.x.shape, task.test.x.shape) == ((20, 2), (200, 2))
        assert (task.train.x.dtype, task.train.y.dtype) == (torch.float32, torch.int64)
        assert task.train.y.bincount().tolist() == [10, 10]
        assert task.test.y.bincount().tolist() == [100, 100]


def test_mode_centres_lie_where_the_paper_puts_them() -> None:
    half = 5 * math.sqrt(3) / 2  # angles of 30, 90, 150, 210, 270 and 330 degrees, clockwise from the top
    expected = [[2.5, half], [5, 0], [2.5, -half], [-2.5, -half], [-5, 0], [-2.5, half]]
    torch.testing.assert_close(mode_centres(), torch.tensor(expected))


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("mode", range(6))
def test_modes_have_the_papers_centres_and_deviation(mode: int, part: str) -> None:
    splits = [getattr(modes_2d(seed)[mode // 2], part) for seed in SEEDS]
    x = torch.cat([split.x[split.y == mode % 2] for split in splits])
    error = 1 / math.sqrt(len(x))
    assert (x.mean(0) - mode_centres()[mode]).abs().max() < 4 * 0.2 * error
    assert (x.std(0) / 0.2 - 1).abs().max() < 4 * error / math.sqrt(2)
    assert abs(torch.corrcoef(x.T)[0, 1]) < 4 * error


@pytest.mark.parametrize("build", [regression_1d, modes_2d])
def test_the_seed_decides_the_training_data(build: Callable[[int], Benchmark]) -> None:
    for first, again, other in zip(build(1), build(1), build(2), strict=True):
        assert torch.equal(first.train.x, again.train.x)
        assert torch.equal(first.train.y, again.train.y)
        assert torch.equal(first.test.x, again.test.x)
        assert not torch.equal(first.train.x, other.train.x)


@pytest.mark.parametrize("build", [regression_1d, modes_2d])
def test_the_global_random_state_is_left_alone(build: Callable[[int], Benchmark]) -> None:
    before = torch.get_rng_state()
    build(0)
    assert torch.equal(torch.get_rng_state(), before)


def test_tasks_and_splits_do_not_share_their_noise() -> None:
    noise = [
        (split.x - mode_centres()[list(task.classes)][split.y])[:20]
        for task in modes_2d(0)
        for split in (task.train, task.test)
    ]
    assert all(not torch.allclose(a, b, atol=1e-3) for i, a in enumerate(noise) for b in noise[:i])


def test_the_default_is_the_draw_of_the_published_runs() -> None:
    """NumPy's legacy generator, started anew for every task; the third function falls; 50 test points."""
    drawn = np.random.RandomState(42)
    position, noise = drawn.uniform(size=(20, 1)), drawn.normal(0, 0.05, size=(20, 1))
    for task, (low, high), function in zip(regression_1d(), REGRESSION_DOMAINS, PUBLISHED_FUNCTIONS, strict=True):
        x = torch.from_numpy(low + (high - low) * position)
        torch.testing.assert_close(task.train.x, x.float())
        torch.testing.assert_close(task.train.y, (function(x) + torch.from_numpy(noise)).float())
        assert task.test.x.shape == (50, 1)
    assert float(PUBLISHED_FUNCTIONS[2](torch.tensor(4.0))) == -1.0


def test_each_mode_of_the_published_runs_has_a_generator_of_its_own() -> None:
    for task in modes_2d():
        for place, mode in enumerate(task.classes):
            drawn = np.random.RandomState(42 + int(str(mode)))
            for split, size in ((task.train, 10), (task.test, 100)):
                expected = mode_centres()[int(str(mode))] + 0.2 * torch.from_numpy(drawn.standard_normal((size, 2)))
                torch.testing.assert_close(split.x[split.y == place], expected.float())


def test_other_seeds_draw_as_they_always_did() -> None:
    """So that results of earlier versions can be repeated with their data seed, 11."""
    assert regression_1d(11)[0].train.x[:3, 0].tolist() == pytest.approx([-3.9145, -2.4829, -2.2072], abs=1e-4)
    assert len(regression_1d(11)[0].test.x) == 100
