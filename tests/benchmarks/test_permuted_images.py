"""Permuted images: one permutation per task, the same for every image, made on demand."""

import pytest
import torch

from metareplay.benchmarks.base import Scenario
from metareplay.benchmarks.images import permute_images
from metareplay.data.base import LabelledImages
from metareplay.errors import ConfigError, DataError


def _images(channels: int = 1) -> LabelledImages:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(1, 256, (12, channels, 4, 5), dtype=torch.uint8, generator=generator)
    y = torch.tensor([5, 2, 9]).repeat(4)
    return LabelledImages(x, y, x[:6], y[:6])


def test_each_task_has_all_classes_and_its_pixels_in_another_order() -> None:
    images = _images()
    benchmark = permute_images("mine", images, 4, seed=3)
    assert (benchmark.scenario, benchmark.input_shape, len(benchmark)) == (Scenario.DOMAIN, (1, 4, 5), 4)
    original = (images.train_x / 255).flatten(1)
    seen = []
    for task in benchmark:
        inputs = task.train.x.flatten(1)
        assert task.classes == (2, 5, 9)
        assert torch.tensor(task.classes)[task.train.y].tolist() == images.train_y.tolist()
        assert torch.equal(inputs.sort(1).values, original.sort(1).values)
        seen.append(inputs)
    for index, inputs in enumerate([original, *seen]):  # the first task is permuted too
        assert not any(torch.equal(inputs, other) for other in seen[index:])


def test_every_image_and_channel_is_permuted_the_same_way() -> None:
    images = _images(channels=3)
    images.train_x[1:] = images.train_x[:1]
    images.train_x[:, 1:] = images.train_x[:, :1]
    x = permute_images("mine", images, 2, seed=0)[1].train.x
    assert torch.equal(x, x[:1, :1].expand_as(x))


def test_training_and_test_inputs_are_permuted_the_same_way() -> None:
    task = permute_images("mine", _images(), 3, seed=0)[2]
    assert torch.equal(task.test.x, task.train.x[:6])


def test_a_task_is_the_same_however_many_there_are() -> None:
    few, many = (permute_images("mine", _images(), count, seed=1) for count in (2, 50))
    assert torch.equal(few[1].train.x, many[1].train.x)
    other = permute_images("mine", _images(), 2, seed=2)
    assert not torch.equal(few[1].train.x, other[1].train.x)


def test_zeros_are_added_before_permuting() -> None:
    images = _images()
    benchmark = permute_images("mine", images, 2, seed=0, padding=2)
    assert benchmark.input_shape == (1, 8, 9)
    x = benchmark[0].train.x
    assert x.shape == (12, 1, 8, 9)
    assert (x == 0).sum() == 12 * (72 - 20)
    assert x[:, 0, 2:-2, 2:-2].eq(0).any()  # the border is not where it was
    torch.testing.assert_close(x.sum(), (images.train_x / 255).sum())


def test_a_hundred_tasks_keep_one_copy_of_the_pixels() -> None:
    benchmark = permute_images("mine", _images(), 100, seed=0)
    before = [outline.name for outline in benchmark.task_infos()]
    assert before[99] == "permutation-100"
    first, again = benchmark[99].train.x, benchmark[99].train.x
    assert torch.equal(first, again)
    assert first.untyped_storage().data_ptr() != again.untyped_storage().data_ptr()  # re-created, nothing is cached


@pytest.mark.parametrize(("num_tasks", "padding"), [(0, 0), (1, -1)])
def test_invalid_numbers_are_refused(num_tasks: int, padding: int) -> None:
    with pytest.raises(ConfigError, match="num_tasks must be at least 1 and padding at least 0"):
        permute_images("mine", _images(), num_tasks, seed=0, padding=padding)


def test_a_test_label_without_training_examples_is_refused() -> None:
    images = _images()
    strange = LabelledImages(images.train_x, images.train_y, images.test_x, images.test_y + 1)
    with pytest.raises(DataError, match="labels that the training set lacks"):
        permute_images("mine", strange, 2, seed=0)
