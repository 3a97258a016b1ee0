"""How long prediction with task inference takes, in fine-tuning steps, and the accuracy each faster way loses.

python -m benchmarks.prediction [--data-dir FOLDER] [--model FOLDER] [--inputs 10000] [--iterations 600]

Without a model, a pr-bbb model of split-mnist is trained first, with a small hypernetwork. Times are CPU times of one
thread, with fine-tuning steps timed before and after each of them, so that other load on the machine has little effect.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.common import learner_for, steps_in_task
from metareplay.benchmarks.registry import build_benchmark
from metareplay.inference.adaptive import LOG_PREDICTIVE
from metareplay.inference.criteria import CRITERIA
from metareplay.inference.predictive import log_predictive
from metareplay.inference.predictor import ClassPredictor
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.store import load_model

SMALL = {
    "hypernet__hidden": [50, 30],
    "hypernet__chunk_size": 15000,
    "hypernet__chunk_embeddings_per_task": False,
    "posterior__train_samples": 1,
    "posterior__local_reparametrisation": True,
    "training__learning_rate": 0.001,
    "statistics__held_out": 0.1,
}
STATISTICS = "by statistics (default)"
ALL = "all samples"
COLUMNS = ("stats", "ent", "agree")
"""Criteria that the table shows."""
WAYS: dict[str, tuple[dict[str, object], tuple[str, ...]]] = {
    ALL: ({}, ("ent", "agree")),
    "all samples, bfloat16": ({"autocast": True}, ("ent", "agree")),
    "adaptive, 4 errors, ent": ({"adaptive": 4.0}, ("ent",)),
    "adaptive, 4 errors, agree": ({"adaptive": 4.0}, ("agree",)),
    "adaptive, 4 errors, ent, bfloat16": ({"adaptive": 4.0, "autocast": True}, ("ent",)),
    "moments": ({"predictive": "moments"}, ("ent", "agree")),
    STATISTICS: ({}, ("stats",)),
}
"""Settings of inference, and the criteria to compute."""


class Decided(NamedTuple):
    """What one way to predict answers."""

    classes: Tensor | None
    """Of each task (T, N); None where only the chosen task is asked."""
    by_criterion: dict[str, tuple[Tensor, Tensor]]
    """Task and class of each input (N,)."""


def seconds(action: Callable[[], object]) -> float:
    """CPU time of one call."""
    began = time.process_time()
    action()
    return time.process_time() - began


def test_inputs(data_dir: Path | None, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs of all tasks, their classes within the task, and their tasks."""
    stream = build_benchmark("split-mnist", data_dir=data_dir)
    rows = [
        torch.randperm(len(task.test.x), generator=torch.Generator().manual_seed(0))[: count // len(stream)]
        for task in stream
    ]
    x, y = (
        torch.cat([getattr(task.test, name)[chosen] for task, chosen in zip(stream, rows, strict=True)])
        for name in ("x", "y")
    )
    return x, y, torch.repeat_interleave(torch.arange(len(stream)), torch.tensor([len(chosen) for chosen in rows]))


def learned(data_dir: Path | None, iterations: int) -> ContinualLearner:
    """A learner that has learned the five tasks with pr-bbb and has taken their statistics."""
    learner = learner_for("pr-bbb", training__batch_size=128, **SMALL)
    for task in build_benchmark("split-mnist", data_dir=data_dir):
        trainer = learner.begin_task(task.train, 2)
        trainer.iterations = iterations
        for _ in trainer:
            pass
        learner.finish_task(task.train)
    return learner


def decisions(statistics: Sequence[dict[str, Tensor]], names: Sequence[str]) -> Decided:
    """From the statistics of every task's samples."""
    classes = torch.stack([of_task[LOG_PREDICTIVE].argmax(-1) for of_task in statistics])  # (T, N, C) -> (T, N)
    tasks = {name: torch.stack([of_task[name] for of_task in statistics]).argmin(0) for name in names}
    return Decided(
        classes, {name: (task, classes.gather(0, task.unsqueeze(0)).squeeze(0)) for name, task in tasks.items()}
    )


def predict(predictor: ClassPredictor, x: Tensor, way: str, decided: list[Decided]) -> None:
    """Append what a way answers."""
    names, tasks = WAYS[way][1], range(predictor.model.num_tasks)
    if way == STATISTICS:
        answer = predictor.predict(x)
        label = answer.probabilities.argmax(1) % 2  # two classes in each task
        decided.append(Decided(None, {"stats": (answer.task, label)}))
        return
    contests = predictor.contests([CRITERIA[name] for name in names], x)
    decided.append(decisions(predictor.statistics(x, tasks, {LOG_PREDICTIVE: log_predictive}, contests), names))


def predictor_for(way: str, learner: ContinualLearner) -> ClassPredictor:
    """A predictor with the settings of a way and with the statistics of the model's tasks."""
    given = {f"inference__{key}": value for key, value in WAYS[way][0].items()}
    settings = learner_for("pr-bbb", **given).config.inference
    predictor = ClassPredictor(learner.model, settings, seed=0, statistics=learner.config.statistics)
    predictor.task_statistics.restore(learner.predictor.task_statistics.tensors())
    return predictor


def measure(learner: ContinualLearner, x: Tensor, y: Tensor, true: Tensor) -> None:
    """Print a table with one line for each way to predict."""
    steps, plain, times = steps_in_task(learner_for("fine-tuning", training__batch_size=128), 0), {}, []
    fine_tuning = lambda: [next(steps) for _ in range(30)]  # noqa: E731
    fine_tuning()
    lines = [
        "| way | fine-tuning steps | TGiven | TInfer stats | TInfer ent | TInfer agree | "
        "decisions as with all samples |",
        "|---|---|---|---|---|---|---|",
    ]
    for way in WAYS:
        predictor = predictor_for(way, learner)
        if way == STATISTICS and not predictor.keeper.available:
            continue  # a model of an earlier version
        before, answers = seconds(fine_tuning), list[Decided]()
        taken = seconds(partial(predict, predictor, x, way, answers))
        times.append((before + seconds(fine_tuning)) / 60)
        classes, by_criterion = answers[0]
        given = "–" if classes is None else percent(classes.gather(0, true.unsqueeze(0)).squeeze(0) == y)
        inferred, same = dict.fromkeys(COLUMNS, "–"), []
        for name, (task, label) in by_criterion.items():
            inferred[name] = percent((task == true) & (label == y))
            if name in plain:
                same.append(f"{percent((task == plain[name][0]) & (label == plain[name][1]))} % ({name})")
            plain.setdefault(name, (task, label))
        cells = (way, f"{taken / times[-1]:,.0f}", given, *inferred.values(), ", ".join(same) or "–")
        lines.append(f"| {' | '.join(cells)} |")
    setup = f"{len(x):,} inputs, {learner.num_tasks} tasks, K = 100, one core"
    step = f"a fine-tuning step takes {1000 * min(times):.1f} to {1000 * max(times):.1f} ms"
    print(f"{setup}; {step}.\n", *lines, sep="\n", flush=True)


def percent(hits: Tensor) -> str:
    """The share of hits."""
    return f"{100 * float(hits.double().mean()):.2f}"


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--iterations", type=int, default=600)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    learner = load_model(asked.model).learner if asked.model else learned(asked.data_dir, asked.iterations)
    measure(learner, *test_inputs(asked.data_dir, asked.inputs))


if __name__ == "__main__":
    main()
