"""Run folders as `metareplay run` writes them, with made-up numbers, so that reports can be tested without training."""

import json
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from metareplay.report import write_report

DIGITS = ["0/1", "2/3", "4/5", "6/7", "8/9"]
# the functions and input domains of the paper's 1D regression
TRUTH: list[tuple[Callable[[np.ndarray], np.ndarray], float, float]] = [
    (lambda x: (x + 3) ** 3, -4, -2),
    (lambda x: 2 * x**2 - 1, -1, 1),
    (lambda x: (x - 3) ** 3, 2, 4),
]
VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Reads a page and refuses tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = text
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.words.append(data)

    @property
    def visible(self) -> str:
        return " ".join(" ".join(self.words).split())

    def attributes(self, name: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(name)) is not None]

    def count(self, tag: str, **wanted: str) -> int:
        return sum(actual == tag and wanted.items() <= attributes.items() for actual, attributes in self.tags)


def classification_results(method: str = "pr-bbb", seed: int = 0, **changes: Any) -> dict[str, Any]:
    """A results.json of split-digits; methods that end in -dirac have no weight samples to disagree."""
    rng = np.random.default_rng([seed, *method.encode()])
    tasks = len(DIGITS)
    final = 99.9 - rng.uniform(0, 1.2, tasks)
    matrix = [[round(float(final[j] + rng.uniform(-0.1, 0.1)), 2) for j in range(i + 1)] for i in range(tasks)]
    criteria = ["ent", "conf"] if method.endswith("dirac") else ["ent", "conf", "agree", "ku"]
    right = {name: round(float(rng.uniform(60, 85)), 2) for name in criteria}
    full = right | {name: None for name in ("agree", "ku") if name not in right}
    return {
        "schema": 1,
        "benchmark": "split-digits",
        "method": method,
        "network": "mlp-100-100",
        "scenario": "class",
        "problem": "classification",
        "seed": seed,
        "num_tasks": tasks,
        "task_names": DIGITS,
        "tgiven_during": round(float(np.mean([matrix[i][i] for i in range(tasks)])), 2),
        "tgiven_final": round(float(np.mean(matrix[-1])), 2),
        "forgetting": round(float(np.mean([matrix[i][i] - matrix[-1][i] for i in range(tasks)])), 2),
        "backward_transfer": round(float(np.mean([matrix[-1][i] - matrix[i][i] for i in range(tasks)])), 2),
        "tinfer_final": {name: value and round(value - 0.4, 2) for name, value in full.items()},
        "task_inference_accuracy": full,
        "batch_wise": {name: value and round(min(100.0, value + 19), 2) for name, value in full.items()},
        "batch_wise_size": 100,
        "tgiven_matrix": matrix,
        "task_confusion": {name: _confusion(rng, tasks, value) for name, value in right.items()},
        "mse": None,
        "parameters": {"main_network": 17810, "posterior": 35620, "trained": 24960, "per_task": 32},
        "seconds": {"train": 12.3 + seed, "evaluate": 4.5},
        "environment": {
            "metareplay": "0.1.0",
            "torch": "2.13.0",
            "python": "3.11.7",
            "threads": 1,
            "cpu": "x86_64",
            "deterministic": True,
        },
    } | changes


STATISTICS = ("mahalanobis", "relative", "pairs", "pca", "energy", "margin", "stats")


def with_statistics(results: dict[str, Any]) -> dict[str, Any]:
    """The same run with task statistics, by which tasks are inferred unless a criterion is named."""
    rng = np.random.default_rng(results["seed"])
    tasks = results["num_tasks"]
    scores = {name: round(90.0 + number + rng.uniform(0, 0.5), 2) for number, name in enumerate(STATISTICS)}
    changes: dict[str, Any] = {
        "default_criterion": "stats",
        "task_inference_accuracy": (results["task_inference_accuracy"] or {}) | scores,
        "task_probabilities": {
            "calibration_error": 1.25,
            "calibration_error_by_task": [0.5 * (task + 1) for task in range(tasks)],
            "brier_by_task": [0.011 * (task + 1) for task in range(tasks)],
        },
        "unknown": {
            "false_rejections": [4.0 + task for task in range(tasks)],
            "auroc": {"noise": 0.999, "mixed rows": 0.875},
        },
        "statistics": {
            "bytes_by_task": [2048 * (task + 1) for task in range(tasks)],
            "drift": [{"layers.1": [0.031, 0.002], "layers.2": [0.0711, 0.001]}] + [{}] * (tasks - 1),
        },
    }
    if results["task_confusion"]:
        changes["task_confusion"] = results["task_confusion"] | {
            name: _confusion(rng, tasks, score) for name, score in scores.items()
        }
    if results["problem"] == "regression":
        errors = results["mse"]
        changes["mse"] = errors | {
            "tinfer_final": 0.00555,
            "tinfer_by_criterion": {"variance": errors["tinfer_final"], "stats": 0.00555, "pca": 7.77},
        }
    else:
        by_statistics = {name: score - 0.1 for name, score in scores.items()}
        changes |= {key: results[key] | by_statistics for key in ("tinfer_final", "batch_wise")}
    return results | changes


