"""From what a run measured to its figures of continual learning."""

from pathlib import Path

from metareplay.evaluation.continual import (
    average_incremental,
    forgetting,
    forward_transfer,
    minimum_accuracy,
    stability_gap,
)
from metareplay.evaluation.evaluate import backward_transfer
from metareplay.experiments.continual_record import ContinualFigures, DuringTask
from metareplay.experiments.results import FILE, Results, read_results
from metareplay.experiments.state import RunState
from metareplay.learner.report_settings import ReportSettings


def continual_figures(results: Results, state: RunState, settings: ReportSettings) -> ContinualFigures:
    """All of them; those that were not measured, or that errors do not have, are None."""
    errors = results.problem == "regression"
    figures = ContinualFigures(
        average_incremental=average_incremental(state.matrix),
        calibration_error_by_task=state.calibration_errors(),
        nll_by_task=state.nll or [],
        model_bytes=state.model_bytes,
        inferred_matrix=state.inferred,
        during=[DuringTask.model_validate(entry) for entry in state.during],
        test_inputs=settings.test_during,
        test_every=settings.test_every,
        inferred_fine_tuned=state.inferred_tuned,
    )
    if state.inferred:
        figures = figures.model_copy(update={"average_incremental_inferred": average_incremental(state.inferred)})
    return figures if errors else figures.model_copy(update=_of_accuracies(results, state, settings))


def _of_accuracies(results: Results, state: RunState, settings: ReportSettings) -> dict[str, float | str | None]:
    update: dict[str, float | str | None] = {}
    if len(state.inferred) == results.num_tasks:
        end = state.inferred_tuned or state.inferred[-1]
        update["forgetting_inferred"] = forgetting(state.inferred, end)
        update["backward_transfer_inferred"] = backward_transfer([*state.inferred[:-1], end])
    if state.starts and results.chance is not None:
        update["forward_transfer"] = forward_transfer(state.starts, results.chance.by_task)
    moments = state.moments()
    update |= {"minimum_accuracy": minimum_accuracy(moments), "stability_gap": stability_gap(moments)}
    joint, model = _joint(results, settings)
    if joint is not None and results.tgiven_during is not None:
        update |= {"intransigence": joint - results.tgiven_during, "joint": model}
    return update


def _joint(results: Results, settings: ReportSettings) -> tuple[float | None, str | None]:
    """What training on all tasks reaches with a task's classes given, and which model does: a run, or a simple one."""
    if settings.joint is not None:
        folder = Path(settings.joint)
        joint = read_results(folder if folder.name == FILE else folder / FILE)
        return joint.tgiven_final, f"{joint.method}, {joint.network}"
    reference = results.references.joint if results.references else None
    return (None, None) if reference is None else (reference.known, reference.model)
