"""Split versions of any labelled image set: each task has some of the classes."""

from pathlib import Path

import torch
from torch import Tensor

from metareplay.benchmarks.base import Benchmark, Scenario, Split, Task
from metareplay.data.base import LabelledImages
from metareplay.data.sources import load_digits, load_mnist
from metareplay.errors import ConfigError, DataError


def split_images(name: str, images: LabelledImages, classes_per_task: int, scale: float | None = None) -> Benchmark:
    """Tasks of ``classes_per_task`` classes each, in ascending order; inputs are float32 in [0, 1] and keep the shape of an image.

    ``scale`` is the pixel value that becomes 1 (default: the images' own). All data are converted once, sorted by task,
    and the tasks are views of them.
    """
    classes = images.train_y.unique()  # sorted
    if classes_per_task < 1 or len(classes) == 0 or len(classes) % classes_per_task:
        raise ConfigError(f"{name}: {len(classes)} classes cannot be split into tasks of {classes_per_task}; choose a divisor")
    scale = float(images.max_value) if scale is None else scale
    if scale <= 0:
        raise ConfigError(f"{name}: scale must be the positive pixel value that becomes 1, got {scale}")
    groups = classes.reshape(-1, classes_per_task)  # (tasks * classes_per_task,) -> (tasks, classes_per_task)
    train = _by_task(images.train_x, images.train_y, classes, classes_per_task, scale)
    test = _by_task(images.test_x, images.test_y, classes, classes_per_task, scale)

    def make_task(index: int) -> Task:
        labels = tuple(groups[index].tolist())
        return Task("classes-" + "-".join(map(str, labels)), train[index], test[index], labels)

    return Benchmark(name, "classification", Scenario.CLASS, images.image_shape, len(groups), make_task)


def split_digits() -> Benchmark:
    """Five tasks of two digits each, of scikit-learn's embedded 8x8 images."""
    return split_images("split-digits", load_digits(), classes_per_task=2)


def split_mnist(data_dir: Path | None = None) -> Benchmark:
    """Five tasks of two digits each, of MNIST."""
    return split_images("split-mnist", load_mnist(data_dir), classes_per_task=2)


def _by_task(x: Tensor, y: Tensor, classes: Tensor, classes_per_task: int, scale: float) -> list[Split]:
    """One split per task; each is a view, in the original order of its examples."""
    if not torch.isin(y, classes).all():
        raise DataError("the test set has labels that the training set lacks; every class needs training examples")
    position = torch.searchsorted(classes, y)  # index of each label among all classes
    task = position // classes_per_task
    order = task.argsort(stable=True)
    inputs = x[order].float().div_(scale)  # uint8 -> float32, once
    targets = (position % classes_per_task)[order]
    sizes = task.bincount(minlength=len(classes) // classes_per_task).tolist()
    return [Split(*parts) for parts in zip(inputs.split(sizes), targets.split(sizes), strict=True)]
