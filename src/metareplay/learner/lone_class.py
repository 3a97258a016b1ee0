"""Tasks with a single class: which methods can learn them."""

from collections.abc import Sequence

from metareplay.benchmarks.base import Problem, Scenario, TaskInfo
from metareplay.errors import DataError
from metareplay.learner.build import head_layout
from metareplay.learner.config import RunConfig


def refuse_lone_classes(config: RunConfig, problem: Problem, scenario: Scenario, tasks: Sequence[TaskInfo]) -> None:
    """Refuse a task with a single class unless it competes with the classes of other tasks."""
    if problem == "regression" or head_layout(config, problem, scenario).one_softmax:
        return
    for task in tasks:
        if len(task.classes) < 2:
            raise DataError(
                f"task {task.name!r} has only one class, {task.classes[0]!r}, and {config.method} tells classes apart "
                "within a task: learn it together with another class, or choose a method in which the classes of all "
                "tasks compete: exp-replay (keeps some inputs of each task), joint (keeps all), or without old data "
                "vcl-growing or ewc-growing"
            )
