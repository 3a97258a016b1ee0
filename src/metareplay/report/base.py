"""What tables, figures and page share: estimates over seeds, number formats, what each figure means."""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from metareplay.errors import DataError
from metareplay.experiments.results import Results, SquaredErrors

Number = Callable[[Results], float | None]
"""One figure of a run, None if it does not apply."""

Kind = Literal["percent", "mse", "seconds", "share"]

MISSING = "—"

VARIANCE = "variance"
"""The paper's criterion for regression."""


def tinfer(criterion: str) -> Number:
    """Accuracy after the last task, with the task inferred."""
    return lambda results: (results.tinfer_final or {}).get(criterion)


def batch_wise(criterion: str) -> Number:
    """The same when the task is inferred for batches of inputs."""
    return lambda results: (results.batch_wise or {}).get(criterion)


def right_task(criterion: str) -> Number:
    """Share of inputs assigned to the right task."""
    return lambda results: (results.task_inference_accuracy or {}).get(criterion)


def right_label(criterion: str) -> Number:
    """Share of right labels, whichever task they came from; only where tasks share labels."""
    return lambda results: (results.label_accuracy or {}).get(criterion)


def inferred_error(criterion: str) -> Number:
    """Squared error after the last task, with the task inferred; earlier versions stored it by variance alone."""

    def number(results: Results) -> float | None:
        errors = results.mse or SquaredErrors()
        if errors.tinfer_by_criterion is not None:
            return errors.tinfer_by_criterion.get(criterion)
        return errors.tinfer_final if criterion == VARIANCE else None

    return number


def training_seconds(results: Results) -> float | None:
    """Training time of all tasks."""
    return None if results.seconds is None else results.seconds.train


KEPT = "examples, importances of weights or a model that replays"
"""What a method may keep besides what it trains."""


class Measure(NamedTuple):
    """A figure of a run: how to get it, its label in plain words, its format, its meaning, the paper's name for it."""

    number: Number
    label: str
    kind: Kind
    meaning: str
    higher_is_better: bool = True
    gloss: str = ""


TASK_GIVEN = (
    Measure(
        lambda results: results.tgiven_during,
        "Task known, when learned",
        "percent",
        "Accuracy on each task right after learning it, with the task known.",
        gloss="TGiven-During",
    ),
    Measure(
        lambda results: results.tgiven_final,
        "Task known",
        "percent",
        "Accuracy on all tasks after the last one, with the task known.",
        gloss="TGiven-Final",
    ),
    Measure(
        lambda results: results.forgetting,
        "Forgetting",
        "percent",
        "Accuracy on earlier tasks lost by the end, in percentage points; 0 is best.",
        False,
    ),
    Measure(
        lambda results: results.backward_transfer,
        "Backward transfer",
        "percent",
        "Change in accuracy on earlier tasks due to later ones, in percentage points.",
    ),
)
CALIBRATION = Measure(
    lambda results: results.calibration_error,
    "Calibration error",
    "percent",
    "Mean gap between confidence and accuracy, task known (15 bins); 0 is best.",
    False,
    "ECE",
)
MSE = (
    Measure(
        lambda results: (results.mse or SquaredErrors()).tgiven_during,
        "MSE, task known, when learned",
        "mse",
        "Squared error on each task right after learning it, task known.",
        False,
        "MSE TGiven-During",
    ),
    Measure(
        lambda results: (results.mse or SquaredErrors()).tgiven_final,
        "MSE, task known",
        "mse",
        "Squared error on all tasks after the last one, task known.",
        False,
        "MSE TGiven-Final",
    ),
    Measure(
        inferred_error(VARIANCE),
        "MSE, task inferred",
        "mse",
        "Squared error after the last task, with the task inferred.",
        False,
        "MSE TInfer-Final",
    ),
)
"""As the paper defines them: the task is inferred by variance."""


def root(number: Number) -> Number:
    """The root of a squared error, in the units of the targets."""
    return lambda results: None if (error := number(results)) is None else math.sqrt(error)


def explained(number: Number) -> Number:
    """R²: the share of the targets' variance, over all tasks, that a squared error leaves explained."""

    def share(results: Results) -> float | None:
        error, variance = number(results), results.chance.inferred if results.chance else None
        return None if error is None or not variance else 1.0 - error / variance

    return share


RMSE = tuple(
    measure._replace(
        number=root(measure.number),
        label=measure.label.replace("MSE", "RMSE"),
        meaning=measure.meaning.replace("Squared error", "Root mean squared error, in the units of the targets,"),
        gloss=f"root of {measure.gloss}",
    )
    for measure in MSE
)


