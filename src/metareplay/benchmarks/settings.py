"""Task settings: how a labelled data set becomes a stream of tasks."""

from typing import ClassVar, Literal

from pydantic import Field

from metareplay.benchmarks.base import Scenario
from metareplay.settings import Settings

ClassOrder = Literal["ascending", "seeded", "hardest", "median", "easiest"] | tuple[int, ...]
"""Classes in ascending order, in an order drawn by the data seed, by similarity (``class_orders.py``), or as listed."""


class TaskSettings(Settings):
    """How a benchmark's data is split into tasks."""

    group: ClassVar[str] = "tasks"
    scenario: Scenario | None = Field(None, description="task, domain or class; null: the benchmark's default")
    classes_per_task: int | None = Field(
        None, ge=2, description="classes in each task of a split data set; null: the benchmark's default"
    )
    class_order: ClassOrder = Field(
        "ascending",
        description="classes of a split data set: ascending, seeded (by data_seed), a list, or the hardest, median or "
        "easiest of many orders drawn by data_seed: an order is hard if classes of different tasks look alike",
    )
    padding: int = Field(
        0, ge=0, le=64, description="zero pixels on each side of an image before its pixels are permuted"
    )
    first_unpermuted: bool = Field(
        False, description="the first task of permuted images leaves them unpermuted, as in the published runs"
    )
    pixel_scaling: Literal["data", "imagenet"] = Field(
        "data",
        description="colours are standardised by the training images' mean and deviation, or by those of ImageNet, as "
        "in the published runs (CIFAR)",
    )
    first: int | None = Field(None, ge=1, description="learn only this many tasks, the first ones; null: all")
    validation: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of each task's training examples that is held out and tested in place of the test set, "
        "which is then not used: for choosing settings; 0: the test set",
    )


DEFAULT_TASKS = TaskSettings()
"""Every benchmark's default."""
