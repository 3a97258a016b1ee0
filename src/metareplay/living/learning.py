"""Adding and updating tasks of a stored model: atomic, and resumable after a kill."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from metareplay.data.settings import DataSettings
from metareplay.errors import ConfigError, MetaReplayError
from metareplay.inference.reference import held_out_score
from metareplay.interrupts import Interrupted, leavable
from metareplay.learner.audit import TaskAudit, audit
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.lone_class import lone_example, refuse_lone_classes
from metareplay.learner.store import HistoryEntry, writing
from metareplay.living.examples import NewData, TaskExamples, read_tasks
from metareplay.living.opened import OpenModel, shown
from metareplay.living.past import past_of
from metareplay.living.periods import facts_on_dates, notes_on_dates
from metareplay.living.place import Operation, checked_name, model_folder
from metareplay.training.loop import TaskTrainer
from metareplay.training.progress import NullObserver, Observer, Stage
from metareplay.training.watch import Notice

ADD, UPDATE = "add-task", "update-task"
_BEFORE = "stopped before anything was learned; the model is unchanged"


class GateClosed(MetaReplayError):  # noqa: N818
    """The change would move known tasks further than allowed; the model is left as it was."""


class Done(NamedTuple):
    """What a verb did."""

    text: str
    """In a line or two, for people."""
    entry: HistoryEntry | None = None
    """None if there was nothing to do."""
    audit: tuple[TaskAudit, ...] = ()
    """Of all tasks, after training."""


@dataclass(frozen=True)
class Terms:
    """How a verb is carried out."""

    observer: Observer = field(default_factory=NullObserver)
    should_stop: Callable[[], bool] = lambda: False
    max_change: float | None = None
    """How far the predictions of known tasks may move (see ``TaskAudit.change``); None: without limit."""
    notes: Callable[[str], None] = lambda note: None
    """Told what was noticed in the data."""


def add_tasks(folder: Path, data: DataSettings, *, name: str | None = None, terms: Terms = Terms()) -> list[Done]:  # noqa: B008
    """Add one task, or several in turn; each is stored before the next begins."""
    name = None if name is None else checked_name(name)
    with writing(model_folder(folder)):
        model = OpenModel.of(folder)
        new = _read(model, data, name, terms)
        for note in notes_on_dates(model, new):
            terms.notes(note)
        return [_add(model, new, examples, terms, number) for number, examples in enumerate(new.tasks)]


def update_task(
    folder: Path,
    data: DataSettings,
    *,
    name: str,
    again: bool = False,
    terms: Terms = Terms(),  # noqa: B008
) -> Done:
    """Train a known task further on new examples, of its own classes or of new ones."""
    with writing(model_folder(folder)):
        model = OpenModel.of(folder)
        model.index(name)
        new = _read(model, data, name, terms)
        return _update(model, new, new.tasks[0], terms, again=again)


def _read(model: OpenModel, data: DataSettings, name: str | None, terms: Terms) -> NewData:
    with leavable(_BEFORE):
        new = read_tasks(data, name=name, known=model.inputs, problem=model.problem, shape=model.shape)
    for note in new.notes:
        terms.notes(note)
    return new


def _add(model: OpenModel, new: NewData, examples: TaskExamples, terms: Terms, number: int) -> Done:
    if examples.name in model.names:
        if _learned_from(model, examples, (ADD,)) is not None:
            model.tidy()
            return Done(f"task {examples.name!r} has already been learned from these data; nothing to do")
        raise ConfigError(
            f"a task named {examples.name!r} has already been learned, from other data; choose another name, or give "
            f"it these with update-task (known: {', '.join(model.names)})"
        )
    targets, info, width = examples.targets()
    with leavable(_BEFORE):
        learner = model.prepare(new)
        data = model.new_data(examples.x, targets)
    refuse_lone_classes(learner.config, learner.problem, learner.scenario, [info])
    if (text := lone_example(len(data.x))) is not None:
        terms.notes(f"task {info.name!r}: {text}")
    operation = Operation(ADD, examples.name, examples.fingerprint, model.generation)
    _train(
        model,
        operation,
        Stage(number, len(new.tasks), examples.name),
        terms,
        begin=lambda: learner.begin_task(data, width),
        resume=lambda tensors: learner.continue_task(data, tensors),
        finish=lambda: learner.finish_task(data, [*model.tasks, info]),
    )
    model.tasks.append(info)
    return _stored(model, operation, examples, info.name, terms, f"learned as task {len(model.tasks)}")


def _update(model: OpenModel, new: NewData, examples: TaskExamples, terms: Terms, *, again: bool) -> Done:
    with leavable(_BEFORE):
        learner, index = model.prepare(new), model.index(examples.name)
    earlier = _learned_from(model, examples, (ADD, UPDATE))
    if earlier is not None and not again:
        if earlier.verb == UPDATE and earlier.generation == model.generation:
            model.tidy()
            return Done(f"task {examples.name!r} has already been updated with these data; nothing to do")
        raise ConfigError(
            f"task {examples.name!r} has already learned from these data; using them again counts their evidence twice "
            "and makes the model overconfident. Pass --again if you accept that"
        )
    known = model.tasks[index]
    targets, info, width = examples.targets(known)
    with leavable(_BEFORE):
        data = model.new_data(examples.x, targets)
    operation = Operation(UPDATE, examples.name, examples.fingerprint, model.generation)
    _train(
        model,
        operation,
        Stage(0, 1, examples.name),
        terms,
        begin=lambda: learner.begin_revision(index, data, width),
        resume=lambda tensors: learner.continue_revision(data, tensors),
        finish=lambda: learner.finish_revision(data, [*model.tasks[:index], info, *model.tasks[index + 1 :]]),
    )
    model.tasks[index] = info
    more = info.classes[len(known.classes) :]
    words = f"updated, with the new classes {shown(more)}" if more else "updated"
    return _stored(model, operation, examples, info.name, terms, words)


def _train(
    model: OpenModel,
    operation: Operation,
    stage: Stage,
    terms: Terms,
    *,
    begin: Callable[[], TaskTrainer],
    resume: Callable[[Mapping[str, Tensor]], TaskTrainer],
    finish: Callable[[], Notice | None],
) -> None:
    """Train to the end, with checkpoints in the model's folder; whatever fails leaves nothing unfinished."""
    learner, work = model.learner, model.work
    assert learner is not None
    checkpoint = work.last(operation) if work.refuse_unfinished(model.generation, operation) else None
    try:
        if checkpoint is None:
            work.begin(operation)
            with leavable(_stopped(model, operation)):
                trainer = begin()
        else:
            learner.restore(checkpoint.facts, checkpoint.tensors)
            with leavable(_stopped(model, operation)):
                trainer = resume(checkpoint.tensors)
            terms.notes(f"continued at step {trainer.iteration} of {trainer.iterations}")
        _take_steps(learner, trainer, model, operation, stage, terms)
        with leavable(_stopped(model, operation)):
            notice = finish()
        _notice(notice, operation, terms)
    except Interrupted:
        raise
    except Exception:  # a process that is told to end leaves its checkpoints
        work.clear()
        raise
    learner.trainer = None


