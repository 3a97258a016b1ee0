"""Build the parts of a configuration: network, posterior family, task map, strategy."""

from math import prod

import torch
from torch import Generator, Tensor, nn

from metareplay.benchmarks.base import Problem, Scenario
from metareplay.devices import device_named
from metareplay.errors import ConfigError
from metareplay.learner.config import RunConfig
from metareplay.learner.methods import GrowingOutputsSettings, TotalOutputsSettings
from metareplay.likelihoods import Categorical, Gaussian, LikelihoodSettings
from metareplay.model import ContinualModel
from metareplay.nets.base import ActivationSettings
from metareplay.nets.registry import build_seeded, network_factory
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.base import MATCHINGS, MatchingContext, PosteriorFamily, PriorMatching
from metareplay.posteriors.families.mixture import EnsembleSettings
from metareplay.posteriors.matching.avb import AVBSettings
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.posteriors.settings import FixedPriorSettings
from metareplay.strategies.base import STRATEGIES, Strategy, StrategyContext
from metareplay.task_maps.base import TaskMap
from metareplay.task_maps.generated import build_generated
from metareplay.task_maps.heads import HeadLayout
from metareplay.task_maps.initialise import hyperfan_variances
from metareplay.task_maps.settings import HeadsSettings, HypernetSettings


def build_model(
    config: RunConfig,
    problem: Problem,
    scenario: Scenario,
    input_shape: tuple[int, ...],
    total_outputs: int | None = None,
) -> ContinualModel:
    """The model of a configuration, still without tasks; ``total_outputs``: the classes of all tasks, if known."""
    if prod(input_shape) == 0:
        raise ConfigError(f"inputs of shape {input_shape} are empty; every input needs at least one number")
    factory = network_factory(config.network, input_shape, config)
    family, layout = build_family(config), head_layout(config, problem, scenario)
    check_auxiliary(config, problem, layout, input_shape)
    outputs = outputs_from_start(config, layout, total_outputs)
    check_kept_discriminator(config, layout, outputs)
    scale = config.get(LikelihoodSettings).likelihood_scale
    return ContinualModel(
        factory,
        family,
        lambda size, generator: build_task_map(config, size, generator),
        layout,
        Categorical() if problem == "classification" else Gaussian(scale),
        lambda family, network, spec: target_variances(config, family, network, spec),
        outputs,
        device_named(config.device),
        config.training.auxiliary,
    )


def check_auxiliary(config: RunConfig, problem: Problem, layout: HeadLayout, input_shape: tuple[int, ...]) -> None:
    """Refuse auxiliary outputs where there are no classes, or where they would compete with other tasks' classes."""
    auxiliary = config.training.auxiliary
    keys = [f"training.{name}" for name, given in auxiliary._asdict().items() if given]
    if keys and problem == "regression":
        raise ConfigError(f"{keys[0]} adds outputs to a task's classes, but regression has none; remove it")
    if keys and layout.one_softmax:
        raise ConfigError(
            f"{keys[0]} adds outputs to a task's classes, but {config.method} has one softmax over the classes of all "
            "tasks; remove it, or choose a method with weights for each task, such as pr-bbb, or with outputs for each "
            "task, such as ewc-multihead"
        )
    square = len(input_shape) == 3 and input_shape[1] == input_shape[2]
    if auxiliary.rotations and not square:
        raise ConfigError(
            f"training.rotations needs square images of shape (C, H, H), but inputs have shape {input_shape}; "
            "remove it, or resize the images"
        )


def check_kept_discriminator(config: RunConfig, layout: HeadLayout, total_outputs: int | None) -> None:
    """Refuse a discriminator that is to stay the same while the weights that it sees become more."""
    avb = config.find(AVBSettings)
    grows = layout in (HeadLayout.MULTI, HeadLayout.GROWING) and total_outputs is None
    if avb is not None and avb.avb_kept and grows:
        raise ConfigError(
            "posterior.avb_kept keeps one discriminator for all tasks, but each task adds outputs here, and with them "
            "weights that it does not know; set outputs_from_start=true (on a benchmark), or remove it"
        )


def build_family(config: RunConfig) -> PosteriorFamily:
    """What theta means."""
    return config.kind().family_part.build(config)


def build_matching(
    config: RunConfig, num_weights: int, *, generator: Generator, device: torch.device | None = None
) -> PriorMatching:
    """The estimator of a task's prior-matching term; re-created for every task, though it may hand on what it knows."""
    training = config.training
    context = MatchingContext(
        num_weights, training.learning_rate, training.clip_value, training.clip_norm, generator, device
    )
    return MATCHINGS[config.parts()["matching"].name].build(config, context)


def build_strategy(config: RunConfig, problem: Problem = "classification") -> Strategy:
    """What binds the tasks."""
    context = StrategyContext(fixed_prior(config), config.seed, problem)
    return STRATEGIES[config.kind().strategy].build(config, context)


def fixed_prior(config: RunConfig) -> GaussianPrior:
    """The prior of a task, where nothing else is."""
    fixed = config.find(FixedPriorSettings) or FixedPriorSettings()
    return GaussianPrior(fixed.prior_variance)


