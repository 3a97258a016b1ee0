"""Search spaces: data in spaces/*.yaml or in a user's file, checked against the settings they are about."""

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase
from importlib import resources
from itertools import combinations
from math import isfinite, prod
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from metareplay.errors import ConfigError
from metareplay.learner.config import RunConfig, as_number, build_config
from metareplay.settings import Settings, flatten
from metareplay.texts import read_yaml, read_yaml_file

IN_PACKAGE = ("paper", "small")
PUBLISHED = ("regression-1d", "modes-2d", "split-mnist", "permuted-mnist-*", "split-cifar-10")
"""Benchmarks, and methods, for which the paper gives a grid."""
PUBLISHED_METHODS = (
    *("pr-dirac*", "pr-bbb*", "pr-radial*", "pr-ssge*", "pr-avb*", "sp-*", "vcl*", "pf-*", "ewc-*", "exp-replay"),
)
ENDS = ("low", "high")
FORM = "give a list of values, or {low: ..., high: ..., log: true}"
NOT_SEARCHED = {
    "tasks.validation": "--held-out",
    "tasks.first": "--first-tasks",
    "seed": "--seed",
    "benchmark": "the argument BENCHMARK, or --data",
    "method": "--method, in a study for each",
    "data_dir": "--data-dir",
    "device": "--device",
    "data.path": "--data",
    "data.test_path": "--test-data",
    **{f"data.{name}": f"--{name.replace('_', '-')}" for name in ("tasks_by", "label", "ignore", "text", "task_order")},
    **{f"data.{name}": f"--{name.replace('_', '-')}" for name in ("test_share", "split_by", "problem")},
}
"""Settings by which trials would be tested on different examples, or learn something else: what decides them instead.
A search over them would choose the easiest test, not the best settings."""
NOT_SEARCHED_GROUPS = ("tasks.*", "data.*", "report.*", "data_seed", "threads", "inference.test_inputs")
"""Others of this kind, which --set decides."""


class Values(Settings):
    """One of these."""

    kind: Literal["values"] = "values"
    values: tuple[Any, ...] = Field(min_length=1)

    @property
    def examples(self) -> tuple[Any, ...]:
        """What has to be a valid value of the setting."""
        return self.values

    def labels(self) -> dict[str, Any]:
        """The values by the text that stands for them."""
        return {json.dumps(value): value for value in self.values}


