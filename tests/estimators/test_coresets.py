"""Estimators with coresets: fine_tune and refresh_task, at any time, all or nothing, saved and loaded."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from metareplay import ContinualClassifier, ContinualRegressor
from metareplay.errors import ConfigError, DataError, NotTrainedError
from metareplay.strategies.base import LossTerms
from metareplay.training.loop import TaskTrainer

SETTINGS = {
    "training.iterations": 120,
    "training.learning_rate": 0.01,
    "hypernet.kind": "plain",
    "hypernet.hidden": [],
    "strategy.strength": 1.0,
    "strategy.coreset_size": 15,
    "strategy.finetune_iterations": 150,
    "inference.samples": 20,
}
BRIEF = {"training.iterations": 20, "strategy.finetune_iterations": 20}
CENTRES = ((-3.0, 0.0), (3.0, 0.0), (0.0, 3.5))


def blobs(task: int, size: int = 80) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two classes beside each other; each task somewhere else."""
    rng, y = np.random.default_rng(task), np.arange(size) % 2
    x = rng.normal(scale=0.5, size=(size, 2)) + np.array(CENTRES[task]) + np.stack([0 * y, 1.6 * y - 0.8], 1)
    return x, y + 2 * task


def classifier(method: str = "pr-bbb-cs", tasks: int = 2, **settings: Any) -> ContinualClassifier:
    model = ContinualClassifier(method, "mlp-10-10", seed=0, settings={**SETTINGS, **settings})
    for task in range(tasks):
        model.learn_task(*blobs(task), name=f"task-{task}")
    return model


def inferred(model: ContinualClassifier, tasks: int) -> float:
    return float(
        np.mean(
            [
                np.mean([name == f"task-{task}" for name in model.predict_task(blobs(task)[0], criterion="ent")])
                for task in range(tasks)
            ]
        )
    )


RADIAL = {"posterior.prior_scale": 0.001, "hypernet.task_embedding_std": 0.3}  # as the defaults of pr-bbb


@pytest.mark.parametrize(("method", "settings"), [("pr-bbb-cs", {}), ("pr-dirac-cs", {}), ("pr-radial-cs", RADIAL)])
def test_fine_tuning_tells_the_tasks_apart(method: str, settings: dict[str, Any]) -> None:
    model = classifier(method, 3, **settings, **{"statistics.collect": False})
    before = inferred(model, 3)
    assert model.fine_tune() is model
    assert inferred(model, 3) > max(0.7, before + 0.2)
    assert all(model.score(*blobs(task), task=task) > 0.7 for task in range(3))


def test_more_tasks_can_follow() -> None:
    model = classifier()
    model.fine_tune().learn_task(*blobs(2), name="task-2")
    assert model.score(*blobs(2), task=2) > 0.85
    with pytest.raises(ConfigError, match=r"the coresets of tasks 0, 1 have .*again=True"):
        model.fine_tune()
    model.fine_tune(again=True)
    assert inferred(model, 3) > 0.7


def test_a_saved_model_can_be_fine_tuned(tmp_path: Path) -> None:
    model, x = classifier(**BRIEF), blobs(2)[0]
    model.save(tmp_path)
    again = ContinualClassifier.load(tmp_path)
    model.fine_tune().save(tmp_path)
    again.fine_tune()
    assert np.array_equal(again.predict_proba(x), model.predict_proba(x))
    with pytest.raises(ConfigError, match="counts their evidence twice"):
        ContinualClassifier.load(tmp_path).fine_tune()


def test_refreshing_changes_one_task_and_leaves_the_others() -> None:
    model, x = classifier(), np.concatenate([blobs(0)[0], blobs(1)[0]])
    before = [model.predict_proba(x, task) for task in (0, 1)]
    assert model.refresh_task("task-0") is model
    change = [np.abs(model.predict_proba(x, task) - before[task]).mean() for task in (0, 1)]
    assert change[0] > 0
    assert change[1] < 0.05
    with pytest.raises(ConfigError, match="the coreset of task 0 has already updated"):
        model.refresh_task(0)
    model.refresh_task(0, again=True).refresh_task("task-1")
    with pytest.raises(DataError, match="task 'autumn' is unknown"):
        model.refresh_task("autumn")


@pytest.mark.parametrize("update", ["fine_tune", "refresh_task"])
def test_a_failed_update_leaves_the_model_as_it_was(update: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"training.iterations": 8, "strategy.finetune_iterations": 6}
    model, untouched, x = classifier(**settings), classifier(**settings), blobs(2)[0]
    arguments = ["task-1"] if update == "refresh_task" else []
    original = TaskTrainer._step

    def crash(trainer: TaskTrainer) -> LossTerms:
        if trainer.iteration == 3:
            raise KeyboardInterrupt
        return original(trainer)

    with monkeypatch.context() as patch:
        patch.setattr(TaskTrainer, "_step", crash)
        with pytest.raises(KeyboardInterrupt):
            getattr(model, update)(*arguments)
    assert np.array_equal(model.predict_proba(x), untouched.predict_proba(x))
    for each in (model, untouched):
        getattr(each, update)(*arguments)
        each.learn_task(*blobs(2))
    assert np.array_equal(model.predict_proba(x), untouched.predict_proba(x))


def test_methods_without_coresets_say_so() -> None:
    model = ContinualClassifier("pr-bbb", "mlp-4", settings={"training.iterations": 2})
    with pytest.raises(NotTrainedError):
        model.fine_tune()
    model.learn_task(*blobs(0))
    with pytest.raises(ConfigError, match=r"pr-bbb keeps no examples .* pr-bbb-cs"):
        model.fine_tune()
    with pytest.raises(ConfigError, match="pr-bbb keeps no examples"):
        model.refresh_task(0)


def test_regression_is_refreshed_but_has_no_uncertain_targets() -> None:
    x = np.linspace(-1, 1, 40).reshape(-1, 1)
    settings = {"training.iterations": 20, "strategy.coreset_size": 10, "inference.calibrate": False}
    model = ContinualRegressor("pr-bbb-cs", "mlp-5", seed=0, settings=settings)  # the network's own answers
    model.learn_task(x, 2 * x).learn_task(x + 4, -x)
    before = model.predict(x, 0)
    model.refresh_task(0).refresh_task(1)
    assert not np.array_equal(model.predict(x, 0), before)
    refused = ContinualRegressor("pr-bbb-cs", "mlp-5", settings={"strategy.finetune_others": "uniform"})
    with pytest.raises(ConfigError, match="no real-valued target can express that"):
        refused.learn_task(x, x)
