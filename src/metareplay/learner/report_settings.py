"""Settings of what a run reports beside its own figures."""

from typing import ClassVar

from pydantic import Field

from metareplay.settings import Settings


class ReportSettings(Settings):
    """What a run adds to its results; nothing of it changes the model."""

    group: ClassVar[str] = "report"

    references: bool = Field(
        True,
        description="train two scikit-learn models beside a run, of all tasks at once and of the last task alone, to "
        "compare its figures with; takes seconds, on at most 5,000 rows",
    )
