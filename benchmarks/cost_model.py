"""A cost model of a training step and of a prediction, fitted to small measurements and checked on others.

python -m benchmarks.cost_model
python -m benchmarks.cost_model --predicted

Processor time of one thread. The features of a step are numbers of multiplications: the main network on a batch under
weight samples, drawing the samples, the hypernetwork for the new task and for the old tasks that the penalty asks for,
and the optimiser. Prints the measured and the predicted time of every configuration; those of CHECKS are not fitted.
With --predicted, three of the sizes that docs/scale.md predicts are run beside the formula of that page.
"""

import sys
import time
from collections.abc import Mapping
from statistics import median
from typing import Any, NamedTuple

import torch
from scipy.optimize import nnls

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.heap import keep_freed_memory
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner

INPUTS, ROWS, STEPS = 64, 256, 12
BASE: dict[str, Any] = {
    "width": 100,
    "samples": 10,
    "batch": 64,
    "old": 4,
    "chunk": 2000,
    "regularised": None,
    "inputs": INPUTS,
    "classes": 2,
    "network": None,
}
FITTED: tuple[dict[str, Any], ...] = (
    {},
    {"samples": 1},
    {"samples": 30},
    {"batch": 16},
    {"batch": 256},
    {"width": 30},
    {"width": 200},
    {"old": 1},
    {"old": 12},
    {"chunk": 500},
    {"chunk": 8000},
)
CHECKS: tuple[dict[str, Any], ...] = (
    {"width": 300, "samples": 5},
    {"old": 20, "samples": 2},
    {"old": 20, "regularised": 1},
    {"width": 150, "batch": 128, "samples": 20},
    {"width": 400, "samples": 1, "old": 8, "regularised": 1, "chunk": 4000},
)
PREDICTED: dict[str, dict[str, Any]] = {
    "mlp-400-400, pr-bbb-sr, K 10, B 128": {
        **{"inputs": 784, "classes": 10, "width": 400, "samples": 10, "batch": 128, "old": 8, "regularised": 1},
    },
    "features of a frozen ViT-B, mlp-100-100, K 10, B 64": {"inputs": 768, "old": 1},
    "a million classes, 100 outputs shared by all tasks, K 1, B 64": {
        **{"inputs": 768, "classes": 100, "network": "mlp", "samples": 1, "old": 8, "regularised": 1},
    },
}
"""Configurations of the table of predictions; random inputs take as long as real ones."""
ON_THE_PAGE = (1.5e-3, 0.097e-9, 5.8e-9, 0.096e-9, 0.0, 6.6e-9)
"""The formula of docs/scale.md: seconds for one of each feature."""
FEATURES = ("one step", "network: K B W", "samples: K W", "hypernetwork: (1 + R) G", "theta: (1 + R) P", "optimiser: H")


class Measured(NamedTuple):
    """What a configuration costs, and its sizes."""

    seconds: float
    predicting: float
    """Seconds for 100 inputs with the task given, 100 weight samples."""
    weights: int
    """W, of the main network."""
    theta: int
    """P, of one posterior."""
    trained: int
    """H, of the hypernetwork with all embeddings."""
    features: tuple[float, ...]


def settings_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of pr-bbb without local reparametrisation, in this project's names."""
    stochastic = given["regularised"] is not None
    return {
        "method": "pr-bbb-sr" if stochastic else "pr-bbb",
        "network": given["network"] or f"mlp-{given['width']}-{given['width']}",
        "posterior.train_samples": given["samples"],
        "training.batch_size": given["batch"],
        "training.iterations": 1,
        "hypernet.kind": "chunked",
        "hypernet.hidden": [],
        "hypernet.chunk_size": given["chunk"],
        "hypernet.task_embedding_size": 16,
        "hypernet.chunk_embedding_size": 16,
        "strategy.penalty": "mse",
        "strategy.strength": 1.0,
        "statistics.collect": False,
        "inference.calibrate": False,
        **({"strategy.old_tasks": given["regularised"], "strategy.targets": "recomputed"} if stochastic else {}),
    }


