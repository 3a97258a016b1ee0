"""Edges of images: what is stored about them, and strangers made of the same strokes as a task's images."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Generator, Tensor
from torch.nn.functional import avg_pool2d, interpolate

from metareplay import ContinualClassifier
from metareplay.evaluation.strangers import auroc
from metareplay.inference.statistics.edges import (
    FLOOR,
    EdgeDensity,
    bytes_of_inputs,
    described_edges,
    edge_costs,
    has_edges,
    slopes,
)
from metareplay.inference.statistics.reader import NAME
from metareplay.inference.statistics.settings import StatisticsSettings

LETTERS = {  # lines from (x, y) to (x, y), from -1 to 1
    "I": (((0, -1), (0, 1)),),
    "T": (((-1, -1), (1, -1)), ((0, -1), (0, 1))),
    "Z": (((-1, -1), (1, -1)), ((1, -1), (-1, 1)), ((-1, 1), (1, 1))),
}
SIDE = 24


def letter(name: str, random: np.random.Generator) -> np.ndarray:
    """Bright strokes on a dark ground, as thick as those of the digits; of any size and slightly turned."""
    size, angle, width = random.uniform(6, 9), random.uniform(-0.3, 0.3), random.uniform(1.2, 2.0)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    points = np.stack(np.mgrid[:SIDE, :SIDE][::-1], -1) - (SIDE - 1) / 2  # (H, W, 2)
    away = []
    for start, end in LETTERS[name]:
        a, b = turn @ (size * np.array([0.7, 1]) * start), turn @ (size * np.array([0.7, 1]) * end)
        along = ((points - a) @ (b - a) / ((b - a) @ (b - a))).clip(0, 1)
        away.append(np.linalg.norm(points - a - along[..., None] * (b - a), axis=-1))
    return (width + 0.5 - np.min(away, axis=0)).clip(0, 1)


def letters(count: int) -> Tensor:
    random = np.random.default_rng(0)
    drawn = [letter(list(LETTERS)[index % len(LETTERS)], random) for index in range(count)]
    small = avg_pool2d(torch.tensor(np.stack(drawn)).float().unsqueeze(1), 3)  # (N, 1, 8, 8)
    return interpolate(small, (SIDE, SIDE), mode="bilinear")


@cache
def digits() -> tuple[Tensor, Tensor]:
    """Digits of 24 by 24 pixels."""
    found = load_digits()
    large = interpolate(torch.tensor(found.images).float().unsqueeze(1) / 16, (SIDE, SIDE), mode="bilinear")
    order = torch.randperm(len(large), generator=Generator().manual_seed(0))  # writers follow one another
    return large[order], torch.tensor(found.target)[order]


@pytest.fixture(scope="module")
def model() -> ContinualClassifier:
    """The first 120 digits of each of four classes in two tasks."""
    x, y = digits()
    learned = ContinualClassifier(
        network="mlp-30",
        settings={"training.iterations": 60, "inference.samples": 5, "report.references": False},
        seed=0,
    )
    for pair in ((0, 1), (2, 3)):
        rows = torch.cat([(y == label).nonzero()[:120, 0] for label in pair])
        learned.learn_task(x[rows].numpy(), y[rows].numpy(), name=str(pair))
    return learned


def unseen() -> Tensor:
    x, y = digits()
    return torch.cat([x[y == label][120:] for label in range(4)])


def strange(model: ContinualClassifier, x: Tensor, task: str | None = None) -> Tensor:
    found = model.predict_full(x.numpy(), task).strangeness
    assert found is not None
    return torch.tensor(found)


def test_letters_and_other_digits_are_recognised_as_unknown(model: ContinualClassifier) -> None:
    """They are made of the digits' pixels: without edges the AUROC of letters is 0.946, that of nines 0.916."""
    x, y = digits()
    known, drawn, nines = strange(model, unseen()), strange(model, letters(100)), strange(model, x[y == 9])
    assert (known > 1).double().mean() < 0.12
    assert auroc(known, drawn) > 0.97
    assert auroc(known, nines) > 0.95
    assert (drawn > 1).double().mean() > 0.8
    assert (strange(model, letters(100), str((0, 1))) > 1).double().mean() > 0.8


