"""The configuration of a run: typed, frozen, composed of the parts' own settings; unknown and senseless settings are refused."""

import difflib
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Literal

import yaml
from pydantic import BaseModel, Field, ValidationError

from metareplay.benchmarks.toy import DATA_SEED
from metareplay.errors import ConfigError
from metareplay.experiments.methods import Method, method_named
from metareplay.hypernets.settings import HypernetSettings
from metareplay.inference.settings import InferenceSettings
from metareplay.nets.mlp import Activation
from metareplay.nets.registry import check_network_name
from metareplay.posteriors.settings import PosteriorSettings
from metareplay.settings import Settings, flatten, nest
from metareplay.strategies.settings import StrategySettings
from metareplay.training.settings import TrainingSettings


class RunConfig(Settings):
    """Everything that fixes a run, bit for bit on one machine."""

    benchmark: str = Field("split-digits", description="which tasks to learn")
    method: str = Field("pr-bbb", description="how to learn them")
    network: str = Field("mlp-100-100", description="the main network")
    activation: Activation = Field("relu", description="activation of the main network")
    heads: Literal["single", "multi"] | None = Field(
        None,
        description="outputs of the network: single, all tasks use the same; multi, each task adds its own; null: as the method needs them",
    )
    total_outputs: int | None = Field(
        None,
        ge=1,
        description="outputs of a softmax that spans all tasks from the start; null: as many as a benchmark has classes",
    )
    seed: int = Field(0, ge=0, description="fixes all random numbers of a run")
    data_seed: int = Field(DATA_SEED, ge=0, description="fixes generated data (toy benchmarks), the same for all seeds")
    data_dir: str | None = Field(None, description="folder of the data set; null: METAREPLAY_DATA, then the hub")
    threads: int = Field(1, ge=1, description="processor threads; results are bit-identical for the same number only")
    posterior: PosteriorSettings = PosteriorSettings()
    hypernet: HypernetSettings = HypernetSettings()
    strategy: StrategySettings = StrategySettings()
    training: TrainingSettings = TrainingSettings()
    inference: InferenceSettings = InferenceSettings()

    def kind(self) -> Method:
        """The method's parts."""
        return method_named(self.method)

    def dump(self) -> dict[str, Any]:
        """Nested plain values of every setting that means something for this method."""
        flat = flatten(self.model_dump(mode="json"))
        return nest({key: value for key, value in flat.items() if why_senseless(key, self.kind(), flat) is None})

    def to_yaml(self) -> str:
        """As ``config.yaml`` holds it."""
        return yaml.safe_dump(self.dump(), sort_keys=False, allow_unicode=True)

    def fingerprint(self) -> str:
        """Equal for two configurations that give the same training run."""
        facts = {key: value for key, value in flatten(self.dump()).items() if key not in PASSIVE_KEYS}
        return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


PASSIVE_KEYS = frozenset({"data_dir", "training.log_every", "training.checkpoint_every", "inference.batch_size"})
"""Settings that do not change what a run computes."""


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


