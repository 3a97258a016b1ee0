"""An estimator's state as plain values, and the settings in which it differs from its defaults."""

from collections.abc import Mapping
from typing import Any

from metareplay.benchmarks.base import Problem, Scenario
from metareplay.learner.config import RunConfig
from metareplay.learner.learner import ContinualLearner
from metareplay.settings import flatten

OF_RUNS = ("benchmark", "data_dir", "data_seed", "threads")
"""Settings that an estimator does not have, besides those of data and tasks."""

INSTEAD = {
    "threads": "remove it, and call torch.set_num_threads",
    "data.missing": "remove it, and fill in or drop missing values first, for example with pandas' fillna or dropna, "
    "or scikit-learn's SimpleImputer",
    "data.ignore": "remove it, and leave the columns out, for example with pandas' drop(columns=...)",
    "data.label": "remove it, and give the labels, or the name of their column, as y",
    "data.text": "remove it, and give the texts themselves as X",
    "data.problem": "remove it, and use ContinualClassifier for classes, ContinualRegressor for numbers",
}
"""What to do instead of giving such a setting to an estimator."""


def instead_of(setting: str) -> str:
    """What to do instead of giving a setting of runs to an estimator."""
    if setting.startswith("data."):
        return INSTEAD.get(setting, "remove it, and prepare X and y yourself: estimators learn from them as they are")
    return INSTEAD.get(setting, "remove it")


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
