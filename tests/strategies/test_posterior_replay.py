"""The replay penalty: its formula for every distance, its targets, random subsets, and what it reaches."""

from collections.abc import Sequence
from itertools import combinations
from typing import cast

import pytest
import torch
from torch import Generator, Tensor
from torch.distributions import Normal, kl_divergence

from metareplay.benchmarks.base import TaskData
from metareplay.likelihoods import Categorical
from metareplay.model import ContinualModel
from metareplay.model_changes import unused_theta
from metareplay.nets.mlp import MLP
from metareplay.posteriors.base import HasLogProb, PosteriorFamily
from metareplay.posteriors.families.dirac import DiracFamily
from metareplay.posteriors.families.flow import Flow, FlowFamily, FlowSettings
from metareplay.posteriors.families.gaussian import GaussianFamily, MeanFieldGaussian
from metareplay.posteriors.priors.earlier import MixturePrior
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.strategies.posterior_replay import PosteriorReplay
from metareplay.strategies.replay_settings import ReplaySettings
from metareplay.task_maps.chunked import ChunkedHypernetwork
from metareplay.task_maps.heads import HeadLayout
from metareplay.task_maps.hypernetwork import Hypernetwork
from metareplay.task_maps.replay_distance import SquaredChange

KINDS = ("mse", "fkl", "rkl", "w2")
OLD = 4
"""Old tasks; the task that is learned comes after them."""


def make_model(
    family: PosteriorFamily, rng: Generator, *, per_task: bool = False, classes: Sequence[int] = (2,) * (OLD + 1)
) -> ContinualModel:
    def task_map(size: int, generator: Generator) -> Hypernetwork:
        return ChunkedHypernetwork(
            size,
            hidden=(5,),
            chunk_size=9,
            task_embedding_size=3,
            chunk_embedding_size=2,
            chunk_embeddings_per_task=per_task,
            generator=generator,
        )

    model = ContinualModel(
        lambda outputs: MLP((2,), (3,), outputs),
        family,
        task_map,
        HeadLayout.SINGLE,
        Categorical(),
        lambda family, network, spec: None,
    )
    for count in classes:
        model.add_task(count, generator=rng)
    return model


def shake(model: ContinualModel, rng: Generator) -> None:
    for parameter in model.task_map.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=rng)


def replay(**settings: object) -> PosteriorReplay:
    return PosteriorReplay(ReplaySettings.model_validate(settings), GaussianPrior(2.0), seed=0)


