"""Split and permuted versions of any labelled image set.

The pixels are stored as uint8, once for all tasks; a task's inputs are computed on demand.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from metareplay.benchmarks.base import Benchmark, Scenario, Task, TaskData, TaskInfo
from metareplay.benchmarks.class_orders import ordered
from metareplay.benchmarks.settings import DEFAULT_TASKS, ClassOrder, TaskSettings
from metareplay.data.base import LabelledImages
from metareplay.data.sources import load_cifar10, load_cifar100, load_digits, load_mnist
from metareplay.errors import ConfigError, DataError
from metareplay.scaling import Scaling
from metareplay.seeding import generator_for


@dataclass(frozen=True)
class Preparation:
    """From pixels to inputs: divide by ``scale``, then standardise each channel."""

    scale: float
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __call__(self, pixels: Tensor) -> Tensor:
        """Float inputs of the same shape (N, C, H, W)."""
        inputs = pixels.float().div_(self.scale)
        if self.mean:
            channel = (-1, 1, 1)  # (C,) -> (C, 1, 1)
            inputs.sub_(torch.tensor(self.mean).view(channel)).div_(torch.tensor(self.std).view(channel))
        return inputs

    @property
    def pixels(self) -> Scaling:
        """From pixels in [0, 1] to inputs."""
        channel = (-1, 1, 1)  # (C,) -> (C, 1, 1)
        tensors = {"x_mean": torch.tensor(self.mean).view(channel), "x_scale": torch.tensor(self.std).view(channel)}
        return Scaling(tensors if self.mean else {})


CIFAR10_PREPARATION = Preparation(255.0, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
"""Mean and standard deviation of each colour channel over the training images."""
CIFAR100_PREPARATION = Preparation(255.0, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
IMAGENET_PREPARATION = Preparation(255.0, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""ImageNet's, with which the published runs standardised CIFAR."""


class _Part(NamedTuple):
    """One task's examples: the pixels of all tasks, not copied because several processes may share their file."""

    pixels: Tensor
    y: Tensor
    rows: Tensor | None = None
    """The task's rows of the pixels; None: all."""


def split_images(
    name: str,
    images: LabelledImages,
    classes_per_task: int,
    scale: float | None = None,
    *,
    order: ClassOrder = "ascending",
    seed: int = 0,
    prepare: Callable[[Tensor], Tensor] | None = None,
) -> Benchmark:
    """Tasks of ``classes_per_task`` classes each; inputs are float32 and keep the shape of an image.

    ``scale`` is the pixel value that becomes 1 (default: ``images.max_value``), unless ``prepare`` turns pixels into
    inputs. ``order`` is the order of the classes (``class_orders.py``), or a list of all classes.
    """
    known = images.train_y.unique()  # sorted
    if classes_per_task < 1 or len(known) == 0 or len(known) % classes_per_task:
        raise ConfigError(
            f"{name}: {len(known)} classes cannot be split into tasks of {classes_per_task}; choose a divisor"
        )
    if not torch.isin(images.test_y, known).all():
        raise DataError("the test set has labels that the training set lacks; every class needs training examples")
    classes = ordered(name, images, order, seed, classes_per_task)
    prepare = prepare or Preparation(_checked_scale(name, images, scale))
    train, test = (_by_task(x, y, classes, classes_per_task) for x, y in _parts(images))
    groups = classes.reshape(-1, classes_per_task).tolist()  # (tasks * classes_per_task,) -> (tasks, classes_per_task)

    def describe(index: int) -> TaskInfo:
        return TaskInfo("classes-" + "-".join(map(str, groups[index])), tuple(groups[index]))

    benchmark = _benchmark(
        name, Scenario.CLASS, images.image_shape, len(groups), describe, train, test, lambda index, x: prepare(x)
    )
    return replace(benchmark, pixels=prepare.pixels) if isinstance(prepare, Preparation) else benchmark


def permute_images(
    name: str,
    images: LabelledImages,
    num_tasks: int,
    *,
    seed: int,
    padding: int = 0,
    first_unpermuted: bool = False,
) -> Benchmark:
    """Tasks with all classes; each permutes the pixels differently [Henning2021, sm:sec:perm:mnist].

    The first does so too, unless it is to be ``first_unpermuted``. Images are first padded with zeros on each side; all
    channels share the permutation. Task i does not depend on the number of tasks.
    """
    if num_tasks < 1 or padding < 0:
        raise ConfigError(f"{name}: num_tasks must be at least 1 and padding at least 0, got {num_tasks} and {padding}")
    classes = images.train_y.unique()  # sorted
    if len(classes) == 0 or not torch.isin(images.test_y, classes).all():
        raise DataError("the test set has labels that the training set lacks; every class needs training examples")
    prepare = Preparation(float(images.max_value))
    train, test = ([_Part(x, torch.searchsorted(classes, y))] * num_tasks for x, y in _parts(images))
    channels, height, width = images.image_shape[0], *(size + 2 * padding for size in images.image_shape[1:])

    def permuted(index: int, x: Tensor) -> Tensor:
        generator = generator_for(seed, "permutation", index)
        x = F.pad(x, (padding,) * 4)  # (N, C, H, W) -> (N, C, H + 2p, W + 2p)
        if first_unpermuted and index == 0:
            return prepare(x)
        order = torch.randperm(height * width, generator=generator)
        return prepare(x.flatten(2)[:, :, order].view_as(x))  # (N, C, H*W) -> (N, C, H, W)

    def describe(index: int) -> TaskInfo:
        return TaskInfo(f"permutation-{index + 1}", tuple(classes.tolist()))

    return _benchmark(name, Scenario.DOMAIN, (channels, height, width), num_tasks, describe, train, test, permuted)