class Range(Settings):
    """A number between two others, both included; integers if both are. (A user's file becomes fractions where the
    setting takes them.)"""

    kind: Literal["range"] = "range"
    low: int | float
    high: int | float
    log: bool = False

    @property
    def integer(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def examples(self) -> tuple[Any, ...]:
        """What has to be a valid value of the setting."""
        return (self.low, self.high)


Space = Mapping[str, Values | Range]
"""What is searched, by dotted key."""


def space_for(config: RunConfig, name: str | None = None) -> tuple[dict[str, Values | Range], str]:
    """A space of the package for a method and a benchmark, and where it comes from.

    By default the paper's grid where it has one, else the small space. What the method lacks, what has no effect and
    values that cannot be combined with the rest of the configuration are left out.
    """
    published = _matches(config.benchmark, PUBLISHED) and _matches(config.method, PUBLISHED_METHODS)
    name = name or ("paper" if published else "small")
    text = (resources.files("metareplay.experiments.tuning") / "spaces" / f"{name}.yaml").read_text()
    known = set(flatten(config.model_dump())) - set(config.without_any_effect())
    space: dict[str, Values | Range] = {}
    for row in read_yaml(text):
        fits = _matches(config.benchmark, row.get("benchmarks")) and _matches(config.method, row.get("methods"))
        if fits and row["setting"] in known:
            key = row["setting"]
            entry = _entry(key, row.get("values") or {k: row[k] for k in ("low", "high", "log") if k in row}, name)
            if (allowed := _allowed(config, key, entry)) is not None:
                space[key] = allowed
    words = "the paper's basic grid" if name == "paper" else "this project's small space"
    return space, f"{words} for {config.method}"


def read_space(path: Path, config: RunConfig, decided: Mapping[str, str] | None = None) -> dict[str, Values | Range]:
    """A user's space, such as ``training.learning_rate: {low: 1e-4, high: 1e-2, log: true}``.

    ``decided`` are keys that cannot be searched because an option gives their value, which it names.
    """
    try:
        content = read_yaml_file(path)
    except OSError as error:
        raise ConfigError(f"--space {path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"--space {path} is not valid YAML: {error}") from error
    if not isinstance(content, dict) or not content:
        raise ConfigError(f"--space {path} must name settings; for each, {FORM}")
    space: dict[str, Values | Range] = {}
    current = flatten(config.model_dump())
    for key, given in _unnested(content, set(current)).items():
        _refuse_unsearchable(key, f"--space {path}", decided or {})
        entry = _entry(key, given, f"--space {path}")
        if isinstance(entry, Range) and isinstance(current.get(key), bool):
            raise ConfigError(f"--space {path}: {key} is true or false, which has no range; list both: [true, false]")
        for value in entry.examples:
            build_config(flatten(config.dump()), {key: value}, f"--space {path}")  # says what is wrong
        space[key] = _with_fractions(config, key, entry)
    return space


def _with_fractions(config: RunConfig, key: str, entry: Values | Range) -> Values | Range:
    """A range between two integers has the numbers between them as well, if the setting may be one of these."""
    if not isinstance(entry, Range) or not entry.integer:
        return entry
    between = Range(low=float(entry.low), high=float(entry.high), log=entry.log)
    return between if _works(config, key, entry.low + 0.5) else entry


def _refuse_unsearchable(key: str, source: str, decided: Mapping[str, str]) -> None:
    """All trials learn the same tasks and are tested on the same examples; and nothing is decided twice."""
    if key in decided:
        raise ConfigError(f"{source}: {key} is already given with {decided[key]}; remove one of them")
    if (option := NOT_SEARCHED.get(key)) is None and _matches(key, NOT_SEARCHED_GROUPS):
        option = f"--set {key}=VALUE"
    if option is not None:
        raise ConfigError(
            f"{source}: {key} cannot be searched, because all trials of a study have the same tasks and tests; it is "
            f"decided by {option}"
        )


def points(space: Space) -> int:
    """The number of points of a grid; a range is refused."""
    if ranges := [key for key, entry in space.items() if isinstance(entry, Range)]:
        raise ConfigError(
            f"the grid sampler needs lists of values, but {ranges[0]} has a range; list its values in a --space, or "
            "choose --sampler tpe"
        )
    return prod(len(entry.examples) for entry in space.values())


def _unnested(content: Mapping[Any, Any], known: AbstractSet[str], prefix: str = "") -> dict[str, Any]:
    """Groups of settings as dotted keys; a known setting, or what looks like a range, is not a group."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        full = f"{prefix}{key}"
        if isinstance(value, Mapping) and full not in known and not {*ENDS, "log"} & set(value):
            flat |= _unnested(value, known, f"{full}.")
        else:
            flat[full] = value
    return flat


def _entry(key: str, given: Any, source: str) -> Values | Range:
    """One setting's values or range."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        values = tuple(as_number(value) for value in given)
        if not values or any(_same(value, other) for value, other in combinations(values, 2)):
            raise ConfigError(f"{source}: {key} has {'no values' if not values else 'a value twice'}; {FORM}")
        return Values(values=values)
    if not isinstance(given, Mapping):
        raise ConfigError(f"{source}: {key} is {given!r}; {FORM}. One value is fixed with --set instead")
    parts = {str(name): as_number(value) for name, value in given.items()}
    if problem := _wrong_in_range(parts):
        raise ConfigError(f"{source}: {key}: {problem}; {FORM}")
    entry = Range.model_validate(parts)
    if entry.low >= entry.high or (entry.log and entry.low <= 0):
        wrong = "low must be below high" if entry.low >= entry.high else "with log: true, low must be above 0"
        raise ConfigError(f"{source}: {key}: {wrong}, but they are {entry.low} and {entry.high}")
    return entry


def _wrong_in_range(parts: Mapping[str, Any]) -> str | None:
    """What keeps this from being a range; None if nothing does."""
    for name, value in parts.items():
        if name not in (*ENDS, "log"):
            return f"{name!r} is not understood"
        if name == "log" and not isinstance(value, bool):
            return f"log is {value!r}, which is neither true nor false"
        if name != "log" and (isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value)):
            return f"{name} is {value!r}, which is not a finite number"
    return next((f"{name} is missing" for name in ENDS if name not in parts), None)


def _same(value: Any, other: Any) -> bool:
    """Whether two values are one, such as 1 and 1.0; true is not 1."""
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


def _works(config: RunConfig, key: str, value: Any) -> bool:
    """Whether a value can be combined with a configuration."""
    try:
        build_config(flatten(config.dump()), {key: value}, "")
    except ConfigError:
        return False
    return True


def _allowed(config: RunConfig, key: str, entry: Values | Range) -> Values | Range | None:
    """The values that can be combined with a configuration; None if there are none."""
    values = tuple(value for value in entry.examples if _works(config, key, value))
    if isinstance(entry, Range):
        return entry if len(values) == len(entry.examples) else None
    return Values(values=values) if values else None


def _matches(name: str, patterns: Sequence[str] | None) -> bool:
    return patterns is None or any(fnmatchcase(name, pattern) for pattern in patterns)
