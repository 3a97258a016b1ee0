"""Moments of features, and the map along which they follow a change of the network."""

import pytest
import torch
from torch import Generator, Tensor

from metareplay.inference.statistics.moments import RIDGE, AffineMap, Moments, MomentSums

FEATURES = 5


def features(rng: Generator, rows: int = 400) -> Tensor:
    mixing = torch.eye(FEATURES, dtype=torch.float64) + 0.3 * torch.randn(
        FEATURES, FEATURES, generator=rng, dtype=torch.float64
    )
    return torch.randn(rows, FEATURES, generator=rng, dtype=torch.float64) @ mixing + 30.0


def moments_of(x: Tensor, y: Tensor, sizes: list[int] | None = None, classes: int = 4) -> Moments:
    sums = MomentSums(classes)
    for part, labels in zip(x.split(sizes or len(x)), y.split(sizes or len(x)), strict=True):
        sums.add(part, labels)
    return sums.moments()


def test_streamed_moments_are_the_direct_ones(rng: Generator) -> None:
    x, y = features(rng, 100), torch.tensor([0, 1, 3]).repeat(34)[:100]
    x += 2.0 * y.unsqueeze(1)
    actual = moments_of(x, y, [1, 60, 39])
    means = torch.stack([x[y == label].mean(0) for label in (0, 1, 3)])  # class 2 has no examples
    torch.testing.assert_close(actual.mean, means)
    centred = torch.cat([x[y == label] - x[y == label].mean(0) for label in (0, 1, 3)])
    torch.testing.assert_close(actual.covariance, centred.T @ centred / 100, rtol=1e-9, atol=1e-9)
    assert actual.count == 100
    again = Moments.stored(actual.tensors("a"), "a")
    assert again.count == 100
    torch.testing.assert_close(again.mean, actual.mean, rtol=1e-6, atol=0)
    torch.testing.assert_close(again.covariance, actual.covariance, rtol=1e-6, atol=1e-7)
    assert torch.equal(again.covariance, again.covariance.T)


def test_an_affine_change_is_recovered(rng: Generator) -> None:
    """Exactly, but for the ridge: W minimises the squared error and n r |W - 1|^2, with r 1 % of the mean variance."""
    x, y = features(rng), torch.arange(400) % 3
    change = torch.eye(FEATURES, dtype=torch.float64) + 0.2 * torch.randn(
        FEATURES, FEATURES, generator=rng, dtype=torch.float64
    )
    moved = x @ change - 7.0
    drift = AffineMap.between(x, moved)
    sample = torch.cov(x.T, correction=0)
    ridge = RIDGE * sample.diagonal().mean() * torch.eye(FEATURES, dtype=torch.float64)
    identity = torch.eye(FEATURES, dtype=torch.float64)
    torch.testing.assert_close(drift.weights, torch.linalg.solve(sample + ridge, sample @ change + ridge))
    torch.testing.assert_close(x.mean(0) @ drift.weights + drift.shift, moved.mean(0))
    assert drift.unexplained < 1e-3
    assert drift.moved == pytest.approx(
        float((moved - x).square().sum() / (moved - moved.mean(0)).square().sum()), rel=1e-9
    )
    mapped, direct = moments_of(x, y).mapped(drift), moments_of(moved, y)
    torch.testing.assert_close(mapped.mean, direct.mean, rtol=0, atol=0.02)
    torch.testing.assert_close(mapped.covariance, direct.covariance, rtol=0, atol=0.02 * float(direct.covariance.max()))
    none = AffineMap.between(x, x)
    torch.testing.assert_close(none.weights, identity)
    assert none.moved == 0.0
    assert none.unexplained < 1e-20


def test_what_the_map_leaves_open_is_added_to_the_covariance(rng: Generator) -> None:
    x, y = features(rng, 5000), torch.arange(5000) % 2
    noise = torch.randn(5000, FEATURES, generator=rng, dtype=torch.float64) * torch.tensor([0.0, 0.0, 0.0, 0.5, 2.0])
    drift = AffineMap.between(x, x + noise)
    torch.testing.assert_close(drift.residual.diagonal(), torch.cov(noise.T).diagonal(), rtol=0.05, atol=1e-3)
    assert drift.unexplained == pytest.approx(
        float(drift.residual.trace() / torch.cov((x + noise).T, correction=0).trace()), rel=1e-6
    )
    direct = moments_of(x + noise, y).covariance
    mapped = moments_of(x, y).mapped(drift).covariance
    torch.testing.assert_close(mapped, direct, rtol=0, atol=0.05 * float(direct.max()))


def test_few_examples_move_little(rng: Generator) -> None:
    """With fewer examples than features the ridge decides: what was not seen to move stays."""
    x = torch.randn(3, 50, generator=rng, dtype=torch.float64)
    drift = AffineMap.between(x, x + torch.randn(3, 50, generator=rng, dtype=torch.float64))
    other = torch.randn(50, generator=rng, dtype=torch.float64)
    span = torch.linalg.qr((x - x.mean(0)).T).Q[:, :2]
    across = other - span @ (span.T @ other)  # orthogonal to all that was seen
    torch.testing.assert_close(across @ drift.weights, across)


def test_the_covariance_is_shrunk_by_the_number_of_examples(rng: Generator) -> None:
    x = features(rng, 1000)
    many, few = (moments_of(part, torch.zeros(len(part), dtype=torch.int64)) for part in (x, x[:4]))
    assert torch.linalg.eigvalsh(few.covariance)[0] < 1e-9  # singular
    assert torch.linalg.eigvalsh(few.shrunk())[0] > 0
    for moments in (many, few):
        assert float(moments.shrunk().trace()) == pytest.approx(float(moments.covariance.trace()))
    spread = [torch.linalg.cond(moments.shrunk()) for moments in (many, few)]
    assert spread[1] < spread[0]