def test_answers_without_a_density_of_edges_are_as_before(model: ContinualClassifier, tmp_path: Path) -> None:
    """Models of earlier versions have four measures, and may go on learning."""
    model.save(tmp_path / "model")
    old = ContinualClassifier.load(tmp_path / "model")
    assert torch.equal(strange(old, unseen()), strange(model, unseen()))
    learner = old.learner
    assert learner is not None
    stored = [dict(task) for task in learner.predictor.keeper.stored()]
    stored[0] = {key: value for key, value in stored[0].items() if not key.startswith("edges.")}
    for name in ("unknown.middle", "unknown.unit"):
        stored[0][name] = stored[0][name][:4]
    learner.predictor.keeper.store.put(NAME, stored)
    x, y = digits()
    second = x[(y == 2) | (y == 3)]
    tasks = old.predict_full(second.numpy()).task
    rows = torch.tensor(tasks == 1)
    assert torch.equal(strange(old, second)[rows], strange(model, second)[rows])
    assert strange(old, unseen()).isfinite().all()


def test_more_examples_of_a_task_become_part_of_its_edges(model: ContinualClassifier, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    more = ContinualClassifier.load(tmp_path / "model")
    x, y = digits()
    rows = torch.cat([(y == label).nonzero()[120:150, 0] for label in (0, 1)])
    more.update_task(str((0, 1)), x[rows].numpy(), y[rows].numpy())
    learners = model.learner, more.learner
    before, after = (learner.predictor.keeper.stored()[0] for learner in learners if learner is not None)
    assert torch.equal(before[FLOOR], after[FLOOR])
    assert not torch.equal(before["edges.mean"], after["edges.mean"])
    assert before["edges.mean"].shape == after["edges.mean"].shape
    assert (strange(more, x[rows]) > 1).double().mean() < 0.15
    assert auroc(strange(more, unseen()), strange(more, letters(60))) > 0.95


def test_slopes_are_those_of_each_direction() -> None:
    """Brighter to the right: everywhere in the first direction, nowhere in the opposite one."""
    ramp = torch.arange(28.0).expand(1, 1, 28, 28)
    found = slopes(ramp).unflatten(1, (8, 6, 6))[0]
    assert found[0, :, 1:-1].tolist() == torch.full((6, 4), 4.0).tolist()  # two pixels apart
    assert not found[4].any()
    assert torch.equal(slopes(torch.cat([ramp, ramp + 5])), slopes(ramp).expand(2, -1))  # brightness does not matter


@pytest.mark.parametrize(("shape", "described"), [((1, 4, 4), 8), ((3, 8, 8), 72), ((3, 100, 64), 288)])
def test_small_and_large_images_are_described(shape: tuple[int, ...], described: int, rng: Generator) -> None:
    assert has_edges(shape)
    assert slopes(torch.rand(3, *shape, generator=rng)).shape == (3, described)


def test_other_inputs_have_no_edges(rng: Generator) -> None:
    rows = torch.randn(50, 40, generator=rng)
    assert described_edges(rows, torch.zeros(50, dtype=torch.int64), StatisticsSettings(), used=0) == {}
    assert edge_costs(rows, torch.zeros(50, dtype=torch.int64), [{}]).isnan().all()
    assert not has_edges((1, 3, 3))


def test_the_permitted_size_is_kept(rng: Generator) -> None:
    x, labels = torch.rand(60, 1, 16, 16, generator=rng), torch.arange(60) % 2
    for megabytes, room in ((0.2, True), (0.03, True), (0.005, False)):
        found = described_edges(x, labels, StatisticsSettings(megabytes=megabytes), used=0)
        assert (FLOOR in found) == room
        assert sum(tensor.numel() * 4 for tensor in found.values()) <= 0.5 * megabytes * 2**20 * 1.05
    assert described_edges(x, labels, StatisticsSettings(megabytes=0.2), used=2**17) == {}


def test_blank_images_have_finite_costs() -> None:
    x = torch.zeros(60, 1, 8, 8)
    stored = described_edges(x, torch.arange(60) % 2, StatisticsSettings(), used=bytes_of_inputs({}))
    density = EdgeDensity.stored(stored)
    assert density is not None
    assert density.costs(torch.rand(5, 1, 8, 8)).isfinite().all()
