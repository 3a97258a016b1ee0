import pytest
import torch

from metareplay.benchmarks.base import Scenario
from metareplay.benchmarks.images import Preparation, permute_images, split_digits, split_images
from metareplay.benchmarks.settings import ClassOrder
from metareplay.data.base import LabelledImages
from metareplay.data.sources import load_digits
from metareplay.errors import ConfigError, DataError


def _images(labels: tuple[int, ...] = (3, 0, 7, 1), per_class: int = 5) -> LabelledImages:
    y = torch.tensor(labels).repeat(per_class)  # classes come mixed
    x = torch.arange(len(y), dtype=torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 2, 3, 1) * 10
    return LabelledImages(x, y, x[: 2 * len(labels)], y[: 2 * len(labels)])


def test_each_task_has_its_classes_in_ascending_order() -> None:
    benchmark = split_images("mine", _images(), classes_per_task=2)
    assert (benchmark.name, benchmark.problem, benchmark.scenario) == ("mine", "classification", Scenario.CLASS)
    assert benchmark.input_shape == (2, 3, 1)
    assert [task.classes for task in benchmark] == [(0, 1), (3, 7)]
    assert [(len(task.train.x), len(task.test.x)) for task in benchmark] == [(10, 4), (10, 4)]


@pytest.mark.parametrize("classes_per_task", [1, 2, 4])
def test_every_example_comes_once_with_its_own_label_in_the_original_order(classes_per_task: int) -> None:
    images = _images()
    benchmark = split_images("mine", images, classes_per_task)
    for task in benchmark:
        for split, x, y in ((task.train, images.train_x, images.train_y), (task.test, images.test_x, images.test_y)):
            chosen = torch.isin(y, torch.tensor(task.classes))
            assert torch.equal(split.x, x[chosen] / 255)
            assert torch.tensor(task.classes)[split.y].tolist() == y[chosen].tolist()
    assert sum(len(task.train.x) for task in benchmark) == len(images.train_x)


def test_inputs_are_float_and_targets_are_indices() -> None:
    for task in split_images("mine", _images(), 2):
        assert task.train.x.dtype == torch.float32
        assert task.train.y.dtype == torch.int64
        assert task.train.y.unique().tolist() == [0, 1]


def test_inputs_are_made_only_for_the_requested_task() -> None:
    asked: list[int] = []

    def prepare(pixels: torch.Tensor) -> torch.Tensor:
        asked.append(len(pixels))
        return pixels / 255

    benchmark = split_images("mine", _images(), 2, prepare=prepare)
    assert [outline.classes for outline in benchmark.task_infos()] == [(0, 1), (3, 7)]
    assert asked == []
    assert torch.equal(benchmark.test(1).x, benchmark[1].test.x)
    assert asked == [4, 10, 4]  # one test set, then a whole task


@pytest.mark.parametrize("order", [(7, 0, 3, 1), "seeded", "ascending"])
def test_classes_come_in_the_order_that_was_given(order: ClassOrder) -> None:
    images = _images()
    benchmark = split_images("mine", images, 2, order=order, seed=4)
    classes = [label for task in benchmark for label in task.classes]
    assert sorted(classes) == [0, 1, 3, 7]
    if order != "seeded":
        assert classes == ([7, 0, 3, 1] if order != "ascending" else [0, 1, 3, 7])
    for task in benchmark:
        chosen = torch.isin(images.train_y, torch.tensor(task.classes))
        assert torch.equal(task.train.x, images.train_x[chosen] / 255)
        assert torch.tensor(task.classes)[task.train.y].tolist() == images.train_y[chosen].tolist()
        assert task.name == "classes-" + "-".join(map(str, task.classes))


def test_a_drawn_order_depends_on_the_seed_only() -> None:
    images = _images(labels=tuple(range(8)))
    first, same, other = (split_images("mine", images, 2, order="seeded", seed=seed).task_infos() for seed in (1, 1, 2))
    assert first == same
    assert first != other


@pytest.mark.parametrize("order", [(0, 1, 3), (0, 1, 3, 3), (0, 1, 3, 8), ()])
def test_an_order_that_is_not_one_of_all_classes_is_refused(order: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"class_order must list each of the classes \[0, 1, 3, 7\] once"):
        split_images("mine", _images(), 2, order=order)


def test_colours_are_standardised_one_by_one() -> None:
    pixels = torch.tensor([[[[0, 255]], [[51, 102]]]], dtype=torch.uint8)  # (1, 2, 1, 2)
    actual = Preparation(255.0, (0.5, 0.2), (0.25, 0.1))(pixels)
    torch.testing.assert_close(actual, torch.tensor([[[[-2.0, 2.0]], [[0.0, 2.0]]]]))
    assert pixels.dtype == torch.uint8  # the pixels are shared, and untouched
    assert pixels.max() == 255


def test_the_scale_can_be_given() -> None:
    own, given = split_images("mine", _images(), 2), split_images("mine", _images(), 2, scale=51)
    torch.testing.assert_close(given[1].train.x, own[1].train.x * 5)


@pytest.mark.parametrize("classes_per_task", [0, -1, 3, 8])
def test_classes_that_do_not_divide_are_refused(classes_per_task: int) -> None:
    with pytest.raises(ConfigError, match=f"4 classes cannot be split into tasks of {classes_per_task}"):
        split_images("mine", _images(), classes_per_task)


def test_no_images_at_all_are_refused() -> None:
    with pytest.raises(ConfigError, match="0 classes"):
        split_images("mine", _images(per_class=0), 2)


@pytest.mark.parametrize("scale", [0, -255])
def test_an_invalid_scale_is_refused(scale: float) -> None:
    with pytest.raises(ConfigError, match="scale must be the positive"):
        split_images("mine", _images(), 2, scale)


@pytest.mark.parametrize("stranger", [-1, 2, 9])
def test_a_test_label_without_training_examples_is_refused(stranger: int) -> None:
    images = _images()
    images.test_y[0] = stranger
    images = LabelledImages(images.train_x, _images().train_y, images.test_x, images.test_y)
    with pytest.raises(DataError, match="labels that the training set lacks"):
        split_images("mine", images, 2)


def test_split_digits_uses_the_whole_range_of_its_pixels() -> None:
    digits, benchmark = load_digits(), split_digits()
    assert [task.classes for task in benchmark] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert sum(len(task.train.x) for task in benchmark) == len(digits.train_x)
    assert sum(len(task.test.x) for task in benchmark) == len(digits.test_x)
    for task in benchmark:
        assert task.train.x.min() == 0
        assert task.train.x.max() == 1
        torch.testing.assert_close(task.train.x * 16, (task.train.x * 16).round())


def test_pixels_are_not_copied_before_a_task_is_requested() -> None:
    """All tasks share the pixels' memory, so a task built later sees what the file holds by then."""
    images = _images()
    benchmarks = split_images("mine", images, 2), permute_images("mine", images, 2, seed=0)
    images.train_x.zero_()
    for benchmark in benchmarks:
        assert not next(iter(benchmark)).train.x.any()
