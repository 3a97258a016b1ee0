"""What every strategy owes to the training loop; a new one is tested as soon as a method uses it."""

from typing import get_args

import pytest
import torch
from torch import Generator

from metareplay.benchmarks.base import Scenario
from metareplay.experiments.build import build_matching, build_model, build_strategy
from metareplay.experiments.config import RunConfig, build_config
from metareplay.experiments.methods import METHODS, StrategyName
from metareplay.model import ContinualModel
from metareplay.posteriors.dirac import Dirac
from metareplay.posteriors.mixture import members_of
from metareplay.strategies.base import Strategy, TrainingData

SMALL = {"hypernet.hidden": (6,), "hypernet.task_embedding_size": 3, "hypernet.chunk_embedding_size": 2}
PENALTIES: list[dict[str, object]] = [
    {"strategy.penalty": "mse"},
    {"strategy.penalty": "w2"},
    {"strategy.penalty": "w2", "strategy.targets": "recomputed"},
    {"strategy.penalty": "mse", "strategy.old_tasks": 1},
    {"strategy.penalty": "fkl"},
    {"strategy.penalty": "rkl", "strategy.old_tasks": 1},
    {"strategy.penalty": "fisher"},
    {"strategy.penalty": "fisher", "strategy.old_tasks": 1, "strategy.age_discount": 0.5, "strategy.targets": "recomputed"},
]
NO_CLOSED_FORM = ("fkl", "rkl", "w2")
REFUSED = {"dirac": ("fkl", "rkl"), "radial": NO_CLOSED_FORM, "ssge": NO_CLOSED_FORM, "avb": NO_CLOSED_FORM, "flow": ("w2",)}


def _configs() -> dict[str, RunConfig]:
    """Every method's strategy; those with a penalty in all kinds that the method allows."""
    found = {}
    for method in METHODS.values():
        variants: list[dict[str, object]] = [{}]
        if method.strategy == "posterior-replay":
            refused = REFUSED.get(method.member_family, ())
            variants = [given for given in PENALTIES if given["strategy.penalty"] not in refused]
            if method.family in ("bbb", "flow"):
                variants.append({"strategy.penalty": "fkl", "strategy.prior_from_earlier": 0.5})
        for given in variants:
            defaults = {"method": method.name, "network": "mlp-4", **(SMALL if method.has_hypernetwork else {})}
            label = " ".join([method.name, *(str(value) for value in given.values())])
            found[label] = build_config(defaults, given, "test")
    return found


CONFIGS = _configs()
pytestmark = pytest.mark.parametrize("name", CONFIGS)
TASKS = 3


def learned(name: str, rng: Generator) -> tuple[ContinualModel, Strategy]:
    """A model in the middle of its third task."""
    config = CONFIGS[name]
    model, strategy = build_model(config, "classification", Scenario.CLASS, (2,), 7), build_strategy(config)
    for task, classes in enumerate((2, 3, 2)):
        model.add_task(classes, generator=rng)
        strategy.before_task(model, task)
        data = strategy.data_for(task, TrainingData(torch.full((2, 2), float(task)), torch.zeros(2, dtype=torch.int64)))
        for parameter in model.task_map.trained_parameters(task):
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=rng)
        if task < TASKS - 1:
            with torch.no_grad():
                strategy.after_task(model, task, data)
    return model, strategy


def test_every_known_strategy_is_here(name: str) -> None:
    assert {config.kind().strategy for config in CONFIGS.values()} == set(get_args(StrategyName))


def test_the_penalty_is_nothing_or_a_number_with_a_gradient(name: str, rng: Generator) -> None:
    model, strategy = learned(name, rng)
    penalty = strategy.penalty(model, TASKS - 1, generator=rng)
    assert (penalty is None) == (CONFIGS[name].kind().strategy not in ("posterior-replay", "ewc", "rehearsal"))
    if penalty is not None:
        assert penalty.shape == ()
        assert float(penalty.detach()) > 0
        gradients = torch.autograd.grad(penalty, model.task_map.trained_parameters(TASKS - 1), allow_unused=True)
        assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)
        assert any(gradient is not None and gradient.any() for gradient in gradients)


def test_the_first_task_has_nothing_to_keep(name: str, rng: Generator) -> None:
    config = CONFIGS[name]
    model, strategy = build_model(config, "classification", Scenario.CLASS, (2,), 7), build_strategy(config)
    model.add_task(2, generator=rng)
    strategy.before_task(model, 0)
    penalty = strategy.penalty(model, 0, generator=rng)
    if config.kind().strategy == "ewc":  # a point estimate has its prior here
        assert penalty is not None
        weights = model.task_map.theta(0).detach().chunk(2)[0]
        torch.testing.assert_close(penalty.detach(), 0.5 * weights.square().sum() / config.posterior.prior_variance)
    else:
        assert penalty is None


def test_the_penalty_follows_the_generator(name: str, rng: Generator) -> None:
    model, strategy = learned(name, rng)
    first, again = (strategy.penalty(model, TASKS - 1, generator=Generator().manual_seed(1)) for _ in range(2))
    assert (first is None and again is None) or (first is not None and again is not None and torch.equal(first, again))


def test_what_is_stored_gives_the_same_penalty(name: str, rng: Generator) -> None:
    model, strategy = learned(name, rng)
    stored = {key: tensor.clone() for key, tensor in strategy.tensors().items()}
    other = build_strategy(CONFIGS[name])
    other.recall(strategy.memory())
    other.restore(model, TASKS - 1, stored)
    for seed in range(3):
        expected, found = (each.penalty(model, TASKS - 1, generator=Generator().manual_seed(seed)) for each in (strategy, other))
        assert (expected is None and found is None) or (expected is not None and found is not None and torch.equal(expected, found))


def test_restoring_does_not_change_the_model(name: str, rng: Generator) -> None:
    model, strategy = learned(name, rng)
    before = model.task_map.thetas(range(TASKS)).detach().clone()
    other = build_strategy(CONFIGS[name])
    other.recall(strategy.memory())
    other.restore(model, TASKS - 1, strategy.tensors())
    assert torch.equal(model.task_map.thetas(range(TASKS)), before)
    assert all(parameter.requires_grad for parameter in model.task_map.parameters())


def test_there_is_a_prior_and_data_for_every_task(name: str) -> None:
    strategy = build_strategy(CONFIGS[name])
    config_model = build_model(CONFIGS[name], "classification", Scenario.CLASS, (2,), 7)
    for task in range(TASKS):
        config_model.add_task(2, generator=Generator().manual_seed(task))
        own = TrainingData(torch.full((2, 2), float(task)), torch.full((2,), task))
        given = strategy.data_for(task, own)
        count = 1 if CONFIGS[name].kind().coresets else 2  # the others are kept for later
        assert torch.equal(given.x[-count:], own.x[:count])  # the task's own data are always among them
        assert torch.equal(given.y[-count:], own.y[:count])
        assert len(given.x) == len(given.y)
        posterior = config_model.training_posterior(task)
        if not isinstance(members_of(posterior)[0], Dirac):
            rng = Generator().manual_seed(task)
            matching = build_matching(CONFIGS[name], config_model.spec.numel, generator=rng)
            term = matching.term(posterior, strategy.prior_for(task), 2, generator=rng)
            assert float(term.detach()) > 0