def explicit(kind: str, family: PosteriorFamily, old: Tensor, new: Tensor) -> Tensor:
    """D(q* || q) for each task (T, P) -> (T,), written out."""
    if kind == "mse":
        return (old - new).square().sum(1)
    if isinstance(family, DiracFamily):
        assert kind == "w2"
        return (old - new).square().sum(1)
    before, after = (
        Normal(theta[:, : theta.shape[1] // 2], torch.nn.functional.softplus(theta[:, theta.shape[1] // 2 :] - 2.5))
        for theta in (old, new)
    )
    if kind == "w2":
        return ((before.mean - after.mean).square() + (before.scale - after.scale).square()).sum(1)
    return (kl_divergence(before, after) if kind == "fkl" else kl_divergence(after, before)).sum(1)


CASES = [(GaussianFamily(), kind) for kind in KINDS] + [(DiracFamily(), "mse"), (DiracFamily(), "w2")]


@pytest.mark.parametrize(("family", "kind"), CASES)
@pytest.mark.parametrize("strength", [1.0, 0.01, 30.0])
def test_the_penalty_is_the_mean_divergence_of_the_old_tasks(
    family: PosteriorFamily, kind: str, strength: float, rng: Generator
) -> None:
    model, strategy = make_model(family, rng), replay(penalty=kind, strength=strength)
    old = model.task_map.thetas(range(OLD)).detach().clone()
    strategy.before_task(model, OLD)
    shake(model, rng)
    penalty = strategy.penalty(model, OLD, generator=rng)
    assert penalty is not None
    divergences = explicit(kind, family, old, model.task_map.thetas(range(OLD)))
    torch.testing.assert_close(penalty, strength / OLD * divergences.sum(), rtol=1e-4, atol=0)
    expected = torch.autograd.grad(
        strength / OLD * divergences.sum(), list(model.task_map.parameters()), allow_unused=True
    )
    actual = torch.autograd.grad(penalty, list(model.task_map.parameters()), allow_unused=True)
    for left, right in zip(actual, expected, strict=True):
        assert (left is None) == (right is None)
        if left is not None and right is not None:
            torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-4 * strength)


@pytest.mark.parametrize(("family", "kind"), CASES)
@pytest.mark.parametrize("targets", ["stored", "recomputed"])
def test_the_penalty_is_zero_when_a_task_starts(
    family: PosteriorFamily, kind: str, targets: str, rng: Generator
) -> None:
    model, strategy = make_model(family, rng), replay(penalty=kind, targets=targets)
    strategy.before_task(model, OLD)
    penalty = strategy.penalty(model, OLD, generator=rng)
    assert penalty is not None
    assert abs(float(penalty.detach())) < 1e-9
    for gradient in torch.autograd.grad(
        penalty, list(model.task_map.parameters()), allow_unused=True, materialize_grads=True
    ):
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_published_factor_divides_by_the_old_tasks_once_more(kind: str, rng: Generator) -> None:
    model = make_model(GaussianFamily(), rng)
    values = []
    for strategy in (replay(penalty=kind), replay(penalty=kind, divide_twice=True)):
        strategy.keep_all_but(model, [OLD])
        values.append(strategy)
    shake(model, rng)
    plain, published = (cast(Tensor, strategy.penalty(model, OLD, generator=rng)).detach() for strategy in values)
    assert float(published) == pytest.approx(float(plain) / (1 if kind == "mse" else OLD))


def test_the_first_task_has_no_penalty(rng: Generator) -> None:
    model, strategy = make_model(GaussianFamily(), rng, classes=(2,)), replay()
    strategy.before_task(model, 0)
    assert strategy.penalty(model, 0, generator=rng) is None
    assert strategy.state() == {}


def test_without_strength_there_is_no_penalty(rng: Generator) -> None:
    model, strategy = make_model(GaussianFamily(), rng), replay(strength=0)
    strategy.before_task(model, OLD)
    shake(model, rng)
    assert strategy.penalty(model, OLD, generator=rng) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("old_tasks", [None, 2])
def test_stored_and_recomputed_targets_agree(kind: str, old_tasks: int | None, rng: Generator) -> None:
    model = make_model(GaussianFamily(), rng)
    strategies = [replay(penalty=kind, targets=targets, old_tasks=old_tasks) for targets in ("stored", "recomputed")]
    for strategy in strategies:
        strategy.before_task(model, OLD)
    shake(model, rng)
    for seed in range(3):
        actual = [strategy.penalty(model, OLD, generator=Generator().manual_seed(seed)) for strategy in strategies]
        assert actual[0] is not None
        torch.testing.assert_close(actual[0], actual[1], rtol=1e-5, atol=0)


def test_the_checkpoint_is_taken_anew_for_every_task(rng: Generator) -> None:
    model, strategy = make_model(GaussianFamily(), rng), replay(penalty="fkl")
    strategy.before_task(model, OLD - 1)
    shake(model, rng)
    strategy.before_task(model, OLD)
    penalty = strategy.penalty(model, OLD, generator=rng)
    assert penalty is not None
    assert abs(float(penalty.detach())) < 1e-9


@pytest.mark.parametrize("size", [1, 2, 3])
def test_random_subsets(size: int, rng: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    model, strategy, full = make_model(DiracFamily(), rng), replay(old_tasks=size, strength=0.5), replay(strength=0.5)
    for each in (strategy, full):
        each.before_task(model, OLD)
    shake(model, rng)
    drawn, change = [], SquaredChange.__call__

    def spy(self: SquaredChange, current: Hypernetwork, tasks: Sequence[int], **given: Tensor | None) -> Tensor:
        drawn.append(tuple(sorted(tasks)))
        return change(self, current, tasks, **given)

    monkeypatch.setattr(SquaredChange, "__call__", spy)
    values: dict[tuple[int, ...], float] = {}
    for _ in range(600):
        penalty = strategy.penalty(model, OLD, generator=rng)
        assert penalty is not None
        values[drawn[-1]] = float(penalty.detach())
    subsets = list(combinations(range(OLD), size))
    assert sorted(values) == subsets  # the right size, without repetition, and every subset is drawn
    share = 1 / len(subsets)
    for subset in subsets:  # equally often: five standard errors of a binomial count
        assert abs(drawn.count(subset) - 600 * share) < 5 * (600 * share * (1 - share)) ** 0.5
    whole = full.penalty(model, OLD, generator=rng)
    assert whole is not None
    # the mean over subsets is the full penalty
    assert sum(values.values()) / len(values) == pytest.approx(float(whole.detach()), rel=1e-4)


def test_the_penalty_of_some_steps_is_that_of_all_on_average(rng: Generator) -> None:
    model, strategy, full = (
        make_model(GaussianFamily(), rng),
        replay(penalty="fkl", penalty_every=4),
        replay(penalty="fkl"),
    )
    for each in (strategy, full):
        each.before_task(model, OLD)
    shake(model, rng)
    actual = [strategy.penalty(model, OLD, generator=rng) for _ in range(800)]
    values = [float(value.detach()) for value in actual if value is not None]
    assert abs(len(values) - 200) < 5 * (800 * 0.25 * 0.75) ** 0.5
    whole = full.penalty(model, OLD, generator=rng)
    assert whole is not None
    assert values == pytest.approx([4 * float(whole.detach())] * len(values))


@pytest.mark.parametrize("size", [OLD, OLD + 3])
def test_a_subset_of_all_is_the_full_penalty(size: int, rng: Generator) -> None:
    model, strategy, full = make_model(GaussianFamily(), rng), replay(old_tasks=size), replay()
    for each in (strategy, full):
        each.before_task(model, OLD)
    shake(model, rng)
    state = rng.get_state()
    assert strategy.penalty(model, OLD, generator=rng) == full.penalty(model, OLD, generator=rng)
    assert torch.equal(rng.get_state(), state)  # and needs no random numbers


@pytest.mark.parametrize("kind", KINDS)
def test_old_embeddings_are_regularised_and_the_new_one_is_not(kind: str, rng: Generator) -> None:
    model, strategy = make_model(GaussianFamily(), rng, per_task=True), replay(penalty=kind)
    strategy.before_task(model, OLD)
    shake(model, rng)
    penalty = strategy.penalty(model, OLD, generator=rng)
    assert penalty is not None
    hypernetwork = model.task_map
    assert isinstance(hypernetwork, ChunkedHypernetwork)
    for embeddings in (hypernetwork.task_embeddings, hypernetwork.chunk_embeddings):
        gradients = torch.autograd.grad(
            penalty, list(embeddings), retain_graph=True, allow_unused=True, materialize_grads=True
        )
        assert [bool(gradient.any()) for gradient in gradients] == [True] * OLD + [False]
    assert strategy.checkpoint is not None
    assert not any(parameter.requires_grad for parameter in strategy.checkpoint.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_whose_outputs_grow_are_replayed_too(kind: str, rng: Generator) -> None:
    model, strategy = make_model(GaussianFamily(), rng, classes=(2, 5, 3)), replay(penalty=kind)
    old = model.task_map.thetas([0, 1]).detach().clone()
    strategy.before_task(model, 2)
    shake(model, rng)
    penalty, new = strategy.penalty(model, 2, generator=rng), model.task_map.thetas([0, 1])
    if kind != "mse":  # the outputs that a task does not have are free
        old = torch.where(cast(Tensor, unused_theta(model, [0, 1])), new.detach(), old)
    assert penalty is not None
    torch.testing.assert_close(penalty, explicit(kind, model.family, old, new).mean(), rtol=1e-4, atol=0)


def test_prior_and_data_are_the_tasks_own() -> None:
    strategy = replay()
    data = TaskData(torch.ones(2, 3), torch.zeros(2))
    assert strategy.prior_for(3).variance == 2.0
    assert strategy.data_for(3, data) is data


# A prior that is a mixture of the fixed one and earlier posteriors.


DENSITIES = {"gaussian": GaussianFamily(), "flow": FlowFamily(FlowSettings(flow_transforms=2, flow_hidden=(3,)))}
every_density = pytest.mark.parametrize("kind", DENSITIES)


def mixture_before_the_last_task(
    rng: Generator, kind: str = "gaussian", layout: HeadLayout = HeadLayout.SINGLE
) -> tuple[ContinualModel, PosteriorReplay]:
    model = make_model(DENSITIES[kind], rng, classes=())
    model.layout = layout
    strategy = replay(strength=0.0, prior_from_earlier=0.4)
    for task in range(OLD + 1):
        model.add_task(2, generator=rng)
        strategy.before_task(model, task)
        assert isinstance(strategy.prior_for(task), MixturePrior if task else GaussianPrior)
        if task < OLD:
            shake(model, rng)
    return model, strategy


@every_density
def test_earlier_posteriors_become_part_of_the_prior(kind: str, rng: Generator) -> None:
    model, strategy = mixture_before_the_last_task(rng, kind)
    thetas = model.task_map.thetas(range(OLD)).detach().clone()
    prior = strategy.prior_for(OLD)
    assert isinstance(prior, MixturePrior)
    weights = torch.randn(3, model.spec.numel, generator=rng)
    posteriors = [cast(HasLogProb, model.family.at(theta, model.spec)) for theta in thetas]
    parts = [0.1 * posterior.log_prob(weights).double().exp() for posterior in posteriors]  # 0.4 / 4
    expected = (0.6 * GaussianPrior(2.0).log_prob(weights).double().exp() + sum(parts)).log()
    torch.testing.assert_close(prior.log_prob(weights).double(), expected, atol=1e-4, rtol=1e-5)
    shake(model, rng)  # learning the task leaves its prior as it was
    torch.testing.assert_close(prior.log_prob(weights).double(), expected, atol=1e-4, rtol=1e-5)
    assert strategy.penalty(model, OLD, generator=rng) is None  # the strength is zero


@every_density
def test_weights_that_an_earlier_task_did_not_have_follow_the_fixed_prior(kind: str, rng: Generator) -> None:
    model, strategy = mixture_before_the_last_task(rng, kind, HeadLayout.MULTI)
    prior = strategy.prior_for(OLD)
    assert isinstance(prior, MixturePrior)
    assert isinstance(prior.earlier, MeanFieldGaussian | Flow)
    # the first task's, of all later weights
    draws = prior.earlier.rsample(5000, generator=rng)[:, 0, model.introduced_by_task > 0].detach()
    assert abs(float(draws.var()) / 2.0 - 1) < 0.05
    for task in range(OLD):
        bias = model.spec.unflatten(prior.earlier.mean[task])["layers.1.bias"]  # two outputs a task
        assert bias[: 2 * task + 2].all()
        assert not bias[2 * task + 2 :].any()
        scale = model.spec.unflatten(prior.earlier.scale[task])["layers.1.bias"]
        torch.testing.assert_close(scale[2 * task + 2 :], torch.full_like(scale[2 * task + 2 :], 2.0**0.5))


def test_a_checkpoint_holds_the_mixture(rng: Generator) -> None:
    model, strategy = mixture_before_the_last_task(rng)
    stored = {name: tensor.clone() for name, tensor in strategy.state().items()}
    shake(model, rng)
    other = replay(strength=0.0, prior_from_earlier=0.4)
    other.load_state(model, stored)
    weights = torch.randn(3, model.spec.numel, generator=rng)
    first, second = strategy.prior_for(OLD), other.prior_for(OLD)
    assert isinstance(first, MixturePrior)
    assert isinstance(second, MixturePrior)
    assert torch.equal(first.log_prob(weights), second.log_prob(weights))


def test_without_a_share_the_prior_is_the_fixed_one(rng: Generator) -> None:
    model, strategy = make_model(GaussianFamily(), rng), replay(prior_from_earlier=0.0)
    for task in range(OLD + 1):
        strategy.before_task(model, task)
        # so the KL is in closed form, and no random numbers are used
        assert strategy.prior_for(task) == GaussianPrior(2.0)


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_that_a_task_does_not_have_are_not_kept(kind: str) -> None:
    """Where one set of outputs serves all tasks, a task with few classes has no use for the last ones."""
    rng = torch.Generator().manual_seed(0)
    model = make_model(GaussianFamily(), rng, classes=(2, 4))
    strategy = replay(strength=1.0, penalty=kind)
    strategy.before_revision(model, 1, resumed=False)
    old, used = model.task_map.thetas([0]).detach(), ~cast(Tensor, unused_theta(model, [0]))
    assert int((~used).sum()) == 2 * 2 * (3 + 1)  # means and scales of two outputs of an MLP with three hidden units
    shake(model, rng)
    new = model.task_map.thetas([0])
    changes = explicit(kind, model.family, torch.where(used, old, new), new)
    penalty = strategy.penalty(model, 1, generator=rng)
    assert penalty is not None
    torch.testing.assert_close(penalty, changes.sum(), rtol=1e-4, atol=1e-6)
    assert unused_theta(model, [1]) is None
