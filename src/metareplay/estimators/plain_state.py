"""An estimator's state as plain values, and the settings in which it differs from its defaults."""

from collections.abc import Mapping
from typing import Any

from metareplay.benchmarks.base import Problem, Scenario
from metareplay.learner.config import RunConfig
from metareplay.learner.learner import ContinualLearner
from metareplay.settings import flatten

OF_RUNS = ("benchmark", "data_dir", "data_seed", "threads")
"""Settings that an estimator does not have, besides those of data and tasks."""


def learned_state(learner: ContinualLearner) -> dict[str, Any]:
    """What a learner has learned, between tasks: plain values and tensors."""
    return {
        "config": learner.config.model_dump(mode="json"),
        "scenario": learner.scenario.value,
        "input_shape": learner.input_shape,
        "facts": learner.facts(),
        "tensors": {name: tensor.clone() for name, tensor in learner.tensors(training=False).items()},
    }


def learner_of(state: Mapping[str, Any], problem: Problem) -> ContinualLearner:
    """The learner that ``learned_state`` was taken of; it makes the same predictions, bit for bit."""
    learner = ContinualLearner(
        RunConfig.of(state["config"]),
        problem,
        Scenario(state["scenario"]),
        tuple(state["input_shape"]),
        total_outputs=state["facts"]["total_outputs"],
    )
    learner.restore(state["facts"], state["tensors"])
    return learner


def changed_settings(defaults: RunConfig, config: RunConfig) -> dict[str, Any]:
    """The settings of an estimator that differ from its defaults, by their dotted keys."""
    known = flatten(defaults.model_dump(mode="json"))
    return {
        key: value
        for key, value in flatten(config.dump()).items()
        if value != known.get(key) and key not in OF_RUNS and not key.startswith(("data.", "tasks."))
    }
