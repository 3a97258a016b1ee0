"""The contents of ``results.json``, typed (schema 1). Percentages as in the paper; None where not applicable."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from metareplay.benchmarks.base import Problem
from metareplay.errors import DataError
from metareplay.experiments.continual_record import FROZEN, ContinualFigures
from metareplay.experiments.result_sizes import MOST_TASKS, wrong_size
from metareplay.texts import read_json_file

SCHEMA = 1
FILE = "results.json"


class _Record(BaseModel):
    """A part of the results."""

    model_config = FROZEN


class SquaredErrors(_Record):
    """Mean squared errors of a regression."""

    tgiven_during: float | None = None
    tgiven_final: float | None = None
    tinfer_final: float | None = None
    """By the default criterion."""
    tinfer_by_criterion: dict[str, float] | None = None
    """That by the default criterion is of answers that mix all probable tasks, if answers are calibrated."""


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
    kept: int | None = None
    """What the method keeps besides: examples, importances of weights, a model that replays."""


class TaskProbabilities(_Record):
    """How far the probabilities of inferred tasks can be relied on."""

    calibration_error: float | None = None
    """Expected calibration error over all test inputs, in percent."""
    calibration_error_by_task: list[float] = []
    """By true task, in results of earlier versions; not shown: where tasks are alike, perfect probabilities have it."""
    brier_by_task: list[float] = []


class UnknownInputs(_Record):
    """Whether inputs that belong to no task are recognised."""

    false_rejections: list[float] = []
    """Test inputs of each task that were taken for unknown, in percent."""
    auroc: dict[str, float] = {}
    """Test inputs against unknown inputs made from them, by kind."""


class AnswerFigures(_Record):
    """How good the answers themselves are, as a user gets them, with the task inferred unless a name says otherwise."""

    label_accuracy: float | None = None
    """Right labels, whatever the task, in percent."""
    calibration_error: float | None = None
    """Of the probabilities of labels, in percent."""
    rmse_given: float | None = None
    """Root mean squared error of a regression, with the task given."""
    r2_given: float | None = None
    coverage_given: float | None = None
    """Targets within their intervals, with the task given, in percent."""
    rmse: float | None = None
    r2: float | None = None
    coverage: float | None = None
    rows: int | None = None
    """Test inputs, over all tasks."""


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


class Reference(_Record):
    """A simple model that was trained alongside the run, as a baseline."""

    model: str
    """Which one, in words."""
    score: float
    """Accuracy on all tasks in percent, or mean squared error; the model is never told the task."""
    known: float | None = None
    """Accuracy if its answer has to be one of the task's own classes."""
    by_task: list[float] = []
    rows: int
    """Training rows used,"""
    of_rows: int
    """of how many."""


class References(_Record):
    """What simple models reach on the same test inputs."""

    joint: Reference | None = None
    """Trained on all tasks' data at once."""
    last_task: Reference | None = None
    """Trained on the last task's data alone."""


class Chance(_Record):
    """What a constant answer reaches: accuracy of the most frequent label in percent, or variance of the targets."""

    known: float | None = None
    """The most frequent label, or the mean target, of the input's own task."""
    inferred: float | None = None
    """Of all tasks together."""
    by_task: list[float] = []


class LabelFigures(_Record):
    """Which label was taken for which."""

    labels: list[str] = []
    confusion: list[list[int]] = []
    """Row: the true label, column: the answer; numbers of test inputs. The task is inferred by the default."""
    task_known: bool = False
    """Whether the task was given, because it is known at test time."""


class Environment(BaseModel):
    """The software and hardware of a run."""

    model_config = ConfigDict(frozen=True, extra="allow")

    metareplay: str | None = None
    revision: str | None = None
    """Of a clone; ends with ``-dirty`` if files were changed."""
    python: str | None = None
    torch: str | None = None
    platform: str | None = None
    processor: str | None = None
    threads: int | None = None


class Seconds(_Record):
    """Time spent."""

    train: float | None = None
    evaluate: float | None = None
    by_task: list[float] = []
    """From the beginning of each task to what was kept of it, tests excluded."""


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
    num_tasks: int = Field(ge=1, le=MOST_TASKS)
    task_names: list[str] = []
    tgiven_during: float | None = None
    """Accuracy on each task right after learning it, with the task known."""
    tgiven_final: float | None = None
    """The same for all tasks after the last one."""
    forgetting: float | None = None
    """The first less the second."""
    backward_transfer: float | None = None
    """Mean over all tasks but the last of the final score less that right after learning."""
    tinfer_final: dict[str, float | None] | None = None
    """Accuracy on all tasks with the task inferred, by criterion; ``softmax`` where one spans all tasks."""
    batch_wise: dict[str, float | None] | None = None
    """The same with one task for every ``batch_wise_size`` successive inputs."""
    mse: SquaredErrors | None = None
    task_inference_accuracy: dict[str, float | None] | None = None
    """Share of inputs assigned to the right task, by criterion."""
    label_accuracy: dict[str, float | None] | None = None
    """Share of right labels, whichever task they came from, by criterion; only where tasks share labels. That by the
    default criterion is of answers that mix all probable tasks."""
    calibration_error: float | None = None
    """Of probabilities with the task known."""
    batch_wise_size: int | None = None
    tgiven_matrix: list[list[float | None]] | None = None
    """Row: after which task; column: which task."""
    tgiven_fine_tuned: list[float] | None = None
    """Each task after fine-tuning on coresets; all final figures are then those after it."""
    before_fine_tuning: FinalFigures | None = None
    """Final figures as they were before fine-tuning on coresets."""
    task_confusion: dict[str, list[list[float]]] | None = None
    """By criterion; row: the true task, column: how often each task was inferred, in percent."""
    default_criterion: str | None = None
    """How a task is inferred unless a criterion is named."""
    answers: AnswerFigures | None = None
    task_probabilities: TaskProbabilities | None = None
    unknown: UnknownInputs | None = None
    statistics: StatisticsFigures | None = None
    continual: ContinualFigures | None = None
    labels: LabelFigures | None = None
    chance: Chance | None = None
    references: References | None = None
    """None if they were switched off (``report.references``)."""
    parameters: ParameterCounts | None = None
    warnings: list[TaskWarning] = []
    environment: Environment | None = None
    seconds: Seconds | None = None
    peak_memory_mib: float | None = None
    task_boundaries: dict[str, BoundaryThresholds] | None = None
    """By signal; in the file only if the run recorded them."""

    @model_validator(mode="after")
    def _consistent(self) -> "Results":
        if (problem := wrong_size(self)) is not None:
            raise ValueError(problem)
        return self

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
        content = read_json_file(path)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}; repeat the run to write it again"
        ) from error
    except ValueError as error:
        raise DataError(f"{path} is not valid JSON ({error}); repeat the run to write it again") from error
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
        words = f"{path} is damaged: {first_problem(error)}"
        raise DataError(f"{words}; repeat the run to write it again") from error


def first_problem(error: ValidationError) -> str:
    """The first field that is wrong, and why."""
    first = error.errors()[0]
    where, message = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return f"{where}: {message[0].lower()}{message[1:]}" if where else message
