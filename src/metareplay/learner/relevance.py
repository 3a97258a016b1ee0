"""Which settings mean something for which method, and if not, why."""

from collections.abc import Mapping
from typing import Any

from metareplay.learner.methods import Method
from metareplay.nets.registry import is_own
from metareplay.strategies.settings import StrategySettings

IMPLICIT_KEYS = ("posterior.generator_", "posterior.latent_", "posterior.support_noise", "posterior.ssge_", "posterior.avb_")
"""How the settings begin that belong to implicit posteriors alone; the last two belong to one estimator each."""
ESTIMATORS = {"ssge": "SSGE", "avb": "AVB"}
"""The families with implicit posteriors, by what estimates their prior-matching term."""


BAYESIAN_KEYS = frozenset(
    f"posterior.{name}"
    for name in (
        "prior_variance",
        "prior_scale",
        "prior_power",
        "prior_samples",
        "train_samples",
        "local_reparametrisation",
        "keep_network_init",
    )
)
"""What needs a distribution over weights."""

STRATEGY_KEYS: dict[str, frozenset[str]] = {
    "posterior-replay": frozenset(
        f"strategy.{name}"
        for name in (
            *("strength", "penalty", "penalty_samples", "old_tasks", "penalty_every", "targets"),
            *("age_discount", "task_strengths", "prior_from_earlier", "fisher_samples", "fisher_weight_samples"),
        )
    ),
    "rehearsal": frozenset(f"strategy.{name}" for name in ("strength", "coreset_size", "replay_batch_size", "replay_batch_per_task")),
    "ewc": frozenset(f"strategy.{name}" for name in ("strength", "decay", "fisher_samples", "linearised")),
}
"""The settings that each strategy reads; other strategies read none."""
CORESET_KEYS = frozenset(f"strategy.{name}" for name in StrategySettings.model_fields if name.startswith(("finetune_", "coreset_size")))
"""What methods with coresets (-cs) read besides."""


def strategy_keys(method: Method) -> frozenset[str]:
    """The settings of strategies that a method reads."""
    return STRATEGY_KEYS.get(method.strategy, frozenset()) | (CORESET_KEYS if method.coresets else frozenset())


def _why_not_this_strategy(method: Method) -> str:
    if method.coresets:
        return f"{method.name} replays posteriors and fine-tunes on what it keeps; the settings of that begin with strategy.finetune_"
    reasons = {
        "rehearsal": "replays inputs, not posteriors",
        "posterior-replay": "keeps neither inputs nor the Fisher information of old tasks",
        "ewc": "keeps the Fisher information of old tasks, and replays nothing",
    }
    return f"{method.name} {reasons.get(method.strategy, 'has no replay penalty')}"


def _why_no_mixture(method: Method) -> str | None:
    """Why earlier posteriors cannot be part of a task's prior."""
    if method.strategy == "prior-focused":
        return f"the last posterior is the whole prior of {method.name}"
    if method.strategy != "posterior-replay":
        return f"{method.name} does not replay posteriors, so it has none of earlier tasks for its prior"
    if method.family not in ("bbb", "flow"):
        return f"earlier posteriors are part of the prior only as single Gaussians or flows, not those of {method.name}; choose pr-bbb"
    return None


def _why_no_estimate(key: str, method: Method, settings: Mapping[str, Any]) -> str | None:
    """Why a setting means nothing for the Fisher information of this method's old posteriors; None if it does."""
    if settings.get("strategy.penalty") != "fisher":
        return f"{method.name} needs the Fisher information of old tasks with strategy.penalty=fisher only"
    if method.member_family == "bbb":
        return f"the Fisher information of {method.name} is computed in closed form"
    if key == "strategy.fisher_weight_samples" and method.member_family == "dirac":
        return f"{method.name} has point estimates, which have no samples"
    if key == "strategy.fisher_samples" and method.family == "flow":
        return f"the Fisher information of {method.name} is estimated from its density, not from data"
    return None


def _why_not_in_fine_tuning(key: str, method: Method, settings: Mapping[str, Any]) -> str | None:
    if key == "strategy.finetune_own_share" and settings.get("strategy.finetune_others") == "none":
        return "with strategy.finetune_others=none a task is fine-tuned on its own coreset alone"
    if key == "strategy.finetune_prior_scale" and method.deterministic:
        return f"{method.name} has a Dirac posterior, which has no prior and no samples"
    return None


def _why_not_adaptive(method: Method, settings: Mapping[str, Any]) -> str | None:
    """Why it makes no sense to draw weight samples only where they are needed."""
    if method.deterministic:
        return f"{method.name} predicts with point estimates, not with weight samples"
    if method.growing_softmax:
        return f"one softmax of {method.name} spans all tasks, so no task is inferred"
    return _why_no_networks_run(method, settings)


def _why_no_networks_run(method: Method, settings: Mapping[str, Any]) -> str | None:
    """Why predictions do not run the network under weight samples."""
    if method.family == "ewc" and settings.get("strategy.linearised") and not method.point_prediction:
        return f"{method.name} predicts with the linearised network, which needs no weight samples"
    if settings.get("inference.predictive") == "moments":
        return "inference.predictive=moments needs no weight samples"
    return None


