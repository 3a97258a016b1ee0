"""Coresets: what is held out, what training sees, an update's loss by hand, which tasks are protected, restarts."""

from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.errors import ConfigError, DataError
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.posteriors.base import HasSamples
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.families.radial import Radial
from metareplay.posteriors.matching.direct import prior_matching
from metareplay.posteriors.priors.earlier import as_prior
from metareplay.seeding import generator_for
from metareplay.strategies.base import StrategyContext
from metareplay.strategies.coresets import CoresetReplay

SETTINGS: dict[str, Any] = {
    "method": "pr-bbb-cs",
    "network": "mlp-5",
    "training.iterations": 4,
    "training.batch_size": 4,
    "posterior.prior_scale": 0.3,
    "hypernet.hidden": [6],
    "hypernet.task_embedding_size": 3,
    "hypernet.chunk_size": 7,
    "strategy.coreset_size": 3,
    "strategy.finetune_batch_size": 64,
}
CLASSES = (2, 3, 2)


def data(task: int, size: int = 10) -> TaskData:
    """The first column says the task, the second the example; the class follows from the example."""
    x = torch.stack([torch.full((size,), float(task)), torch.arange(size).float()], 1)
    return TaskData(x, torch.arange(size) % CLASSES[task])


def learner_of(**changes: Any) -> ContinualLearner:
    given = {**SETTINGS, **{key.replace("__", "."): value for key, value in changes.items()}}
    return ContinualLearner(build_config({}, given, "test"), "classification", Scenario.CLASS, (2,))


def learned(**changes: Any) -> ContinualLearner:
    learner = learner_of(**changes)
    for task, classes in enumerate(CLASSES):
        list(learner.begin_task(data(task), classes))
    return learner


def coresets(learner: ContinualLearner) -> CoresetReplay:
    return cast(CoresetReplay, learner.strategy)


def thetas(learner: ContinualLearner) -> Tensor:
    return learner.model.task_map.thetas(range(learner.num_tasks)).detach().clone()


def test_training_sees_all_but_the_coreset() -> None:
    learner = learner_of()
    for task, classes in enumerate(CLASSES):
        trainer = learner.begin_task(data(task), classes)
        kept, rest = coresets(learner).coresets[task], trainer.examples
        assert len(kept.x) == 3
        assert sorted([*kept.x[:, 1].tolist(), *rest.x[:, 1].tolist()]) == list(range(10))
        for part in (kept, rest):
            assert torch.equal(part.y, part.x[:, 1].long() % classes)
            assert (part.x[:, 0] == task).all()
        assert trainer.jobs[0].batches.size == 7  # the loss is scaled to what is left
        list(trainer)


def test_the_seed_chooses() -> None:
    chosen = [coresets(learned(seed=seed)).coresets[task].x[:, 1].tolist() for seed in (0, 0, 1) for task in range(3)]
    assert chosen[:3] == chosen[3:6]
    assert chosen[:3] != chosen[6:]


@pytest.mark.parametrize(("size", "kept"), [(2, 1), (5, 2), (6, 3), (100, 3)])
def test_never_more_than_half_is_kept(size: int, kept: int) -> None:
    learner = learner_of()
    learner.begin_task(data(0, size), 2)
    assert len(coresets(learner).coresets[0].x) == kept


def test_one_example_cannot_be_split() -> None:
    learner = learner_of()
    with pytest.raises(DataError, match="one training example, but a coreset needs at least two"):
        learner.begin_task(data(0, 1), 2)
    assert learner.num_tasks == 0
    assert coresets(learner).state() == {}


def gaussian(theta: Tensor) -> MeanFieldGaussian:
    mean, rho = theta.chunk(2)
    return MeanFieldGaussian(mean, F.softplus(rho - 2.5))


