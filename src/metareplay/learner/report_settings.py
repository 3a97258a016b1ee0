"""Settings of what a run reports besides its own figures."""

from typing import ClassVar

from pydantic import Field, model_validator

from metareplay.settings import Settings


class ReportSettings(Settings):
    """What a run adds to its results; nothing of it changes the model."""

    group: ClassVar[str] = "report"

    references: bool = Field(
        True,
        description="train two scikit-learn models alongside a run, on all tasks at once and on the last task alone, "
        "as baselines for its figures; takes seconds, on at most 5,000 rows",
    )
    test_during: int | None = Field(
        None,
        ge=1,
        description="test inputs of each task for figures that are measured while tasks are learned: all tasks with "
        "the task inferred after each, and a task before its training; null: not measured",
    )
    test_every: int | None = Field(
        None,
        ge=1,
        description="training steps between two tests of the old tasks during a new one, for the stability gap; needs "
        "test_during; null: none",
    )
    joint: str | None = Field(
        None,
        description="folder of a finished run of the method joint on the same tasks, for the intransigence; null: the "
        "simple model of all tasks, if it was trained",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "ReportSettings":
        if self.test_every is not None and self.test_during is None:
            raise ValueError("test_every needs test_during, the number of test inputs")
        return self
