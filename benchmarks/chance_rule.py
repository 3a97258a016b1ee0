"""How often a task at chance is not warned about, and how often one that was learned is, on development data.

python -m benchmarks.chance_rule [--rows 40,100,200,400,1000] [--seeds 4] [--out FOLDER]

Tables with more or less noise and pairs of classes of MNIST and CIFAR-10 (training images only), and the same with
shuffled labels; a task is learned with default settings, and tested on examples of its own that are set apart. Every
task is one file, and what has been written is not done again.
"""

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.data_sets import Array, Examples, Month
from metareplay import ContinualClassifier, ContinualRegressor
from metareplay.data.base import LabelledImages
from metareplay.data.sources import load_cifar10, load_mnist
from metareplay.errors import TrainingWarning
from metareplay.files import write_atomically

TEST, TEST_IMAGES = 2000, 600
NOTHING, SOMETHING = 0.1, 0.3
"""A task is at chance up to this share of the way from chance to perfect on the test set; clearly learned from that."""
Random = np.random.Generator
CASES: dict[str, Callable[[int, Random], Month]] = {}


def case(name: str) -> Callable[[Callable[[int, Random], Month]], Callable[[int, Random], Month]]:
    """Registers what makes a task of so many rows."""

    def register(maker: Callable[[int, Random], Month]) -> Callable[[int, Random], Month]:
        CASES[name] = maker
        return maker

    return register


def _month(x: Array, y: Array, rows: int) -> Month:
    return Month(Examples(x[:rows].astype(np.float32), y[:rows]), Examples(x[rows:].astype(np.float32), y[rows:]))


def _by_logits(rows: int, random: Random, strength: float, offset: float = 0.0) -> Month:
    """Two classes by ten columns; the stronger, the fewer labels are wrong."""
    x = random.normal(size=(rows + TEST, 10))
    score = 0.8 * x[:, 0] + 0.6 * x[:, 1] + 0.3 * x[:, 2] * x[:, 3] - offset
    return _month(x, (random.random(len(x)) < 1 / (1 + np.exp(-strength * score))).astype(int), rows)


for _name, _strength, _offset in (
    ("table, hardly predictable", 0.7, 0.0),
    ("table, noisy", 1.7, 0.0),
    ("table, clear", 6.0, 0.0),
    ("table, one in ten", 5.0, 1.4),
):
    case(_name)(lambda rows, random, s=_strength, o=_offset: _by_logits(rows, random, s, o))  # type: ignore[misc]


@case("table, five classes")
def _blobs(rows: int, random: Random) -> Month:
    centres, y = 1.2 * random.normal(size=(5, 6)), random.integers(0, 5, rows + TEST)
    return _month(centres[y] + random.normal(size=(rows + TEST, 6)), y, rows)


@case("table, two classes, no signal")
def _nothing(rows: int, random: Random) -> Month:
    return _month(random.normal(size=(rows + TEST, 10)), random.integers(0, 2, rows + TEST), rows)


@case("table, one in ten, no signal")
def _rare(rows: int, random: Random) -> Month:
    return _month(random.normal(size=(rows + TEST, 10)), (random.random(rows + TEST) < 0.1).astype(int), rows)


@case("table, five classes, no signal")
def _five(rows: int, random: Random) -> Month:
    return _month(random.normal(size=(rows + TEST, 6)), random.integers(0, 5, rows + TEST), rows)


def _pair(images: LabelledImages, rows: int, random: Random, *, shuffled: bool = False) -> Month:
    y = images.train_y.numpy()
    chosen = random.permutation(np.flatnonzero(np.isin(y, random.permutation(10)[:2])))[: rows + TEST_IMAGES]
    labels = random.permutation(y[chosen]) if shuffled else y[chosen]
    return _month(images.train_x.numpy()[chosen], labels, rows)


