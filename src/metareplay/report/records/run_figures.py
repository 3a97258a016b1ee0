"""The figures of a run, by the names under which tables ask for them."""

from collections.abc import Mapping

from metareplay.experiments.continual_record import ContinualFigures
from metareplay.experiments.results import (
    AnswerFigures,
    Chance,
    ParameterCounts,
    References,
    Results,
    Seconds,
    SquaredErrors,
    TaskProbabilities,
    UnknownInputs,
)
from metareplay.report.base import VARIANCE, inferred_error
from metareplay.report.records.base import Figure
from metareplay.report.runs import FinishedRun

PERCENT, DIGITS = "%", 6
"""Figures are rounded to as many digits."""


def figures_of(run: FinishedRun) -> dict[str, Figure]:
    """All figures of a run; accuracies with the number of test inputs that they are of."""
    results, inputs = run.results, _test_inputs(run)
    tested = {**_errors(results), **_given(results), **_by_criterion(results), **_answers(results)}
    figures = {key: Figure(value=_rounded(value), unit=unit, inputs=inputs) for key, (value, unit) in tested.items()}
    return figures | {key: Figure(value=_rounded(value), unit=unit) for key, (value, unit) in _sizes(results).items()}


Numbers = dict[str, tuple[float, str]]


def _known(numbers: Mapping[str, float | None], unit: str) -> Numbers:
    return {key: (float(value), unit) for key, value in numbers.items() if value is not None}


def _given(results: Results) -> Numbers:
    if results.regression:
        return {}
    names = ("tgiven_during", "tgiven_final", "forgetting", "backward_transfer", "calibration_error")
    before = results.before_fine_tuning
    earlier = _known({"before_fine_tuning.tgiven_final": before.tgiven_final}, PERCENT) if before else {}
    return _known({name: getattr(results, name) for name in names}, PERCENT) | earlier | _continual(results)


def _continual(results: Results) -> Numbers:
    """Figures of continual learning; those that were tracked are of a few test inputs."""
    found = results.continual or ContinualFigures()
    inferred = ("average_incremental_inferred", "forgetting_inferred", "backward_transfer_inferred")
    names = ("average_incremental", *inferred, "forward_transfer", "intransigence", "minimum_accuracy", "stability_gap")
    return _known({f"continual.{name}": getattr(found, name) for name in names}, PERCENT)


def _errors(results: Results) -> Numbers:
    """Squared errors have the names of accuracies: a run has the ones or the others."""
    if not results.regression:
        return {}
    errors = results.mse or SquaredErrors()
    named = {"tgiven_during": errors.tgiven_during, "tgiven_final": errors.tgiven_final}
    by_criterion = {f"tinfer_final.{key}": value for key, value in (errors.tinfer_by_criterion or {}).items()}
    return _known({**named, "tinfer_final": inferred_error(VARIANCE)(results), **by_criterion}, "mse")


def _by_criterion(results: Results) -> Numbers:
    """The criterion's name alone is the accuracy with the task inferred by it."""
    groups: dict[str, Mapping[str, float | None]] = {"right_task.": results.task_inference_accuracy or {}}
    if not results.regression:
        groups |= {
            "": results.tinfer_final or {},
            "batch_wise.": results.batch_wise or {},
            "label.": results.label_accuracy or {},
        }
        if results.before_fine_tuning is not None:
            groups["before_fine_tuning."] = results.before_fine_tuning.tinfer_final or {}
    return _known({f"{group}{key}": value for group, found in groups.items() for key, value in found.items()}, PERCENT)


def _answers(results: Results) -> Numbers:
    answers, unknown = results.answers or AnswerFigures(), results.unknown or UnknownInputs()
    shares = {
        "answers.label_accuracy": answers.label_accuracy,
        "answers.calibration_error": answers.calibration_error,
        "answers.coverage_given": answers.coverage_given,
        "answers.coverage": answers.coverage,
        "task_probabilities.calibration_error": (results.task_probabilities or TaskProbabilities()).calibration_error,
        "false_rejections": _mean(unknown.false_rejections),
    }
    plain = {"answers.r2_given": answers.r2_given, "answers.r2": answers.r2}
    plain |= {f"auroc.{kind}": value for kind, value in unknown.auroc.items()}
    boundaries = {f"boundary_{signal}": found.viable_share for signal, found in (results.task_boundaries or {}).items()}
    return _known(shares, PERCENT) | _known(plain, "") | _known(boundaries, PERCENT) | _yardsticks(results)


def _yardsticks(results: Results) -> Numbers:
    """What simple models and guessing reach on the same test inputs."""
    found, chance = results.references or References(), results.chance or Chance()
    named = {"chance.given": chance.known, "chance.inferred": chance.inferred}
    named |= {f"reference.{kind}": one.score for kind in ("joint", "last_task") if (one := getattr(found, kind))}
    return _known(named, "mse" if results.regression else PERCENT)


def _sizes(results: Results) -> Numbers:
    counts, seconds = results.parameters or ParameterCounts(), results.seconds or Seconds()
    named = {"parameters.network": counts.main_network, "parameters.posterior": counts.posterior}
    named |= {"parameters.trained": counts.trained, "parameters.per_task": counts.per_task}
    times = {"seconds.train": seconds.train, "seconds.test": seconds.evaluate}
    if seconds.train is not None and seconds.evaluate is not None:
        times["seconds.all"] = seconds.train + seconds.evaluate
    return _known(named, "") | _known(times, "s") | _known({"memory": results.peak_memory_mib}, "MiB")


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _rounded(value: float) -> float:
    return float(f"{round(value, 9):.{DIGITS}g}")


def _test_inputs(run: FinishedRun) -> int | None:
    """How many test inputs there were in all, if the run stored their confidences."""
    bins = (run.uncertainty() or {}).get("reliability")
    return None if bins is None else round(float(bins[:, 0].sum()))  # (T, 3, bins) -> all inputs
