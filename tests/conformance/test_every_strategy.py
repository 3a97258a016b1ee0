"""What every strategy owes to the training loop; a new one is tested as soon as a method uses it."""

import pytest
import torch
from torch import Generator, Tensor

from metareplay.batches.base import Batch
from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.learner.build import build_matching, build_model, build_strategy
from metareplay.learner.config import RunConfig, build_config
from metareplay.learner.methods import METHODS
from metareplay.model import ContinualModel
from metareplay.posteriors.base import Prior
from metareplay.posteriors.divergences import known_penalties
from metareplay.posteriors.priors.earlier import EarlierPriorSettings
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.posteriors.settings import FixedPriorSettings
from metareplay.strategies.base import STRATEGIES, StepChange, Strategy
from metareplay.strategies.replay_settings import ReplaySettings
from metareplay.training.objective import Objective

SMALL = {"hypernet.hidden": (6,), "hypernet.task_embedding_size": 3, "hypernet.chunk_embedding_size": 2}
PENALTIES: list[dict[str, object]] = [
    {"strategy.penalty": "mse"},
    {"strategy.penalty": "w2"},
    {"strategy.penalty": "w2", "strategy.targets": "recomputed"},
    {"strategy.penalty": "mse", "strategy.old_tasks": 1},
    {"strategy.penalty": "fkl"},
    {"strategy.penalty": "rkl", "strategy.old_tasks": 1},
    {"strategy.penalty": "fisher"},
    {
        "strategy.penalty": "fisher",
        "strategy.old_tasks": 1,
        "strategy.age_discount": 0.5,
        "strategy.targets": "recomputed",
    },
]


def _configs() -> dict[str, RunConfig]:
    """Every method's strategy; those with a penalty in all kinds that the family allows, variants of them in some."""
    actual = {}
    for method in METHODS.values():
        variants: list[dict[str, object]] = [{}]
        if issubclass((*STRATEGIES[method.strategy].settings, object)[0], ReplaySettings):
            known = known_penalties(method.family_part.posterior)
            variants = [given for given in PENALTIES if given["strategy.penalty"] in known]
            if method.strategy != "posterior-replay":  # which add nothing to a penalty: one without memory, one with
                variants = [variants[0], variants[-1]]
            if method.family in ("bbb", "flow"):
                variants.append({"strategy.penalty": "fkl", "strategy.prior_from_earlier": 0.5})
        for given in variants:
            small = SMALL if method.task_map_part.generated else {}
            defaults = {"method": method.name, "network": method.network or "mlp-4", **small}
            label = " ".join([method.name, *(str(value) for value in given.values())])
            actual[label] = build_config(defaults, given, "test")
    return actual


CONFIGS = _configs()
WITHOUT_PENALTY = ("unbound", "joint", "prior-focused", "contrast", "reservoir")
# These have a penalty once they have seen a batch.
WITHOUT_PENALTY += ("without-forgetting", "generative-replay", "hypernetwork-replay")
TASKS = 3


def learned(name: str, rng: Generator, step: float = 0.1) -> tuple[ContinualModel, Strategy]:
    """A model in the middle of its third task; each task has moved all parameters about so far."""
    config = CONFIGS[name]
    model, strategy = build_model(config, "classification", Scenario.CLASS, (2,), 7), build_strategy(config)
    for task, classes in enumerate((2, 3, 2)):
        model.add_task(classes, generator=rng)
        strategy.before_task(model, task)
        data = strategy.data_for(task, TaskData(torch.full((2, 2), float(task)), torch.zeros(2, dtype=torch.int64)))
        parameters = model.task_map.trained_parameters(task)
        changes = [step * torch.randn(parameter.shape, generator=rng) for parameter in parameters]
        for parameter, change in zip(parameters, changes, strict=True):
            parameter.data += change
        if strategy.sees_steps:
            batch, down = Batch(data.x, data.y), [-change for change in changes]
            strategy.after_step(model, task, StepChange([batch], parameters, down, changes), generator=rng)
        if task < TASKS - 1:
            with torch.no_grad():
                strategy.after_task(model, task, data)
    return model, strategy


