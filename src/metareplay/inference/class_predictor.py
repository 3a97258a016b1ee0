"""The predictor of classes."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, final

import torch
from torch import Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.inference.adaptive import LOG_PREDICTIVE, Statistic, adaptive_statistics
from metareplay.inference.answers import ClassAnswer
from metareplay.inference.base import Assigned, Context, Pooled, Predictor, Statistics, in_order, shares_of
from metareplay.inference.calibration.classes import ClassCalibration
from metareplay.inference.calibration.pooling import CAUTION_OF_LABELS, blend, common, evidence_of_labels, sharpened
from metareplay.inference.calibration.strange import unknown_share
from metareplay.inference.calibration.taking import CALIBRATION, SAMPLES, class_calibration
from metareplay.inference.criteria.agreement import expected_entropy
from metareplay.inference.criteria.base import Contest
from metareplay.inference.criteria.entropy import total_entropy
from metareplay.inference.mixing import by_label, entropy, entropy_ratio
from metareplay.inference.networks import SCORED_AT_ONCE
from metareplay.inference.predictive import log_likelihoods, log_predictive
from metareplay.inference.statistics.evidence import Stored
from metareplay.seeding import generator_for


@final
class ClassPredictor(Predictor[ClassAnswer]):
    """Predicts classes."""

    problem = "classification"
    caution = CAUTION_OF_LABELS
    wanted: ClassVar[Mapping[str, Statistic]] = {
        LOG_PREDICTIVE: log_predictive,
        "total": total_entropy,
        "aleatoric": expected_entropy,
    }

    def _statistics(
        self,
        x: Tensor,
        tasks: Sequence[int],
        wanted: Mapping[str, Statistic],
        contests: Sequence[Contest],
        *,
        calibrated: bool,
        samples: int | None,
    ) -> list[Statistics]:
        settings = self.settings
        convert = [self.calibration(task).log_likelihoods if calibrated else log_likelihoods for task in tasks]
        if settings.adaptive is None:
            return [
                _log_likelihood_statistics(self.outputs(x, task, samples=samples), wanted, of_task)
                for task, of_task in zip(tasks, convert, strict=True)
            ]
        drawn = [self.samples(task, samples, of_task) for task, of_task in zip(tasks, convert, strict=True)]
        return adaptive_statistics(drawn, x, {LOG_PREDICTIVE: log_predictive, **wanted}, contests, settings.adaptive)

    def _calibration(self, task: int, used: TaskData, held_out: TaskData) -> Stored:
        head, generator = (
            self.model.heads[task],
            generator_for(self.seed, CALIBRATION, self.model.lineage.number_of(task)),
        )
        outputs_of = partial(self.outputs, task=task, samples=min(SAMPLES, self.settings.samples))
        return class_calibration(outputs_of, used, held_out, head.stop - head.start, generator=generator).tensors()

    def _pooling_evidence(self, pooled: Pooled[ClassAnswer], y: Tensor, task: int, labels: Tensor | None) -> Tensor:
        assert labels is not None
        probabilities = by_label(pooled.answer.probabilities, labels)  # (N, L)
        right = probabilities.argmax(1) == labels[self.columns()[task]][y]
        return evidence_of_labels(probabilities, self._blended(pooled.shares, labels), right, pooled.weight)

    def _blended(self, asked: Tensor, labels: Tensor) -> Tensor:
        """How far answers are those of several tasks with common labels, by the shares of all tasks (N, T): (N,)."""
        columns, present = self.columns(), (asked > 0).any(0).nonzero().squeeze(1)
        return blend(asked[:, present], common([labels[columns[task]] for task in present.tolist()]))

    def _sharpened(self, probabilities: Tensor, assigned: Sequence[Assigned], labels: Tensor) -> Tensor:
        """Mixed probabilities of all classes (N, C), as certain as mixtures have been found to be."""
        gain, count = self.pooling_gain(), len(probabilities)
        if not gain or not count:
            return probabilities
        before = by_label(probabilities, labels)  # (N, L)
        blended = self._blended(shares_of(assigned, count, self.model.num_tasks), labels)  # (N,)
        factor = sharpened(before, blended, gain) / before.clamp_min(1e-300)  # (N, L)
        return probabilities * factor[:, labels]  # (N, C)

    def calibration(self, task: int) -> ClassCalibration:
        """What corrects a task's predictions; only where they are ``calibrated``."""
        return ClassCalibration.stored(self.task_statistics.of(CALIBRATION, self.model.num_tasks)[task])

    def tested(self, x: Tensor, task: int, wanted: Mapping[str, Statistic]) -> tuple[Statistics, ClassAnswer]:
        """Statistics of a given task's raw predictions, and the calibrated answer, from the same weight samples."""
        convert = self.calibration(task).log_likelihoods  # of log-likelihoods as well as of outputs

        def corrected(statistic: Statistic) -> Statistic:
            return lambda log_probs: statistic(convert(log_probs))

        own = {f"{task} {name}": corrected(statistic) for name, statistic in self.wanted.items()}
        raw = self.statistics(x, [task], {**wanted, **own})[0]
        chosen, of_answer = torch.full((len(x),), task), {name: raw[f"{task} {name}"] for name in self.wanted}
        share = torch.ones(len(x), dtype=torch.float64)
        unknown = unknown_share(self.keeper.strangeness_to(task, x))
        context = Context(chosen, alone=True, unknown=unknown)
        return raw, self._answer([Assigned(task, torch.arange(len(x)), of_answer, share)], context)

    def columns(self) -> list[slice]:
        """The columns of each task's classes when the classes of all tasks are concatenated."""
        stops = torch.tensor([head.stop - head.start for head in self.model.heads]).cumsum(0).tolist()
        return [slice(start, stop) for start, stop in zip([0, *stops], stops, strict=False)]

    def _answer(self, assigned: Sequence[Assigned], context: Context) -> ClassAnswer:
        columns, count = self.columns(), len(context.chosen)
        probabilities = torch.zeros(count, columns[-1].stop, dtype=torch.float64)  # (N, C)
        for task, rows, statistics, share in assigned:
            of_task = statistics[LOG_PREDICTIVE].exp()  # p(y | x, task); (n, C_t)
            probabilities[rows, columns[task]] += share.unsqueeze(1) * of_task
        aleatoric = in_order(assigned, "aleatoric", count)
        if context.unknown is None:
            total = in_order(assigned, "total", count)
        else:
            if context.labels is not None and not context.alone:
                mixed, probabilities = probabilities, self._sharpened(probabilities, assigned, context.labels)
                aleatoric = aleatoric * entropy_ratio(mixed, probabilities, context.labels)
            unknown = context.unknown.unsqueeze(1)  # (N, 1)
            probabilities = probabilities + unknown * (self._prior(context) - probabilities)
            total = entropy(by_label(probabilities, context.labels))
            aleatoric = torch.minimum((1 - context.unknown) * aleatoric, total)
        return ClassAnswer(task=context.chosen, probabilities=probabilities, total=total, aleatoric=aleatoric)

    def _prior(self, context: Context) -> Tensor:
        """Class frequencies, known without looking at the inputs: of the task that answers, or of all (N, C)."""
        columns = self.columns()
        found, place = context.chosen.unique(return_inverse=True)
        asked = found.tolist() if context.alone else range(len(columns))
        stored = self.task_statistics.of(CALIBRATION, len(columns))
        prior = torch.zeros(len(found) if context.alone else 1, columns[-1].stop, dtype=torch.float64)  # (t, C)
        for row, task in enumerate(asked):
            of_task = ClassCalibration.stored(stored[task]).prior
            prior[row if context.alone else 0, columns[task]] = of_task if context.alone else of_task / len(columns)
        return prior[place] if context.alone else prior

    def _one_softmax_answer(self, x: Tensor, labels: Tensor | None) -> ClassAnswer:
        last = self.model.num_tasks - 1  # the task is unknown: batch-norm statistics are those of the last one
        known = self.model.heads[last].stop  # outputs reserved for later tasks are not classes yet
        wanted = self.wanted if labels is None else {**self.wanted, **_of_labels(labels)}
        statistics = _log_likelihood_statistics(self.outputs(x, last, every_output=True)[..., :known], wanted)
        probabilities = statistics[LOG_PREDICTIVE].exp()  # (N, C)
        stops = torch.tensor([column.stop for column in self.columns()])
        task = torch.bucketize(probabilities.argmax(1), stops, right=True)  # the task whose class it is; (N,)
        by_task = torch.stack([probabilities[:, column].sum(1) for column in self.columns()], dim=1)  # (N, T)
        return ClassAnswer(
            task=task,
            task_probabilities=by_task,
            strangeness=self._strangeness(x, task),
            probabilities=probabilities,
            total=statistics["total"],
            aleatoric=statistics["aleatoric"],
        )


def _of_labels(labels: Tensor) -> dict[str, Statistic]:
    """Uncertainties about labels that several classes share."""

    def merged(statistic: Statistic) -> Statistic:
        return lambda log_probs: statistic(
            by_label(log_probs.exp().flatten(0, 1), labels).log().unflatten(0, log_probs.shape[:2])
        )

    return {"total": merged(total_entropy), "aleatoric": merged(expected_entropy)}


def _log_likelihood_statistics(
    outputs: Tensor, wanted: Mapping[str, Statistic], convert: Callable[[Tensor], Tensor] = log_likelihoods
) -> Statistics:
    """Statistics of the log-likelihoods of outputs (S, N, C), a few inputs at a time."""
    parts: dict[str, list[Tensor]] = {name: [] for name in wanted}
    for part in outputs.split(SCORED_AT_ONCE, dim=1):
        log_probs = convert(part)
        for name, statistic in wanted.items():
            parts[name].append(statistic(log_probs))
    return {name: torch.cat(values) for name, values in parts.items()}
