"""A stored model that follows a stream of rows without boundaries; it is stored whenever it has learned."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch
from torch import Tensor

from metareplay.benchmarks.base import Problem
from metareplay.benchmarks.own import as_targets, chosen_problem
from metareplay.data.base import FILLING
from metareplay.data.readers.csv_tables import csv_table
from metareplay.data.settings import DataSettings
from metareplay.data.tables import examples_of
from metareplay.errors import DataError
from metareplay.estimators.classifier import ContinualClassifier
from metareplay.estimators.regressor import ContinualRegressor
from metareplay.estimators.streaming import Stream, StreamingEstimator
from metareplay.learner.store import HistoryEntry, load_model, save_model, writing
from metareplay.living.place import Work, finish_new, model_folder, read_new
from metareplay.nets.backbones import refuse_stored_name
from metareplay.streams.report import StreamEvent, StreamReport
from metareplay.streams.settings import StreamSettings

CHANGES = ("learned", "refined")
"""Events after which the model is stored."""
KINDS: Mapping[Problem, type[StreamingEstimator]] = {
    "classification": ContinualClassifier,
    "regression": ContinualRegressor,
}


class Rows(NamedTuple):
    """Some rows of a stream as examples, and how further ones become inputs."""

    x: Tensor
    y: list[Hashable] | Tensor
    problem: Problem
    inputs: Mapping[str, Any]


def follow(
    folder: Path,
    text: IO[bytes],
    data: DataSettings,
    settings: StreamSettings,
    *,
    on_event: Callable[[StreamEvent], None],
) -> StreamReport:
    """Learn from a CSV text as it comes; the model is stored after every task that was learned or updated.

    The folder is locked meanwhile. A new model's columns are described by the first ``grace`` rows.
    """
    place = model_folder(folder)
    with writing(place):
        stored = None if read_new(place) else load_model(place)
        Work(place).refuse_unfinished(0 if stored is None else stored.generation)
        model = None if stored is None else KINDS[stored.learner.problem].of(stored)
        stream: Stream | None = None
        for chunk in text_chunks(text, first=settings.window if model else settings.grace, then=settings.window):
            problem = None if model is None else model.problem
            rows = read_rows(chunk, data, {} if model is None else model.inputs, problem)
            if model is None:
                model = _new_estimator(place, rows)
            if stream is None:
                generation = 0 if stored is None else stored.generation
                stream = Stream(model, settings, on_event=_storing(place, model, generation, on_event))
            stream.learn_many(rows.x, rows.y)
        if stream is None:
            raise DataError("the stream has no rows; give a header and at least one row")
        return stream.finish()


def text_chunks(text: IO[bytes], *, first: int, then: int) -> Iterator[bytes]:
    """Pieces of a CSV text with this many rows, each with the header; a row may span lines within quotation marks."""
    header, lines, rows, quotes, wanted = text.readline(), [], 0, 0, first
    while line := text.readline():
        lines.append(line)
        quotes += line.count(b'"')
        rows += bool(line.strip()) and quotes % 2 == 0  # else the row goes on
        if rows >= wanted:
            yield b"".join([header, *lines])
            lines, rows, quotes, wanted = [], 0, 0, then
    if rows:
        yield b"".join([header, *lines])


def read_rows(chunk: bytes, data: DataSettings, known: Mapping[str, Any], problem: Problem | None) -> Rows:
    """Rows of a CSV text as examples, encoded as the model's earlier ones were."""
    form = data.text_format
    form = form._replace(decimal=form.decimal or known.get("decimal"))
    examples = examples_of(csv_table(chunk, "the stream", form), data, known)
    chosen, _ = chosen_problem(examples, data.model_copy(update={"problem": problem or data.problem}))
    examples = as_targets(examples, chosen)
    x, inputs = examples.x.float(), dict(examples.inputs)
    if inputs.pop(FILLING, False) or bool(x.isnan().any()):
        fill = torch.tensor(known["fill"]) if "fill" in known else x.nanmean(0)  # (N, D) -> (D,)
        inputs["fill"] = fill.tolist()
        x = torch.where(x.isnan(), fill, x)
    labels = [examples.labels[index] for index in examples.y.tolist()] if chosen == "classification" else []
    return Rows(x, labels or examples.y.float(), chosen, inputs)


def _new_estimator(place: Path, rows: Rows) -> StreamingEstimator:
    new = read_new(place)
    assert new is not None
    settings = {key: value for key, value in new.settings.items() if not key.startswith("data.")}
    for network in (new.network, settings.get("network")):
        refuse_stored_name(str(network))  # the constructor takes its arguments for the user's, who may name code
    model = KINDS[rows.problem](new.method, new.network, settings=settings)
    model.inputs = rows.inputs
    return model


def _seen(model: StreamingEstimator, task: str) -> int | None:
    """The examples that a task has learned from so far, where that is known."""
    stored = [] if model.learner is None else model.learner.predictor.keeper.stored()
    place = model.task_names.index(task)
    return int(stored[place]["examples"]) if place < len(stored) and "examples" in stored[place] else None


def _storing(
    place: Path, model: StreamingEstimator, generation: int, on_event: Callable[[StreamEvent], None]
) -> Callable[[StreamEvent], None]:
    """Store the model when it has changed, and pass the event on; ``generation`` is the stored one."""
    newest = generation

    def told(event: StreamEvent) -> None:
        nonlocal newest
        if event.kind in CHANGES and model.learner is not None:
            facts = {**event.facts(), "previous": newest}  # for undo
            task = event.task or ""
            entry = HistoryEntry(verb=f"stream: {event.kind}", tasks=(task,), examples=_seen(model, task), facts=facts)
            parts = model.stored_inputs()
            newest = save_model(place, model.learner, model.tasks, *parts, entry=entry, keep_previous=True)
            finish_new(place)
        on_event(event)

    return told