def split_digits(settings: TaskSettings = DEFAULT_TASKS, seed: int = 0) -> Benchmark:
    """Five tasks of two digits each, from scikit-learn's embedded 8x8 images."""
    return _split("split-digits", load_digits(), 2, settings, seed)


def split_mnist(data_dir: Path | None = None, settings: TaskSettings = DEFAULT_TASKS, seed: int = 0) -> Benchmark:
    """Five tasks of two digits each, from MNIST."""
    return _split("split-mnist", load_mnist(data_dir), 2, settings, seed)


def split_cifar10(data_dir: Path | None = None, settings: TaskSettings = DEFAULT_TASKS, seed: int = 0) -> Benchmark:
    """Five tasks of two classes each, from CIFAR-10."""
    return _split("split-cifar-10", load_cifar10(data_dir), 2, settings, seed, CIFAR10_PREPARATION)


def split_cifar100(data_dir: Path | None = None, settings: TaskSettings = DEFAULT_TASKS, seed: int = 0) -> Benchmark:
    """Ten tasks of ten classes each, from CIFAR-100 [Henning2021, sm:sec:split:cifar100]."""
    return _split("split-cifar-100", load_cifar100(data_dir), 10, settings, seed, CIFAR100_PREPARATION)


def permuted_mnist(
    num_tasks: int, data_dir: Path | None = None, settings: TaskSettings = DEFAULT_TASKS, seed: int = 0
) -> Benchmark:
    """MNIST, with the pixels of each task in a different order."""
    return permute_images(
        f"permuted-mnist-{num_tasks}",
        load_mnist(data_dir),
        num_tasks,
        seed=seed,
        padding=settings.padding,
        first_unpermuted=settings.first_unpermuted,
    )


def _split(
    name: str,
    images: LabelledImages,
    classes_per_task: int,
    settings: TaskSettings,
    seed: int,
    prepare: Preparation | None = None,
) -> Benchmark:
    count = settings.classes_per_task or classes_per_task
    prepare = IMAGENET_PREPARATION if settings.pixel_scaling == "imagenet" else prepare
    return split_images(name, images, count, order=settings.class_order, seed=seed, prepare=prepare)


def _benchmark(
    name: str,
    scenario: Scenario,
    input_shape: tuple[int, ...],
    num_tasks: int,
    describe: Callable[[int], TaskInfo],
    train: Sequence[_Part],
    test: Sequence[_Part],
    inputs_of: Callable[[int, Tensor], Tensor],
) -> Benchmark:
    """Tasks whose pixels are in memory and whose inputs are computed on demand."""

    def make_split(index: int, part: _Part) -> TaskData:
        return TaskData(inputs_of(index, part.pixels if part.rows is None else part.pixels[part.rows]), part.y)

    def make_task(index: int) -> Task:
        info = describe(index)
        return Task(info.name, make_split(index, train[index]), make_split(index, test[index]), info.classes)

    def make_test(index: int) -> TaskData:
        return make_split(index, test[index])

    return Benchmark(name, "classification", scenario, input_shape, num_tasks, make_task, make_test, describe)


def _parts(images: LabelledImages) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    return (images.train_x, images.train_y), (images.test_x, images.test_y)


def _checked_scale(name: str, images: LabelledImages, scale: float | None) -> float:
    scale = float(images.max_value) if scale is None else scale
    if scale <= 0:
        raise ConfigError(f"{name}: scale must be the positive pixel value that becomes 1, got {scale}")
    return scale


def _by_task(x: Tensor, y: Tensor, classes: Tensor, classes_per_task: int) -> list[_Part]:
    """The rows of each task's examples, in their original order."""
    ascending, place = classes.sort()
    position = place[torch.searchsorted(ascending, y)]  # index of each label in the order of the classes
    task = position // classes_per_task
    rows = task.argsort(stable=True)
    targets = (position % classes_per_task)[rows]
    sizes = task.bincount(minlength=len(classes) // classes_per_task).tolist()
    return [_Part(x, y, task_rows) for y, task_rows in zip(targets.split(sizes), rows.split(sizes), strict=True)]