@pytest.fixture(params=CONFIGS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_known_strategy_is_here() -> None:
    assert {config.kind().strategy for config in CONFIGS.values()} == set(STRATEGIES)


def test_the_penalty_has_a_gradient_and_is_the_same_from_what_is_stored(name: str, rng: Generator) -> None:
    model, strategy = learned(name, rng)
    _assert_a_gradient(name, model, strategy, rng)
    before = model.task_map.thetas(range(TASKS)).detach().clone()
    other = build_strategy(CONFIGS[name])
    other.load_state(model, {key: tensor.clone() for key, tensor in strategy.state().items()})
    assert torch.equal(model.task_map.thetas(range(TASKS)), before)
    assert all(parameter.requires_grad for parameter in model.task_map.parameters())
    for seed in range(3):  # the generator decides, and nothing else
        expected, actual = (
            each.penalty(model, TASKS - 1, generator=Generator().manual_seed(seed)) for each in (strategy, other)
        )
        assert (expected is None and actual is None) or (
            expected is not None and actual is not None and torch.equal(expected, actual)
        )


def _assert_a_gradient(name: str, model: ContinualModel, strategy: Strategy, rng: Generator) -> None:
    penalty = strategy.penalty(model, TASKS - 1, generator=rng)
    part = STRATEGIES[CONFIGS[name].kind().strategy]
    assert (penalty is None) == (part.closed_form or part.name in WITHOUT_PENALTY)
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
        torch.testing.assert_close(
            penalty.detach(), 0.5 * weights.square().sum() / config.get(FixedPriorSettings).prior_variance
        )
    else:
        assert penalty is None


def matched(name: str, model: ContinualModel, prior: Prior) -> tuple[Tensor, Tensor]:
    """The matching term of the first task's posterior and its gradient, after one step of learning the estimator."""
    rng, theta = Generator().manual_seed(1), model.task_map.theta(0).detach().clone().requires_grad_()
    posterior = model.family.while_training(theta, model.spec)
    matching = build_matching(CONFIGS[name], model.spec.numel, generator=rng)
    matching.learn(posterior, prior, generator=rng)
    term = matching.term(posterior, prior, generator=rng)
    return term.detach(), torch.autograd.grad(term, theta)[0]


def test_what_is_stored_gives_the_same_prior(name: str, rng: Generator) -> None:
    """It is the fixed one, or comes from earlier posteriors, which the last step changed: the stored ones count."""
    model, strategy = learned(name, rng, step=0.001)
    other, config = build_strategy(CONFIGS[name]), CONFIGS[name]
    other.load_state(model, {key: tensor.clone() for key, tensor in strategy.state().items()})
    prior, restored = strategy.prior_for(TASKS - 1), other.prior_for(TASKS - 1)
    fixed = GaussianPrior((config.find(FixedPriorSettings) or FixedPriorSettings()).prior_variance)
    mixed = config.find(EarlierPriorSettings) or EarlierPriorSettings()
    from_posteriors = STRATEGIES[config.kind().strategy].recursive or mixed.prior_from_earlier > 0
    assert type(restored) is type(prior)
    assert (prior != fixed) == from_posteriors
    if Objective.of(config).point:
        return  # a point is not matched with a prior
    expected, actual, plain = (matched(name, model, each) for each in (prior, restored, fixed))
    assert actual[1].isfinite().all()
    assert actual[1].any()
    for k in range(2):  # the term, and its gradient
        assert torch.equal(actual[k], expected[k])
        assert torch.equal(actual[k], plain[k]) != from_posteriors


def test_there_is_a_prior_and_data_for_every_task(name: str) -> None:
    strategy = build_strategy(CONFIGS[name])
    model = build_model(CONFIGS[name], "classification", Scenario.CLASS, (2,), 7)
    for task in range(TASKS):
        model.add_task(2, generator=Generator().manual_seed(task))
        strategy.before_task(model, task)
        own = TaskData(torch.full((2, 2), float(task)), torch.full((2,), task % 2))
        given = strategy.data_for(task, own)
        count = 1 if CONFIGS[name].kind().strategy == "coreset-replay" else 2  # the others are kept for later
        assert torch.equal(given.x[-count:], own.x[:count])  # the task's own data are always among them
        assert torch.equal(given.y[-count:], own.y[:count])
        assert len(given.x) == len(given.y)
        posterior, prior, rng = model.training_posterior(task), strategy.prior_for(task), Generator().manual_seed(task)
        if not Objective.of(CONFIGS[name]).point:
            matching = build_matching(CONFIGS[name], model.spec.numel, generator=rng)
            term = matching.term(posterior, prior, generator=rng)
            assert term.isfinite()
            if isinstance(prior, GaussianPrior):  # others may be where the posterior starts
                assert float(term.detach()) > 0
        with torch.no_grad():
            strategy.after_task(model, task, given)