def regression_results(method: str = "pr-avb", seed: int = 0, **changes: Any) -> dict[str, Any]:
    """A results.json of regression-1d: errors instead of accuracies."""
    rng = np.random.default_rng([seed, 7])
    error = float(rng.uniform(0.002, 0.004))
    return (
        classification_results(method, seed)
        | {
            "benchmark": "regression-1d",
            "network": "mlp-10-10",
            "scenario": "domain",
            "problem": "regression",
            "num_tasks": 3,
            "task_names": ["polynomial 1", "polynomial 2", "polynomial 3"],
            "tgiven_during": None,
            "tgiven_final": None,
            "forgetting": None,
            "backward_transfer": None,
            "tinfer_final": None,
            "task_inference_accuracy": {"variance": 98.0 + seed / 10},
            "batch_wise": None,
            "batch_wise_size": None,
            "tgiven_matrix": [[0.0027], [0.0031, 0.0024], [0.0035, 0.0026, 0.0041]],
            "task_confusion": {"variance": [[99.0, 1.0, 0.0], [0.0, 97.0, 3.0], [0.0, 2.0, 98.0]]},
            "mse": {"tgiven_during": error, "tgiven_final": error * 1.1, "tinfer_final": error * 1.6},
            "parameters": {"main_network": 141, "posterior": 2081, "trained": 1670, "per_task": 8},
        }
        | changes
    )


def write_run_folder(folder: Path, results: dict[str, Any], config: dict[str, Any] | None = None) -> Path:
    """Write one finished run's folder."""
    folder.mkdir(parents=True)
    content = {key: results[key] for key in ("benchmark", "method", "network", "seed")}
    content |= {
        "training": {"iterations": 2000, "learning_rate": 0.001},
        "strategy": {"name": "posterior-replay", "strength": 0.01},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(content | (config or {}), sort_keys=False))
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "metrics.jsonl").write_text("\n".join(json.dumps(line) for line in _metrics(results)) + "\n")
    return folder


def write_regression_arrays(folder: Path, *, truth: bool = True) -> None:
    """Predictions that fit each polynomial near its data and are uncertain elsewhere."""
    rng = np.random.default_rng(1)
    x = np.linspace(-6, 6, 400)
    arrays: dict[str, np.ndarray] = {"x": x}
    means, stds, truths = [], [], []
    for task, (function, low, high) in enumerate(TRUTH):
        inside = np.clip(x, low, high)
        outside = x - inside
        slope = 1.2 * np.tanh(outside) * np.sign(function(np.array(high)) - function(np.array((low + high) / 2)))
        means.append(function(inside) + slope + 0.04 * np.sin(5 * x + task))
        stds.append(0.06 + 0.55 * np.abs(outside) ** 0.8 + 0.02 * np.cos(3 * x))
        truths.append(np.where((x >= low - 0.4) & (x <= high + 0.4), function(x), np.nan))
        points = rng.uniform(low, high, 20)
        arrays[f"train_x_{task}"] = points[:, None]
        arrays[f"train_y_{task}"] = (function(points) + rng.normal(0, 0.05, 20))[:, None]
    arrays |= {"mean": np.stack(means), "std": np.stack(stds)} | ({"truth": np.stack(truths)} if truth else {})
    save_file({name: array.astype(np.float32) for name, array in arrays.items()}, folder / "predictive.safetensors")


def write_modes_arrays(folder: Path) -> None:
    """Entropy maps of three binary tasks, each confident near its own two modes."""
    rng = np.random.default_rng(2)
    grid = np.linspace(-8, 8, 60)
    angle = (np.arange(6) + 0.5) / 6 * 2 * np.pi
    modes = 5 * np.stack([np.sin(angle), np.cos(angle)], axis=1)
    arrays: dict[str, np.ndarray] = {"grid_x": grid, "grid_y": grid}
    maps = []
    for task in range(3):
        own = modes[2 * task : 2 * task + 2]
        plane = np.stack(np.meshgrid(grid, grid), axis=-1)
        distance = np.linalg.norm(plane[:, :, None] - own, axis=-1).min(-1)
        maps.append(np.log(2) * (1 - np.exp(-((distance / 3.2) ** 2))))
        arrays[f"train_x_{task}"] = np.concatenate([mode + rng.normal(0, 0.2, (10, 2)) for mode in own])
        arrays[f"train_y_{task}"] = np.repeat([0, 1], 10)
    arrays["entropy"] = np.stack(maps)
    right = 1 / (1 + np.exp(-grid)) * np.ones((60, 1))
    arrays["probability"] = np.stack([np.stack([right, 1 - right])] * 3)
    arrays["agree"] = arrays["entropy"] / 2
    arrays["sample_entropy"] = np.stack([arrays["entropy"], 0 * arrays["entropy"]], axis=1)
    arrays["sample_probability"] = np.stack([arrays["probability"], 1 - arrays["probability"]], axis=1)
    arrays["weights"] = rng.normal(size=(3, 40, 5))
    arrays["weight_index"] = np.arange(5)
    save_file({name: array.astype(np.float32) for name, array in arrays.items()}, folder / "predictive.safetensors")