def setting_descriptions(model: type[BaseModel] = RunConfig, prefix: str = "") -> dict[str, str]:
    """Every setting's dotted key with its explanation."""
    found: dict[str, str] = {}
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found |= setting_descriptions(field.annotation, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = field.description or ""
    return found


STRATEGY_KEYS: dict[str, frozenset[str]] = {
    "posterior-replay": frozenset(
        f"strategy.{name}"
        for name in (
            *("strength", "penalty", "penalty_samples", "old_tasks", "targets", "fisher_samples", "fisher_weight_samples"),
            *("age_discount", "task_strengths", "prior_from_earlier"),
        )
    ),
    "rehearsal": frozenset(f"strategy.{name}" for name in ("strength", "coreset_size", "replay_batch_size", "replay_batch_per_task")),
    "ewc": frozenset(f"strategy.{name}" for name in ("strength", "decay", "fisher_samples", "linearised")),
}
"""The settings that each strategy reads; other strategies read none."""


def _why_not_this_strategy(method: Method) -> str:
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
    return None


def why_senseless(key: str, method: Method, settings: Mapping[str, Any]) -> str | None:
    """Why a setting means nothing for this method; None if it does."""
    group = key.partition(".")[0]
    if key == "heads" and method.task_map != "hypernetwork":
        return f"the outputs of {method.name} follow from its kind"
    if key == "total_outputs" and not method.shared_softmax:
        return f"the outputs of {method.name} are added with its tasks"
    if group == "hypernet" and not method.has_hypernetwork:
        return f"{method.name} has no hypernetwork"
    if key.startswith("hypernet.chunk_") and settings.get("hypernet.kind") == "plain":
        return "a plain hypernetwork has no chunks; set hypernet.kind=chunked"
    if key == "posterior.prior_power" and method.name == "pf-avb":
        return "AVB learns from samples of the prior, and a power of an implicit posterior cannot be sampled; choose pf-ssge"
    if key == "strategy.prior_from_earlier" and (reason := _why_no_mixture(method)):
        return reason
    if group == "strategy" and key not in STRATEGY_KEYS.get(method.strategy, ()):
        return _why_not_this_strategy(method)
    if key == "strategy.linearised" and method.point_prediction:
        return f"{method.name} predicts with the point estimate alone"
    if method.family == "ewc" and key.startswith("posterior.") and key not in ("posterior.prior_variance", "posterior.likelihood_scale"):
        return f"{method.name} trains a point estimate; of the posterior's settings only the prior's variance matters"
    if method.strategy == "posterior-replay" and key.startswith("strategy.fisher_"):
        return _why_no_estimate(key, method, settings)
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
    if key == "strategy.penalty_samples" and (method.family != "flow" or settings.get("strategy.penalty") not in ("fkl", "rkl")):
        return "only the penalties fkl and rkl of normalising flows are estimated from samples"
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


def check_keys(given: Mapping[str, Any], source: str) -> None:
    """Refuse settings that do not exist, with the closest one that does."""
    known = setting_descriptions()
    for key in given:
        if key in known:
            continue
        close = difflib.get_close_matches(key, known, n=1)
        group = (close[0] if close else key).partition(".")[0]
        allowed = [name for name in known if name.startswith(f"{group}.")] or list(known)
        hint = f"; did you mean {close[0]}?" if close else "."
        raise ConfigError(f"{source}: unknown setting {key!r}{hint} Allowed: {', '.join(allowed)}")


def build_config(defaults: Mapping[str, Any], given: Mapping[str, Any], source: str) -> RunConfig:
    """Lay the user's settings (dotted keys) over the defaults, and check the whole."""
    check_keys(given, source)
    merged = {**defaults, **given}
    method = method_named(str(merged.get("method", "pr-bbb")))
    if "training.epochs" in given and given["training.epochs"] is not None and "training.iterations" not in given:
        merged["training.iterations"] = None
    if given.get("training.iterations") is not None and "training.epochs" not in given:
        merged["training.epochs"] = None
    try:
        config = RunConfig.model_validate(nest(merged))
    except ValidationError as error:
        raise ConfigError(f"{source}: {_sentence(error)}") from error
    flat = flatten(config.model_dump())
    for key in given:
        if (reason := why_senseless(key, method, flat)) is not None:
            raise ConfigError(f"{source}: {key} means nothing here: {reason}. Leave it out or choose another method")
    check_network_name(config.network)
    _check_combination(config, method, source)
    return config


def _check_combination(config: RunConfig, method: Method, source: str) -> None:
    if method.deterministic and config.strategy.penalty in ("fkl", "rkl") and method.strategy == "posterior-replay":
        raise ConfigError(
            f"{source}: strategy.penalty={config.strategy.penalty} needs a density, but {method.name} has point estimates; "
            "choose mse, w2 or fisher"
        )
    replays_posteriors = method.strategy == "posterior-replay"
    if method.family in ("radial", *ESTIMATORS) and config.strategy.penalty in ("fkl", "rkl", "w2") and replays_posteriors:
        words = "radial" if method.family == "radial" else "implicit"
        raise ConfigError(
            f"{source}: strategy.penalty={config.strategy.penalty} has no closed form for {words} posteriors; choose mse or fisher"
        )
    if method.family == "flow" and config.strategy.penalty == "w2" and replays_posteriors:
        raise ConfigError(f"{source}: strategy.penalty=w2 has no closed form for normalising flows; choose mse, fkl, rkl or fisher")
    if config.posterior.local_reparametrisation and method.member_family not in ("bbb", "dirac", "ewc"):
        raise ConfigError(f"{source}: posterior.local_reparametrisation needs a Gaussian posterior, not {method.family}; set it to false")
    if config.posterior.local_reparametrisation and not config.network.startswith("mlp"):
        raise ConfigError(f"{source}: posterior.local_reparametrisation works for MLPs only, not for {config.network}")
    if method.family in ESTIMATORS and config.posterior.generator_chunk_size is not None:
        if config.posterior.keep_network_init:
            raise ConfigError(f"{source}: posterior.keep_network_init needs a generator without chunks; set generator_chunk_size to null")
        if method.has_hypernetwork and config.hypernet.initialisation == "hyperfan":
            raise ConfigError(
                f"{source}: hypernet.initialisation=hyperfan needs a weight generator without chunks; "
                "set posterior.generator_chunk_size to null, or choose xavier"
            )


def _sentence(error: ValidationError) -> str:
    """The first problem of a validation, in words: key, what came, what is allowed."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    came = "" if isinstance(first["input"], dict) else f"={first['input']!r}"
    message = str(first["msg"]).removeprefix("Value error, ")
    return f"{key}{came}: {message[0].lower()}{message[1:]}"


def parse_setting(text: str) -> tuple[str, Any]:
    """``key=value`` of the command line; the value is read as YAML (numbers, true, null, [1, 2])."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text!r} is no setting; write key=value, e.g. --set training.iterations=500")
    try:
        parsed = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {text!r}: the value cannot be read ({error.__class__.__name__})") from error
    return key.strip(), _number(parsed)


def _number(value: Any) -> Any:
    """YAML 1.1 reads 1e-3 as a string; people mean the number."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value
