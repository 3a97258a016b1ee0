"""The configuration of a run: typed, frozen, composed of the settings of the method's parts; everything else is refused."""

import difflib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from typing import Any, ClassVar, TypeVar, cast

import yaml
from pydantic import Field, ValidationError, create_model

from metareplay.benchmarks.settings import TaskSettings
from metareplay.benchmarks.toy import DATA_SEED
from metareplay.data.settings import DataSettings
from metareplay.errors import ConfigError
from metareplay.inference.settings import InferenceSettings
from metareplay.learner.compose import ALWAYS, KINDS, components, composed, is_default, most_derived, parts_of, refusal
from metareplay.learner.methods import Method, method_named
from metareplay.nets.registry import network_kind, network_part
from metareplay.settings import Part, Settings, flatten, key_of, nest
from metareplay.training.settings import TrainingSettings

AnySettings = TypeVar("AnySettings", bound=Settings)


class RunConfig(Settings):
    """Everything that fixes a run, bit for bit on one machine.

    ``config_class`` derives from it the class of a method, whose groups hold the settings of the method's parts.
    """

    benchmark: str = Field("split-digits", description="which tasks to learn")
    method: str = Field("pr-bbb", description="how to learn them")
    network: str = Field("mlp-100-100", description="the main network")
    seed: int = Field(0, ge=0, description="fixes all random numbers of a run")
    data_seed: int = Field(
        DATA_SEED,
        ge=0,
        description="fixes generated data, permutations, drawn class orders and which of a user's own data are for "
        "testing, the same for all seeds",
    )
    data_dir: str | None = Field(None, description="folder of the data set; null: METAREPLAY_DATA, then the hub")
    threads: int = Field(1, ge=1, description="processor threads; results are bit-identical for the same number only")
    device: str = Field(
        "cpu",
        pattern=r"^(cpu|cuda(:\d+)?|mps)$",
        description="where tensors live: cpu, cuda, cuda:N (the N-th GPU) or mps (Apple)",
    )
    data: DataSettings = DataSettings()
    tasks: TaskSettings = TaskSettings()
    posterior: Settings = Settings()
    hypernet: Settings = Settings()
    strategy: Settings = Settings()
    training: TrainingSettings = TrainingSettings()
    inference: InferenceSettings = InferenceSettings()

    components: ClassVar[tuple[type[Settings], ...]] = ()
    """The classes of settings that this one is composed of."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "RunConfig":
        """The configuration with these nested values, as ``model_dump`` gives them."""
        method, network = values.get("method", "pr-bbb"), values.get("network", "mlp-100-100")
        return config_class(method, network).model_validate(values)

    def kind(self) -> Method:
        """The method's row."""
        return method_named(self.method)

    @property
    def method_name(self) -> str:
        """For parts that explain a refusal."""
        return self.method

    def parts(self) -> dict[str, Part]:
        """The method's parts and the network, by kind."""
        return parts_of(self.kind(), self.network)

    def find(self, settings: type[AnySettings]) -> AnySettings | None:
        """The values of a part's settings; None if no part of the method has them."""
        values = getattr(self, settings.group, None) if settings.group else self
        return values if isinstance(values, settings) else None

    def get(self, settings: type[AnySettings]) -> AnySettings:
        """The values of settings that a part of the method is known to have."""
        values = self.find(settings)
        if values is None:
            raise ConfigError(f"{self.method} has no part with {settings.__name__}")
        return values

    def _each(self) -> Iterator[tuple[type[Settings], Settings]]:
        """Every part's class of settings, and the values."""
        for settings in self.components:
            yield settings, self.get(settings)

    def without_any_effect(self) -> dict[str, str]:
        """Settings that change nothing here, each with the reason, as the parts say."""
        reasons: dict[str, str] = {}
        for settings, values in self._each():
            reasons |= settings.without_effect(values, self)
        return reasons

    def check_combination(self) -> None:
        """Let every part refuse what it cannot be combined with."""
        for settings, values in self._each():
            settings.check(values, self)

    def dump(self) -> dict[str, Any]:
        """Nested plain values of every setting that has an effect."""
        unused = self.without_any_effect()
        return nest({key: value for key, value in flatten(self.model_dump(mode="json")).items() if key not in unused})

    def to_yaml(self) -> str:
        """As ``config.yaml`` holds it."""
        return yaml.safe_dump(self.dump(), sort_keys=False, allow_unicode=True)

    def fingerprint(self) -> str:
        """Equal for two configurations that give the same training; a setting at its default counts as not there."""
        usual = flatten(type(self)().model_dump(mode="json"))
        settings = flatten(self.dump()).items()
        facts = {key: value for key, value in settings if key not in PASSIVE_KEYS and value != usual[key]}
        return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


