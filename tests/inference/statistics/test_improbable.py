"""Unknown rows of few columns: thresholds in nats, alone and among tasks that overlap."""

import pytest
import torch
from torch import Generator, Tensor

from metareplay import ContinualClassifier, ContinualRegressor
from metareplay.inference.statistics.improbable import NATS, nats, strange_among, strange_to, widened_nats
from metareplay.inference.statistics.unknown import threshold


def costs_of(x: Tensor, centres: list[float]) -> Tensor:
    """-log p of rows (N, F) under Gaussians around (c, ..., c), up to a constant: (T, N)."""
    return torch.stack([0.5 * (x - centre).square().sum(1) for centre in centres])


def rows(rng: Generator, count: int, features: int = 4) -> Tensor:
    return torch.randn(count, features, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("count", [20, 29, 60, 400])
def test_a_threshold_is_exceeded_as_often_as_stated(count: int, rng: Generator) -> None:
    """Of 29 values the largest alone would be exceeded by 3.3 %."""
    shares = []
    for _ in range(400):
        values = torch.randn(count, generator=rng, dtype=torch.float64)
        found = threshold(values, 0.05)
        shares.append(0.5 * float(torch.special.erfc(found / 2**0.5)))
    assert sum(shares) / len(shares) == pytest.approx(0.05, abs=0.005)


def test_thresholds_of_very_few_values() -> None:
    assert float(threshold(torch.tensor([2.0, 1.0]), 0.05)) == 2.0
    assert float(threshold(torch.tensor([3.0]), 0.5)) == 3.0
    assert float(threshold(torch.zeros(0), 0.05)) == torch.inf
    assert float(threshold(torch.arange(1.0, 20.0), 0.5)) == 10.0


@pytest.mark.parametrize("count", [40, 150, 1000])
@pytest.mark.parametrize("centres", [[0.0], [0.0, 0.0, 0.0], [0.0, 1.0], [0.0, 50.0]])
def test_own_rows_are_rejected_as_often_as_stated(count: int, centres: list[float], rng: Generator) -> None:
    """Of the last task, alone and among others, which may be the same, overlap or be far away."""
    alone, among = [], []
    for _ in range(40):
        stored: list[dict[str, Tensor]] = []
        for task, centre in enumerate(centres):
            stored.append(nats(costs_of(rows(rng, count) + centre, centres[: task + 1]), stored, 0.05))
        new = costs_of(rows(rng, 1000) + centres[-1], centres)
        alone.append(float((strange_to(new[-1], stored[-1], 4) > 1).double().mean()))
        among.append(float((strange_among(new, stored, 4) > 1).double().mean()))
    assert sum(alone) / len(alone) == pytest.approx(0.05, abs=0.012)
    assert 0.025 < sum(among) / len(among) < 0.07
    assert float(stored[-1][NATS][1]) <= float(stored[-1][NATS][0])


def test_a_row_is_compared_with_the_tasks_it_may_belong_to(rng: Generator) -> None:
    """The middle of the second task is far outside the first."""
    x = rows(rng, 500)
    stored = [nats(costs_of(x, [0.0]), [], 0.05)]
    stored.append(nats(costs_of(x + 50, [0.0, 50.0]), stored, 0.05))
    for point, strange in ((0.0, False), (50.0, False), (25.0, True), (100.0, True)):
        costs = costs_of(torch.full((1, 4), point, dtype=torch.float64), [0.0, 50.0])
        assert bool(strange_among(costs, stored, 4) > 1) == strange


def test_strangeness_grows_with_every_nat_and_is_bounded(rng: Generator) -> None:
    stored = nats(costs_of(rows(rng, 300), [0.0]), [], 0.05)
    strange = strange_to(torch.tensor([0.0, 1.0, 8.0, 20.0, 1e30], dtype=torch.float64), stored, 4)
    assert (strange.diff() > 0).all()
    assert float(strange[0]) > 0
    assert float(strange[-1]) == 1000
    at = strange_to(stored[NATS][:1], stored, 4)
    assert float(at) == 1.0


def test_what_was_known_stays_known_when_a_task_gets_more_rows(rng: Generator) -> None:
    old = nats(costs_of(rows(rng, 200), [0.0]), [], 0.05)[NATS]
    known = torch.linspace(0, float(old[1]), 50, dtype=torch.float64)
    for share in (0.1, 0.9):
        wide = widened_nats(old, rows(rng, 100).square().sum(1), share, 0.05)[NATS]
        worst = known - torch.log(torch.tensor(1 - share))  # where nothing of the new rows is near
        assert (worst <= wide[1] + 1e-9).all()


def test_tasks_stored_by_earlier_versions_are_judged_as_they_were(rng: Generator) -> None:
    model = ContinualClassifier(settings={"training.iterations": 20, "inference.samples": 2}, seed=0)
    x = rows(rng, 120).numpy()
    for name in ("first", "second"):
        model.learn_task(x, (x[:, 0] > 0).astype(int), name=name)
        x = x + 9
    keeper = model.learner.predictor.keeper
    before = {"unknown.middle": torch.zeros(4), "unknown.unit": torch.ones(4), "unknown.threshold": torch.tensor(7.0)}
    first, second = keeper.stored()
    old = {name: value for name, value in first.items() if name != NATS} | {k: v.double() for k, v in before.items()}
    keeper.store.put("statistics", [old, second])
    both = torch.from_numpy(rows(rng, 50).numpy()).float()
    answer = model.predict_full(torch.cat([both, both + 9]).numpy())
    assert answer.known is not None
    assert answer.known[50:].mean() > 0.8
    assert model.predict_full(both.numpy(), "first").known is not None


def test_rows_far_away_are_unknown_and_own_ones_known(rng: Generator) -> None:
    """Classes and targets; noisy labels at the boundary between classes make no row strange."""
    x = rows(rng, 240, 3)
    y = ((x[:, 0] + 0.5 * rows(rng, 240, 1)[:, 0]) > 0).long()
    few = {"training.iterations": 30, "inference.samples": 2}
    for model, target in (
        (ContinualClassifier(settings=few, seed=0), y),
        (ContinualRegressor(settings=few, seed=0), x[:, 0]),
    ):
        model.learn_task(x.numpy(), target.numpy(), name="first")
        model.learn_task(x.numpy() + 1, target.numpy(), name="second")
        for task in (None, "first"):
            assert model.predict_full(x.numpy(), task).known.mean() > 0.85
            assert not model.predict_full(12 + x.numpy(), task).known.any()
        boundary = x[x[:, 0].abs() < 0.1]
        assert model.predict_full(boundary.numpy()).known.mean() > 0.8