def build_task_map(config: RunConfig, size: int, generator: Generator) -> TaskMap:
    """Who stores theta (size elements)."""
    return config.kind().task_map_part.build(config, size, generator, _members(config))


def _members(config: RunConfig) -> int:
    """The number of networks in a task's posterior."""
    ensemble = config.find(EnsembleSettings)
    return 1 if ensemble is None else ensemble.members


def head_layout(config: RunConfig, problem: Problem, scenario: Scenario) -> HeadLayout:
    """Tasks with their own weights share one set of outputs; tasks that share weights need their own outputs."""
    method, chosen = config.kind(), config.find(HeadsSettings)
    if problem == "regression" and method.for_regression is not None:
        raise ConfigError(
            f"{method.name} has a softmax over all tasks' classes, but regression has no classes; "
            f"choose {method.for_regression}"
        )
    if problem == "classification" and chosen is not None and chosen.heads is not None:
        return HeadLayout(chosen.heads)
    if not method.task_map_part.shared or problem == "regression" or scenario is Scenario.DOMAIN:
        return HeadLayout.SINGLE
    return {"per-task": HeadLayout.MULTI, "growing": HeadLayout.GROWING, "shared": HeadLayout.SHARED}[method.outputs]


def outputs_from_start(config: RunConfig, layout: HeadLayout, known: int | None) -> int | None:
    """The number of outputs that the network has from the start; None if they come with the tasks."""
    growing = config.find(GrowingOutputsSettings)
    if layout in (HeadLayout.GROWING, HeadLayout.MULTI) and growing is not None and growing.outputs_from_start:
        if known is None:
            raise ConfigError(
                "outputs_from_start needs to know the classes of all tasks, which only a run on a benchmark does; "
                "remove it: outputs are then added with each task"
            )
        return known
    if layout is not HeadLayout.SHARED:
        return None
    total = config.get(TotalOutputsSettings).total_outputs or known
    if total is None:
        raise ConfigError(
            f"{config.method} has one softmax over the classes of all tasks, including future ones; "
            "set their number with total_outputs, or choose ewc-growing or ewc-multihead, whose outputs grow"
        )
    if known is not None and total < known:
        raise ConfigError(
            f"total_outputs={total} is too small: the tasks have {known} classes; remove it, or use at least {known}"
        )
    return total


def target_variances(config: RunConfig, family: PosteriorFamily, network: nn.Module, spec: WeightSpec) -> Tensor | None:
    """Target variances of a hypernetwork's initial outputs; None for Xavier."""
    hypernet = config.find(HypernetSettings)
    if hypernet is None or hypernet.initialisation == "xavier":
        return None
    variances = family.initial_variances(network, spec)
    if hypernet.initialisation == "hyperfan":
        mask, activation = family.weight_mask(spec), config.find(ActivationSettings)
        relu = (activation or ActivationSettings()).activation == "relu"
        target = hyperfan_variances(spec, relu=relu)  # (W,)
        variances[mask] = target.repeat(int(mask.sum()) // spec.numel)  # the same for each member of an ensemble
    return variances


def check_size(config: RunConfig, model: ContinualModel, expected_tasks: int) -> None:
    """Refuse a hypernetwork that is larger than what it generates, if the configuration requires that."""
    settings = config.find(HypernetSettings)
    if settings is None or not (settings.smaller_than_posterior or settings.smaller_than_network):
        return
    trained, posterior, network = final_sizes(config, model, expected_tasks)
    limits = {
        "smaller_than_posterior": (settings.smaller_than_posterior, posterior, "parameters of one task's posterior"),
        "smaller_than_network": (settings.smaller_than_network, network, "weights of the main network"),
    }
    for key, (required, limit, words) in limits.items():
        if required and trained >= limit:
            raise ConfigError(
                f"the hypernetwork has {trained:,} parameters for {max(expected_tasks, model.num_tasks)} tasks, not "
                f"fewer than the {limit:,} {words}; choose a smaller hypernet.chunk_size or narrower hypernet.hidden, "
                f"or allow it with hypernet.{key}=false"
            )


def final_sizes(config: RunConfig, model: ContinualModel, expected_tasks: int) -> tuple[int, int, int]:
    """Trained parameters, those of one task's posterior, and main-network weights, after all expected tasks.

    Outputs that are added with a task enlarge the posterior; future tasks are assumed to add as many as those so far.
    """
    counts, tasks = model.parameter_counts(), max(expected_tasks, model.num_tasks)
    if model.layout in (HeadLayout.SINGLE, HeadLayout.SHARED) or tasks == model.num_tasks:
        future = tasks - model.num_tasks
        separate = config.kind().task_map_part.separate
        trained = counts["per_task"] if separate else counts["trained"] + counts["per_task"] * future
        return trained, counts["posterior"], counts["main_network"]
    generator = torch.Generator().manual_seed(0)  # only shapes matter
    spec = WeightSpec.of(build_seeded(model.factory, model.outputs * tasks // model.num_tasks, generator))
    posterior = model.family.num_parameters(spec)
    task_map = build_generated(config, posterior, generator, _members(config))
    return task_map.num_parameters() + tasks * task_map.per_task_parameters(), posterior, spec.numel