def measure(changes: Mapping[str, Any]) -> Measured:
    """Time the steps of a task that comes after others."""
    given = {**BASE, **changes}
    config = build_config({}, settings_of(given), "here")
    drawn = torch.Generator().manual_seed(0)
    learner = ContinualLearner(config, "classification", Scenario.CLASS, (given["inputs"],))
    for _ in range(given["old"]):
        data = _random(given, drawn)
        for _ in learner.begin_task(data, given["classes"]):
            pass
        learner.finish_task(data)
    longer = config.training.model_copy(update={"iterations": STEPS})
    learner.config = config.model_copy(update={"training": longer})
    data = _random(given, drawn)
    times, began = [], time.process_time()
    for _ in learner.begin_task(data, given["classes"]):
        times.append(time.process_time() - began)
        began = time.process_time()
    seconds = median(times[3:])
    learner.finish_task(data)
    counts = learner.model.parameter_counts()
    began = time.process_time()
    learner.predictor.predict(data.x[:100], 0)
    predicting = time.process_time() - began
    weights, theta, trained = counts["main_network"], counts["posterior"], counts["trained"]
    asked = 1 + (given["regularised"] or given["old"])
    generated = theta * 32  # one row of 16 + 16 embeddings for each element of theta
    samples, batch = given["samples"], given["batch"]
    features = (1.0, samples * batch * weights, samples * weights, asked * generated, asked * theta, trained)
    return Measured(seconds, predicting, weights, theta, trained, tuple(map(float, features)))


def _random(given: Mapping[str, Any], drawn: torch.Generator) -> TaskData:
    """The examples of a task."""
    return TaskData(torch.randn(ROWS, given["inputs"], generator=drawn), torch.arange(ROWS) % given["classes"])


def check_predictions() -> None:
    """Run three of the predicted sizes, and print them beside the formula."""
    print("| configuration | W | P | measured, ms | formula, ms |\n|---|---|---|---|---|")
    for words, changes in PREDICTED.items():
        one = measure(changes)
        formula = sum(cost * amount for cost, amount in zip(ON_THE_PAGE, one.features, strict=True))
        print(f"| {words} | {one.weights:,} | {one.theta:,} | {1000 * one.seconds:.1f} | {1000 * formula:.1f} |")


def main() -> None:
    """Fit, check and print."""
    torch.set_num_threads(1)
    keep_freed_memory()
    if "--predicted" in sys.argv[1:]:
        check_predictions()
        return
    fitted, checked = ([measure(changes) for changes in group] for group in (FITTED, CHECKS))
    table = torch.tensor([one.features for one in fitted], dtype=torch.float64)  # (configurations, features)
    seconds = torch.tensor([one.seconds for one in fitted], dtype=torch.float64)
    scale = table.max(0).values
    relative = table / scale / seconds.unsqueeze(1)  # every configuration counts alike
    costs = torch.from_numpy(nnls(relative.numpy(), torch.ones(len(fitted)).double().numpy())[0]) / scale
    print("| part | ns each |\n|---|---|")
    for name, cost in zip(FEATURES, costs.tolist(), strict=True):
        print(f"| {name} | {1e9 * cost:.3g} |")
    headers = ("configuration", "W", "P", "measured, ms", "model, ms", "predict 100, ms", "ns per K N W")
    print(f"\n| {' | '.join(headers)} |\n|{'---|' * len(headers)}")
    for group, changes_of, mark in ((fitted, FITTED, ""), (checked, CHECKS, " (not fitted)")):
        for one, changes in zip(group, changes_of, strict=True):
            words = ", ".join(f"{key} {value}" for key, value in changes.items()) or "base"
            model = float((torch.tensor(one.features, dtype=torch.float64) * costs).sum())
            each = 1e9 * one.predicting / (100 * 100 * one.weights)
            cells = (f"{1000 * value:.1f}" for value in (one.seconds, model, one.predicting))
            print(f"| {words}{mark} | {one.weights:,} | {one.theta:,} | {' | '.join(cells)} | {each:.2f} |")


if __name__ == "__main__":
    main()
