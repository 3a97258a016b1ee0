"""From a run's measurements to its results."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from metareplay.benchmarks.base import Problem
from metareplay.evaluation.answers import AnswerQuality
from metareplay.evaluation.assess import Assessment
from metareplay.evaluation.evaluate import Inference, backward_transfer, during, final
from metareplay.evaluation.uncertainty import EDGES
from metareplay.experiments.plan import Plan
from metareplay.experiments.results import (
    AnswerFigures,
    Environment,
    FinalFigures,
    ParameterCounts,
    Results,
    SquaredErrors,
    StatisticsFigures,
    TaskProbabilities,
    TaskWarning,
    UnknownInputs,
)
from metareplay.experiments.revision import revision
from metareplay.experiments.state import RunState
from metareplay.inference.criteria import CRITERIA, criteria_for
from metareplay.inference.predictor import AnyPredictor
from metareplay.learner.learner import ContinualLearner
from metareplay.strategies.base import CURRENT
from metareplay.version import __version__


def results_of(
    plan: Plan,
    state: RunState,
    inferred: Mapping[str, Inference],
    *,
    softmax: float | None,
    predictor: AnyPredictor,
) -> Results:
    """All figures but time and memory; ``softmax`` is the accuracy of one softmax over all tasks."""
    default = predictor.default_criterion if inferred else None
    benchmark, config = plan.benchmark, plan.config
    return Results(
        benchmark=benchmark.name,
        method=config.method,
        network=config.network,
        scenario=benchmark.scenario.value,
        problem=benchmark.problem,
        seed=config.seed,
        num_tasks=len(benchmark),
        task_names=[task.name for task in benchmark.task_infos()],
        **_final_figures(benchmark.problem, state.matrix, state.tuned, inferred, softmax, default),
        default_criterion=default,
        statistics=_statistics(predictor),
        task_inference_accuracy={name: result.right_task for name, result in inferred.items()},
        label_accuracy=_label_accuracy(inferred),
        calibration_error=state.calibration_error(),
        batch_wise_size=config.inference.batch_wise,
        tgiven_matrix=[list[float | None](row) for row in state.matrix],
        tgiven_fine_tuned=state.tuned,
        before_fine_tuning=None if state.before is None else FinalFigures.model_validate(state.before),
        task_confusion={name: result.confusion for name, result in inferred.items()},
        parameters=ParameterCounts.model_validate(predictor.model.parameter_counts()),
        warnings=[TaskWarning.model_validate(warning) for warning in state.warnings],
        environment=environment(config.threads),
    )


def with_kept(results: Results, learner: ContinualLearner) -> Results:
    """With the number of values that the strategy, or prior matching, needs for later tasks."""
    lasting = [tensor for name, tensor in learner.strategy.state().items() if not name.startswith(CURRENT)]
    kept = sum(tensor.numel() for tensor in (*lasting, *learner.handed_on.values()))
    counts = results.parameters or ParameterCounts()
    return results.model_copy(update={"parameters": counts.model_copy(update={"kept": kept})})


def _final_figures(
    problem: Problem,
    matrix: list[list[float]],
    tuned: Sequence[float] | None,
    inferred: Mapping[str, Inference],
    softmax: float | None,
    default: str | None,
) -> dict[str, Any]:
    """From the scores after each task, those after fine-tuning, and each criterion's results."""
    last = matrix if tuned is None else [*matrix[:-1], list(tuned)]  # the last row holds the final scores
    if problem == "regression":
        scores = {name: result.score for name, result in inferred.items()}
        return {
            "mse": SquaredErrors(
                tgiven_during=during(matrix),
                tgiven_final=final(last),
                tinfer_final=None if default is None else scores.get(default),
                tinfer_by_criterion=scores or None,
            )
        }
    accuracy = {
        "tgiven_during": during(matrix),
        "tgiven_final": final(last),
        "forgetting": during(matrix) - final(last),
    }
    names = list(dict.fromkeys([*(criterion.name for criterion in criteria_for(problem)), *inferred]))
    by_criterion: dict[str, float | None] = {name: inferred[name].score if name in inferred else None for name in names}
    return {
        **accuracy,
        "backward_transfer": backward_transfer(last),
        "tinfer_final": by_criterion if softmax is None else {**by_criterion, "softmax": softmax},
        "batch_wise": {name: inferred[name].batch_wise if name in inferred else None for name in names},
    }


def _statistics(predictor: AnyPredictor) -> StatisticsFigures | None:
    keeper = predictor.keeper
    if not keeper.available:
        return None
    drift = [{layer: list(shares) for layer, shares in of_task.items()} for of_task in keeper.drift()]
    return StatisticsFigures(bytes_by_task=keeper.sizes(), drift=drift)


def _label_accuracy(inferred: Mapping[str, Inference]) -> dict[str, float | None] | None:
    scores = {name: result.label_score for name, result in inferred.items()}
    return scores if any(score is not None for score in scores.values()) else None


def answered(results: Results, quality: AnswerQuality | None) -> Results:
    """With the quality of answers, whose accuracy of labels, or squared error, is that of the default criterion."""
    if quality is None:
        return results
    labels, errors, default = results.label_accuracy, results.mse, results.default_criterion
    if labels is not None and default is not None:
        labels = {**labels, default: quality.label_accuracy}
    if errors is not None and default is not None and quality.rmse is not None:
        squared = quality.rmse**2
        by_criterion = {**(errors.tinfer_by_criterion or {}), default: squared}
        errors = errors.model_copy(update={"tinfer_final": squared, "tinfer_by_criterion": by_criterion})
    return results.model_copy(
        update={"answers": AnswerFigures(**asdict(quality)), "label_accuracy": labels, "mse": errors}
    )


def assessed(results: Results, assessment: Assessment | None) -> Results:
    """With what was found about the tasks' probabilities and about unknown inputs."""
    if assessment is None:
        return results
    probabilities = (
        None
        if assessment.calibration_error is None
        else TaskProbabilities(
            calibration_error=assessment.calibration_error,
            brier_by_task=assessment.brier or [],
        )
    )
    unknown = UnknownInputs(false_rejections=assessment.false_rejections, auroc=assessment.auroc)
    return results.model_copy(update={"task_probabilities": probabilities, "unknown": unknown})


def uncertainty_tensors(
    state: RunState, inferred: Mapping[str, Inference], assessment: Assessment | None = None
) -> dict[str, Tensor]:
    """For figures of uncertainty: binned scores by criterion (2, T, bins), each task's reliability (T, 3, bins).

    And strangeness, of test inputs and of unknown inputs (bins,).
    """
    # other scores are only relative
    tensors = {
        f"scores.{name}": result.counts
        for name, result in inferred.items()
        if CRITERIA[name].logarithmic and CRITERIA[name].score is not None
    }
    if assessment is not None:
        tensors |= {f"strangeness.{name}": counts for name, counts in assessment.histograms.items()}
    bins = state.reliability_tensor()
    if bins is not None:
        tensors["reliability"] = bins
    return {**tensors, "edges": EDGES} if inferred else tensors


def peak_memory_mib() -> float | None:
    """The peak memory of this process; None if the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if platform.system() == "Darwin" else 2**10), 1)  # bytes there, KiB elsewhere


def environment(threads: int) -> Environment:
    """The software and hardware of this run."""
    return Environment(
        metareplay=__version__,
        revision=revision(),
        python=platform.python_version(),
        torch=str(torch.__version__),
        platform=platform.platform(terse=True),
        processor=platform.machine(),
        threads=threads,
    )
