"""Settings for a user's own data: where it is, what to predict, and how it is split into tasks."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from metareplay.data.cells import TextFormat
from metareplay.data.columns import Decimal
from metareplay.settings import Composition, Settings
from metareplay.written_text import BYTES

BY_CLASSES = "classes:"
"""Prefix of a ``tasks_by`` that does not name a column."""


class DataSettings(Settings):
    """Everything needed to read the same data in the same way again."""

    group: ClassVar[str] = "data"
    path: str | None = Field(
        None, description="a user's own data: table, arrays, folder or hf:owner/name; null: a benchmark's data"
    )
    label: str | None = Field(None, description="column to predict; null: the one called label, target, class or y")
    tasks_by: str | None = Field(
        None,
        description="column that names the task, or classes:2 or classes:2,3,4; null: the tasks that the data name",
    )
    task_order: tuple[str, ...] | None = Field(
        None,
        description="tasks, or with classes:k the classes, in learning order; null: as they appear, classes sorted",
    )
    test_share: float = Field(
        0.2, gt=0, lt=1, description="share of each task and class kept for testing, if the data have no test set"
    )
    test_path: str | None = Field(
        None, description="file or folder of the test set; null: in the data, or chosen by test_share"
    )
    split_by: str | None = Field(
        None, description="column that says train or test; null: a test set elsewhere, or chosen by test_share"
    )
    ignore: tuple[str, ...] = Field((), description="columns that are not inputs, such as an identifier")
    text: str | None = Field(
        None,
        description="column of texts for a network with a backbone that reads them; other columns are then not inputs",
    )
    text_bytes: int = Field(BYTES, ge=1, le=100_000, description="bytes of a text that are read; the rest is cut off")
    problem: Literal["classification", "regression"] | None = Field(
        None,
        description="what the labels are; null: classes if text or few distinct integers, real-valued if not integers",
    )
    missing: Literal["refuse", "drop", "fill"] = Field(
        "refuse",
        description="missing values in a table: refuse the data, drop the row, or fill in the mean of the first task",
    )
    encoding: str | None = Field(
        None, description="encoding of CSV files, e.g. latin-1; null: UTF-8, or Latin-1 (Windows-1252) if that fails"
    )
    decimal: Decimal | None = Field(
        None, description="decimal separator in numbers such as 1,234; null: detected, and refused if both are possible"
    )
    dates: Literal["day-first", "month-first"] | None = Field(
        None, description="what 01/02/2024 means; null: detected, and refused if both are possible"
    )
    image_size: tuple[int, int] | None = Field(
        None, description="height and width to which images are resized; null: not resized"
    )
    fingerprint: str | None = Field(
        None, description="checksum of the tasks that were read; any other data are refused; null: accept any data"
    )

    @property
    def text_format(self) -> TextFormat:
        """How text files are to be read."""
        return TextFormat(self.decimal, None if self.dates is None else self.dates == "day-first", self.encoding)

    @field_validator("image_size", mode="before")
    @classmethod
    def _square(cls, value: object) -> object:
        """One number stands for both sides."""
        return (value, value) if isinstance(value, int) else value

    @field_validator("image_size")
    @classmethod
    def _positive(cls, value: tuple[int, int] | None) -> tuple[int, int] | None:
        if value is not None and min(value) < 1:
            raise ValueError("height and width must be at least 1")
        return value

    @field_validator("task_order", "ignore", mode="before")
    @classmethod
    def _words(cls, value: object) -> object:
        """Also accepts one comma-separated string, and names that look like numbers."""
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return tuple(str(part) for part in value) if isinstance(value, list | tuple) else value

    def without_effect(self, composition: Composition) -> Mapping[str, str]:
        """Settings for the user's own data, or for a benchmark's."""
        if self.path is not None:
            return {"data_dir": "your own data are read from --data"}
        if self.fingerprint is not None:
            return {}
        reason = "no data of your own are given; pass them with --data"
        return {f"data.{name}": reason for name in type(self).model_fields}
