"""Strengths per task, by age or explicit: every penalty, all old tasks or a random few, the effect on forgetting."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from metareplay.experiments.plan import Plan
from metareplay.experiments.run import Run
from metareplay.learner.config import build_config
from metareplay.learner.recipe_book import default_settings
from metareplay.likelihoods import Categorical
from metareplay.model import ContinualModel
from metareplay.nets.mlp import MLP
from metareplay.posteriors.divergences import replay_divergence
from metareplay.posteriors.families.gaussian import GaussianFamily
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.strategies.posterior_replay import PosteriorReplay
from metareplay.strategies.replay_settings import ReplaySettings
from metareplay.task_maps.chunked import ChunkedHypernetwork
from metareplay.task_maps.heads import HeadLayout
from metareplay.task_maps.hypernetwork import Hypernetwork
from metareplay.task_maps.replay_distance import small_matrices_pay

OLD = 4
KINDS = ("mse", "fkl", "rkl", "w2")
FACTORS: dict[str, tuple[dict[str, Any], list[float]]] = {
    "age": ({"age_discount": 0.5}, [0.125, 0.25, 0.5, 1.0]),
    "by hand": ({"task_strengths": [2.0, 0.0]}, [2.0, 0.0, 1.0, 1.0]),
    "both": ({"age_discount": 0.5, "task_strengths": [4.0, 1.0, 1.0, 3.0, 9.0]}, [0.5, 0.25, 0.5, 3.0]),
}


def shaken(rng: Generator, strategies: list[PosteriorReplay], hidden: int = 5) -> tuple[ContinualModel, Tensor]:
    """A model in the middle of its last task, and the old thetas from before it."""

    def task_map(size: int, generator: Generator) -> Hypernetwork:
        return ChunkedHypernetwork(
            size, hidden=(hidden,), chunk_size=9, task_embedding_size=3, chunk_embedding_size=2, generator=generator
        )

    network = lambda outputs: MLP((2,), (3,), outputs)  # noqa: E731
    model = ContinualModel(
        network, GaussianFamily(), task_map, HeadLayout.SINGLE, Categorical(), lambda family, network, spec: None
    )
    for _ in range(OLD + 1):
        model.add_task(2, generator=rng)
    old = model.task_map.thetas(range(OLD)).detach().clone()
    for strategy in strategies:
        strategy.before_task(model, OLD)
    for parameter in model.task_map.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=rng)
    return model, old


def replay(**settings: object) -> PosteriorReplay:
    return PosteriorReplay(ReplaySettings.model_validate(settings), GaussianPrior(), seed=0)


def changes(kind: str, model: ContinualModel, old: Tensor) -> Tensor:
    """The change of each old task (T,), one task at a time."""
    new = model.task_map.thetas(range(OLD)).detach()
    if kind == "mse":
        return (new - old).square().sum(1)
    actual, unused = [], Generator()
    for pair in zip(old, new, strict=True):
        before, after = (model.family.at(theta, model.spec) for theta in pair)
        actual.append(replay_divergence(kind, before, after, 1, generator=unused))  # type: ignore[arg-type]
    return torch.stack(actual)


@pytest.mark.parametrize("hidden", [5, 40], ids=["small matrices", "direct"])
@pytest.mark.parametrize(("settings", "factors"), FACTORS.values(), ids=FACTORS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_tasks_term_has_its_factor(
    kind: str, settings: dict[str, Any], factors: list[float], hidden: int, rng: Generator
) -> None:
    strategy = replay(penalty=kind, strength=3.0, **settings)
    model, old = shaken(rng, [strategy], hidden)
    assert isinstance(model.task_map, Hypernetwork)
    assert small_matrices_pay(model.task_map, OLD) == (hidden == 5)
    penalty = strategy.penalty(model, OLD, generator=rng)
    assert penalty is not None
    torch.testing.assert_close(
        penalty.detach(), 3.0 / OLD * (torch.tensor(factors) * changes(kind, model, old)).sum(), rtol=1e-4, atol=0
    )


@pytest.mark.parametrize("kind", KINDS)
def test_random_tasks_take_their_own_factors(kind: str, rng: Generator) -> None:
    strategy = replay(penalty=kind, old_tasks=1, age_discount=0.5, task_strengths=[3.0])
    model, old = shaken(rng, [strategy])
    expected = torch.tensor([0.375, 0.25, 0.5, 1.0]) * changes(kind, model, old)
    with torch.no_grad():
        actual = {round(float(strategy.penalty(model, OLD, generator=rng)), 4) for _ in range(40)}  # type: ignore[arg-type]
    # so their mean over the tasks is the whole penalty
    assert sorted(actual) == pytest.approx(sorted(expected.tolist()), rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("targets", ["stored", "recomputed"])
def test_factors_of_one_change_no_bit(kind: str, targets: str, rng: Generator) -> None:
    strategies = [
        replay(penalty=kind, targets=targets, **more)
        for more in ({}, {"age_discount": 1.0, "task_strengths": [1.0] * 9})
    ]
    model, _ = shaken(rng, strategies)
    plain, weighted = (strategy.penalty(model, OLD, generator=rng) for strategy in strategies)
    assert plain is not None
    assert weighted is not None
    assert torch.equal(plain, weighted)


def test_the_latest_old_task_has_the_full_strength_in_every_task() -> None:
    strategy = replay(age_discount=0.5)
    for task in range(2, 6):
        factors = strategy.weights(range(task), task)
        assert factors is not None
        assert factors.tolist() == [0.5 ** (task - 1 - old) for old in range(task)]
    assert strategy.weights([0], 1) is None


@pytest.mark.slow
def test_a_strong_discount_lets_the_oldest_task_go_first(tmp_path: Path) -> None:
    defaults, _ = default_settings("regression-1d", "pr-dirac", "mlp-10-10")
    grown = {}
    for discount in (1.0, 1e-4):
        given = {"training.iterations": 300, "strategy.strength": 1.0, "strategy.age_discount": discount}
        matrix = Run(Plan.of(build_config(defaults, given, "test"), tmp_path / str(discount))).execute().tgiven_matrix
        # how much the squared error grew
        grown[discount] = [matrix[-1][task] - row[task] for task, row in enumerate(matrix)]
    assert max(grown[1.0]) < 0.02
    assert grown[1e-4][0] > 0.1
    assert grown[1e-4][1] < 0.02
