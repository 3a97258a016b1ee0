"""Sizes by rule against the fixed defaults, task given: `python -m benchmarks.sizes [--seeds N] [NAME ...]`.

Every stream of ``benchmarks.data_sets`` is learned with the rule's settings, and with those that were the defaults for
every size. Scores are accuracies in percent, or 100 R². Prints a line of a Markdown table as soon as it is known.
"""

import argparse
import time
import warnings
from typing import NamedTuple

import numpy as np
import torch
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.data_sets import Stream, names, stream
from metareplay import ContinualClassifier, ContinualRegressor
from metareplay.learner.recipe_book import CUSTOM, CUSTOM_REGRESSION, default_settings

FIXED = {"classification": (CUSTOM, "mlp-100-100"), "regression": (CUSTOM_REGRESSION, "mlp-20-20")}


class Learned(NamedTuple):
    """Mean over tasks after the last one, with the task given; processor seconds per task."""

    score: float
    seconds: float
    network: str


def fixed_settings(kind: str) -> dict[str, object]:
    """What was the same for all data."""
    recipe, network = FIXED[kind]
    settings = {key: value for key, value in default_settings(recipe, "pr-bbb", network)[0].items() if "." in key}
    return {**settings, "network": network, "training.cosine": False}


def learn(data: Stream, settings: dict[str, object], seed: int) -> Learned:
    """Learn all months in turn."""
    kind = ContinualClassifier if data.kind == "classification" else ContinualRegressor
    model, began = kind("pr-bbb", seed=seed, settings=settings), time.process_time()
    for number, month in enumerate(data.months):
        model.learn_task(month.train.x, month.train.y, name=str(number))
    seconds = (time.process_time() - began) / len(data.months)
    scores = [model.score(month.test.x, month.test.y, task=number) for number, month in enumerate(data.months)]
    return Learned(100 * float(np.mean(scores)), seconds, model.config.network)


def joint(data: Stream) -> float:
    """Ridge or logistic regression on the rows of all months together."""
    x, y = (np.concatenate([getattr(month.train, part) for month in data.months]) for part in ("x", "y"))
    linear = RidgeCV(np.logspace(-3, 4, 20)) if data.kind == "regression" else LogisticRegressionCV(max_iter=2000)
    model = make_pipeline(StandardScaler(), linear).fit(x, y)
    return 100 * float(np.mean([model.score(month.test.x, month.test.y) for month in data.months]))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| data (rows a month, columns) | joint linear | fixed | s | rule | s | network by rule |")
    print("|---|---|---|---|---|---|---|")
    for name in arguments.names or names():
        data, rows = stream(name), []
        for seed in range(arguments.seeds):
            rows.append([learn(data, settings, seed) for settings in (fixed_settings(data.kind), {})])
        fixed, rule = (
            (np.mean([row[way].score for row in rows]), np.mean([row[way].seconds for row in rows])) for way in (0, 1)
        )
        size = f"{len(data.months[0].train.x)}, {data.months[0].train.x.shape[1]}"
        figures = f"{joint(data):.1f} | {fixed[0]:.1f} | {fixed[1]:.1f} | {rule[0]:.1f} | {rule[1]:.1f}"
        print(f"| {name} ({size}) | {figures} | {rows[0][1].network} |", flush=True)


if __name__ == "__main__":
    main()