PASSIVE_KEYS = frozenset(
    {
        "data_dir",
        "data.path",
        "data.test_path",
        "training.log_every",
        "training.checkpoint_every",
        "inference.batch_size",
    }
)
"""Settings that do not change what a run computes."""


def config_class(method: str, network: str) -> type[RunConfig]:
    """The class of a method's configurations: its settings are exactly those of its parts."""
    return _config_class(components(method_named(method), network_kind(network)))


@cache
def _config_class(classes: tuple[type[Settings], ...]) -> type[RunConfig]:
    groups: dict[str, list[type[Settings]]] = {}
    for settings in classes:
        groups.setdefault(settings.group, []).append(settings)
    top = most_derived(groups.pop("", []))
    fields: dict[str, Any] = {}
    for group, members in groups.items():
        model = composed(group, tuple(members))
        fields[group] = (model, model())
    config = cast(type[RunConfig], create_model("RunConfig", __base__=(RunConfig, *top), __module__=__name__, **fields))
    config.components = classes
    return config


def setting_descriptions() -> dict[str, str]:
    """Every setting's dotted key with its explanation, over all parts there are."""
    parts = [settings for registry in KINDS for part in registry.values() for settings in part.settings]
    descriptions: dict[str, str] = {}
    for settings in (RunConfig, *parts, *ALWAYS):
        for name, field in settings.model_fields.items():
            if field.description:
                descriptions.setdefault(key_of(settings, name), field.description)
    return descriptions


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


def build_config(
    defaults: Mapping[str, Any], given: Mapping[str, Any], source: str, *, stored: bool = False
) -> RunConfig:
    """Lay the user's settings (dotted keys) over the defaults, and check the whole.

    What the method does not have is refused if it was given, and passed over in defaults, which may be another method's.
    Settings that were ``stored`` by an earlier version may hold some that had no effect; they too are passed over.
    """
    check_keys(given, source)
    merged = {**defaults, **given}
    method, network = str(merged.get("method", "pr-bbb")), str(merged.get("network", "mlp-100-100"))
    model = config_class(method, network)
    own = set(flatten(model().model_dump()))
    if (foreign := [key for key in given if key not in own]) and not stored:
        raise ConfigError(f"{source}: {refusal(foreign[0], method, parts_of(method_named(method), network))}")
    values = {key: value for key, value in {**merged, **_implied(given)}.items() if key in own}
    network_part(network)
    try:
        config = model.model_validate(nest(values))
    except ValidationError as error:
        raise ConfigError(f"{source}: {_sentence(error)}") from error
    unused = {} if stored else config.without_any_effect()
    if useless := [key for key in given if key in unused]:
        raise ConfigError(
            f"{source}: {useless[0]} has no effect with {method}: {unused[useless[0]]}. Remove it, or choose another method"
        )
    try:
        config.check_combination()
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    return config


def without_inert(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A file's settings without those that the method does not have and that are at their defaults.

    Configurations that earlier versions wrote hold some of them.
    """
    method, network = str(settings.get("method", "pr-bbb")), str(settings.get("network", "mlp-100-100"))
    own = set(flatten(config_class(method, network)().model_dump()))
    return {key: value for key, value in settings.items() if key in own or not is_default(key, value)}


def _implied(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that follow from what was given, whatever the defaults say."""
    implied: dict[str, Any] = {}
    if given.get("training.epochs") is not None and "training.iterations" not in given:
        implied["training.iterations"] = None
    if given.get("training.iterations") is not None and "training.epochs" not in given:
        implied["training.epochs"] = None
    if given.get("tasks.scenario") == "domain" and "heads" not in given:
        implied["heads"] = None  # outputs per task are a recipe's choice for other scenarios
    return implied


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
        raise ConfigError(f"--set {text!r} is not a setting; write key=value, e.g. --set training.iterations=500")
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
