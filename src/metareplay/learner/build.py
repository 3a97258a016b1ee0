"""Put a configuration's parts together: model and strategy."""

from itertools import pairwise
from math import ceil, prod

import torch
from torch import Generator, Tensor, nn

from metareplay.benchmarks.base import Problem, Scenario
from metareplay.devices import device_named
from metareplay.errors import ConfigError
from metareplay.learner.config import RunConfig
from metareplay.likelihoods import Categorical, Gaussian
from metareplay.model import ContinualModel, HeadLayout
from metareplay.nets.registry import build_seeded, network_factory
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.base import PosteriorFamily, PriorMatching
from metareplay.posteriors.families.dirac import DiracFamily
from metareplay.posteriors.families.flow import FlowFamily
from metareplay.posteriors.families.gaussian import GaussianFamily
from metareplay.posteriors.families.implicit import ImplicitFamily
from metareplay.posteriors.families.laplace import LaplaceFamily
from metareplay.posteriors.families.mixture import MixtureFamily
from metareplay.posteriors.families.radial import RadialFamily
from metareplay.posteriors.matching.avb import AVBMatching
from metareplay.posteriors.matching.direct import DirectMatching
from metareplay.posteriors.matching.ssge import SSGEMatching
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.strategies.base import Strategy
from metareplay.strategies.baselines import Joint, Unbound
from metareplay.strategies.coresets import CoresetReplay
from metareplay.strategies.ewc import OnlineEWC
from metareplay.strategies.posterior_replay import PosteriorReplay
from metareplay.strategies.prior_focused import PriorFocused
from metareplay.strategies.rehearsal import ExperienceReplay
from metareplay.task_maps.base import TaskMap
from metareplay.task_maps.chunked import ChunkedHypernetwork
from metareplay.task_maps.direct import PerTaskParameters, SharedParameters
from metareplay.task_maps.ensemble import EnsembleMap
from metareplay.task_maps.hypernetwork import Hypernetwork, PerTaskHypernetworks, PlainHypernetwork
from metareplay.task_maps.initialise import hyperfan_variances
from metareplay.task_maps.settings import HypernetSettings


def build_model(
    config: RunConfig, problem: Problem, scenario: Scenario, input_shape: tuple[int, ...], total_outputs: int | None = None
) -> ContinualModel:
    """The model of a configuration, without tasks yet; ``total_outputs`` is how many classes all tasks have together, if known."""
    if prod(input_shape) == 0:
        raise ConfigError(f"inputs of shape {input_shape} are empty; every input needs at least one number")
    factory = network_factory(config.network, input_shape, config.activation)
    family, layout = build_family(config), head_layout(config, problem, scenario)
    likelihood = Categorical() if problem == "classification" else Gaussian(config.posterior.likelihood_scale)
    return ContinualModel(
        factory,
        family,
        lambda size, generator: build_task_map(config, size, generator),
        layout,
        likelihood,
        lambda family, network, spec: target_variances(config, family, network, spec),
        shared_outputs(config, total_outputs) if layout is HeadLayout.SHARED else None,
        device_named(config.device),
    )


def build_family(config: RunConfig) -> PosteriorFamily:
    """What theta means."""
    gaussian = GaussianFamily(keep_network_init=config.posterior.keep_network_init)
    if config.kind().family == "ewc":
        return LaplaceFamily(config.posterior.prior_variance, point=config.kind().point_prediction, linearised=config.strategy.linearised)
    families: dict[str, PosteriorFamily] = {
        "dirac": DiracFamily(),
        "flow": FlowFamily(config.posterior),
        "bbb": gaussian,
        "radial": RadialFamily(gaussian),
        "ssge": ImplicitFamily(config.posterior, "ssge"),
        "avb": ImplicitFamily(config.posterior, "avb"),
    }
    base = families[config.kind().member_family]
    return MixtureFamily(base, config.posterior.members, config.kind().family) if config.kind().ensemble else base


