"""How drift is best compensated: maps of features, a stronger replay penalty, and single layers.

python -m benchmarks.drift [--data-dir FOLDER] [--network lenet] [--iterations 300] [--strength 1 10 30]

Split-mnist, pr-bbb. Measured on the last 500 training examples of each task, which neither training nor statistics see;
no test input is read. For each factor of the replay strength one model is learned, and every way to follow its changes
keeps statistics of its own beside it.
"""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor

from benchmarks.common import learner_for
from benchmarks.prediction import percent
from metareplay.benchmarks.base import TaskData
from metareplay.benchmarks.registry import build_benchmark
from metareplay.inference.criteria import CRITERIA
from metareplay.inference.criteria.base import Comparison, Evidence
from metareplay.inference.statistics import keeper as keeper_module
from metareplay.inference.statistics.keeper import StatisticsKeeper
from metareplay.inference.statistics.moments import AffineMap
from metareplay.inference.statistics.passes import chosen_layers
from metareplay.inference.statistics.settings import StatisticsSettings
from metareplay.inference.task_statistics import TaskStatistics
from metareplay.learner.learner import ContinualLearner
from metareplay.nets.features import weighted_layers

APART = 500
"""Training examples of each task that are set apart."""
COLUMNS = ("stats", "pairs", "mahalanobis")


def remade(weights: Tensor, old: Tensor, new: Tensor) -> AffineMap:
    """A map with given weights (F, F), and what it leaves open."""
    before, after = old.double() - old.double().mean(0), new.double() - new.double().mean(0)
    errors, variance = before @ weights - after, max(float(after.square().sum()), 1e-30)  # (N, F)
    moved, unexplained = float((new - old).double().square().sum()) / variance, float(errors.square().sum()) / variance
    shift = new.double().mean(0) - old.double().mean(0) @ weights
    return AffineMap(weights, shift, errors.T @ errors / len(old), moved, unexplained)


def shifted(old: Tensor, new: Tensor) -> AffineMap:
    """A change of the mean alone."""
    return remade(torch.eye(old.shape[1], dtype=torch.float64), old, new)


def of_rank(rank: int, old: Tensor, new: Tensor) -> AffineMap:
    """The identity and a change of low rank, the best part of the whole map's."""
    identity = torch.eye(old.shape[1], dtype=torch.float64)
    left, values, right = torch.linalg.svd(AffineMap.between(old, new).weights - identity)
    return remade(identity + (left[:, :rank] * values[:rank]) @ right[:rank], old, new)


class Shift:
    """Stands in for the whole map."""

    between = staticmethod(shifted)


class Rank16:
    """Stands in for the whole map."""

    between = staticmethod(lambda old, new: of_rank(16, old, new))


class Rank64:
    """Stands in for the whole map."""

    between = staticmethod(lambda old, new: of_rank(64, old, new))


@dataclass(frozen=True)
class Way:
    """How statistics follow the changes of networks."""

    name: str
    settings: StatisticsSettings
    maps: type = AffineMap


def ways(learner: ContinualLearner) -> list[Way]:
    """All that are compared."""
    default = learner.config.statistics
    layers = chosen_layers(learner.model.network)
    return [
        Way("the whole map (default)", default),
        Way("no compensation", default.model_copy(update={"compensate": False})),
        Way("shift of the mean", default, Shift),
        Way("map of rank 16", default, Rank16),
        Way("map of rank 64", default, Rank64),
        Way("five networks", default.model_copy(update={"networks": 5})),
        *(
            Way(f"inputs of layer {name} alone", default.model_copy(update={"layers": (previous,)}))
            for previous, name in _before(learner, layers)
        ),
    ]


def _before(learner: ContinualLearner, layers: list[str]) -> Iterator[tuple[str, str]]:
    """Each described layer with the name of the layer whose outputs it takes, as settings name them."""
    names = weighted_layers(learner.model.network)
    yield from ((names[names.index(layer) - 1], layer) for layer in layers)


@contextmanager
def mapping_by(way: Way) -> Iterator[None]:
    """Within it, changes are followed by the maps of a way."""
    with mock.patch.object(keeper_module, "AffineMap", way.maps):
        yield


def keepers_of(learner: ContinualLearner) -> list[tuple[Way, StatisticsKeeper]]:
    """A keeper for every way."""
    config = learner.config
    return [
        (
            way,
            StatisticsKeeper(
                learner.model,
                way.settings,
                TaskStatistics(),
                problem="classification",
                seed=config.seed,
                batch_size=config.inference.batch_size,
            ),
        )
        for way in ways(learner)
    ]


def learned(learner: ContinualLearner, tasks: Mapping[int, TaskData]) -> list[tuple[Way, StatisticsKeeper]]:
    """Learn all tasks, and let all keepers describe them."""
    keepers: list[tuple[Way, StatisticsKeeper]] = []
    for number, train in tasks.items():
        trainer = learner.begin_task(train, 2, expected_tasks=len(tasks))
        keepers = keepers or keepers_of(learner)
        for _, keeper in keepers:
            keeper.before_training()
        for _ in trainer:
            pass
        learner.finish_task(train)
        used, held_out = learner._split(number, train)
        for way, keeper in keepers:
            with mapping_by(way):
                keeper.after_task(number, used, held_out)
    return keepers


def right(keeper: StatisticsKeeper, learner: ContinualLearner, apart: Mapping[int, TaskData]) -> dict[str, str]:
    """Inputs given to the right task, by criterion."""
    x = torch.cat([data.x for data in apart.values()])
    true = torch.cat([torch.full((len(data.x),), number) for number, data in apart.items()])
    evidence = keeper.evidence(x)
    comparison = Comparison(evidence, keeper.combination(evidence), keeper.stored())
    model, settings = learner.model, learner.config.inference
    seen = Evidence((), model.heads, settings, (), (), (), comparison)
    return {name: percent(CRITERIA[name].compare(seen).argmin(0) == true) for name in COLUMNS}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--network", default="lenet")
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--strength", type=float, nargs="+", default=[1.0, 10.0, 30.0])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    stream = list(build_benchmark("split-mnist", data_dir=asked.data_dir))
    tasks = {number: TaskData(*(part[:-APART] for part in task.train)) for number, task in enumerate(stream)}
    apart = {number: TaskData(*(part[-APART:] for part in task.train)) for number, task in enumerate(stream)}
    print(f"| replay strength | way | given | {' | '.join(COLUMNS)} |", "|---" * (3 + len(COLUMNS)) + "|", sep="\n")
    usual = learner_for("pr-bbb", asked.network, fast=True).config.strategy.strength  # type: ignore[attr-defined]
    for factor in asked.strength:
        learner = learner_for(
            "pr-bbb",
            asked.network,
            fast=True,
            training__iterations=asked.iterations,
            strategy__strength=factor * usual,
            statistics__held_out=0.1,
        )
        keepers = learned(learner, tasks)
        given = [learner.predictor.predict(data.x, number) for number, data in apart.items()]
        hits = torch.cat(
            [
                answer.probabilities.argmax(1) - 2 * number == data.y
                for (number, data), answer in zip(apart.items(), given, strict=True)
            ]
        )
        for way, keeper in keepers:
            cells = right(keeper, learner, apart)
            print(f"| x {factor:g} | {way.name} | {percent(hits)} | {' | '.join(cells.values())} |", flush=True)


if __name__ == "__main__":
    main()
