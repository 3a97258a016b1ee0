"""One run: learn a benchmark's tasks, test them, leave a folder that says everything. Can be killed at any moment and resumed."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import save
from torch import Tensor

from metareplay.benchmarks.base import Benchmark, Task, TaskData, TaskInfo
from metareplay.errors import CheckpointError, ConfigError, MetaReplayError
from metareplay.evaluation.boundaries import SIGNALS, boundary_figures, read_signals
from metareplay.evaluation.evaluate import Evaluator, Inference
from metareplay.evaluation.uncertainty import EDGES, calibration_error
from metareplay.experiments.curves import predictive_picture
from metareplay.experiments.environment import environment, peak_memory_mib
from metareplay.experiments.held_out import HeldOut
from metareplay.experiments.own_data import benchmark_for, refuse_changed_data, with_fingerprint
from metareplay.experiments.results import final_figures
from metareplay.files import only_writer, write_atomically
from metareplay.heap import give_back_freed_memory, keep_freed_memory
from metareplay.learner.config import RunConfig, build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.store import save_model
from metareplay.settings import flatten
from metareplay.training.checkpoint import Checkpoint, CheckpointFolder
from metareplay.training.loop import Step, TaskTrainer
from metareplay.training.progress import NullObserver, Observer


class Interrupted(MetaReplayError):  # noqa: N818
    """The user asked to stop; the state is saved."""


class Run:
    """A configuration at work in a folder."""

    def __init__(
        self,
        config: RunConfig,
        out: Path,
        *,
        observer: Observer | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        benchmark: Benchmark | None = None,
    ) -> None:
        torch.set_num_threads(config.threads)
        self.benchmark = benchmark or benchmark_for(config)
        config = with_fingerprint(config, self.benchmark)
        self.config, self.out, self.observer, self.should_stop = config, out, observer or NullObserver(), should_stop
        self.task_infos = self.benchmark.task_infos()
        total = sum(len(task.classes) for task in self.task_infos) or None
        self.learner = ContinualLearner(
            config, self.benchmark.problem, self.benchmark.scenario, self.benchmark.input_shape, total_outputs=total
        )
        self.evaluator = Evaluator(self.learner.predictor, target_scale=self.benchmark.scaling.tensors.get("y_scale"))
        self.checkpoints = CheckpointFolder(out / "checkpoint", config.fingerprint())
        self.matrix: list[list[float]] = []
        self.before: dict[str, Any] | None = None
        """The final figures as they were before fine-tuning on coresets, once it has begun."""
        self.tuned: list[float] | None = None
        """All tasks' scores after fine-tuning."""
        self.reliability: list[list[list[float]]] | None = None
        """What a reliability diagram shows of each task (T, 3, bins), as last tested; None for regression."""
        self.seconds = {"train": 0.0, "evaluate": 0.0}
        self.serial = 0

    def execute(self, *, resume: bool = False) -> dict[str, Any]:
        """Do what is left to do; returns what ``results.json`` holds."""
        keep_freed_memory()
        try:
            if not resume and self.out.exists() and any(self.out.iterdir()):
                raise ConfigError(
                    f"{self.out} already exists; continue it with --resume, replace it with --overwrite, or choose another --out"
                )
            with only_writer(self.out):
                return self._execute(resume)
        except OSError as error:
            raise MetaReplayError(f"cannot write to {self.out}: {error.strerror or error}; what was stored before is untouched") from error
        finally:
            self.observer.close()

    def _execute(self, resume: bool) -> dict[str, Any]:
        found = self._prepare(resume)
        tests = HeldOut(self.benchmark, self.config.inference.test_inputs, self.config.data_seed)
        for index in range(len(self.benchmark)):
            tests.known = index + 1
            if index < len(self.matrix):  # finished before the restart
                if self.config.kind().strategy == "joint":
                    self.learner.remember_data(index, self.benchmark[index].train)
                continue
            self._learn(index, self.benchmark[index], found)
            found = None
            self._test(index, tests)
        if self.config.kind().coresets and self.tuned is None:
            self._fine_tune(tests, found)
        return self._finish(tests)

    def _prepare(self, resume: bool) -> Checkpoint | None:
        """Make the folder, or read where an earlier run of this configuration stopped."""
        found = None
        if resume:
            if (self.out / "config.yaml").is_file():
                refuse_changed_data(_stored_settings(self.out), self.config, self.out)
            found = self.checkpoints.last_good()
            for problem in self.checkpoints.problems:
                self._log(f"passed over: {problem}")
        for left_over in (*self.out.glob(".*.tmp"), *self.out.glob("checkpoint/.*.tmp")):  # of a process that was killed
            left_over.unlink(missing_ok=True)
        write_atomically(self.out / "config.yaml", self.config.to_yaml())
        metrics = self.out / "metrics.jsonl"
        if found is None:
            write_atomically(metrics, "")
            self._log(f"{self.config.method} on {self.benchmark.name} (scenario {self.benchmark.scenario.value}), seed {self.config.seed}")
            return None
        self.matrix, self.seconds, self.serial = found.facts["matrix"], found.facts["seconds"], found.facts["serial"]
        self.before, self.tuned, self.reliability = (found.facts.get(key) for key in ("before", "tuned", "reliability"))
        self.learner.restore(found.facts, found.tensors)
        kept = metrics.read_bytes()[: found.facts["metrics_bytes"]] if metrics.exists() else b""
        write_atomically(metrics, kept)  # what was logged after the checkpoint will be logged again
        self._log(f"resumed from checkpoint {self.serial} after {len(self.matrix)} finished tasks")
        return found if found.facts["training"] else None

    def _learn(self, index: int, task: Task, found: Checkpoint | None) -> None:
        width = len(task.classes) if self.benchmark.problem == "classification" else task.train.y.shape[1]
        if found is None:
            trainer = self.learner.begin_task(task.train, width, expected_tasks=len(self.benchmark))
        else:
            trainer = self.learner.continue_task(task.train, found.tensors)
        self._train(trainer, task.name)

    def _fine_tune(self, tests: Sequence[TaskData], found: Checkpoint | None) -> None:
        """Update all posteriors on the coresets, and test again."""
        if found is None:
            began = time.perf_counter()
            results = self._results(tests, self.evaluator.inferred(tests))
            self.before = {key: results[key] for key in ("tgiven_final", "tinfer_final", "batch_wise", "mse")}
            self.seconds["evaluate"] += time.perf_counter() - began
            trainer = self.learner.begin_update()
        else:
            trainer = self.learner.continue_update(found.tensors)
        self._train(trainer, "coresets of all tasks")
        self._test(len(tests), tests)

    def _train(self, trainer: TaskTrainer, name: str) -> None:
        self.observer.task_begins(trainer.task, name, len(self.benchmark), trainer.iteration, trainer.iterations)
        began = time.perf_counter()
        with (self.out / "metrics.jsonl").open("a") as metrics:
            for step in trainer:
                self._note(step, metrics)
                if step.iteration % self.config.training.checkpoint_every == 0 or self.should_stop():
                    metrics.flush()
                    self.seconds["train"] += time.perf_counter() - began
                    began = time.perf_counter()
                    self._save(trainer)
                    if self.should_stop():
                        raise Interrupted(f"stopped; the state is saved in {self.out}: continue with --resume")
        if trainer.signals is not None and trainer.task < len(self.benchmark):
            write_atomically(self.out / SIGNALS / f"task-{trainer.task:03d}.safetensors", save({"signals": trainer.signals}))
        self.learner.trainer = None  # and with it the task's data
        give_back_freed_memory()
        self.seconds["train"] += time.perf_counter() - began

    def _note(self, step: Step, metrics: Any) -> None:
        self.observer.step(step)
        if step.iteration % self.config.training.log_every == 0 or step.iteration in (1, step.iterations):
            terms = {name: float(value) for name, value in step.terms._asdict().items()}
            line = {"task": step.task, "iteration": step.iteration, "loss": sum(terms.values()), **terms}
            metrics.write(json.dumps(line) + "\n")

    def _save(self, trainer: TaskTrainer | None) -> None:
        """Write a checkpoint, if the state is worth keeping."""
        if not self.learner.is_finite():
            return  # the next loss will not be finite either, and stop the run
        self.serial += 1
        facts = {
            **self.learner.facts(),
            "training": trainer is not None,
            "matrix": self.matrix,
            "before": self.before,
            "tuned": self.tuned,
            "reliability": self.reliability,
            "seconds": self.seconds,
            "serial": self.serial,
            "metrics_bytes": (self.out / "metrics.jsonl").stat().st_size,
        }
        self.checkpoints.write(self.serial, self.learner.tensors(training=trainer is not None), facts)

    def _test(self, index: int, tests: Sequence[TaskData]) -> None:
        """Test all tasks so far with the task given: the next row of the matrix, or the one after fine-tuning."""
        began, learned = time.perf_counter(), index < len(self.benchmark)
        found = [self.evaluator.tested(task, test) for task, test in enumerate(tests)]
        row, bins = [each.score for each in found], [each.reliability.tolist() for each in found if each.reliability is not None]
        self.reliability = bins or None
        if learned:
            self.matrix.append(row)
        else:
            self.tuned = row
        with (self.out / "metrics.jsonl").open("a") as metrics:
            metrics.write(json.dumps({"event": "task" if learned else "fine-tuning", "task": index, "tgiven": row}) + "\n")
        self.seconds["evaluate"] += time.perf_counter() - began
        self._save(None)
        self._log(f"{f'task {index} learned' if learned else 'fine-tuned on coresets'}: {[round(score, 4) for score in row]}")
        self.observer.task_ends(index, row)
        give_back_freed_memory()

    def _finish(self, tests: Sequence[TaskData]) -> dict[str, Any]:
        """Infer tasks, write the results and the model."""
        began = time.perf_counter()
        inferred = self.evaluator.inferred(tests)
        results = self._results(tests, inferred)
        self.seconds["evaluate"] += time.perf_counter() - began
        results["seconds"] = {name: round(value, 3) for name, value in self.seconds.items()}
        results["peak_memory_mib"] = peak_memory_mib()
        if self.config.training.record_signals:
            results["task_boundaries"] = boundary_figures(read_signals(self.out))
        tasks = [TaskInfo(*task) for task in self.task_infos]
        save_model(self.out / "model", self.learner, tasks, self.benchmark.scaling.tensors, self.benchmark.inputs)
        self._write_tensors("uncertainty.safetensors", self._uncertainty(inferred))
        self._write_tensors("predictive.safetensors", predictive_picture(self.learner.predictor, self.benchmark))
        write_atomically(self.out / "results.json", json.dumps(results, indent=1))
        self._log("finished")
        return results

    def _write_tensors(self, name: str, tensors: dict[str, Tensor]) -> None:
        if tensors:
            write_atomically(self.out / name, save({key: value.contiguous() for key, value in tensors.items()}))

    def _uncertainty(self, inferred: dict[str, Inference]) -> dict[str, Tensor]:
        """What pictures of uncertainty show: scores in bins by criterion (2, T, bins), and the reliability of each task (T, 3, bins)."""
        found = {f"scores.{name}": result.counts for name, result in inferred.items() if name != "grad"}  # grad only compares
        if self.reliability is not None:
            found["reliability"] = torch.tensor(self.reliability, dtype=torch.float64)
        return {**found, "edges": EDGES} if inferred else found

    def _results(self, tests: Sequence[TaskData], inferred: dict[str, Inference]) -> dict[str, Any]:
        softmax = self.evaluator.shared_softmax(tests)
        return {
            **self._identity(),
            **final_figures(self.benchmark.problem, self.matrix, self.tuned, inferred, softmax),
            "task_inference_accuracy": {name: result.right_task for name, result in inferred.items()},
            "calibration_error": self._calibration_error(),
            "batch_wise_size": self.config.inference.batch_wise,
            "tgiven_matrix": self.matrix,
            "tgiven_fine_tuned": self.tuned,
            "before_fine_tuning": self.before,
            "task_confusion": {name: result.confusion for name, result in inferred.items()},
            "parameters": self.learner.model.parameter_counts(),
            "environment": environment(self.config.threads),
        }

    def _calibration_error(self) -> float | None:
        """Over all tasks' test inputs, the task being known."""
        return None if self.reliability is None else calibration_error(torch.tensor(self.reliability, dtype=torch.float64).sum(0))

    def _identity(self) -> dict[str, Any]:
        config, benchmark = self.config, self.benchmark
        return {
            "schema": 1,
            "benchmark": benchmark.name,
            "method": config.method,
            "network": config.network,
            "scenario": benchmark.scenario.value,
            "problem": benchmark.problem,
            "seed": config.seed,
            "num_tasks": len(benchmark),
            "task_names": [task.name for task in self.task_infos],
        }

    def _log(self, text: str) -> None:
        with (self.out / "log.txt").open("a") as log:  # the folder is there: config.yaml was written first
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        if text.startswith(("passed over", "resumed")):
            self.observer.message(text)


def finished_results(folder: Path, config: RunConfig) -> dict[str, Any] | None:
    """The results of a finished run of this configuration in a folder; None if there are none, an error if they are another's."""
    path = folder / "results.json"
    if not path.is_file():
        return None
    try:
        stored = _stored_settings(folder)
        results: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise CheckpointError(f"the finished run in {folder} is damaged ({error}); choose another --out, or remove the folder") from error
    refuse_changed_data(stored, config, folder)
    if build_config({}, stored, str(folder / "config.yaml")).fingerprint() != config.fingerprint():
        raise ConfigError(f"{folder} holds a finished run with another configuration; choose another --out, or remove the folder")
    return results


def _stored_settings(folder: Path) -> dict[str, Any]:
    """What ``config.yaml`` of a run says, as dotted keys."""
    return flatten(yaml.safe_load((folder / "config.yaml").read_text()) or {})