def build_matching(config: RunConfig, num_weights: int, *, generator: Generator, device: torch.device | None = None) -> PriorMatching:
    """How the prior-matching term of a task is computed, for a network of so many weights; made anew for every task."""
    if config.kind().family == "ssge":
        return SSGEMatching(config.posterior)
    if config.kind().family == "avb":
        training = config.training
        return AVBMatching(
            num_weights,
            config.posterior,
            learning_rate=training.learning_rate,
            clip_value=training.clip_value,
            clip_norm=training.clip_norm,
            generator=generator,
            device=device,
        )
    return DirectMatching()


def head_layout(config: RunConfig, problem: Problem, scenario: Scenario) -> HeadLayout:
    """Tasks with weights of their own share one set of outputs; tasks that share weights need outputs of their own."""
    method = config.kind()
    other = {"ewc": "ewc-multihead", "prior-focused": "vcl"}.get(method.strategy)
    if problem == "regression" and other is not None and (method.shared_softmax or method.growing_softmax):
        raise ConfigError(f"{method.name} has a softmax over all tasks' classes, and regression has no classes; choose {other}")
    if problem == "classification" and config.heads is not None:
        return HeadLayout(config.heads)
    if method.task_map != "shared" or problem == "regression" or scenario is Scenario.DOMAIN:
        return HeadLayout.SINGLE
    if method.shared_softmax:
        return HeadLayout.SHARED
    return HeadLayout.GROWING if method.growing_softmax else HeadLayout.MULTI


def shared_outputs(config: RunConfig, known: int | None) -> int:
    """How many outputs a softmax has that spans all tasks from the start."""
    total = config.total_outputs or known
    if total is None:
        raise ConfigError(
            f"{config.method} has one softmax over the classes of all tasks, those to come included; say how many with total_outputs, "
            "or choose ewc-growing or ewc-multihead, whose outputs grow"
        )
    if known is not None and total < known:
        raise ConfigError(
            f"total_outputs={total} is too small: the tasks have {known} classes in all; leave it out, or give at least {known}"
        )
    return total


def build_task_map(config: RunConfig, size: int, generator: Generator) -> TaskMap:
    """Who stores theta (size elements)."""
    kind = config.kind().task_map
    if kind == "shared":
        return SharedParameters(size, constant_half=config.kind().family == "ewc")
    if kind == "per-task":
        return PerTaskParameters(size)
    if kind == "per-task-hypernetwork":
        return PerTaskHypernetworks(size, lambda outputs, rng: build_embedded(config, outputs, rng))
    return build_embedded(config, size, generator)


