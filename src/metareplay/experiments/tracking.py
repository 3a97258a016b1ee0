"""What is measured while tasks are learned: before, during and after each, on a few test inputs. It changes nothing."""

import time
from collections.abc import Sequence
from typing import final

from metareplay.benchmarks.base import Benchmark, TaskData
from metareplay.evaluation.evaluate import Evaluator
from metareplay.experiments.state import RunState
from metareplay.experiments.testing import TaskTests
from metareplay.learner.report_settings import ReportSettings
from metareplay.training.progress import Stage


@final
class Tracker:
    """Tests tasks at a stated cadence (``report.test_during``, ``report.test_every``), and counts the time it takes."""

    def __init__(
        self, benchmark: Benchmark, evaluator: Evaluator, state: RunState, settings: ReportSettings, seed: int
    ) -> None:
        self.evaluator, self.state, self.settings, self.wanted = evaluator, state, settings, settings.test_during
        self.tests = TaskTests(benchmark, settings.test_during, seed)

    def _known(self, count: int) -> Sequence[TaskData]:
        self.tests.known = count
        return self.tests

    def before_task(self, stage: Stage) -> None:
        """The new task's score, which is that of what earlier tasks taught, and the old tasks' scores."""
        if self.wanted is None or stage.update:
            return
        began, tests = time.perf_counter(), self._known(stage.number + 1)
        self.state.starts.append(self.evaluator.raw(stage.number, tests[stage.number]))
        self._note(stage, 0)
        self._count(began)

    def during_task(self, stage: Stage, step: int, steps: int) -> float:
        """The old tasks' scores, when they are due; the seconds it took."""
        every = self.settings.test_every
        if self.wanted is None or stage.update or every is None or (step % every and step != steps):
            return 0.0
        began = time.perf_counter()
        self._note(stage, step)
        return self._count(began)

    def after_task(self, stage: Stage) -> None:
        """All tasks' scores with the task inferred, after a task or after fine-tuning."""
        if self.wanted is None:
            return
        began = time.perf_counter()
        scores = self.evaluator.inferred_scores(self._known(stage.number + (not stage.update)))
        if scores is not None and stage.update:
            self.state.inferred_tuned = scores
        elif scores is not None:
            self.state.inferred.append(scores)
        self._count(began)

    def _note(self, stage: Stage, step: int) -> None:
        if stage.number > 0 and self.settings.test_every is not None:
            scores = [self.evaluator.raw(task, test) for task, test in enumerate(self._known(stage.number))]
            self.state.during.append({"task": stage.number, "step": step, "scores": scores})

    def _count(self, began: float) -> float:
        spent = time.perf_counter() - began
        self.state.seconds["evaluate"] += spent
        return spent
