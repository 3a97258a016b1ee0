"""Tasks with a single class: which methods can learn them. And tasks with a single example."""

from collections.abc import Sequence

from metareplay.benchmarks.base import Problem, Scenario, TaskInfo
from metareplay.errors import DataError
from metareplay.learner.build import head_layout
from metareplay.learner.config import RunConfig


def refuse_lone_classes(
    config: RunConfig, problem: Problem, scenario: Scenario, tasks: Sequence[TaskInfo], *, complete: bool = False
) -> None:
    """Refuse a task with a single class if nothing would tell it apart from others.

    Given the task its class is certain, so it is learned as a density: what is stored about its inputs tells it apart
    from other tasks. Where the classes of all tasks compete, or the task will be known, nothing else is needed.
    ``complete`` says that there will be no further tasks.
    """
    if problem == "regression":
        return
    if complete and len({label for task in tasks for label in task.classes}) == 1:
        raise DataError(
            f"all examples have the class {tasks[0].classes[0]!r}, so there is nothing to learn; "
            "give examples of at least two classes"
        )
    competing = head_layout(config, problem, scenario).one_softmax
    if competing or scenario is Scenario.TASK or config.statistics.collect:
        return
    for task in tasks:
        if len(task.classes) < 2:
            raise DataError(
                f"task {task.name!r} has only the class {task.classes[0]!r}, and without task statistics "
                f"{config.method} could not tell it apart from other tasks: set statistics.collect=true, learn it "
                "together with another class, or choose a method in which the classes of all tasks compete, such as "
                "exp-replay"
            )


def lone_example(count: int) -> str | None:
    """What to say about a task with a single example; None about any other."""
    if count != 1:
        return None
    return "it has a single example, from which neither its inputs nor its noise can be estimated; give it more"
