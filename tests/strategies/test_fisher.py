"""The penalty in distribution space: the Fisher information of a posterior, from closed forms, densities or data."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.errors import ConfigError
from metareplay.estimators import ContinualClassifier
from metareplay.kernels.quadratic import quadratic_change
from metareplay.learner.build import build_model, build_strategy
from metareplay.learner.config import build_config
from metareplay.model import ContinualModel
from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.base import HasLogProb
from metareplay.posteriors.divergences import kl
from metareplay.posteriors.families.gaussian import GaussianFamily
from metareplay.seeding import generator_for
from metareplay.strategies import fisher
from metareplay.strategies.base import CURRENT
from metareplay.strategies.fisher import FisherSettings, posterior_information, squared_scores, summed_squared_gradients
from metareplay.strategies.posterior_replay import PosteriorReplay

SMALL = {"hypernet.hidden": (6,), "hypernet.task_embedding_size": 3, "hypernet.chunk_embedding_size": 2}
GENERATORS: dict[str, dict[str, Any]] = {
    "pr-dirac": {},
    "pr-radial": {},
    "pr-ssge": {"posterior.generator_hidden": (3,), "posterior.latent_size": 2},
    "pr-ssge, chunks": {
        "posterior.generator_hidden": (3,),
        "posterior.latent_size": 2,
        "posterior.generator_chunk_size": 7,
    },
}


def parts(name: str = "pr-dirac", **given: Any) -> tuple[ContinualModel, PosteriorReplay]:
    settings = {
        "strategy.penalty": "fisher",
        **GENERATORS.get(name, {}),
        **{key.replace("__", "."): value for key, value in given.items()},
    }
    config = build_config({"network": "mlp-4", **SMALL}, {"method": name.partition(",")[0], **settings}, "test")
    return build_model(config, "classification", Scenario.CLASS, (3,)), cast(PosteriorReplay, build_strategy(config))


def some_data(count: int, classes: int, rng: Generator) -> TaskData:
    return TaskData(torch.randn(count, 3, generator=rng), torch.randint(classes, (count,), generator=rng))


def shake(model: ContinualModel, rng: Generator) -> None:
    for parameter in model.task_map.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=rng)


def learn(model: ContinualModel, strategy: PosteriorReplay, classes: Sequence[int], rng: Generator) -> None:
    """Tasks that are done, except for the last, which has just begun."""
    for number in classes:
        if model.num_tasks:
            with torch.no_grad():
                task = model.num_tasks - 1
                strategy.after_task(model, task, some_data(6, model.heads[task].stop, rng))
        strategy.before_task(model, model.add_task(number, generator=rng))


# Gaussians: closed form.

SPEC = WeightSpec.of(MLP((1,), (3,), 2))


def gaussian_theta(rng: Generator) -> Tensor:
    return torch.randn(2 * SPEC.numel, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("part", ["means", "scales", "both"])
def test_a_gaussians_quadratic_form_is_its_kl_to_second_order(part: str, rng: Generator) -> None:
    family, old = GaussianFamily(), gaussian_theta(rng)
    direction = torch.randn(len(old), generator=rng, dtype=torch.float64)
    direction[{"means": slice(SPEC.numel, None), "scales": slice(SPEC.numel), "both": slice(0)}[part]] = 0
    errors = []
    for size in (1e-1, 1e-2, 1e-3, 1e-4):
        new = old + size * direction
        exact = kl(family.at(old, SPEC), family.at(new, SPEC))
        errors.append(abs(float(quadratic_change(family.fisher(old, SPEC), old, new) / exact) - 1))
    if part == "means":  # quadratic in the means, so that nothing is left out
        assert max(errors) < 1e-6
    else:
        assert errors[0] < 1
        assert all(after < 0.15 * before for before, after in pairwise(errors))
        assert errors[-1] < 1e-3


def test_a_gaussians_closed_form_equals_monte_carlo(rng: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    family, theta = GaussianFamily(), gaussian_theta(rng)
    monkeypatch.setattr(fisher, "GRADIENT_NUMBERS", 3000 * len(theta))  # in several parts
    estimate = squared_scores(family, theta, SPEC, 20_000, generator=rng)
    # relative standard errors: root(2 / n) = 0.01 for a mean, root(56) / 2 / root(n) = 0.026 for a scale; five of them
    torch.testing.assert_close(estimate[: SPEC.numel], family.fisher(theta, SPEC)[: SPEC.numel], rtol=0.05, atol=0)
    torch.testing.assert_close(estimate[SPEC.numel :], family.fisher(theta, SPEC)[SPEC.numel :], rtol=0.13, atol=0)


def test_batched_scores_equal_a_loop(rng: Generator) -> None:
    family, theta = GaussianFamily(), gaussian_theta(rng)
    actual = squared_scores(family, theta, SPEC, 5, generator=Generator().manual_seed(1))
    drawn = family.at(theta, SPEC).rsample(5, generator=Generator().manual_seed(1))
    expected = torch.zeros_like(theta)
    for weights in drawn:
        leaf = theta.clone().requires_grad_()
        expected += (
            torch.autograd.grad(family.at(leaf, SPEC).log_prob(weights.unsqueeze(0)).sum(), leaf)[0].square() / 5
        )
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("method", ["pr-bbb", "pr-ensemble-bbb"])
@pytest.mark.parametrize("targets", ["stored", "recomputed"])
def test_a_gaussian_stores_nothing_and_is_near_its_kl(targets: str, method: str, rng: Generator) -> None:
    model, strategy = parts(method, strategy__targets=targets, strategy__strength=2.0)
    other = parts(method, strategy__penalty="fkl", strategy__strength=2.0)[1]
    learn(model, strategy, (2, 2, 2), rng)
    other.before_task(model, 2)
    for parameter in model.task_map.parameters():
        parameter.data += 1e-3 * torch.randn(parameter.shape, generator=rng)
    quadratic, divergence = (each.penalty(model, 2, generator=rng) for each in (strategy, other))
    assert quadratic is not None
    assert divergence is not None
    torch.testing.assert_close(quadratic, divergence, rtol=0.05, atol=0)
    assert all(name.startswith(CURRENT) for name in strategy.state())


def test_the_information_of_a_flow_comes_from_its_density(rng: Generator) -> None:
    pytest.importorskip("zuko")
    model, strategy = parts(
        "pr-flow", strategy__fisher_weight_samples=4, posterior__flow_hidden=(3,), posterior__flow_transforms=2
    )
    learn(model, strategy, (2, 2), rng)
    theta = model.task_map.theta(0).detach()
    with torch.no_grad():
        strategy.after_task(model, 0, some_data(3, 2, rng))
    assert strategy.information is not None
    drawn = model.family.at(theta, model.spec).rsample(4, generator=generator_for(0, "fisher", 0))
    expected = torch.zeros_like(theta)
    for weights in drawn:
        leaf = theta.clone().requires_grad_()
        density = cast(HasLogProb, model.family.at(leaf, model.spec)).log_prob(weights.unsqueeze(0))
        expected += torch.autograd.grad(density.sum(), leaf)[0].square() / 4
    torch.testing.assert_close(strategy.information[0], expected, rtol=1e-3, atol=1e-5)


# Families without a density: from the task's data.


def by_hand(model: ContinualModel, task: int, data: TaskData, samples: int, prior_variance: float, seed: int) -> Tensor:
    """Ordinary backward passes: one per example, and for the prior one per weight (the rows of the Jacobian)."""
    leaf = model.task_map.theta(task).detach().repeat(samples, 1).requires_grad_()  # (S, P)
    weights = model.family.at(leaf, model.spec).rsample(1, generator=Generator().manual_seed(seed))[0]  # (S, W)
    total = torch.zeros_like(leaf)
    for x, y in zip(data.x, data.y, strict=True):
        outputs = [functional_call(model.network, model.spec.unflatten(flat), (x.unsqueeze(0),)) for flat in weights]
        losses = [
            nn.functional.cross_entropy(each[:, model.training_columns(task)], y.unsqueeze(0)) for each in outputs
        ]
        total += torch.autograd.grad(torch.stack(losses).sum(), leaf, retain_graph=True)[0].square()
    for index in range(weights.shape[1]):
        total += torch.autograd.grad(weights[:, index].sum(), leaf, retain_graph=True)[0].square() / prior_variance
    return total.mean(0)


@pytest.mark.parametrize("name", ["pr-dirac", "pr-radial"])
@pytest.mark.parametrize("samples", [1, 3])
def test_the_information_equals_a_hand_computation(name: str, samples: int, rng: Generator) -> None:
    model, _ = parts(name)
    for _ in range(2):
        model.add_task(2, generator=rng)
    data, settings = some_data(7, 2, rng), FisherSettings(fisher_weight_samples=samples)
    actual = posterior_information(model, 1, data, settings, 4.0, generator=Generator().manual_seed(1))
    drawn = 1 if name == "pr-dirac" else samples
    # each parameter makes one weight: signs matter not
    torch.testing.assert_close(actual, by_hand(model, 1, data, drawn, 4.0, seed=1))


@pytest.mark.parametrize("name", ["pr-ssge", "pr-ssge, chunks"])
def test_the_information_of_a_generator_equals_a_hand_computation(name: str, rng: Generator) -> None:
    model, _ = parts(name)
    model.add_task(2, generator=rng)
    data, settings = some_data(5, 2, rng), FisherSettings(fisher_weight_samples=2)
    actual = posterior_information(model, 0, data, settings, 1e12, generator=Generator().manual_seed(1))
    # without the prior: exact
    torch.testing.assert_close(actual, by_hand(model, 0, data, 2, 1e12, seed=1), rtol=1e-4, atol=1e-7)
    settings = FisherSettings(fisher_weight_samples=1000)
    actual = posterior_information(model, 0, data, settings, 1e-4, generator=Generator().manual_seed(1))
    expected = by_hand(model, 0, TaskData(data.x[:0], data.y[:0]), 1000, 1e-4, seed=1)
    # the prior dominates; the square of a sum with random signs has a standard deviation of at most sqrt(2) its mean
    assert float(((actual - expected).abs() / expected.clamp_min(1e-3)).max()) < 6 * (2 / 1000) ** 0.5


def test_some_examples_stand_for_all(rng: Generator) -> None:
    model, _ = parts()
    model.add_task(2, generator=rng)
    data = some_data(9, 2, rng)
    chosen = torch.tensor([0, 4, 8])
    actual = posterior_information(model, 0, data, FisherSettings(fisher_samples=3), 1e12, generator=rng)
    torch.testing.assert_close(actual, 3 * by_hand(model, 0, TaskData(data.x[chosen], data.y[chosen]), 1, 1e12, seed=0))


class Recurrent(nn.Module):
    """A network that PyTorch cannot batch over examples."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.cell, self.last = nn.GRU(1, 2, batch_first=True), nn.Linear(2, outputs)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.last(self.cell(x.unsqueeze(-1))[0][:, -1])  # (B, 3) -> (B, C)
        return outputs


