"""What a study is about, in a file of its folder: the settings to start from, the space, the protocol."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError

from metareplay.benchmarks.base import Problem
from metareplay.benchmarks.stored import load_benchmark
from metareplay.errors import ConfigError, DataError
from metareplay.experiments.plan import Plan
from metareplay.experiments.results import Results
from metareplay.experiments.tuning.space import Range, Values
from metareplay.files import write_atomically
from metareplay.learner.config import RunConfig, build_config
from metareplay.permissions import permit
from metareplay.settings import Settings, flatten
from metareplay.texts import read_yaml_file

FILE = "study.yaml"
TASKS = "tasks.safetensors"
"""A user's own data as tasks, so that no worker reads them again."""
PROTOCOL_KEYS = ("tasks.validation", "tasks.first")
Objective = Literal["given", "inferred", "both"]
Sampler = Literal["tpe", "grid"]
Entry = Annotated[Values | Range, Field(discriminator="kind")]


class Definition(Settings):
    """Fixed when a study is made; everyone who works on it reads it."""

    base: dict[str, Any]
    """The configuration that trials vary, with the protocol among its settings."""
    source: str
    """Where these settings come from,"""
    space_source: str
    """and the space."""
    space: dict[str, Entry]
    problem: Problem
    tasks: int
    objective: Objective
    sampler: Sampler
    prune: bool
    seed: int
    stored_tasks: bool = False

    def config(self, values: Mapping[str, Any] | None = None) -> RunConfig:
        """The configuration of a trial."""
        permit(str(self.base.get("network")))  # whoever made the study permitted it
        base = flatten(self.base)
        if not values:
            return build_config({}, base, FILE, stored=True)
        usable = {key: value for key, value in values.items() if key not in self._ineffective(base, values)}
        return build_config(base, usable, FILE)

    def _ineffective(self, base: Mapping[str, Any], values: Mapping[str, Any]) -> set[str]:
        """Settings that the others make meaningless, such as those of chunks in a hypernetwork without any."""
        return set(build_config({**base, **values}, {}, FILE).without_any_effect())

    def plan(self, folder: Path, place: Path, values: Mapping[str, Any] | None = None) -> Plan:
        """The plan of a trial in its place; ``folder`` is the study's."""
        config = self.config(values)
        benchmark = load_benchmark(folder / TASKS, config.data.fingerprint) if self.stored_tasks else None
        return Plan.of(config, place, benchmark=benchmark, source=f"a trial of {folder.name}")

    @property
    def subject(self) -> str:
        """What is learned: a benchmark, or the name of a user's file or folder."""
        settings = flatten(self.base)
        path = settings.get("data.path")
        return str(settings["benchmark"]) if path is None else _file_name(str(path))

    @property
    def lower_is_better(self) -> bool:
        return self.problem == "regression"

    def value(self, results: Results) -> float:
        """What a finished trial reached: accuracy in percent, or mean squared error."""
        figures = [float(_given(results))] if self.objective != "inferred" else []
        figures += [float(_inferred(results))] if self.objective != "given" else []
        return sum(figures) / len(figures)

    @property
    def figure(self) -> str:
        """What is compared, in words."""
        what = "mean squared error" if self.lower_is_better else "accuracy in %"
        task = {
            "given": "with the task given",
            "inferred": "with the task inferred",
            "both": "the mean of that with the task given and that with the task inferred",
        }[self.objective]
        return f"final {what}, {task}"

    @property
    def protocol(self) -> str:
        """On which data, in words."""
        settings = flatten(self.base)
        share, first = float(settings.get("tasks.validation") or 0), settings.get("tasks.first")
        if self.tasks == 1:
            which = "the first task alone" if first is not None else "the only task"
        else:
            which = f"the first {self.tasks} tasks alone" if first is not None else f"all {self.tasks} tasks"
        if share == 0:
            return f"{which}, on the TEST SET: figures chosen on it are too optimistic"
        return f"{which}; {100 * share:g} % of each task's training examples held out and tested, the test set unused"

    def write(self, folder: Path) -> None:
        """Into the study's folder."""
        text = yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        write_atomically(folder / FILE, text)

    @classmethod
    def read(cls, folder: Path) -> "Definition":
        """From a study's folder."""
        try:
            return cls.model_validate(read_yaml_file(folder / FILE))
        except OSError as error:
            raise ConfigError(f"{folder} holds no study ({FILE} is missing); start one with metareplay tune") from error
        except (ValueError, ValidationError) as error:
            raise DataError(f"{folder / FILE} is damaged; choose another --out, or remove the folder") from error


def _file_name(path: str) -> str:
    """The last part of a path; all of ``hf:owner/name``."""
    return path if path.startswith("hf:") else Path(path).name or path


def _given(results: Results) -> float:
    value = results.mse.tgiven_final if results.mse is not None else results.tgiven_final
    if value is None:
        raise ConfigError(f"{results.method} has no figure with the task given; choose --objective inferred")
    return value


def _inferred(results: Results) -> float:
    """By the default criterion; that of one softmax over all tasks where there is no criterion."""
    if results.mse is not None:
        value = results.mse.tinfer_final
    else:
        scores = results.tinfer_final or {}
        answers = results.answers.label_accuracy if results.answers is not None else None
        known = (scores.get(results.default_criterion or ""), scores.get("softmax"), answers)
        value = next((score for score in known if score is not None), None)
    if value is None:
        raise ConfigError(f"{results.method} does not infer tasks here; choose --objective given")
    return value
