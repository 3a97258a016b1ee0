"""The configuration of a run: typed, frozen, composed of the parts' own settings; unknown and senseless settings are refused."""

import difflib
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Literal

import yaml
from pydantic import BaseModel, Field, ValidationError

from metareplay.benchmarks.settings import TaskSettings
from metareplay.benchmarks.toy import DATA_SEED
from metareplay.data.settings import DataSettings
from metareplay.errors import ConfigError
from metareplay.inference.settings import InferenceSettings
from metareplay.learner.methods import Method, method_named
from metareplay.learner.relevance import ESTIMATORS, why_senseless
from metareplay.nets.mlp import Activation
from metareplay.nets.registry import check_network_name, is_mlp
from metareplay.posteriors.settings import PosteriorSettings
from metareplay.settings import Settings, flatten, nest
from metareplay.strategies.settings import StrategySettings
from metareplay.task_maps.settings import HypernetSettings
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
    data_seed: int = Field(
        DATA_SEED,
        ge=0,
        description="fixes generated data, permutations, drawn class orders and which of a user's own data are for testing, "
        "the same for all seeds",
    )
    data_dir: str | None = Field(None, description="folder of the data set; null: METAREPLAY_DATA, then the hub")
    threads: int = Field(1, ge=1, description="processor threads; results are bit-identical for the same number only")
    data: DataSettings = DataSettings()
    tasks: TaskSettings = TaskSettings()
    device: str = Field(
        "cpu", pattern=r"^(cpu|cuda(:\d+)?|mps)$", description="where tensors live: cpu, cuda, cuda:N (the N-th GPU) or mps (Apple)"
    )
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
        """Equal for two configurations that give the same training run; a setting at its default counts as not there."""
        usual = flatten(RunConfig().model_dump(mode="json"))
        facts = {key: value for key, value in flatten(self.dump()).items() if key not in PASSIVE_KEYS and value != usual[key]}
        return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


PASSIVE_KEYS = frozenset(
    {"data_dir", "data.path", "data.test_path", "training.log_every", "training.checkpoint_every", "inference.batch_size"}
)
"""Settings that do not change what a run computes."""


def setting_descriptions(model: type[BaseModel] = RunConfig, prefix: str = "") -> dict[str, str]:
    """Every setting's dotted key with its explanation."""
    found: dict[str, str] = {}
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found |= setting_descriptions(field.annotation, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = field.description or ""
    return found


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
    if given.get("tasks.scenario") == "domain" and "heads" not in given:
        merged["heads"] = None  # outputs per task are a recipe's choice for other scenarios
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
    if method.family == "flow" and config.strategy.penalty == "w2" and method.strategy == "posterior-replay":
        raise ConfigError(f"{source}: strategy.penalty=w2 has no closed form for normalising flows; choose mse, fkl, rkl or fisher")
    if config.posterior.local_reparametrisation and method.member_family not in ("bbb", "dirac", "ewc"):
        raise ConfigError(f"{source}: posterior.local_reparametrisation needs a Gaussian posterior, not {method.family}; set it to false")
    if config.posterior.local_reparametrisation and not is_mlp(config.network):
        raise ConfigError(f"{source}: posterior.local_reparametrisation works for MLPs only, not for {config.network}; set it to false")
    if config.inference.predictive == "moments" and not is_mlp(config.network):
        raise ConfigError(f"{source}: inference.predictive=moments works for MLPs only, not for {config.network}; set it to samples")
    if config.posterior.local_reparametrisation and config.training.autocast:
        raise ConfigError(
            f"{source}: training.autocast would round the variances of posterior.local_reparametrisation; set one of them to false"
        )
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
    if first["type"] == "string_pattern_mismatch":
        message = f"is no value of this setting ({setting_descriptions().get(key, '')})"
    if first["type"] == "bool_parsing":
        message = f"choose true or false ({setting_descriptions().get(key, '')})"
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