@pytest.mark.parametrize(("changes", "scale"), [({}, 0.3), ({"strategy__finetune_prior_scale": 2.0}, 2.0)])
@pytest.mark.parametrize("targets", ["stored", "recomputed"])
def test_the_loss_of_fine_tuning_by_hand(changes: dict[str, Any], scale: float, targets: str) -> None:
    """Batches hold entire coresets, so only the weights are random: sum over tasks of |C~| NLL + scale KL(q || q~)."""
    learner = learned(strategy__targets=targets, **changes)
    before, strategy = thetas(learner), coresets(learner)
    kept = [strategy.coresets[task] for task in range(3)]
    walk = iter(trainer := learner.begin_update())
    assert trainer.tasks == [0, 1, 2]
    first = next(walk)
    torch.testing.assert_close(first.terms.prior, torch.tensor(0.0), atol=1e-4, rtol=0)  # q is still q~
    noise = trainer.noise.get_state()
    now = thetas(learner)
    generator = torch.Generator()
    generator.set_state(noise)
    expected_data, expected_prior = torch.tensor(0.0), torch.tensor(0.0)
    for task, classes in enumerate(CLASSES):
        q, old = gaussian(now[task]), gaussian(before[task])
        weights = q.mean + q.scale * torch.randn(1, len(q.mean), generator=generator)[0]
        w1, b1, w2, b2 = weights.split([10, 5, 15, 3])
        for other, part in enumerate(kept):
            log_p = ((part.x @ w1.view(5, 2).T + b1).relu() @ w2.view(3, 5).T + b2)[:, :classes].log_softmax(1)
            own = -log_p[torch.arange(3), part.y % classes].sum()
            expected_data += own if other == task else -log_p.mean(1).sum()
        normals = [torch.distributions.Normal(each.mean, each.scale) for each in (q, old)]
        expected_prior += scale * torch.distributions.kl_divergence(normals[0], normals[1]).sum()
    second = next(walk)
    torch.testing.assert_close(second.terms.data, expected_data, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(second.terms.prior, expected_prior, rtol=1e-3, atol=1e-4)
    assert float(expected_prior) > 0
    assert float(second.terms.replay) == 0


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({}, 4),
        ({"strategy__finetune_iterations": 7}, 7),
        ({"strategy__finetune_epochs": 3}, 3),
        ({"strategy__finetune_epochs": 3, "strategy__finetune_batch_size": 4}, 9),
    ],
)
def test_the_length_of_fine_tuning(changes: dict[str, Any], steps: int) -> None:
    assert len(list(learned(**changes).begin_update())) == steps


def test_fine_tuning_has_a_learning_rate_of_its_own() -> None:
    trainer = learned(strategy__finetune_learning_rate=0.5).begin_update()
    assert trainer.optimiser.param_groups[0]["lr"] == 0.5
    assert learned().begin_update().optimiser.param_groups[0]["lr"] == 0.001


def test_fine_tuning_moves_all_tasks_and_a_refreshed_task_holds_the_others() -> None:
    learner = learned(strategy__finetune_iterations=30, training__learning_rate=0.01)
    before = thetas(learner)
    list(learner.begin_update())
    assert ((thetas(learner) - before).abs().amax(1) > 0.01).all()
    moved = {}
    for strength in (0.0, 1000.0):
        learner = learned(strategy__finetune_iterations=200, strategy__strength=strength, training__learning_rate=0.002)
        before = thetas(learner)
        trainer = learner.begin_update(1)
        assert [job.task for job in trainer.jobs] == [1]
        assert trainer.jobs[0].batches.size == 3
        steps = list(trainer)
        assert (float(steps[-1].terms.replay) > 0) == (strength > 0)
        moved[strength] = (thetas(learner) - before).square().mean(1).sqrt()
    assert moved[1000.0][1] > 5 * max(moved[1000.0][0], moved[1000.0][2])
    assert moved[1000.0][0] < 0.2 * moved[0.0][0]
    assert moved[1000.0][2] < 0.2 * moved[0.0][2]


def test_evidence_counts_once() -> None:
    learner = learned()
    list(learner.begin_update(1))
    assert coresets(learner).uses == {0: 0, 1: 1, 2: 0}
    with pytest.raises(
        ConfigError, match=r"the coreset of task 1 has already updated .* counts their evidence twice .* again=True"
    ):
        learner.begin_update(1)
    with pytest.raises(ConfigError, match="the coreset of task 1 has"):
        learner.begin_update()
    list(learner.begin_update(0))
    with pytest.raises(ConfigError, match="the coresets of tasks 0, 1 have"):
        learner.begin_update()
    list(learner.begin_update(again=True))
    assert coresets(learner).uses == {0: 2, 1: 2, 2: 1}


def test_an_unfinished_update_does_not_count() -> None:
    learner = learned()
    next(iter(learner.begin_update()))
    assert coresets(learner).updates() == 0


def test_after_an_update_the_next_task_has_the_fixed_prior_and_replay() -> None:
    learner = learned()
    list(learner.begin_update())
    assert coresets(learner).learned is None
    trainer = learner.begin_task(data(0), 2)
    assert learner.strategy.prior_for(3) is coresets(learner).prior
    terms = list(trainer)[-1].terms
    assert float(terms.replay) > 0


def test_two_updates_draw_different_numbers() -> None:
    learner = learned(strategy__finetune_batch_size=4)
    states = []
    for _ in range(2):
        trainer = learner.begin_update(again=True)
        states.append(trainer.noise.get_state())
        list(trainer)
    assert not torch.equal(*states)


def test_methods_without_coresets_have_nothing_to_update_with() -> None:
    kept = {key: value for key, value in SETTINGS.items() if not key.startswith("strategy.")}
    learner = ContinualLearner(
        build_config({}, {**kept, "method": "pr-bbb"}, "test"), "classification", Scenario.CLASS, (2,)
    )
    list(learner.begin_task(data(0), 2))
    with pytest.raises(ConfigError, match=r"pr-bbb keeps no examples .* pr-bbb-cs"):
        learner.begin_update()