def _take_steps(
    learner: ContinualLearner,
    trainer: TaskTrainer,
    model: OpenModel,
    operation: Operation,
    stage: Stage,
    terms: Terms,
) -> None:
    terms.observer.stage_begins(stage, trainer.iteration, trainer.iterations)
    every = learner.config.training.checkpoint_every
    for step in trainer:
        terms.observer.step(step)
        _notice(step.notice, operation, terms)
        stopping = terms.should_stop()
        if (step.iteration % every == 0 or stopping) and learner.is_finite():
            model.work.write(operation, step.iteration, learner.tensors(training=True), learner.facts())
        if stopping:
            raise Interrupted(_stopped(model, operation))


def _stopped(model: OpenModel, operation: Operation) -> str:
    return (
        f"stopped during the {operation}; the model is unchanged. The same command continues where it stopped; "
        f"metareplay undo {model.folder} discards it"
    )


def _notice(notice: Notice | None, operation: Operation, terms: Terms) -> None:
    if notice is not None:
        terms.notes(f"task {operation.task!r}: {notice.text}")


def _stored(
    model: OpenModel, operation: Operation, examples: TaskExamples, name: str, terms: Terms, words: str
) -> Done:
    """Ask the gate, store the model, and say what was done."""
    learner, index = model.learner, model.index(name)
    assert learner is not None
    with leavable(_stopped(model, operation)):
        audited = tuple(audit(learner, model.names))
    _ask_gate(audited, model, operation, terms)
    score, figures = held_out_score(learner.predictor, index), {}
    accuracy = ""
    if score is not None:
        figures["held_out"] = score[0]
        kind, value = ("mean squared error (scaled)", f"{score[0]:.3g}")
        if learner.problem == "classification":
            kind, value = "accuracy", f"{100 * score[0]:.1f} %"
        accuracy = f"; {kind} on {score[1]} held-out examples {value}"
    others = [entry.change for entry in audited if entry.task != name and entry.change is not None]
    if others:
        figures["largest_change"] = max(others)
    entry = HistoryEntry(
        verb=operation.verb,
        tasks=(name,),
        examples=len(examples.x),
        fingerprint=examples.fingerprint,
        figures=figures,
        facts={
            **({"classes": [str(label) for label in examples.classes]} if examples.classes else {}),
            **facts_on_dates(model, examples),
        },
    )
    model.save(entry)
    moved = f"; other tasks' predictions moved by at most {100 * max(others):.1f} %" if others else ""
    text = f"task {name!r} {words} from {len(examples.x)} examples{accuracy}{moved}"
    return Done(text, entry, audited)


def _ask_gate(audited: tuple[TaskAudit, ...], model: OpenModel, operation: Operation, terms: Terms) -> None:
    if terms.max_change is None:
        return
    broken = [entry for entry in audited if entry.exceeds(terms.max_change)]
    if broken:
        model.work.clear()
        worst = ", ".join(f"{entry.task} by {100 * (entry.change or 0):.1f} %" for entry in broken)
        raise GateClosed(
            f"refused: after the {operation}, the predictions of known tasks would have moved further than "
            f"{100 * terms.max_change:.1f} % since they were learned ({worst}); the model is unchanged. A larger "
            "strategy.strength holds them better, in a new model"
        )


def _learned_from(model: OpenModel, examples: TaskExamples, verbs: tuple[str, ...]) -> HistoryEntry | None:
    """The newest change by which a task learned from these very examples."""
    past = past_of(model.folder, model.generation)
    entries = [entry for entry in past if entry.verb in verbs and examples.name in entry.tasks]
    return next((entry for entry in reversed(entries) if entry.fingerprint == examples.fingerprint), None)
