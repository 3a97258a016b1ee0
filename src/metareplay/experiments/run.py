"""One run: learn a plan's tasks in turn, test them after each. Can be killed at any moment and resumed."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TextIO

import torch

from metareplay.benchmarks.base import Benchmark, Task, TaskData
from metareplay.data.encoding import widths_of
from metareplay.errors import MetaReplayError
from metareplay.evaluation.answers import AnswerQuality, answer_quality
from metareplay.evaluation.assess import Assessment, assess
from metareplay.evaluation.boundaries import SIGNALS, boundary_figures, read_signals
from metareplay.evaluation.evaluate import Evaluator, Inference
from metareplay.experiments.continual import continual_figures
from metareplay.experiments.curves import predictive_picture
from metareplay.experiments.labels import chance, label_figures
from metareplay.experiments.plan import Plan
from metareplay.experiments.references import train_references
from metareplay.experiments.replayed import REPLAYED, replayed_inputs
from metareplay.experiments.results import BoundaryThresholds, Results, Seconds
from metareplay.experiments.run_folder import RunFolder
from metareplay.experiments.scoring import (
    answered,
    assessed,
    peak_memory_mib,
    results_of,
    uncertainty_tensors,
    with_kept,
)
from metareplay.experiments.state import RunState, TaskClock
from metareplay.experiments.testing import TaskTests
from metareplay.experiments.tracking import Tracker
from metareplay.heap import give_back_freed_memory, keep_freed_memory
from metareplay.interrupts import Interrupted, leavable
from metareplay.learner.config import RunConfig
from metareplay.learner.generations import MODEL
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.lone_class import refuse_lone_classes
from metareplay.learner.store import HistoryEntry, save_model
from metareplay.locks import only_writer
from metareplay.training.checkpoint import Checkpoint, CheckpointFolder
from metareplay.training.loop import Step, TaskTrainer
from metareplay.training.progress import NullObserver, Observer, Stage
from metareplay.training.together import Together, refuse_whole_batches
from metareplay.training.watch import Notice


def new_learner(config: RunConfig, benchmark: Benchmark) -> ContinualLearner:
    """A new learner for a benchmark's tasks."""
    infos, problem, scenario = benchmark.task_infos(), benchmark.problem, benchmark.scenario
    total = sum(len(task.classes) for task in infos) or None
    learner = ContinualLearner(config, problem, scenario, benchmark.input_shape, total_outputs=total)
    refuse_lone_classes(config, problem, scenario, infos, complete=True)
    return learner