@pytest.mark.parametrize("others", ["uniform", "random"])
def test_real_targets_cannot_know_nothing(others: str) -> None:
    config = build_config({}, {**SETTINGS, "strategy.finetune_others": others}, "test")
    with pytest.raises(
        ConfigError, match=f"finetune_others={others} needs classes: no real-valued target can express that"
    ):
        ContinualLearner(config, "regression", Scenario.DOMAIN, (2,))


def test_regression_is_updated_on_its_own_coresets() -> None:
    learner = ContinualLearner(build_config({}, SETTINGS, "test"), "regression", Scenario.DOMAIN, (2,))
    for task in range(2):
        list(learner.begin_task(TaskData(data(task).x, data(task).x[:, 1:] / 10), 1))
    trainer = learner.begin_update()
    assert [job.batches.size for job in trainer.jobs] == [3, 3]
    assert trainer.jobs[1].batches.next().y.shape == (3, 1)
    assert all(step.terms.total.isfinite() for step in trainer)


def test_memory_holds_examples_labels_and_uses() -> None:
    strategy = coresets(learner := learned())
    list(learner.begin_update(2))
    again = CoresetReplay(strategy.settings, StrategyContext(cast(Any, strategy.prior), seed=9))
    again.load_state(learner.model, strategy.state())
    assert again.uses == {0: 0, 1: 0, 2: 1}
    for task, coreset in strategy.coresets.items():
        assert torch.equal(again.coresets[task].x, coreset.x)
        assert torch.equal(again.coresets[task].y, coreset.y)
    again.load_state(learner.model, {})
    assert (again.coresets, again.uses) == ({}, {})


def test_a_radial_prior_has_the_moments_of_the_posterior() -> None:
    rng = torch.Generator().manual_seed(0)
    for sizes, groups in (((6, 3), ()), ((3, 2, 2, 2), (0, 1, 0, 1))):
        q = Radial(torch.randn(9, generator=rng), torch.rand(9, generator=rng) + 0.1, sizes, groups)
        samples, prior = q.rsample(200_000, generator=rng), as_prior(q)
        assert isinstance(prior, MeanFieldGaussian)
        torch.testing.assert_close(samples.mean(0), prior.mean, atol=0.01, rtol=0)
        torch.testing.assert_close(samples.std(0), prior.scale, rtol=0.02, atol=0)


def test_a_radial_update_is_drawn_to_what_was_learned() -> None:
    """Without data the prior term alone brings means and scales back."""
    rng = torch.Generator().manual_seed(0)
    learned_mean, learned_scale = torch.randn(8, generator=rng), torch.rand(8, generator=rng) + 0.2
    prior = as_prior(Radial(learned_mean, learned_scale, (8,)))
    mean, rho = torch.zeros(8, requires_grad=True), torch.zeros(8, requires_grad=True)
    optimiser = torch.optim.Adam([mean, rho], lr=0.02)
    for step in range(600):
        optimiser.param_groups[0]["lr"] = 0.02 if step < 400 else 0.003
        q = Radial(mean, rho.exp(), (8,))
        loss = prior_matching(q, prior, 1, generator=rng)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    torch.testing.assert_close(mean.detach(), learned_mean, atol=0.03, rtol=0)
    torch.testing.assert_close(rho.exp().detach(), learned_scale, rtol=0.1, atol=0)


@pytest.mark.parametrize("method", ["pr-avb-cs", "pr-ssge-cs", "pr-ensemble-bbb-cs"])
def test_a_posterior_without_a_density_is_its_own_prior(method: str) -> None:
    learner = learner_of(method=method)
    list(learner.begin_task(data(0), 2))
    list(learner.begin_task(data(1), 3))
    trainer = learner.begin_update()
    for task in range(2):
        samples = [
            cast(HasSamples, each).rsample(2, generator=torch.Generator().manual_seed(0))
            for each in (learner.strategy.prior_for(task), learner.model.posterior(task))
        ]
        torch.testing.assert_close(samples[0], samples[1].detach())  # tasks together or one by one: up to rounding
        assert not samples[0].requires_grad
    assert trainer.jobs[0].matching is not trainer.jobs[1].matching
    assert all(step.terms.total.isfinite() for step in trainer)


def test_the_same_data_give_the_same_coreset_again() -> None:
    strategy = coresets(learned())
    before = strategy.coresets[1]
    split = TaskData(data(1).x, data(1).y)
    strategy.data_for(1, split)
    assert torch.equal(strategy.coresets[1].x, before.x)
    assert generator_for(0, "coreset", 1).initial_seed() != generator_for(0, "coreset", 2).initial_seed()
