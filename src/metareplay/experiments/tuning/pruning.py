"""When a trial is not worth finishing."""

from math import isnan
from typing import Any

from metareplay.experiments.tuning.definition import Definition

LEAST = 5
"""Finished trials with which one is compared, at least."""
WORST = 0.25
"""The share of trials that are worst after a task: who would be among them ends there."""


def pruner_for(optuna: Any, definition: Definition) -> Any:
    """Ends a trial that is among the worst quarter after a task, from the second half of the tasks on.

    Optuna's own median pruner takes the best of a trial's figures so far. Here that is nearly always the one after the
    first task, which says nothing about what will be forgotten, or about how well tasks will be told apart.
    """
    if not definition.prune:
        return optuna.pruners.NopPruner()
    sign = -1.0 if definition.lower_is_better else 1.0

    class AmongTheWorst(optuna.pruners.BasePruner):
        def prune(self, study: Any, trial: Any) -> bool:
            task = trial.last_step
            if task is None or 2 * (task + 1) <= definition.tasks:
                return False
            reached = sign * trial.intermediate_values[task]
            finished = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
            others = [sign * one.intermediate_values[task] for one in finished if task in one.intermediate_values]
            if len(others) < LEAST:
                return False
            return isnan(reached) or sum(other > reached for other in others) >= (1 - WORST) * len(others)

    return AmongTheWorst()
