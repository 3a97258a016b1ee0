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
    MEAN,
    EdgeDensities,
    EdgeScale,
    colours,
    described_edges,
    described_parts,
    drawn_numbers,
    has_edges,
    scale_of,
    slopes,
)
from metareplay.inference.statistics.reader import NAME
from metareplay.inference.statistics.rows import Drawn
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


def test_models_of_earlier_versions_learn_on_without_edges(model: ContinualClassifier, tmp_path: Path) -> None:
    """They have no edges to be compared with."""
    model.save(tmp_path / "model")
    old = ContinualClassifier.load(tmp_path / "model")
    assert torch.equal(strange(old, unseen()), strange(model, unseen()))
    learner = old.learner
    assert learner is not None
    keeper = learner.predictor.keeper
    terms = list(keeper.evidence(unseen()[:2]).terms())
    kept = torch.tensor([index for index, name in enumerate(terms) if "edges" not in name])
    for number in (0, 1):
        stored = [dict(task) for task in keeper.stored()]
        stored[number] = {
            key: value for key, value in stored[number].items() if not key.startswith(("edges.", "network0.edges."))
        }
        for name in ("unknown.middle", "unknown.unit"):
            stored[number][name] = stored[number][name][:4]
        for name in ("pairs.weights", "pairs.spread"):
            stored[number][name] = stored[number][name][kept]
        stored[number]["pairs.precision"] = stored[number]["pairs.precision"][kept][:, kept]
        keeper.store.put(NAME, stored)
    assert strange(old, unseen()).isfinite().all()
    x, y = digits()
    third = torch.cat([(y == label).nonzero()[:120, 0] for label in (4, 5)])
    old.learn_task(x[third].numpy(), y[third].numpy(), name="third")
    assert not any(FLOOR in task for task in keeper.stored())
    tasks = old.predict_full(unseen().numpy()).task
    assert sum(task != "third" for task in tasks) > 0.85 * len(tasks)


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


def test_a_task_without_room_for_its_edges_gets_more_examples(rng: Generator) -> None:
    """Their scale and moments are stored, but no density."""
    settings = {"training.iterations": 3, "inference.samples": 2, "statistics.megabytes": 0.16}
    learned = ContinualClassifier(network="mlp-5", settings=settings, seed=0)
    x, y = torch.rand(400, 3, 8, 8, generator=rng), np.arange(400) % 2
    x[:200] += 5 * torch.randn(3, 8, 8, generator=rng)  # two kinds of each class, which take all the room
    learned.learn_task(x.numpy(), y, name="first")
    assert learned.learner is not None
    keeper = learned.learner.predictor.keeper
    assert FLOOR in keeper.stored()[0]
    assert MEAN not in keeper.stored()[0]
    learned.update_task("first", x[170:230].numpy(), y[170:230])
    assert (strange(learned, x) > 1).double().mean() < 0.2


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


def test_colours_are_brightness_and_differences_of_channels() -> None:
    red, grey = torch.zeros(1, 3, 16, 16), torch.full((1, 3, 16, 16), 0.5)
    red[:, 0] = 1.0
    found = colours(torch.cat([red, grey]))
    assert found.shape == (2, 3, 36)
    torch.testing.assert_close(found[0, :, 0], torch.tensor([1 / 3, 1.0, 0.5]))
    torch.testing.assert_close(found[1, :, 0], torch.tensor([0.5, 0.0, 0.0]))


def test_tasks_that_differ_in_edges_or_colours_alone_are_told_apart(rng: Generator) -> None:
    """Textures of the same mean and covariance in every pixel, tasks of stripes in two directions or of two tints."""

    def stripes(count: int, *, down: bool, tint: int) -> Tensor:
        waves = torch.sin(torch.arange(16) * 1.2 + 6.3 * torch.rand(count, 1, generator=rng))  # (N, 16)
        images = waves.unsqueeze(2 if down else 1).expand(-1, 16, 16).unsqueeze(1).repeat(1, 3, 1, 1)
        images[:, tint] *= 1.5
        return images + 0.1 * torch.randn(images.shape, generator=rng)

    for other in ({"down": False, "tint": 0}, {"down": True, "tint": 2}):
        tasks = [stripes(200, down=True, tint=0), stripes(200, **other)]
        stored: list[dict[str, Tensor]] = []
        for x in tasks:
            scale = scale_of(x, stored, StatisticsSettings())
            assert scale is not None
            labels = torch.zeros(200, dtype=torch.int64)
            stored.append(described_edges(described_parts(x, scale), labels, scale, StatisticsSettings(), used=0))
        densities = EdgeDensities.stored(stored)
        assert densities is not None
        for task, new in enumerate((stripes(50, down=True, tint=0), stripes(50, **other))):
            assert (densities.costs(densities.scale.numbers(new)).argmin(0) == task).double().mean() > 0.9


