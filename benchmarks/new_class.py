"""A class that a known task gets later: how well it is found, and what is lost.

python -m benchmarks.new_class [--methods pr-bbb,pr-dirac] [--seeds 3] [--iterations 300]

Task a has the classes 0, 1, 2, task b two others; a is updated with class 3 alone. Figures are accuracies in percent on
rows that were not used, the task being given, beside a model that learns 0, 1, 2, 3 at once; means over seeds.
"""

import argparse
import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.datasets import load_digits

from metareplay import ContinualClassifier

Rows = tuple[np.ndarray, np.ndarray]
OLD, NEW, OTHER = (0, 1, 2), (3,), (5, 6)
CLASSES, ROWS = 7, 150
"""Of the generated tables, and rows for each class."""


def digits(labels: Sequence[int], train: bool) -> Rows:
    """Handwritten digits, 8 x 8."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    part = order[:1200] if train else order[1200:]
    chosen = part[np.isin(y[part], labels)]
    return x[chosen], y[chosen]


def blobs(labels: Sequence[int], train: bool) -> Rows:
    """A Gaussian for each class, in six columns."""
    centres = 1.6 * np.random.default_rng(7).normal(size=(CLASSES, 6))
    rng = np.random.default_rng(100 if train else 200)
    return _chosen([rng.normal(size=(ROWS, 6)) + centre for centre in centres], labels)


def arms(labels: Sequence[int], train: bool) -> Rows:
    """Arms of two spirals in two columns, beside two columns of noise."""
    rng, classes = np.random.default_rng(300 if train else 400), []
    for label in range(CLASSES):
        first = label < OTHER[0]
        radius, place = rng.uniform(0.4, 1.0, ROWS), 0.0 if first else 6.0
        angle = (label if first else 2 * (label - OTHER[0])) * 2 * np.pi / 5 + 2.2 * radius
        arm = np.stack([3 * radius * np.cos(angle) + place, 3 * radius * np.sin(angle) + place], axis=1)
        classes.append(np.concatenate([arm + 0.12 * rng.normal(size=(ROWS, 2)), rng.normal(size=(ROWS, 2))], axis=1))
    return _chosen(classes, labels)


def _chosen(classes: Sequence[np.ndarray], labels: Sequence[int]) -> Rows:
    return np.concatenate([classes[label] for label in labels]), np.repeat(labels, ROWS)


DATA = {"digits": digits, "blobs": blobs, "arms": arms}


def measure(name: str, method: str, seed: int, iterations: int) -> list[float]:
    """Old classes before and after, the new class, the other task before and after; old and new classes at once."""
    read, settings = DATA[name], {"training.iterations": iterations}

    def score(model: ContinualClassifier, labels: Sequence[int], task: str) -> float:
        return 100 * float(model.score(*read(labels, False), task=task))

    model = ContinualClassifier(method, "mlp-30", seed=seed, settings=settings)
    model.learn_task(*read(OLD, True), name="a").learn_task(*read(OTHER, True), name="b")
    before = score(model, OLD, "a"), score(model, OTHER, "b")
    model.update_task("a", *read(NEW, True))
    once = ContinualClassifier(method, "mlp-30", seed=seed, settings=settings)
    once.learn_task(*read((*OLD, *NEW), True), name="a")
    after = [score(model, OLD, "a"), score(model, NEW, "a")]
    return [before[0], *after, before[1], score(model, OTHER, "b"), score(once, OLD, "a"), score(once, NEW, "a")]


def main() -> None:
    """Print a row for each data set and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="pr-bbb,pr-dirac")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=300)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in DATA:
        for method in args.methods.split(","):
            figures = np.array([measure(name, method, seed, args.iterations) for seed in range(args.seeds)])
            print(f"| {name} | `{method}` |", " | ".join(f"{value:.1f}" for value in figures.mean(0)), "|", flush=True)


if __name__ == "__main__":
    main()