class Estimate(NamedTuple):
    """Mean over seeds, its standard error (sample standard deviation over sqrt(n); None for one seed), and n."""

    mean: float
    standard_error: float | None
    n: int


def estimate(runs: Sequence[Results], number: Number) -> Estimate | None:
    """Mean and standard error of one figure over the runs that have it, None if no run has it."""
    return estimate_of([value for run in runs if (value := number(run)) is not None])


def estimate_of(numbers: Sequence[float]) -> Estimate | None:
    """Mean and standard error of the finite numbers, None if there are none."""
    values = [float(value) for value in numbers if math.isfinite(value)]
    n = len(values)
    if n == 0:
        return None
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, None, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    return Estimate(mean, math.sqrt(variance / n), n)


def show_number(value: float, kind: Kind) -> str:
    """A number as tables show it: percentages with two decimals, errors with three digits, seconds with one decimal."""
    if kind == "mse":
        return _three_digits(value)
    if kind == "share":
        return f"{value:.3f}"
    text = f"{value:.1f}" if kind == "seconds" else f"{value:.2f}"
    return text[1:] if float(text) == 0 and text.startswith("-") else text


def _three_digits(value: float) -> str:
    if not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3g}"
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.{max(0, 2 - math.floor(math.log10(abs(rounded))))}f}"


def show(value: Estimate | None, kind: Kind) -> str:
    """An estimate as tables show it, e.g. ``99.70 ± 0.02``."""
    if value is None:
        return MISSING
    mean, error = mean_and_error(value, kind)
    return f"{mean} ± {error}" if error else mean


def mean_and_error(value: Estimate, kind: Kind) -> tuple[str, str]:
    """Both parts of an estimate with the same number of decimals; the second is empty if there is no standard error."""
    if value.standard_error is None:
        return show_number(value.mean, kind), ""
    if kind == "mse" and 1e-5 < abs(value.mean) < 1e5:
        decimals = max(0, 2 - math.floor(math.log10(abs(value.mean))))  # three digits of the mean
        return f"{value.mean:.{decimals}f}", f"{value.standard_error:.{decimals}f}"
    return show_number(value.mean, kind), show_number(value.standard_error, kind)


def show_duration(seconds: float) -> str:
    """A human-readable duration, e.g. ``1 h 2 min``."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def show_bytes(size: float) -> str:
    """A human-readable size, e.g. ``95 KiB``."""
    return f"{size / 1024:.0f} KiB" if size < 2**20 else f"{size / 2**20:.1f} MiB"


def task_names(results: Results) -> list[str]:
    """The names of the tasks, or their numbers if the run did not name them."""
    names = results.task_names
    return [names[i] if i < len(names) else str(i + 1) for i in range(results.num_tasks)]


def fine_tuned_row(runs: Sequence[Results]) -> NDArray[np.float64] | None:
    """The mean over seeds of all tasks' scores after fine-tuning on coresets, (T,); None if there was none."""
    rows = [run.tgiven_fine_tuned for run in runs if run.tgiven_fine_tuned]
    return np.array(rows, dtype=np.float64).mean(axis=0) if rows else None  # (seeds, T) -> (T,)


def mean_by_task(rows: Sequence[Sequence[float]], tasks: int) -> NDArray[np.float64] | None:
    """The mean over seeds of a figure by task, (T,); None if no seed has it for all tasks."""
    whole = [row for row in rows if len(row) == tasks]
    return np.array(whole, dtype=np.float64).mean(axis=0) if whole else None  # (seeds, T) -> (T,)


Matrix = Sequence[Sequence[float | None]]


def mean_matrix(matrices: Sequence[Matrix | None], tasks: int) -> NDArray[np.float64] | None:
    """The mean over seeds of (triangular) task matrices: (T, T), NaN where unknown; None if no seed has one."""
    padded = []
    for matrix in matrices:
        if not matrix:
            continue
        square = np.full((tasks, tasks), np.nan)
        for i, row in enumerate(matrix):
            if i >= tasks or len(row) > tasks:
                words = f"a matrix in results.json is larger than the {tasks} tasks of the run"
                raise DataError(f"{words}; repeat the run to write it again")
            square[i, : len(row)] = [np.nan if value is None else value for value in row]
        padded.append(square)
    return np.stack(padded).mean(axis=0) if padded else None  # (seeds, T, T) -> (T, T)