def test_other_inputs_have_no_edges(rng: Generator) -> None:
    rows, settings = torch.randn(50, 40, generator=rng), StatisticsSettings()
    assert scale_of(rows, [], settings) is None
    assert EdgeDensities.stored([{}]) is None
    assert not has_edges((1, 3, 3))


def test_the_permitted_size_is_kept(rng: Generator) -> None:
    for channels in (1, 3):
        x, labels = torch.rand(60, channels, 16, 16, generator=rng), torch.arange(60) % 2
        scale = EdgeScale.of(x)
        for megabytes, room in ((0.2, True), (0.04, True), (0.005, False)):
            found = described_edges(
                described_parts(x, scale), labels, scale, StatisticsSettings(megabytes=megabytes), used=0
            )
            assert (MEAN in found) == room
            assert sum(tensor.numel() * 4 for tensor in found.values()) <= 0.5 * megabytes * 2**20 * 1.05
        assert MEAN not in described_edges(
            described_parts(x, scale), labels, scale, StatisticsSettings(megabytes=0.2), used=2**17
        )
        assert scale_of(x, [], StatisticsSettings(megabytes=1)) is None


def test_colours_count_little_if_the_first_task_has_none(rng: Generator) -> None:
    """Else units of (nearly) 0 would make them all that counts in later tasks."""
    grey, later = torch.rand(30, 1, 8, 8, generator=rng).repeat(1, 3, 1, 1), torch.rand(30, 3, 8, 8, generator=rng)
    for first in (grey, torch.zeros(30, 3, 8, 8)):
        numbers = EdgeScale.of(first).numbers(later)
        slopes_of, colours_of = numbers[:, :72], numbers[:, 72:]
        assert colours_of.std(0).max() < 50 * slopes_of.std(0).mean()


def test_blank_images_have_finite_costs() -> None:
    for channels in (1, 3):
        x = torch.zeros(60, channels, 8, 8)
        scale = EdgeScale.of(x)
        stored = described_edges(described_parts(x, scale), torch.arange(60) % 2, scale, StatisticsSettings(), used=0)
        densities = EdgeDensities.stored([stored])
        assert densities is not None
        assert densities.costs(scale.numbers(torch.rand(5, channels, 8, 8))).isfinite().all()


def test_many_images_stream_through(rng: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptions that are computed twice give the same density as those that are kept."""
    x, labels = torch.rand(90, 3, 8, 8, generator=rng), torch.arange(90) % 2
    scale = EdgeScale.of(x)
    kept = described_edges(described_parts(x, scale), labels, scale, StatisticsSettings(), used=0)
    monkeypatch.setattr("metareplay.inference.statistics.edges.HELD", 0)
    again = described_edges(described_parts(x, scale), labels, scale, StatisticsSettings(), used=0)
    assert all(torch.equal(kept[name], again[name]) for name in kept)


def test_missing_edges_of_drawn_inputs_say_nothing(rng: Generator) -> None:
    x, labels = torch.rand(60, 1, 8, 8, generator=rng), torch.zeros(60, dtype=torch.int64)
    scale = EdgeScale.of(x)
    stored = described_edges(described_parts(x, scale), labels, scale, StatisticsSettings(), used=0)
    drawn = drawn_numbers(stored, 4, rng)
    assert drawn is not None
    assert drawn.shape[1] == stored[MEAN].shape[1]
    together = Drawn.together([Drawn(x[:4], drawn), Drawn(x[:2]), Drawn(x[:3])])
    assert together.edges is not None
    assert together.edges.isnan().any(1).tolist() == [False] * 4 + [True] * 5
    assert Drawn.together([Drawn(x[:2]), Drawn(x[:3])]).edges is None