def build_embedded(config: RunConfig, size: int, generator: Generator) -> TaskMap:
    """A hypernetwork with an embedding per task, or with one for each member of a task's ensemble."""
    if not config.kind().ensemble:
        return build_hypernetwork(config.hypernet, size, generator)
    members = config.posterior.members
    return EnsembleMap(build_hypernetwork(config.hypernet, size // members, generator, members=members), members)


def build_hypernetwork(settings: HypernetSettings, size: int, generator: Generator, *, members: int = 1) -> Hypernetwork:
    """A plain or chunked hypernetwork with so many outputs, for tasks with so many embeddings."""
    if settings.kind == "plain":
        return PlainHypernetwork(
            size,
            hidden=settings.hidden,
            activation=settings.activation,
            task_embedding_size=settings.task_embedding_size,
            task_embedding_std=settings.task_embedding_std,
            generator=generator,
        )
    return ChunkedHypernetwork(
        size,
        hidden=settings.hidden,
        chunk_size=min(size, settings.chunk_size or chosen_chunk_size(settings, size, members)),
        activation=settings.activation,
        task_embedding_size=settings.task_embedding_size,
        task_embedding_std=settings.task_embedding_std,
        chunk_embedding_size=settings.chunk_embedding_size,
        chunk_embedding_std=settings.chunk_embedding_std,
        chunk_embeddings_per_task=settings.chunk_embeddings_per_task,
        generator=generator,
    )


def chosen_chunk_size(settings: HypernetSettings, size: int, members: int = 1) -> int:
    """The largest chunk with which the hypernetwork has at most 90 % of its outputs' number of parameters, else that with the fewest."""
    inputs = settings.task_embedding_size + settings.chunk_embedding_size
    widths = (inputs, *settings.hidden)
    fixed = sum((a + 1) * b for a, b in pairwise(widths)) + 10 * members * settings.task_embedding_size  # room for ten tasks
    counts = {}
    chunk = float(size)
    while chunk >= 1:
        candidate = ceil(chunk)
        counts[candidate] = fixed + (widths[-1] + 1) * candidate + ceil(size / candidate) * settings.chunk_embedding_size
        if counts[candidate] <= 0.9 * size:
            return candidate
        chunk *= 0.95
    return min(counts, key=lambda candidate: counts[candidate])


def target_variances(config: RunConfig, family: PosteriorFamily, network: nn.Module, spec: WeightSpec) -> Tensor | None:
    """The variances a hypernetwork's outputs should start with; None for Xavier."""
    if not config.kind().has_hypernetwork or config.hypernet.initialisation == "xavier":
        return None
    variances = family.initial_variances(network, spec)
    if config.hypernet.initialisation == "hyperfan":
        mask = family.weight_mask(spec)
        target = hyperfan_variances(spec, relu=config.activation == "relu")  # (W,)
        variances[mask] = target.repeat(int(mask.sum()) // spec.numel)  # the same for each member of an ensemble
    return variances


def build_strategy(config: RunConfig) -> Strategy:
    """What binds the tasks."""
    prior = GaussianPrior(config.posterior.prior_variance)
    kind, settings = config.kind().strategy, config.strategy
    if kind == "posterior-replay":
        if config.kind().stochastic and settings.old_tasks is None:
            settings = settings.model_copy(update={"old_tasks": 1})
        kind_of_replay = CoresetReplay if config.kind().coresets else PosteriorReplay
        return kind_of_replay(settings, prior, seed=config.seed)
    if kind == "ewc":
        return OnlineEWC(settings, prior)
    if kind == "prior-focused":
        return PriorFocused(prior)
    if kind == "rehearsal":
        return ExperienceReplay(settings, prior, seed=config.seed)
    return Joint(prior) if kind == "joint" else Unbound(prior)


def check_size(config: RunConfig, model: ContinualModel, expected_tasks: int) -> None:
    """Refuse a hypernetwork that outgrows what it generates, where the configuration asks for that."""
    settings = config.hypernet
    if not config.kind().has_hypernetwork or not (settings.smaller_than_posterior or settings.smaller_than_network):
        return
    trained, posterior, network = final_sizes(config, model, expected_tasks)
    limits = {
        "smaller_than_posterior": (settings.smaller_than_posterior, posterior, "parameters of one task's posterior"),
        "smaller_than_network": (settings.smaller_than_network, network, "weights of the main network"),
    }
    for key, (wanted, limit, words) in limits.items():
        if wanted and trained >= limit:
            raise ConfigError(
                f"the hypernetwork has {trained:,} parameters for {max(expected_tasks, model.num_tasks)} tasks, not fewer than the "
                f"{limit:,} {words}; choose a smaller hypernet.chunk_size or narrower hypernet.hidden, "
                f"or allow it with hypernet.{key}=false"
            )


def final_sizes(config: RunConfig, model: ContinualModel, expected_tasks: int) -> tuple[int, int, int]:
    """Trained parameters, those of one task's posterior and weights of the main network, once all expected tasks are there.

    Outputs that come with a task make the posterior larger; the tasks to come are taken to bring as many as those so far.
    """
    counts, tasks = model.parameter_counts(), max(expected_tasks, model.num_tasks)
    if model.layout in (HeadLayout.SINGLE, HeadLayout.SHARED) or tasks == model.num_tasks:
        alone = config.kind().task_map == "per-task-hypernetwork"
        trained = counts["per_task"] if alone else counts["trained"] + counts["per_task"] * (tasks - model.num_tasks)
        return trained, counts["posterior"], counts["main_network"]
    generator = torch.Generator().manual_seed(0)  # only shapes matter
    spec = WeightSpec.of(build_seeded(model.factory, model.outputs * tasks // model.num_tasks, generator))
    posterior = model.family.num_parameters(spec)
    task_map = build_embedded(config, posterior, generator)
    return task_map.num_parameters() + tasks * task_map.per_task_parameters(), posterior, spec.numel
