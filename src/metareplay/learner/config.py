"""The configuration of a run: typed, frozen, composed of the settings of the method's parts, with no other keys."""

import difflib
import json
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import yaml
from pydantic import Field, ValidationError, create_model, field_validator

from metareplay.benchmarks.settings import TaskSettings
from metareplay.benchmarks.toy import DATA_SEED
from metareplay.data.settings import DataSettings
from metareplay.errors import ConfigError, listed
from metareplay.inference.settings import InferenceSettings
from metareplay.inference.statistics.settings import StatisticsSettings
from metareplay.learner.allowed import refused_value
from metareplay.learner.compose import ALWAYS, KINDS, components, composed, is_default, most_derived, parts_of, refusal
from metareplay.learner.methods import Method, default_network, method_named
from metareplay.learner.report_settings import ReportSettings
from metareplay.limits import refuse_beyond
from metareplay.nets.registry import network_kind, network_part
from metareplay.settings import Part, Settings, flatten, key_of, nest
from metareplay.texts import read_yaml
from metareplay.training.settings import TrainingSettings

AnySettings = TypeVar("AnySettings", bound=Settings)


class RunConfig(Settings):
    """Everything that determines a run, bit for bit on one machine.

    ``config_class`` derives the class of a method, whose groups hold the settings of the method's parts.
    """

    benchmark: str = Field("split-digits", description="the tasks to learn")
    method: str = Field("pr-bbb", description="how to learn them")
    network: str = Field("mlp-100-100", description="the main network")
    seed: int = Field(0, ge=0, description="seed of all random numbers in a run")
    data_seed: int = Field(
        DATA_SEED,
        ge=0,
        description="seed of generated data, permutations, random class orders and the test split of a user's data, "
        "the same for all seeds",
    )
    data_dir: str | None = Field(None, description="folder of the data set; null: METAREPLAY_DATA, then the hub")
    threads: int = Field(1, ge=1, description="processor threads; results are bit-identical only for the same number")

    @field_validator("threads")
    @classmethod
    def _few_threads(cls, value: int) -> int:
        refuse_beyond("threads", value, "threads", ValueError)
        return value

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
    statistics: StatisticsSettings = StatisticsSettings()
    report: ReportSettings = ReportSettings()

    components: ClassVar[tuple[type[Settings], ...]] = ()
    """The settings classes that this one is composed of."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "RunConfig":
        """The configuration with these nested values, as ``model_dump`` gives them."""
        method, network = _chosen(values)
        return config_class(method, network).model_validate({**values, "network": network})

    def kind(self) -> Method:
        """The method, which names its parts."""
        return method_named(self.method)

    @property
    def method_name(self) -> str:
        """For parts that explain an error."""
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

    def _parts_settings(self) -> Iterator[tuple[type[Settings], Settings]]:
        """Every part's settings class, and its values."""
        for settings in self.components:
            yield settings, self.get(settings)

    def without_any_effect(self) -> dict[str, str]:
        """Settings that have no effect here, each with the reason its part gives."""
        reasons: dict[str, str] = {}
        for settings, values in self._parts_settings():
            reasons |= settings.without_effect(values, self)
        return reasons

    def check_combination(self) -> None:
        """Let every part refuse what it cannot be combined with."""
        for settings, values in self._parts_settings():
            settings.check(values, self)

    def dump(self) -> dict[str, Any]:
        """Nested plain values of all settings that have an effect: first what is in no group, then group by group."""
        unused = self.without_any_effect()
        nested = nest({key: value for key, value in flatten(self.model_dump(mode="json")).items() if key not in unused})
        keys = [key for key in dict.fromkeys((*RunConfig.model_fields, *nested)) if key in nested]
        return {key: nested[key] for key in sorted(keys, key=lambda key: isinstance(nested[key], dict))}

    def to_yaml(self) -> str:
        """The contents of ``config.yaml``."""
        return yaml.safe_dump(self.dump(), sort_keys=False, allow_unicode=True)

    def fingerprint(self) -> str:
        """Equal for configurations with the same training; a setting at its default counts as absent."""
        defaults = flatten(type(self)().model_dump(mode="json"))
        settings = flatten(self.dump()).items()
        facts = {key: value for key, value in settings if key not in PASSIVE_KEYS and value != defaults[key]}
        if self.statistics.collect and self.statistics.held_out > 0:  # which earlier versions did not have
            facts["statistics.held_out"] = self.statistics.held_out
        return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


PASSIVE_KEYS = frozenset(
    {
        "data_dir",
        "data.path",
        "data.test_path",
        "training.log_every",
        "training.checkpoint_every",
        "inference.batch_size",
        "report.references",
        "report.test_during",
        "report.test_every",
        "report.joint",
    }
)
"""Settings that do not change what a run computes."""
NEAREST = 3
"""The maximum number of settings suggested for an unknown one."""


def _chosen(settings: Mapping[str, Any]) -> tuple[str, str]:
    """The method and the network that settings name, or the defaults."""
    method = str(settings.get("method", "pr-bbb"))
    return method, str(settings.get("network") or default_network(method, "mlp-100-100"))