def write_uncertainty_arrays(
    folder: Path, criteria: tuple[str, ...] = ("ent", "agree"), *, strangers: bool = False
) -> None:
    """Binned scores, lower for own inputs than for others, overconfident predictions (105 per task), and strangers."""
    places = np.arange(32)
    own, other = (np.round(200 * np.exp(-(((places - middle) / 5.0) ** 2))) for middle in (10, 22))
    arrays = {f"scores.{name}": np.stack([np.stack([own] * 5), np.stack([other] * 5)]) for name in criteria}
    inputs = np.arange(15.0)
    arrays["reliability"] = np.stack(
        [np.stack([inputs, inputs * (places[:15] + 0.5) / 15, np.floor(inputs * 0.4)])] * 5
    )
    arrays["edges"] = np.logspace(-6, 2, 33)
    if strangers:  # bins up to 1 are the first eight
        arrays["strangeness.known"] = np.array([0.0] * 6 + [95.0, 0.0, 5.0] + [0.0] * 31)
        arrays["strangeness.noise"] = np.array([0.0] * 39 + [40.0])
        arrays["strangeness.mixed rows"] = np.array([0.0] * 7 + [10.0] + [1.0] * 30 + [0.0, 0.0])
    save_file(arrays, folder / "uncertainty.safetensors")


def _confusion(rng: np.random.Generator, tasks: int, right: float) -> list[list[float]]:
    shares = rng.dirichlet(np.ones(tasks), tasks) * (100 - right)
    shares[np.arange(tasks), np.arange(tasks)] += right
    return [[round(float(value), 2) for value in row] for row in shares]


def _metrics(results: dict[str, Any]) -> list[dict[str, Any]]:
    rng = np.random.default_rng(results["seed"])
    lines: list[dict[str, Any]] = []
    for task in range(results["num_tasks"]):
        for iteration in range(50, 2001, 50):
            data = float(0.02 + 0.7 * np.exp(-iteration / 250) * rng.uniform(0.8, 1.2))
            prior = float(0.3 - 0.15 * np.exp(-iteration / 800) + rng.normal(0, 0.004))
            replay = 0.0 if task == 0 else float(1e-4 * (1 - np.exp(-iteration / 300)) * rng.uniform(0.7, 1.3))
            terms = {"loss": data + prior + replay, "data": data, "prior": prior, "replay": replay}
            lines.append({"task": task, "iteration": iteration, **terms, "seconds": 0.002 * iteration})
        lines.append({"event": "task", "task": task, "tgiven": results["tgiven_matrix"][task]})
    return lines


@pytest.fixture(scope="session")
def make_results() -> Callable[..., dict[str, Any]]:
    """What a results.json holds."""
    return classification_results


@pytest.fixture(scope="session")
def make_regression_results() -> Callable[..., dict[str, Any]]:
    return regression_results


@pytest.fixture(scope="session")
def add_statistics() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """`add_statistics(results)` gives the results of a run with task statistics."""
    return with_statistics


@pytest.fixture(scope="session")
def write_run() -> Callable[..., Path]:
    return write_run_folder


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """`make_run("name", results, config)` writes a run's folder and gives its path."""
    return lambda name, results, config=None: write_run_folder(tmp_path / name, results, config)


@pytest.fixture(scope="session")
def add_regression_arrays() -> Callable[..., None]:
    return write_regression_arrays


@pytest.fixture(scope="session")
def add_modes_arrays() -> Callable[[Path], None]:
    return write_modes_arrays


@pytest.fixture(scope="session")
def add_uncertainty_arrays() -> Callable[..., None]:
    return write_uncertainty_arrays


@pytest.fixture
def make_lean_run(make_run: Callable[..., Path]) -> Callable[..., Path]:
    """A run without learning curves, for tests that look at something else: drawing takes most of a page's time."""

    def make(*arguments: Any) -> Path:
        folder = make_run(*arguments)
        (folder / "metrics.jsonl").unlink()
        return folder

    return make


@pytest.fixture
def make_lean_results() -> Callable[..., dict[str, Any]]:
    """Results without matrices of tasks, likewise."""
    return partial(classification_results, task_confusion=None)


@pytest.fixture(scope="session")
def report() -> Callable[[list[Path], Path], Page]:
    """`report(folders, out)` writes a page and reads it."""
    return lambda folders, out: Page(write_report(folders, out).read_text(encoding="utf-8"))
