"""What a stored model has learned: its tasks with their figures, and how far each has moved."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from metareplay.benchmarks.base import TaskData, TaskInfo
from metareplay.data.settings import DataSettings
from metareplay.errors import DataError
from metareplay.inference.reference import held_out_score
from metareplay.learner.audit import TaskAudit, audit
from metareplay.living.examples import read_tasks
from metareplay.living.opened import OpenModel
from metareplay.living.past import examples_given, past_of, present_names
from metareplay.living.place import open_model

LEARNED = ("add-task", "update-task", "learn", "stream: learned", "stream: refined")


@dataclass(frozen=True)
class TaskOverview:
    """One task of a stored model."""

    name: str
    classes: tuple[Any, ...]
    examples: int | None
    """All that it was given, with those that were held out."""
    date: str
    """When it was learned or last updated."""
    held_out: float | None
    """Accuracy (regression: mean squared error, scaled) on its held-out share then."""
    score: float | None
    """The same now, on data that were given."""
    bytes: int
    """Of what is stored for it alone: embedding or weights, statistics, reference for audits."""
    moved: float | None
    unexplained: float | None
    """How far the features of its network moved, and what its statistics could not follow."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "classes": [str(label) for label in self.classes]}


def tasks_of(folder: Path, data: DataSettings | None = None, *, name: str | None = None) -> list[TaskOverview]:
    """The tasks of a model, in the order in which they were learned."""
    model = _opened(folder)
    learner = model.learner
    assert learner is not None
    scores = {} if data is None else _scores(model, data, name)
    past = past_of(model.folder, model.generation)
    told, given = present_names(past, LEARNED), examples_given(past, LEARNED[:2])
    keeper = learner.predictor.keeper
    stored, drifts = keeper.stored(), keeper.drift() if keeper.available else [{}] * len(model.tasks)
    own = learner.model.task_map.per_task_parameters() * 4
    tensors = learner.predictor.task_statistics.tensors()
    result = []
    for index, task in enumerate(model.tasks):
        entry, then = told.get(task.name), held_out_score(learner.predictor, index)
        size = sum(
            tensor.numel() * tensor.element_size() for key, tensor in tensors.items() if key.split(".")[1] == str(index)
        )
        moved, left = _largest(drifts[index])
        known = stored[index].get("examples") if index < len(stored) else None
        count = given.get(task.name)
        if count is None:  # learned by a run or a stream
            held_out = 0 if then is None else then[1]
            count = int(known) + held_out if known is not None else None if entry is None else entry.examples
        result.append(
            TaskOverview(
                task.name,
                task.classes,
                count,
                "" if entry is None else entry.date,
                None if then is None else then[0],
                scores.get(task.name, (None, 0))[0],
                size + own,
                moved,
                left,
            )
        )
    return result


def _largest(drift: Any) -> tuple[float | None, float | None]:
    if not drift:
        return None, None
    moved, left = (max(values) for values in zip(*drift.values(), strict=True))
    return moved, left


def audit_model(folder: Path, data: DataSettings | None = None, *, name: str | None = None) -> list[TaskAudit]:
    """How far every task has moved; with labelled data also how well it does on them now."""
    model = _opened(folder)
    assert model.learner is not None
    audited = audit(model.learner, model.names)
    scores = {} if data is None else _scores(model, data, name)
    return [
        replace(entry, score=scores[entry.task][0], score_examples=scores[entry.task][1])
        if entry.task in scores
        else entry
        for entry in audited
    ]


def _opened(folder: Path) -> OpenModel:
    return OpenModel.stored(open_model(folder))


def _scores(model: OpenModel, data: DataSettings, name: str | None) -> dict[str, tuple[float, int]]:
    """Accuracy, or scaled mean squared error, of each task on its own labelled examples, and their number."""
    if name is None and data.tasks_by is None and model.inputs.get("task") is not None:
        data = data.model_copy(update={"tasks_by": model.inputs["task"]})
    new = read_tasks(data, name=name, known=model.inputs, problem=model.problem, shape=model.shape)
    scores = {}
    for examples in new.tasks:
        index = model.index(examples.name)
        targets, _, width = examples.targets(model.tasks[index])
        if examples.classes and width > len(model.tasks[index].classes):
            raise DataError(
                f"task {examples.name!r} has not learned the class {_unknown(examples.classes, model.tasks[index])!r}"
            )
        part = model.data(examples.x, targets)
        scores[examples.name] = (_score(model, index, part), len(part.x))
    return scores


def _unknown(classes: Sequence[Any], info: TaskInfo) -> Any:
    return next(label for label in classes if label not in info.classes)


def _score(model: OpenModel, task: int, data: TaskData) -> float:
    assert model.learner is not None
    outputs = model.learner.predictor.outputs(data.x, task)  # (S, N, C)
    if model.learner.problem == "regression":
        return float((outputs.double().mean(0) - data.y.double()).square().mean())
    return float((outputs.double().softmax(-1).mean(0).argmax(1) == data.y).double().mean())