def test_layers_that_cannot_be_batched(rng: Generator) -> None:
    model, _ = parts("pr-radial")
    model.factory = Recurrent
    model.add_task(2, generator=rng)
    data = some_data(4, 2, rng)
    actual = posterior_information(
        model, 0, data, FisherSettings(fisher_weight_samples=2), 4.0, generator=Generator().manual_seed(1)
    )
    torch.testing.assert_close(actual, by_hand(model, 0, data, 2, 4.0, seed=1))


def test_small_batches_change_nothing(rng: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = parts("pr-radial")
    model.add_task(2, generator=rng)
    data, weights = some_data(7, 2, rng), torch.randn(2, model.spec.numel, generator=rng)
    whole = summed_squared_gradients(model, 0, data, weights, None)
    monkeypatch.setattr(fisher, "GRADIENT_NUMBERS", 5 * model.spec.numel)
    torch.testing.assert_close(summed_squared_gradients(model, 0, data, weights, None), whole)


def test_the_members_of_an_ensemble_have_their_own_information(rng: Generator) -> None:
    model, strategy = parts("pr-ensemble", posterior__members=3, strategy__strength=2.0, posterior__prior_variance=4.0)
    learn(model, strategy, (2, 2), rng)
    alone, _ = parts("pr-dirac")
    alone.add_task(2, generator=rng)
    assert strategy.information is not None
    data = some_data(6, 2, rng)
    with torch.no_grad():
        strategy.after_task(model, 0, data)
    for theta, actual in zip(model.task_map.theta(0).detach().chunk(3), strategy.information[0].chunk(3), strict=True):
        weights = theta.unsqueeze(0)
        expected = summed_squared_gradients(alone, 0, data, weights, None) + 0.25
        torch.testing.assert_close(3 * actual, expected)  # the penalty is the mean over the members
    strategy.information = torch.ones(1, 3 * model.spec.numel) / 3
    plain = parts("pr-ensemble", posterior__members=3, strategy__strength=2.0, strategy__penalty="mse")[1]
    for each in (strategy, plain):
        each.before_task(model, 1)
    shake(model, rng)
    quadratic, squared = (each.penalty(model, 1, generator=rng) for each in (strategy, plain))
    assert quadratic is not None
    assert squared is not None
    torch.testing.assert_close(quadratic, 0.5 * squared, rtol=1e-4, atol=0)


# The penalty.


@pytest.mark.parametrize("old_tasks", [None, 1])
@pytest.mark.parametrize("targets", ["stored", "recomputed"])
def test_with_no_information_of_its_own_it_is_half_the_squared_distance(
    old_tasks: int | None, targets: str, rng: Generator
) -> None:
    settings: dict[str, Any] = {
        "strategy__old_tasks": old_tasks,
        "strategy__targets": targets,
        "strategy__strength": 3.0,
    }
    model, strategy = parts(**settings)
    plain = parts(strategy__penalty="mse", **settings)[1]
    learn(model, strategy, (2, 2, 2), rng)
    plain.before_task(model, 2)
    strategy.information = torch.ones(2, model.spec.numel)  # R = I
    shake(model, rng)
    for seed in range(3):
        quadratic, squared = (
            each.penalty(model, 2, generator=Generator().manual_seed(seed)) for each in (strategy, plain)
        )
        assert quadratic is not None
        assert squared is not None
        torch.testing.assert_close(quadratic, 0.5 * squared, rtol=1e-4, atol=0)


def test_each_task_has_its_own_information(rng: Generator) -> None:
    model, strategy = parts(strategy__strength=3.0, strategy__task_strengths=[0.5], posterior__prior_variance=4.0)
    learn(model, strategy, (2, 2, 2), rng)
    assert strategy.information is not None
    information, old = strategy.information.clone(), model.task_map.thetas([0, 1]).detach().clone()
    assert (information >= 0.25 - 1e-6).all()
    assert (information > 0.26).any(1).all()
    shake(model, rng)
    penalty = strategy.penalty(model, 2, generator=rng)
    assert penalty is not None
    each = 0.5 * (information * (model.task_map.thetas([0, 1]).detach() - old).square()).sum(1)
    torch.testing.assert_close(penalty.detach(), 3.0 / 2 * (0.5 * each[0] + each[1]), rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", GENERATORS)
def test_information_moves_with_its_parameters_when_outputs_grow(name: str, rng: Generator) -> None:
    model, strategy = parts(name)
    learn(model, strategy, (2, 2), rng)
    assert strategy.information is not None
    before, small = strategy.information.clone(), model.spec
    learn(model, strategy, (5,), rng)
    actual, places = strategy.information, model.family.positions_in(small, model.spec)
    assert actual.shape == (2, model.family.num_parameters(model.spec))
    assert torch.equal(actual[:1, places], before)
    unknown = torch.ones(actual.shape[1], dtype=torch.bool)
    unknown[places] = False
    assert not actual[:, unknown].any()
    if name == "pr-dirac":
        then, now = small.unflatten(before[0]), model.spec.unflatten(actual[0])
        assert torch.equal(now["layers.1.weight"][:2], then["layers.1.weight"])
    shake(model, rng)
    penalty = strategy.penalty(model, 2, generator=rng)
    assert penalty is not None
    assert float(penalty.detach()) > 0


def test_old_information_has_to_be_at_hand(rng: Generator) -> None:
    model, strategy = parts()
    learn(model, strategy, (2, 2), rng)
    kept = {name: tensor for name, tensor in strategy.state().items() if not name.startswith(CURRENT)}
    strategy.load_state(model, {})
    model.add_task(2, generator=rng)
    with pytest.raises(
        ConfigError, match="needs the Fisher information of all 2 earlier tasks, but only 0 are available"
    ):
        strategy.before_task(model, 2)
    strategy.load_state(model, kept)
    with pytest.raises(ConfigError, match="but only 1 are available"):
        strategy.before_task(model, 2)


def test_without_strength_nothing_is_computed(rng: Generator) -> None:
    model, strategy = parts(strategy__strength=0)
    learn(model, strategy, (2, 2), rng)
    assert strategy.state() == {}
    assert strategy.penalty(model, 1, generator=rng) is None


def test_a_task_done_again_replaces_its_information_alone(rng: Generator) -> None:
    model, strategy = parts("pr-radial")
    learn(model, strategy, (2, 2, 2), rng)
    assert strategy.information is not None
    before = strategy.information.clone()
    strategy.after_task(model, 0, some_data(4, 2, rng))
    assert not torch.equal(strategy.information[0], before[0])
    assert torch.equal(strategy.information[1], before[1])


def test_the_same_task_done_twice_is_counted_once(rng: Generator) -> None:
    model, strategy = parts("pr-radial")
    learn(model, strategy, (2, 2), rng)
    data = some_data(4, 2, rng)
    actual = []
    for _ in range(2):
        strategy.after_task(model, 1, data)
        assert strategy.information is not None
        actual.append(strategy.information.clone())
    assert torch.equal(actual[0], actual[1])
    assert actual[0].shape[0] == 2


@pytest.mark.parametrize("method", ["pr-dirac", "pr-radial"])
def test_a_loaded_classifier_learns_on_as_if_it_had_never_been_stored(method: str, tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 2
    model = ContinualClassifier(method, "mlp-4", settings={"training.iterations": 4, "strategy.penalty": "fisher"})
    model.learn_task(x, y).learn_task(x + 3, y + 2).save(tmp_path)
    again = ContinualClassifier.load(tmp_path)
    for each in (model, again):
        each.learn_task(x - 3, np.arange(30) % 3 + 4)  # the network grows
    for task in range(3):
        assert np.array_equal(again.predict_proba(x, task), model.predict_proba(x, task))


def test_a_refused_task_leaves_old_information_as_it_was() -> None:
    x, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 2
    settings = {
        "training.iterations": 4,
        "strategy.penalty": "fisher",
        "hypernet.kind": "plain",
        "hypernet.hidden": [4],
    }
    model = ContinualClassifier("pr-dirac", "mlp-4", settings=settings).learn_task(x, y)
    before = model._trained().strategy.state()["information"].clone()
    model._trained().config = model._trained().config.model_copy(
        update={"hypernet": model._trained().config.hypernet.model_copy(update={"smaller_than_network": True})}
    )
    with pytest.raises(ConfigError, match="smaller"):
        model.learn_task(x, np.arange(30) % 5)
    assert torch.equal(model._trained().strategy.state()["information"], before)