def config_class(method: str, network: str) -> type[RunConfig]:
    """The class of a method's configurations: its settings are exactly those of its parts."""
    return _config_class(components(method_named(method), network_kind(network), RunConfig))


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
    """The dotted keys of all settings of all parts, with their descriptions."""
    parts = [settings for registry in KINDS for part in registry.values() for settings in part.settings]
    descriptions: dict[str, str] = {}
    for settings in (RunConfig, *parts, *ALWAYS):
        for name, field in settings.model_fields.items():
            if field.description:
                descriptions.setdefault(key_of(settings, name), field.description)
    return descriptions


class Source(NamedTuple):
    """Where given settings come from, for error messages: a file, ``--set``; empty for options of the command line."""

    name: str
    of_keys: Mapping[str, str] = MappingProxyType({})
    """The sources of single settings, where they differ."""

    def blamed(self, message: str, key: str = "") -> ConfigError:
        """An error about a setting."""
        name = self.of_keys.get(key, self.name)
        return ConfigError(f"{name}: {message}" if name else message)


def check_keys(given: Mapping[str, Any], source: Source) -> None:
    """Refuse settings that do not exist, suggesting the closest ones that do."""
    known = setting_descriptions()
    for key in given:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.9)  # a slip of the finger
            close = close or difflib.get_close_matches(key, known, n=NEAREST, cutoff=0.65)
            hint = f"; did you mean {listed(close)}?" if close else "."
            raise source.blamed(f"unknown setting {key!r}{hint} See metareplay list settings", key)


def build_config(
    defaults: Mapping[str, Any], given: Mapping[str, Any], source: str | Source, *, stored: bool = False
) -> RunConfig:
    """Override the defaults with the user's settings (dotted keys), and check the result.

    Settings that the method does not have are refused if given, and ignored in the defaults, which may be those of
    another method. Settings ``stored`` by an earlier version may include some without effect; these are ignored too.
    """
    source = Source(source) if isinstance(source, str) else source
    given = _of_installed_parts(given, source.name) if stored else given
    check_keys(given, source)
    merged = {**defaults, **given}
    method, network = _chosen(merged)
    merged, model = {**merged, "network": network}, config_class(method, network)
    known = set(flatten(model().model_dump()))
    if (foreign := [key for key in given if key not in known]) and not stored:
        raise source.blamed(refusal(foreign[0], method, parts_of(method_named(method), network)), foreign[0])
    values = {key: value for key, value in {**merged, **_implied(given)}.items() if key in known}
    network_part(network)
    try:
        config = model.model_validate(nest(values))
    except ValidationError as error:
        key, message = refused_value(error, values, model)
        raise source.blamed(message, key) from error
    unused = {} if stored else config.without_any_effect()
    if useless := [key for key in given if key in unused]:
        reason = f"{useless[0]} has no effect with {method}: {unused[useless[0]]}"
        raise source.blamed(f"{reason}. Remove it, or choose another method", useless[0])
    try:
        config.check_combination()
    except ConfigError as error:
        raise source.blamed(str(error)) from error
    return config


def without_inert(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A file's settings, without those that the method does not have and that are at their defaults.

    Configurations written by earlier versions contain some of these.
    """
    method, network = _chosen(settings)
    known = set(flatten(config_class(method, network)().model_dump()))
    try:
        unused = build_config({}, {key: settings[key] for key in settings if key in known}, "file", stored=True)
    except ConfigError:  # whoever uses the settings says so
        return dict(settings)
    active = known - set(unused.without_any_effect())
    return {key: value for key, value in settings.items() if key in active or not is_default(key, value)}


def _of_installed_parts(settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Stored settings without those of parts that are not installed here, which are named in a warning."""
    known = setting_descriptions()
    if foreign := [key for key in settings if key not in known]:
        words = f"{source}: {', '.join(foreign)} belongs to a part that is not installed, and is ignored"
        warnings.warn(words, stacklevel=3)
    return {key: value for key, value in settings.items() if key in known}


def _implied(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that follow from the given ones, regardless of the defaults."""
    implied: dict[str, Any] = {}
    if given.get("training.epochs") is not None and "training.iterations" not in given:
        implied["training.iterations"] = None
    if given.get("training.iterations") is not None and "training.epochs" not in given:
        implied["training.epochs"] = None
    if given.get("tasks.scenario") == "domain" and "heads" not in given:
        implied["heads"] = None  # outputs per task are a recipe's choice for other scenarios
    return implied


def parse_setting(text: str) -> tuple[str, Any]:
    """``key=value`` of the command line; the value is read as YAML (numbers, true, null, [1, 2])."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text!r} is not a setting; write key=value, e.g. --set training.iterations=500")
    try:
        parsed = read_yaml(value)
    except ValueError as error:
        raise ConfigError(f"--set {text!r}: the value is not valid YAML: {error}") from error
    if isinstance(parsed, dict):
        raise ConfigError(f"--set {text!r}: a setting has a value, not a mapping; give each one with its own --set")
    return key.strip(), as_number(parsed)


def as_number(value: Any) -> Any:
    """YAML 1.1 reads 1e-3 as a string, but a number is meant."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value
