"""A model that is open for changes: what is stored in its folder, or the settings of a new one."""

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metareplay.benchmarks.base import Problem, Scenario, TaskData, TaskInfo
from metareplay.errors import DataError
from metareplay.learner.config import RunConfig, build_config
from metareplay.learner.features import FACTS, Extractor, backbone_for, refuse_texts, stored_extractor, without_features
from metareplay.learner.generations import mend
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.sizes import TYPICAL, Facts, own_settings
from metareplay.learner.store import HistoryEntry, StoredModel, load_model, save_model
from metareplay.living.examples import NewData
from metareplay.living.place import NewModel, Work, finish_new, model_folder, read_new
from metareplay.nets.backbones import has_backbone, is_adapted
from metareplay.scaling import Scaling

SCENARIOS: Mapping[Problem, Scenario] = {"classification": Scenario.CLASS, "regression": Scenario.DOMAIN}
"""As those of the estimators: every task may have classes of its own."""
WIDE = 500
"""Inputs with more numbers are learned with all processors; for smaller ones one is fastest."""


@dataclass
class OpenModel:
    """The one writer's view of a model."""

    folder: Path
    new: NewModel | None = None
    learner: ContinualLearner | None = None
    tasks: list[TaskInfo] = field(default_factory=list)
    scaling: Scaling = field(default_factory=lambda: Scaling({}))
    inputs: Mapping[str, Any] = field(default_factory=dict)
    generation: int = 0
    extractor: Extractor | None = None
    """What turns inputs into features, if the network has a backbone."""

    @classmethod
    def of(cls, folder: Path) -> "OpenModel":
        """Read it; a new model has no learner yet."""
        place = model_folder(folder)
        new = read_new(place)
        if new is not None and not (place / "model.safetensors").is_file():
            return cls(place, new)
        stored = load_model(place)
        torch.set_num_threads(stored.learner.config.threads)
        return cls.stored(stored)

    @classmethod
    def stored(cls, stored: StoredModel) -> "OpenModel":
        """From what was read."""
        extractor = stored_extractor(stored.learner.config, stored.inputs, stored.scaling)
        tasks, scaling, inputs = list(stored.tasks), Scaling(dict(stored.scaling)), without_features(stored.inputs)
        return cls(stored.folder, None, stored.learner, tasks, scaling, inputs, stored.generation, extractor)

    @property
    def names(self) -> list[str]:
        """Of its tasks."""
        return [task.name for task in self.tasks]

    @property
    def work(self) -> Work:
        """What is under way in its folder."""
        return Work(self.folder)

    @property
    def problem(self) -> Problem | None:
        """Classification or regression; None before the first task, unless it was set."""
        if self.learner is not None:
            return self.learner.problem
        return None if self.new is None else self.new.settings.get("data.problem")

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of one input; None before the first task."""
        if self.extractor is not None:
            return self.extractor.input_shape
        return None if self.learner is None else self.learner.input_shape

    def data(self, x: Tensor, y: Tensor) -> TaskData:
        """Examples as the learner sees them: scaled, and perhaps as features of a backbone."""
        x = self.scaling.x(x)
        return TaskData(x if self.extractor is None else self.extractor.features(x), self.scaling.y(y))

    def new_data(self, x: Tensor, y: Tensor) -> TaskData:
        """Examples that are about to be learned: columns that were constant so far may begin to vary in them."""
        if self.extractor is None:  # a backbone sees inputs as they are
            self.scaling = self.scaling.following(x)
        return self.data(x, y)

    def index(self, name: str) -> int:
        """The index of a task."""
        if name not in self.names:
            known = ", ".join(map(repr, self.names)) or "none"
            raise DataError(f"the model in {self.folder} has no task {name!r}; its tasks are {known}")
        return self.names.index(name)

    def prepare(self, data: NewData) -> ContinualLearner:
        """The learner; for the first task it is made, with scaling and encoding of that task's data."""
        if self.learner is not None:
            return self.learner
        first = data.tasks[0]
        self.scaling = Scaling.of(first.x, first.y, regression=data.problem == "regression")
        new = self.new or NewModel("pr-bbb", None, {})
        refuse_texts(data.inputs, new.network)
        if new.network is not None and has_backbone(new.network):
            backbone = backbone_for(data.inputs, new_config(new, data.problem))
            adapted = is_adapted(new.network)
            self.extractor = Extractor.of(backbone, self.scaling.x(first.x), self.scaling, adapted=adapted)
        examples = self.data(first.x, first.y)
        config = new_config(new, data.problem, Facts.of(examples, data.problem))
        torch.set_num_threads(config.threads)
        self.inputs = data.inputs
        scenario, shape = SCENARIOS[data.problem], tuple(examples.x.shape[1:])
        self.learner = ContinualLearner(config, data.problem, scenario, shape)
        return self.learner

    def save(self, entry: HistoryEntry) -> None:
        """Make what is in memory the folder's model; the one before is kept for ``undo``."""
        assert self.learner is not None
        entry = entry.model_copy(update={"facts": {**entry.facts, "previous": self.generation}})
        scaling, inputs = self.scaling.tensors, dict(self.inputs)
        if self.extractor is not None:
            scaling, inputs = {**scaling, **self.extractor.tensors()}, {**inputs, FACTS: self.extractor.facts()}
        self.generation = save_model(
            self.folder,
            self.learner,
            self.tasks,
            scaling,
            inputs,
            entry=entry,
            keep_previous=True,
        )
        finish_new(self.folder)
        self.work.clear()

    def tidy(self) -> None:
        """Finish what a process left that was killed just after it had stored the model."""
        mend(self.folder)
        finish_new(self.folder)
        if self.work.pending(self.generation) is None:
            self.work.clear()


def new_config(new: NewModel, problem: Problem, first: Facts | None = None) -> RunConfig:
    """The configuration of a new model's settings, for data like those of the first task; refused if impossible."""
    settings = {key: value for key, value in new.settings.items() if not key.startswith("data.")}
    facts = first or TYPICAL[problem]
    defaults, _ = own_settings(facts, problem, new.method, new.network, settings)
    threads = max(1, os.cpu_count() or 1) if prod(facts.shape) > WIDE else 1
    return build_config({**defaults, "threads": threads}, settings, "--set")


def shown(labels: Sequence[Hashable], most: int = 8) -> str:
    """Labels in a sentence."""
    names = ", ".join(map(str, labels[:most]))
    return f"{names}, ..." if len(labels) > most else names
