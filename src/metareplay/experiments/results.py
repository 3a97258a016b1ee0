"""What a run's results say of accuracies, errors and inferred tasks."""

from collections.abc import Mapping, Sequence
from typing import Any

from metareplay.benchmarks.base import Problem
from metareplay.evaluation.evaluate import Inference, backward_transfer, during, final
from metareplay.inference.criteria import criteria_for


def final_figures(
    problem: Problem,
    matrix: list[list[float]],
    tuned: Sequence[float] | None,
    inferred: Mapping[str, Inference],
    softmax: float | None,
) -> dict[str, Any]:
    """From the scores after each task, those after fine-tuning, and what each criterion inferred; None where there is no such figure."""
    last = matrix if tuned is None else [*matrix[:-1], list(tuned)]  # the last row is what the run ends with
    found: dict[str, Any] = dict.fromkeys(("tgiven_during", "tgiven_final", "forgetting", "backward_transfer"))
    found |= {"tinfer_final": None, "batch_wise": None, "mse": None}
    if problem == "regression":
        score = inferred["variance"].score if inferred else None
        found["mse"] = {"tgiven_during": during(matrix), "tgiven_final": final(last), "tinfer_final": score}
        return found
    found |= {"tgiven_during": during(matrix), "tgiven_final": final(last), "forgetting": during(matrix) - final(last)}
    found["backward_transfer"] = backward_transfer(last)
    criteria = [criterion.name for criterion in criteria_for(problem)]
    found["tinfer_final"] = {name: inferred[name].score if name in inferred else None for name in criteria}
    found["batch_wise"] = {name: inferred[name].batch_wise if name in inferred else None for name in criteria}
    if softmax is not None:
        found["tinfer_final"]["softmax"] = softmax
    return found
