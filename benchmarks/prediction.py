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

import torch
from torch import Tensor

from benchmarks.common import learner_for, steps_in_task
from metareplay.benchmarks.registry import build_benchmark
from metareplay.inference.adaptive import LOG_PREDICTIVE
from metareplay.inference.criteria import CRITERIA
from metareplay.inference.predictive import log_predictive
from metareplay.inference.predictor import ClassPredictor
from metareplay.learner.store import load_model
from metareplay.model import ContinualModel

SMALL = {
    "hypernet__hidden": [50, 30],
    "hypernet__chunk_size": 15000,
    "hypernet__chunk_embeddings_per_task": False,
    "posterior__train_samples": 1,
    "posterior__local_reparametrisation": True,
    "training__learning_rate": 0.001,
}
ALL = "all samples"
WAYS: dict[str, tuple[dict[str, object], tuple[str, ...]]] = {
    ALL: ({}, ("ent", "agree")),
    "all samples, bfloat16": ({"autocast": True}, ("ent", "agree")),
    "adaptive, 4 errors, ent": ({"adaptive": 4.0}, ("ent",)),
    "adaptive, 4 errors, agree": ({"adaptive": 4.0}, ("agree",)),
    "adaptive, 4 errors, ent, bfloat16": ({"adaptive": 4.0, "autocast": True}, ("ent",)),
    "moments": ({"predictive": "moments"}, ("ent", "agree")),
}
"""Settings of inference, and the criteria to compute."""


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


def learned(data_dir: Path | None, iterations: int) -> ContinualModel:
    """A pr-bbb model of the five tasks."""
    learner = learner_for("pr-bbb", training__batch_size=128, **SMALL)
    for task in build_benchmark("split-mnist", data_dir=data_dir):
        trainer = learner.begin_task(task.train, 2)
        trainer.iterations = iterations
        for _ in trainer:
            pass
    return learner.model


def decisions(statistics: Sequence[dict[str, Tensor]], name: str) -> tuple[Tensor, Tensor]:
    """Task and class of each input."""
    tasks = torch.stack([of_task[name] for of_task in statistics]).argmin(0)
    classes = torch.stack([of_task[LOG_PREDICTIVE].argmax(-1) for of_task in statistics])
    return tasks, classes.gather(0, tasks.unsqueeze(0)).squeeze(0)


def measure(model: ContinualModel, x: Tensor, y: Tensor, true: Tensor) -> None:
    """Print a table with one line for each way to predict."""
    steps, plain, times = steps_in_task(learner_for("fine-tuning", training__batch_size=128), 0), {}, []
    fine_tuning = lambda: [next(steps) for _ in range(30)]  # noqa: E731
    fine_tuning()
    lines = [
        "| way | fine-tuning steps | TGiven | TInfer ent | TInfer agree | decisions as with all samples |",
        "|---|---|---|---|---|---|",
    ]
    for way, (given, names) in WAYS.items():
        settings = learner_for(
            "pr-bbb", **{f"inference__{key}": value for key, value in given.items()}
        ).config.inference
        predictor = ClassPredictor(model, settings, seed=0)
        results: list[dict[str, Tensor]] = []
        before = seconds(fine_tuning)
        predict = partial(_predict, predictor, x, names, results)
        taken = seconds(predict)
        times.append((before + seconds(fine_tuning)) / 60)
        classes = torch.stack([of_task[LOG_PREDICTIVE].argmax(-1) for of_task in results])  # (T, N)
        correct = classes.gather(0, true.unsqueeze(0)).squeeze(0) == y
        inferred, same = dict.fromkeys(("ent", "agree"), "–"), []
        for name in names:
            task, label = decisions(results, name)
            plain.setdefault(name, (task, label))
            inferred[name] = percent((task == true) & (label == y))
            same.append(f"{percent((task == plain[name][0]) & (label == plain[name][1]))} % ({name})")
        as_all = "–" if way == ALL else ", ".join(same)
        cells = (way, f"{taken / times[-1]:,.0f}", percent(correct), inferred["ent"], inferred["agree"], as_all)
        lines.append(f"| {' | '.join(cells)} |")
    setup = f"{len(x):,} inputs, {model.num_tasks} tasks, K = 100, one core"
    step = f"a fine-tuning step takes {1000 * min(times):.1f} to {1000 * max(times):.1f} ms"
    print(f"{setup}; {step}.\n", *lines, sep="\n", flush=True)


def _predict(predictor: ClassPredictor, x: Tensor, names: Sequence[str], results: list[dict[str, Tensor]]) -> None:
    """Append the statistics of each task."""
    contests, tasks = [predictor.contest(CRITERIA[name], x) for name in names], range(predictor.model.num_tasks)
    results += predictor.statistics(x, tasks, {LOG_PREDICTIVE: log_predictive}, contests)


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
    model = load_model(asked.model).learner.model if asked.model else learned(asked.data_dir, asked.iterations)
    inputs = test_inputs(asked.data_dir, asked.inputs)
    measure(model, *inputs)


if __name__ == "__main__":
    main()
