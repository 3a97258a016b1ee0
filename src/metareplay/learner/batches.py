"""The batches that a task learns from."""

from torch import Generator

from metareplay.batches.auxiliary import AuxiliaryBatches
from metareplay.batches.base import Batches
from metareplay.batches.task import TaskBatches
from metareplay.batches.transformations import transformations_for
from metareplay.benchmarks.base import TaskData
from metareplay.errors import ConfigError
from metareplay.training.settings import TrainingSettings


def training_batches(
    training: TrainingSettings,
    data: TaskData,
    classes: int,
    input_shape: tuple[int, ...],
    *,
    order: Generator,
    other: Generator,
) -> Batches:
    """What the task learns from, with what its auxiliary outputs learn from."""
    batches = TaskBatches(data, training.batch_size, order, training.augmentation, fill=training.fill_batches)
    if not any(training.auxiliary):
        return batches
    if training.other and batches.order.batch_size < 2:
        raise ConfigError(
            "training.other mixes the examples of a batch, so a task needs at least two examples and "
            "training.batch_size at least 2; remove it, or provide more"
        )
    return AuxiliaryBatches(
        batches,
        classes,
        training.auxiliary,
        copies=training.other,
        transformations=transformations_for(
            input_shape, rotations=training.rotations, augmentation=training.augmentation
        ),
        generator=other,
    )
