"""The periods of a stored model's tasks, as its history remembers them."""

from typing import Any

from metareplay.data.periods import Period, joint_period, period_notes
from metareplay.living.examples import NewData, TaskExamples
from metareplay.living.opened import OpenModel
from metareplay.living.past import past_of, present_names

PERIODS = "periods"
VERBS = ("add-task", "update-task")


def notes_on_dates(model: OpenModel, new: NewData) -> list[str]:
    """A note if dates alone tell apart all tasks, old and new; none if the period of an old task is not known."""
    known = _remembered(model)
    if any(name not in known for name in model.names):
        return []
    return period_notes([*known.values(), *(task.periods for task in new.tasks)], fresh=not model.tasks)


def facts_on_dates(model: OpenModel, examples: TaskExamples) -> dict[str, Any]:
    """What the history remembers of the dates of a task, also those of its earlier examples."""
    earlier = _remembered(model).get(examples.name, {})
    periods = {
        name: joint_period(period, earlier[name]) if name in earlier else period
        for name, period in examples.periods.items()
    }
    return {PERIODS: {name: list(period) for name, period in periods.items()}} if periods else {}


def _remembered(model: OpenModel) -> dict[str, dict[str, Period]]:
    """The periods of tasks by their present names, by column."""
    newest = present_names(past_of(model.folder, model.generation), VERBS)
    return {
        name: {column: (str(period[0]), str(period[1])) for column, period in entry.facts[PERIODS].items()}
        for name, entry in newest.items()
        if PERIODS in entry.facts
    }
