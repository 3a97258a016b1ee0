"""The figures of continual learning in ``results.json``."""

from pydantic import BaseModel, ConfigDict

FROZEN = ConfigDict(frozen=True, extra="ignore")
"""Of every part of the results; fields that later versions may add are ignored."""


class DuringTask(BaseModel):
    """Old tasks' scores at a step of a later task."""

    model_config = FROZEN

    task: int
    step: int
    scores: list[float]


class ContinualFigures(BaseModel):
    """What continual learning is measured by besides; percentages, or squared errors where the name allows them."""

    model_config = FROZEN

    average_incremental: float | None = None
    """The mean over tasks of the mean score of all tasks so far, with the task given."""
    average_incremental_inferred: float | None = None
    forgetting_inferred: float | None = None
    """With the task inferred, on the tracked test inputs."""
    backward_transfer_inferred: float | None = None
    forward_transfer: float | None = None
    """How much better than by chance tasks are answered before they are learned."""
    intransigence: float | None = None
    """How much better a model trained on all tasks answers each, its classes given, than this one just after it."""
    joint: str | None = None
    """Which model that is."""
    minimum_accuracy: float | None = None
    """The mean over old tasks of the lowest accuracy that each had while later tasks were learned."""
    stability_gap: float | None = None
    """How far old tasks fall during a task below what they had before it, on average."""
    calibration_error_by_task: list[float] = []
    """With the task given, in percent."""
    nll_by_task: list[float] = []
    """Mean negative log-probability of the right class, with the task given."""
    model_bytes: list[int] = []
    """The size of the stored model after each task."""
    inferred_matrix: list[list[float]] = []
    """As ``tgiven_matrix``, with the task inferred by default, on the tracked test inputs."""
    inferred_fine_tuned: list[float] | None = None
    """The same after fine-tuning on coresets; the figures at the end are then of these."""
    during: list[DuringTask] = []
    test_inputs: int | None = None
    """Test inputs of each task that were tracked."""
    test_every: int | None = None
    """Steps of a task between two tests of the old ones."""