class Run:
    """Executes a plan in its folder."""

    def __init__(
        self,
        plan: Plan,
        *,
        observer: Observer | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        together: Together | None = None,
    ) -> None:
        torch.set_num_threads(plan.config.threads)
        self.plan, self.config, self.benchmark, self.folder = plan, plan.config, plan.benchmark, RunFolder(plan.folder)
        self.observer, self.should_stop, self.together = observer or NullObserver(), should_stop, together
        self.learner = new_learner(plan.config, self.benchmark)
        self.evaluator = Evaluator(
            self.learner.predictor,
            target_scale=self.benchmark.scaling.tensors.get("y_scale"),
            tasks=self.benchmark.task_infos(),
        )
        self.checkpoints = CheckpointFolder(plan.folder / "checkpoint", plan.config.fingerprint())
        self.state = RunState()
        self.clock = TaskClock(self.state)

    def _tracker(self) -> Tracker:
        return Tracker(self.benchmark, self.evaluator, self.state, self.config.report, self.config.data_seed)

    def execute(self, *, resume: bool = False, wait: float = 0.0) -> Results:
        """Do what remains to be done, once no other process writes here; returns the contents of ``results.json``."""
        keep_freed_memory()
        out = self.folder.path
        try:
            if not resume:
                self.folder.refuse_if_used()
            with only_writer(out, wait=wait):
                if not resume:
                    self.folder.refuse_if_used()  # again: another run may have ended meanwhile
                return self._execute(resume)
        except OSError as error:
            raise MetaReplayError(
                f"cannot write to {out}: {error.strerror or error}; what was stored before is untouched"
            ) from error
        finally:
            self.observer.close()

    def _execute(self, resume: bool) -> Results:
        checkpoint = self._prepare(resume)
        tests = TaskTests(self.benchmark, self.config.inference.test_inputs, self.config.data_seed)
        for index in range(len(self.benchmark)):
            tests.known = index + 1
            if index < len(self.state.matrix):  # finished before the restart
                with self._leavable():
                    self.learner.revisit(index, partial(self._training_data, index))
                continue
            stage = Stage(index, len(self.benchmark), self.benchmark.task_infos()[index].name)
            with self._leavable():
                task = self.benchmark[index]  # a backbone may have to compute its features
            self._learn(stage, task, checkpoint)
            checkpoint = None
            self._test(stage, tests)
        if self.state.tuned is None:
            self._update(tests, checkpoint)
        return self._finish(tests)

    def _prepare(self, resume: bool) -> Checkpoint | None:
        """Create the folder, or read where an earlier run of this configuration stopped."""
        checkpoint = None
        if resume:
            self.folder.refuse_changed_data(self.config)
            checkpoint = self.checkpoints.last_good()
            for problem in self.checkpoints.problems:
                self._announce(f"skipped: {problem}")
        self.folder.begin(self.config)
        if checkpoint is None:
            self.folder.keep_metrics(0)
            scenario = self.benchmark.scenario.value
            self.folder.log(
                f"{self.config.method} on {self.benchmark.name} (scenario {scenario}), seed {self.config.seed}"
            )
            return None
        if not self.checkpoints.problems:  # else older ones are needed
            self.checkpoints.drop_old()
        self.state = RunState.of(checkpoint.facts)
        self.learner.restore(checkpoint.facts, checkpoint.tensors)
        self.folder.keep_metrics(checkpoint.facts["metrics_bytes"])
        self._announce(f"resumed from checkpoint {self.state.serial} after {len(self.state.matrix)} finished tasks")
        return checkpoint if checkpoint.facts["training"] else None

    def _training_data(self, task: int) -> TaskData:
        return self.benchmark[task].train

    def _learn(self, stage: Stage, task: Task, checkpoint: Checkpoint | None) -> None:
        """Learn a task, from the beginning or from a checkpoint."""
        self.clock = TaskClock(self.state, new=checkpoint is None)
        with self._leavable():
            if checkpoint is None:
                width = self.benchmark.width(task)
                trainer = self.learner.begin_task(task.train, width, expected_tasks=self.benchmark.expected_tasks)
                self._tracker().before_task(stage)
            else:
                trainer = self.learner.continue_task(task.train, checkpoint.tensors)
        self._train(trainer, stage)
        with self._leavable():
            known = self.benchmark.task_infos()[: self.learner.num_tasks]
            notice = self.learner.finish_task(task.train, known)
        self._warn(stage, notice)
        self.clock.count()
        self.folder.write_tensors(f"{REPLAYED}/task-{stage.number:03d}.safetensors", replayed_inputs(self.learner))

    def _update(self, tests: Sequence[TaskData], checkpoint: Checkpoint | None) -> None:
        """Train all tasks once more on their coresets, if the strategy has any, and test again."""
        if checkpoint is not None:
            trainer = self.learner.continue_update(checkpoint.tensors)
        elif (begun := self.learner.try_update()) is not None:
            trainer, began = begun, time.perf_counter()
            with self._leavable():
                inferred = self.evaluator.inferred(tests)
                softmax = self.evaluator.shared_softmax(tests)
            results = results_of(self.plan, self.state, inferred, softmax=softmax, predictor=self.learner.predictor)
            self.state.before = results.final_figures().model_dump()
            self.state.seconds["evaluate"] += time.perf_counter() - began
        else:
            return
        stage = Stage(len(tests), len(tests), "coresets of all tasks", update=True)
        self._train(trainer, stage)
        with self._leavable():
            self.learner.finish_update(trainer)
        self._test(stage, tests)

    def _train(self, trainer: TaskTrainer, stage: Stage) -> None:
        """Take all remaining steps of a task, with regular checkpoints."""
        if self.together is not None:
            refuse_whole_batches(self.learner.model, local=trainer.objective.local_reparametrisation)
            trainer.together = self.together
        self.observer.stage_begins(stage, trainer.iteration, trainer.iterations)
        began, tracker = time.perf_counter(), self._tracker()
        with self.folder.metrics.open("a") as metrics:
            for step in trainer:
                self._note(stage, step, metrics)
                began += tracker.during_task(stage, step.iteration, step.iterations)
                if step.iteration % self.config.training.checkpoint_every == 0 or self.should_stop():
                    metrics.flush()
                    self.state.seconds["train"] += time.perf_counter() - began
                    began = time.perf_counter()
                    if not stage.update:
                        self.clock.count()
                    self._save(training=True)
                    if self.should_stop():
                        raise Interrupted(self._stopped())
        if trainer.signals is not None and not stage.update:
            self.folder.write_tensors(
                f"{SIGNALS}/task-{stage.number:03d}.safetensors", {"signals": trainer.signals[: trainer.iterations]}
            )
        self.learner.trainer = None  # and with it the task's data
        give_back_freed_memory()
        self.state.seconds["train"] += time.perf_counter() - began

    def _leavable(self) -> AbstractContextManager[None]:
        """What takes long between the steps of tasks: it is done again after a signal has ended it."""
        return leavable(self._stopped())

    def _stopped(self) -> str:
        where = f"the state is saved in {self.folder.path}; continue with --resume"
        done = " (finished tasks can already be used as a model)" if self.state.matrix else ""
        return f"stopped; {where}{done}"

    def _note(self, stage: Stage, step: Step, metrics: TextIO) -> None:
        """Report a step to the observer, and at times to the log of metrics."""
        self.observer.step(step)
        self._warn(stage, step.notice)
        if step.iteration % self.config.training.log_every == 0 or step.iteration in (1, step.iterations):
            terms = {name: float(value) for name, value in step.terms._asdict().items()}
            line = {"task": stage.number, "iteration": step.iteration, "loss": sum(terms.values()), **terms}
            metrics.write(json.dumps(line) + "\n")

    def _save(self, *, training: bool) -> None:
        """Write a checkpoint, if the state is finite."""
        if not self.learner.is_finite():
            return  # the next loss will not be finite either, which stops the run
        self.state.serial += 1
        size = self.folder.metrics.stat().st_size
        facts = {**self.learner.facts(), "training": training, **self.state.facts(), "metrics_bytes": size}
        self.checkpoints.write(self.state.serial, self.learner.tensors(training=training), facts)

    def _save_model(self, tasks: int, results: Results | None = None) -> None:
        """Write the model of the tasks learned so far, so that an interrupted run leaves a usable one."""
        infos, scaling = self.benchmark.task_infos()[:tasks], self.benchmark.scaling.tensors
        folder, generation = self.folder.path / "model", tasks + (results is not None)
        entry = None if results is None else self._entry(results)
        inputs = self.benchmark.inputs
        save_model(folder, self.learner, infos, scaling, inputs, entry=entry, generation=generation)

    def _entry(self, results: Results) -> HistoryEntry:
        """What the model's history says of the run."""
        names = tuple(task.name for task in self.benchmark.task_infos())
        known = {"TGiven-During": results.tgiven_during, "TGiven-Final": results.tgiven_final}
        figures = {name: value for name, value in known.items() if value is not None}
        facts = {"benchmark": self.benchmark.name, "seed": self.config.seed}
        mark = self.config.data.fingerprint
        return HistoryEntry(verb="run", tasks=names, fingerprint=mark, figures=figures, facts=facts)

    def _test(self, stage: Stage, tests: Sequence[TaskData]) -> None:
        """Test all tasks so far with the task given: the next row of the matrix, or the one after fine-tuning."""
        index, began, learned = stage.number, time.perf_counter(), not stage.update
        with self._leavable():
            tested = [self.evaluator.tested(task, test) for task, test in enumerate(tests)]
        row = self.state.note_tests(tested, learned=learned)
        self.folder.add_metrics({"event": "task" if learned else "fine-tuning", "task": index, "tgiven": row})
        self.state.seconds["evaluate"] += time.perf_counter() - began
        with self._leavable():
            self._tracker().after_task(stage)
        if learned:
            self._save_model(index + 1)
            self.state.model_bytes.append((self.folder.path / "model" / MODEL).stat().st_size)
        self._save(training=False)
        what = f"task {index} learned" if learned else "fine-tuned on coresets"
        self.folder.log(f"{what}: {[round(score, 4) for score in row]}")
        self.observer.stage_ends(stage, row)
        give_back_freed_memory()

    def _finish(self, tests: Sequence[TaskData]) -> Results:
        """Infer tasks, write the results and the model."""
        began = time.perf_counter()
        with self._leavable(), self.learner.predictor.remembering():
            results, inferred, assessment = self._tested(tests)
        self.state.seconds["evaluate"] += time.perf_counter() - began
        by_task = [round(value, 3) for value in self.state.task_seconds]
        totals = {name: round(value, 3) for name, value in self.state.seconds.items()}
        seconds = Seconds.model_validate({**totals, "by_task": by_task})
        results = results.model_copy(
            update={"seconds": seconds, "peak_memory_mib": peak_memory_mib(), **self._boundaries()}
        )
        if self.config.report.references:
            with self._leavable():
                references = train_references(self.benchmark, tests, seed=self.config.seed)
            results = results.model_copy(update={"references": references})
        continual = continual_figures(results, self.state, self.config.report)
        results = results.model_copy(update={"continual": continual})
        with self._leavable():
            picture = predictive_picture(self.learner.predictor, self.benchmark)
        self._save_model(len(self.benchmark), results)
        self.folder.write_tensors("uncertainty.safetensors", uncertainty_tensors(self.state, inferred, assessment))
        self.folder.write_tensors("predictive.safetensors", picture)
        self.folder.write_results(results)
        self.folder.log("finished")
        return results

    def _tested(self, tests: Sequence[TaskData]) -> tuple[Results, dict[str, Inference], Assessment | None]:
        """The figures of all tests at the end."""
        inferred = self.evaluator.inferred(tests)
        softmax = self.evaluator.shared_softmax(tests)
        predictor = self.learner.predictor
        results = results_of(self.plan, self.state, inferred, softmax=softmax, predictor=predictor)
        widths = widths_of(self.benchmark.inputs.get("columns", ())) or None
        assessment = assess(predictor, tests, seed=self.config.seed, widths=widths)
        results = assessed(answered(results, self._answer_quality(tests)), assessment)
        results = with_kept(results, self.learner)
        results = results.model_copy(
            update={
                "labels": label_figures(predictor, self.benchmark, tests, seed=self.config.seed),
                "chance": chance(self.benchmark, tests),
            }
        )
        return results, inferred, assessment

    def _answer_quality(self, tests: Sequence[TaskData]) -> AnswerQuality | None:
        scale = self.benchmark.scaling.tensors.get("y_scale")
        return answer_quality(self.learner.predictor, tests, self.benchmark.task_infos(), scale)

    def _boundaries(self) -> dict[str, dict[str, BoundaryThresholds] | None]:
        """Which thresholds would have detected the task boundaries, if the signals were recorded."""
        if not self.config.training.record_signals:
            return {}
        figures = boundary_figures(read_signals(self.folder.path))
        if figures is None:  # a single task has no boundary
            return {"task_boundaries": None}
        return {"task_boundaries": {name: BoundaryThresholds(**values) for name, values in figures.items()}}

    def _warn(self, stage: Stage, notice: Notice | None) -> None:
        """Tell the user at once what goes wrong with a task, and remember it for the results."""
        if notice is not None:
            self.state.warnings.append({"task": stage.name, **notice._asdict()})
            self._announce(f"warning: task {stage.name!r}: {notice.text}")

    def _announce(self, text: str) -> None:
        """Log a message, and show it."""
        self.folder.log(text)
        self.observer.message(text)