case("MNIST, a pair")(lambda rows, random: _pair(load_mnist(), rows, random))
case("CIFAR-10, a pair")(lambda rows, random: _pair(load_cifar10(), rows, random))
case("MNIST, a pair, shuffled labels")(lambda rows, random: _pair(load_mnist(), rows, random, shuffled=True))
case("CIFAR-10, a pair, shuffled labels")(lambda rows, random: _pair(load_cifar10(), rows, random, shuffled=True))


def _regression(rows: int, random: Random, noise: float) -> Month:
    x = random.normal(size=(rows + TEST, 8))
    signal = 0.7 * x[:, 0] - 0.5 * x[:, 1] + 0.5 * np.sin(2 * x[:, 2])
    return _month(x, (signal if np.isfinite(noise) else 0.0) + min(noise, 1.0) * random.normal(size=len(x)), rows)


case("regression, clear")(lambda rows, random: _regression(rows, random, 0.3))
case("regression, noisy")(lambda rows, random: _regression(rows, random, 1.0))
case("regression, no signal")(lambda rows, random: _regression(rows, random, np.inf))


def learned(name: str, rows: int, seed: int) -> dict[str, Any]:
    """How far the task was learned, from 0 (chance) to 1, and whether it was warned about."""
    month = CASES[name](rows, np.random.default_rng([seed, rows, *name.encode()]))
    model = (ContinualRegressor if name.startswith("regression") else ContinualClassifier)(seed=seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.learn_task(month.train.x, month.train.y, name="0")
    texts = [str(found.message) for found in caught if issubclass(found.category, TrainingWarning)]
    score = _gain(model, month.test)
    return {"gain": score, "chance": any("better than" in text for text in texts), "warned": bool(texts)}


def _gain(model: Any, test: Examples) -> float:
    if isinstance(model, ContinualRegressor):
        return float(model.score(test.x, test.y, task="0"))
    answers, labels = np.asarray(model.predict(test.x, task="0")), np.unique(test.y)
    recall = float(np.mean([np.mean(answers[test.y == label] == label) for label in labels]))
    return (recall - 1 / len(labels)) / (1 - 1 / len(labels))


def summary(found: list[dict[str, Any]]) -> list[str]:
    """Tasks at chance and how many of them no warning was given for; tasks learned, and false alarms."""
    nothing = [part for part in found if part["gain"] <= NOTHING]
    something = [part for part in found if part["gain"] >= SOMETHING]
    between = [part for part in found if NOTHING < part["gain"] < SOMETHING]
    return [
        f"{sum(not part['warned'] for part in nothing)} of {len(nothing)}",
        f"{sum(part['warned'] for part in something)} of {len(something)}",
        f"{sum(part['warned'] for part in between)} of {len(between)}",
    ]


def main() -> None:
    """Measure what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="40,100,200,400,1000")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--cases", default=";".join(CASES), help="separated by semicolons")
    parser.add_argument("--out", type=Path, default=Path("runs/chance-rule"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows, found = [int(count) for count in asked.rows.split(",")], {}
    for seed in range(asked.seeds):
        for count in rows:
            for name in asked.cases.split(";"):
                file = asked.out / f"{name.replace(', ', '.').replace(' ', '-')}.{count}.{seed}.json"
                if not file.exists():
                    file.parent.mkdir(parents=True, exist_ok=True)
                    write_atomically(file, json.dumps(learned(name, count, seed)))
                found[name, count, seed] = json.loads(file.read_text())
    columns = "at chance, not warned about | learned, warned about | between, warned about"
    for title, position, keys in (("rows", 1, rows), ("data", 0, asked.cases.split(";"))):
        print(f"| {title} | {columns} |\n|---|---|---|---|")
        for value in (*keys, None):
            parts = [part for key, part in found.items() if value is None or key[position] == value]
            print(f"| {' | '.join(['all' if value is None else str(value), *summary(parts)])} |")
        print()


if __name__ == "__main__":
    main()
