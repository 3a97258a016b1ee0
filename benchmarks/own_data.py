"""How honest answers are on small data sets of one's own: ``python -m benchmarks.own_data [--iterations 300]``.

Default settings, every stream of ``benchmarks.data_sets``; the test rows are chosen before. Figures are over all test
rows of all seeds together: a seed also chooses other test rows.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from benchmarks.data_sets import Array, Stream, names, stream
from metareplay.estimators import ContinualClassifier, ContinualRegressor
from metareplay.evaluation.strangers import auroc
from metareplay.evaluation.uncertainty import calibration_error, reliability

CLASSES = (
    "stream", "rows", "given", "label, inferred", "right task", "ECE given", "ECE inferred", "ECE of a perfect model",
    "AUROC noise, far", "confidence there", "s/task",
)  # fmt: skip
TARGETS = ("stream", "rows", "R² given", "R² inferred", "right task", "covered given", "covered inferred", "s/task")


@dataclass
class Collected:
    """One value for each test row, by name, over all seeds."""

    rows: int = 0
    values: dict[str, list[Array]] = field(default_factory=dict)

    def add(self, **values: Any) -> None:
        """Append the values of some test rows."""
        for name, of_rows in values.items():
            self.values.setdefault(name, []).append(np.atleast_1d(np.asarray(of_rows)))

    def all(self, name: str) -> Array:
        """The values of all test rows."""
        return np.concatenate(self.values[name])

    def mean(self, name: str) -> float:
        """Their mean."""
        return float(self.all(name).astype(float).mean())

    def ece(self, name: str) -> float:
        """Expected calibration error in percent of confidence NAME and correctness NAME_right."""
        confidence = torch.tensor(self.all(name), dtype=torch.float64)
        return calibration_error(reliability(confidence, torch.tensor(self.all(f"{name}_right"))))

    def least_ece(self, name: str) -> float:
        """What a model with these confidences would show by chance alone, if they were perfectly calibrated."""
        random, confidence = np.random.default_rng(0), torch.tensor(self.all(name))
        draws = (torch.tensor(random.random(len(confidence))) < confidence for _ in range(100))
        errors = [calibration_error(reliability(confidence, drawn)) for drawn in draws]
        return float(np.mean(errors))


def learned(
    data: Stream, seed: int, settings: dict[str, Any]
) -> tuple[ContinualClassifier | ContinualRegressor, float]:
    """A model of all months, and the seconds per month."""
    kind = ContinualClassifier if data.kind == "classification" else ContinualRegressor
    model, began = kind(seed=seed, settings=settings), time.process_time()
    for index, month in enumerate(data.months):
        model.learn_task(month.train.x, month.train.y, name=str(index))
    return model, (time.process_time() - began) / len(data.months)


def strange(x: Array, seed: int) -> tuple[Array, Array]:
    """Rows of noise with each column's spread, and rows that are ten times as far out as the data."""
    random, centre, scale = np.random.default_rng(seed), x.mean(0), x.std(0)
    noise = centre + 3 * scale * random.normal(size=x.shape)
    return noise.astype(np.float32), (centre + 10 * (x - centre)).astype(np.float32)


def collect(name: str, seeds: Sequence[int], settings: dict[str, Any]) -> Collected:
    """Learn a stream with each seed, and ask for its test rows."""
    found = Collected()
    for seed in seeds:
        data = stream(name, seed)
        model, seconds = learned(data, seed, settings)
        found.rows = data.rows
        found.add(seconds=seconds)
        for index, (_, test) in enumerate(data.months):
            given, answer = model.predict_full(test.x, str(index)), model.predict_full(test.x)
            found.add(right_task=np.array(answer.task) == str(index), y=test.y)
            for label, each in (("given", given), ("inferred", answer)):
                if isinstance(model, ContinualClassifier):
                    found.add(**{label: each.probabilities.max(1), f"{label}_right": each.labels == test.y})
                else:
                    found.add(**{label: each.mean, f"{label}_inside": (each.lower <= test.y) & (test.y <= each.upper)})
        if isinstance(model, ContinualClassifier):
            _add_strangers(found, model, np.concatenate([month.test.x for month in data.months]), seed)
    return found


def _add_strangers(found: Collected, model: ContinualClassifier, x: Array, seed: int) -> None:
    known = torch.tensor(model.predict_full(x).total)
    for label, rows in zip(("noise", "far"), strange(x, seed), strict=True):
        answer = model.predict_full(rows)
        found.add(
            **{label: auroc(known, torch.tensor(answer.total)), f"{label}_confidence": answer.probabilities.max(1)}
        )


def row(name: str, kind: str, found: Collected) -> list[str]:
    """A row of the table."""
    percent = {key: f"{100 * found.mean(key):.1f}" for key in found.values if key not in ("y", "seconds")}
    head, seconds = [name, str(found.rows)], f"{found.mean('seconds'):.1f}"
    if kind == "classification":
        calibration = [f"{found.ece(key):.1f}" for key in ("given", "inferred")]
        strangers = [f"{found.mean('noise'):.2f}, {found.mean('far'):.2f}"]
        confidence = [f"{found.mean('noise_confidence'):.2f}, {found.mean('far_confidence'):.2f}"]
        shares = [percent[key] for key in ("given_right", "inferred_right", "right_task")]
        return [*head, *shares, *calibration, f"{found.least_ece('inferred'):.1f}", *strangers, *confidence, seconds]
    y = found.all("y")
    r2 = [f"{1 - np.mean((found.all(key) - y) ** 2) / y.var():.2f}" for key in ("given", "inferred")]
    return [*head, *r2, *(percent[key] for key in ("right_task", "given_inside", "inferred_inside")), seconds]


def main() -> None:
    """Measure, and print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("streams", nargs="*", metavar="STREAM")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, help="instead of the default")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    settings = {} if asked.iterations is None else {"training.iterations": asked.iterations}
    for kind, columns in (("classification", CLASSES), ("regression", TARGETS)):
        chosen = [name for name in names(kind) if not asked.streams or name in asked.streams]
        for cells in (columns, ["---"] * len(columns)) if chosen else ():
            print(f"| {' | '.join(cells)} |", flush=True)
        for name in chosen:
            print(f"| {' | '.join(row(name, kind, collect(name, range(asked.seeds), settings)))} |", flush=True)
        print(file=sys.stdout)


if __name__ == "__main__":
    main()