def why_senseless(key: str, method: Method, settings: Mapping[str, Any]) -> str | None:
    """Why a setting means nothing for this method; None if it does."""
    group = key.partition(".")[0]
    if key == "activation" and is_own(str(settings.get("network"))):
        return f"{settings['network']} has activations of its own"
    if group == "data" and settings.get("data.path") is None and settings.get("data.fingerprint") is None:
        return "no data of your own are named; name them with --data"
    if key == "data_dir" and settings.get("data.path") is not None:
        return "your own data are where --data says"
    if key == "heads" and method.task_map != "hypernetwork":
        return f"the outputs of {method.name} follow from its kind"
    if key == "total_outputs" and not method.shared_softmax:
        return f"the outputs of {method.name} are added with its tasks"
    if key in ("training.plateau_factor", "training.plateau_floor") and settings.get("training.plateau_patience") is None:
        return "the learning rate is not reduced on a plateau; set training.plateau_patience"
    if group == "hypernet" and not method.has_hypernetwork:
        return f"{method.name} has no hypernetwork"
    if key.startswith("hypernet.chunk_") and settings.get("hypernet.kind") == "plain":
        return "a plain hypernetwork has no chunks; set hypernet.kind=chunked"
    if key == "posterior.prior_power" and method.name == "pf-avb":
        return "AVB learns from samples of the prior, and a power of an implicit posterior cannot be sampled; choose pf-ssge"
    if key == "strategy.prior_from_earlier" and (reason := _why_no_mixture(method)):
        return reason
    if group == "strategy" and key not in strategy_keys(method):
        return _why_not_this_strategy(method)
    if key == "strategy.linearised" and method.point_prediction:
        return f"{method.name} predicts with the point estimate alone"
    if key.startswith("strategy.finetune_") and (reason := _why_not_in_fine_tuning(key, method, settings)) is not None:
        return reason
    if method.strategy == "posterior-replay" and key.startswith("strategy.fisher_"):
        return _why_no_estimate(key, method, settings)
    if key == "inference.predictive" and method.family != "bbb":
        return f"moments go through the layers only where the weights of a task are independent Gaussians, not with {method.name}"
    if key == "inference.adaptive":
        return _why_not_adaptive(method, settings)
    if key == "inference.autocast":
        return _why_no_networks_run(method, settings)
    if key == "strategy.penalty_samples" and (method.family != "flow" or settings.get("strategy.penalty") in ("mse", "fisher")):
        return "only the penalties fkl and rkl of normalising flows are estimated from samples"
    return _why_not_in_posterior(key, method, settings) if group == "posterior" else None


def _why_not_in_posterior(key: str, method: Method, settings: Mapping[str, Any]) -> str | None:
    """The same for the settings of posteriors."""
    if method.family == "ewc" and key not in ("posterior.prior_variance", "posterior.likelihood_scale"):
        return f"{method.name} trains a point estimate; of the posterior's settings only the prior's variance matters"
    if method.member_family == "dirac" and key in BAYESIAN_KEYS:
        if key == "posterior.prior_variance" and method.strategy == "posterior-replay" and settings.get("strategy.penalty") == "fisher":
            return None  # the prior's part of the Fisher information
        words = "an ensemble of point estimates" if method.ensemble else "a Dirac posterior"
        return f"{method.name} has {words}, which has no prior and no samples"
    if key == "posterior.members" and not method.ensemble:
        return f"{method.name} has no ensemble; choose a method such as pr-ensemble"
    if key == "posterior.keep_network_init" and method.has_hypernetwork and settings.get("hypernet.initialisation") == "xavier":
        return "a hypernetwork with hypernet.initialisation=xavier has a start of its own; set it to gaussian"
    if key == "posterior.prior_samples" and method.member_family == "bbb" and not settings.get("strategy.prior_from_earlier"):
        return f"the prior-matching term of {method.name} is computed in closed form"
    if key.startswith("posterior.flow_") and method.family != "flow":
        return f"{method.name} has no normalising flow; choose a method such as pr-flow"
    return _why_not_implicit(key, method, settings) if key.startswith(IMPLICIT_KEYS) else None


def _why_not_implicit(key: str, method: Method, settings: Mapping[str, Any]) -> str | None:
    """The same for the settings of implicit posteriors and their estimators."""
    if method.family not in ESTIMATORS:
        return f"{method.name} has no implicit posterior, so it has no weight generator"
    for family, words in ESTIMATORS.items():
        if key.startswith(f"posterior.{family}_") and method.family != family:
            return f"{method.name} estimates its prior-matching term by {ESTIMATORS[method.family]}, not by {words}"
    if key.startswith("posterior.avb_chunk_") and key != "posterior.avb_chunk_size" and settings.get("posterior.avb_chunk_size") is None:
        return "the discriminator takes all weights at once; set posterior.avb_chunk_size"
    return None
