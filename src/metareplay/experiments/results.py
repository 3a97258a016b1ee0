"""The contents of ``results.json``, typed (schema 1). Percentages as in the paper; None where not applicable."""

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from metareplay.benchmarks.base import Problem
from metareplay.errors import DataError

SCHEMA = 1
FILE = "results.json"


class _Record(BaseModel):
    """A part of the results: frozen; fields that later versions may add are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class SquaredErrors(_Record):
    """Mean squared errors of a regression."""

    tgiven_during: float | None = None
    tgiven_final: float | None = None
    tinfer_final: float | None = None
    """By the default criterion."""
    tinfer_by_criterion: dict[str, float] | None = None


class FinalFigures(_Record):
    """The final figures of a run, or those before its posteriors were fine-tuned on coresets."""

    tgiven_final: float | None = None
    """Accuracy on all tasks after the last one, with the task known."""
    tinfer_final: dict[str, float | None] | None = None
    """The same with the task inferred, by criterion."""
    batch_wise: dict[str, float | None] | None = None
    """The same when the task is inferred for batches of inputs."""
    mse: SquaredErrors | None = None
    """Errors instead of accuracies, for regression."""


class ParameterCounts(_Record):
    """Numbers of parameters."""

    main_network: int | None = None
    posterior: int | None = None
    """Of one task's posterior."""
    trained: int | None = None
    per_task: int | None = None
    """Added by each further task."""
    statistics: int | None = None
    """Running statistics of batch normalisation, per task."""


class TaskProbabilities(_Record):
    """How far the probabilities of inferred tasks can be relied on."""

    calibration_error: float | None = None
    """Expected calibration error over all test inputs, in percent."""
    calibration_error_by_task: list[float] = []
    brier_by_task: list[float] = []


class UnknownInputs(_Record):
    """Whether inputs that belong to no task are recognised."""

    false_rejections: list[float] = []
    """Test inputs of each task that were taken for unknown, in percent."""
    auroc: dict[str, float] = {}
    """Test inputs against strangers made from them, by kind."""


class StatisticsFigures(_Record):
    """What is stored about the tasks."""

    bytes_by_task: list[int] = []
    drift: list[dict[str, list[float]]] = []
    """Of each task's network, by layer: how far features moved in all, and what the maps that follow them left open,
    both as shares of their variance; empty where the network is not followed."""


class TaskWarning(_Record):
    """What went wrong with a task, and what to try."""

    task: str
    """Its name."""
    kind: str
    """``jump`` (of the loss), ``flat`` (a loss that does not fall) or ``chance`` (answers no better than guesses)."""
    text: str


class Environment(BaseModel):
    """The software and hardware of a run."""

    model_config = ConfigDict(frozen=True, extra="allow")

    metareplay: str | None = None
    python: str | None = None
    torch: str | None = None
    platform: str | None = None
    processor: str | None = None
    threads: int | None = None


class Seconds(_Record):
    """Time spent."""

    train: float | None = None
    evaluate: float | None = None


class BoundaryThresholds(_Record):
    """Which thresholds on one signal detect task boundaries (``evaluation.boundaries.Thresholds``)."""

    at_boundaries: float
    elsewhere: float
    lowest: float
    highest: float
    viable_share: float | None = None


class Results(_Record):
    """The results of a finished run."""

    schema_version: Literal[1] = Field(1, alias="schema")
    benchmark: str
    method: str
    network: str
    scenario: str | None = None
    problem: Problem = "classification"
    seed: int
    num_tasks: int = Field(ge=1)
    task_names: list[str] = []
    tgiven_during: float | None = None
    """Accuracy on each task right after learning it, with the task known."""
    tgiven_final: float | None = None
    forgetting: float | None = None
    backward_transfer: float | None = None
    tinfer_final: dict[str, float | None] | None = None
    batch_wise: dict[str, float | None] | None = None
    mse: SquaredErrors | None = None
    task_inference_accuracy: dict[str, float | None] | None = None
    """Share of inputs assigned to the right task, by criterion."""
    calibration_error: float | None = None
    batch_wise_size: int | None = None
    tgiven_matrix: list[list[float | None]] | None = None
    """Row: after which task; column: which task."""
    tgiven_fine_tuned: list[float] | None = None
    before_fine_tuning: FinalFigures | None = None
    task_confusion: dict[str, list[list[float]]] | None = None
    """By criterion; row: the true task, column: how often each task was inferred, in percent."""
    default_criterion: str | None = None
    """How a task is inferred unless a criterion is named."""
    task_probabilities: TaskProbabilities | None = None
    unknown: UnknownInputs | None = None
    statistics: StatisticsFigures | None = None
    parameters: ParameterCounts | None = None
    warnings: list[TaskWarning] = []
    environment: Environment | None = None
    seconds: Seconds | None = None
    peak_memory_mib: float | None = None
    task_boundaries: dict[str, BoundaryThresholds] | None = None
    """By signal; in the file only if the run recorded them."""

    @property
    def regression(self) -> bool:
        """Whether there are errors instead of accuracies."""
        return self.problem == "regression"

    def final_figures(self) -> FinalFigures:
        """The figures at the end of the run."""
        return FinalFigures(
            tgiven_final=self.tgiven_final, tinfer_final=self.tinfer_final, batch_wise=self.batch_wise, mse=self.mse
        )

    def content(self) -> dict[str, Any]:
        """Plain values, as ``results.json`` holds them."""
        optional = {"task_boundaries"} - self.model_fields_set
        return self.model_dump(by_alias=True, exclude=optional)


_REQUIRED = tuple(name for name, entry in Results.model_fields.items() if entry.is_required())


def read_results(path: Path) -> Results:
    """Read and check a run's ``results.json``."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise DataError(f"{path} is not valid JSON ({error}); repeat the run to write it again") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}); repeat the run to write it again") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise DataError(
            f"{path} does not have schema {SCHEMA}, the only one that this version of metareplay reads; repeat the run"
        )
    if missing := [key for key in _REQUIRED if content.get(key) is None]:
        raise DataError(
            f"{path} lacks {', '.join(missing)}, which every finished run has; repeat the run to write it again"
        )
    # null means absent
    known = {key: value for key, value in content.items() if value is not None or key == "task_boundaries"}
    try:
        return Results.model_validate(known)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        message = f"{first['msg'][0].lower()}{first['msg'][1:]}"
        raise DataError(f"{path} is damaged: {where}: {message}; repeat the run to write it again") from error
