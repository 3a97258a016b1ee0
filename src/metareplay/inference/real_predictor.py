"""The predictor of real targets."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, final

import torch
from torch import Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.errors import ConfigError
from metareplay.inference.adaptive import Statistic
from metareplay.inference.answers import RealAnswer
from metareplay.inference.base import Assigned, Context, Pooled, Predictor, Statistics, in_order, shares_of
from metareplay.inference.calibration.intervals import Part, mixed_interval
from metareplay.inference.calibration.pooling import CAUTION_OF_TARGETS, blend, evidence_of_targets, narrowed
from metareplay.inference.calibration.taking import CALIBRATION, SAMPLES, target_calibration
from metareplay.inference.calibration.targets import TargetCalibration
from metareplay.inference.criteria.base import Contest, Criterion
from metareplay.inference.statistics.evidence import Stored
from metareplay.nets.adapters import AdaptedNetwork
from metareplay.seeding import generator_for

SAMPLE_VARIANCE = "variance over weight samples"


def _mean(outputs: Tensor) -> Tensor:
    return outputs.double().mean(0)  # (S, N, D) -> (N, D)


def _variance(outputs: Tensor) -> Tensor:
    return outputs.double().var(0, correction=0)  # (S, N, D) -> (N, D)


@final
class RealPredictor(Predictor[RealAnswer]):
    """Predicts real targets."""

    problem = "regression"
    caution = CAUTION_OF_TARGETS
    wanted: ClassVar[Mapping[str, Statistic]] = {"mean": _mean, SAMPLE_VARIANCE: _variance}

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
        outputs = (self.outputs(x, task, samples=samples) for task in tasks)  # (S, N, D) each
        found = [{name: statistic(values) for name, statistic in wanted.items()} for values in outputs]
        if calibrated and "mean" in wanted:
            for task, of_task in zip(tasks, found, strict=True):
                of_task["mean"] = self.calibration(task).mean(x, of_task["mean"])
        return found

    def calibration(self, task: int) -> TargetCalibration:
        """What corrects a task's predictions; only where they are ``calibrated``."""
        return TargetCalibration.stored(self.task_statistics.of(CALIBRATION, self.model.num_tasks)[task])

    def _calibration(self, task: int, used: TaskData, held_out: TaskData) -> Stored:
        outputs_of = partial(self.outputs, task=task, samples=min(SAMPLES, self.settings.samples))
        generator = generator_for(self.seed, CALIBRATION, self.model.lineage.number_of(task))
        # inputs of adapters are images and texts, not columns; a network of all tasks knows more than one task's rows
        linear = not (self.one_answer or isinstance(self.model.network, AdaptedNetwork))
        return target_calibration(outputs_of, used, held_out, linear=linear, generator=generator).tensors()

    def _pooling_evidence(self, pooled: Pooled[RealAnswer], y: Tensor, task: int, labels: Tensor | None) -> Tensor:
        residuals = y.double() - pooled.answer.mean  # (N, D)
        return evidence_of_targets(residuals, pooled.answer.std, blend(pooled.shares), pooled.weight)

    def _answer(self, assigned: Sequence[Assigned], context: Context) -> RealAnswer:
        count = len(context.chosen)
        mean = in_order(assigned, "mean", count)  # (N, D)
        epistemic = in_order(assigned, SAMPLE_VARIANCE, count) + _between(assigned, mean)  # law of total variance
        if context.unknown is None:
            return RealAnswer(task=context.chosen, mean=mean, std=epistemic.sqrt(), epistemic=epistemic.sqrt())
        stored = self.task_statistics.of(CALIBRATION, self.model.num_tasks)
        corrections = [TargetCalibration.stored(of_task) for of_task in stored]
        noise, beyond = torch.zeros_like(mean), torch.zeros_like(mean)
        for task, rows, _, share in assigned:
            correction, weight = corrections[task], share.unsqueeze(1)  # (n, 1)
            noise[rows] += weight * correction.noise.square()
            beyond[rows] += weight * (correction.spread.square() + (mean[rows] - correction.centre).square())
        narrower = torch.ones(count, 1, dtype=mean.dtype)
        if not context.alone and (gain := self.pooling_gain()):
            narrower = narrowed(blend(shares_of(assigned, count, self.model.num_tasks)), gain).unsqueeze(1)  # (N, 1)
        beyond = context.unknown.unsqueeze(1) * beyond
        noise, epistemic = narrower.square() * noise, narrower.square() * epistemic + beyond  # (N, D) each
        parts = self._parts(assigned, corrections, mean, narrower, beyond)
        lower, upper = mixed_interval(parts, mean, self.settings.coverage)
        std = (epistemic + noise).sqrt()
        return RealAnswer(task=context.chosen, mean=mean, std=std, epistemic=epistemic.sqrt(), lower=lower, upper=upper)

    def _parts(
        self,
        assigned: Sequence[Assigned],
        corrections: Sequence[TargetCalibration],
        mean: Tensor,
        narrower: Tensor,
        beyond: Tensor,
    ) -> list[Part]:
        """What each task contributes to intervals around the mean of all (N, D).

        All of it lies ``narrower`` (N, 1) around this mean; ``beyond`` is added to variances (N, D).
        """
        parts = []
        for task, rows, statistics, share in assigned:
            correction, factor = corrections[task], narrower[rows]  # (n, 1)
            variance = factor.square() * (correction.noise.square() + statistics[SAMPLE_VARIANCE]) + beyond[rows]
            centre = mean[rows] + factor * (statistics["mean"] - mean[rows])  # (n, D)
            parts.append(Part(rows, share, centre, correction.reach(self.settings.coverage) * variance.sqrt()))
        return parts

    def predict(
        self,
        x: Tensor,
        task: int | None = None,
        *,
        criterion: str | None = None,
        batch_wise: int | None = None,
        labels: Tensor | None = None,
    ) -> RealAnswer:
        """As ``Predictor.predict``; tasks that share one network need not be told apart: it answers as the last one."""
        if task is None and criterion is None and self.one_answer:
            task = self.model.num_tasks - 1
        return super().predict(x, task, criterion=criterion, batch_wise=batch_wise)

    def criterion(self, name: str | None = None) -> Criterion:
        """The criterion with that name, or the default; refused if it cannot tell this model's tasks apart."""
        if self.model.family.weight_sets == 1 and not (self.keeper.available or self.has_task_network):
            raise ConfigError(
                "the task of a regression input cannot be inferred: the weights of this model do not vary; "
                "name the task, or use a Bayesian method such as pr-bbb"
            )
        return super().criterion(name)

    def _check_choice(self, criterion: Criterion) -> None:
        if self.one_answer:
            raise ConfigError(
                "the task of a regression input cannot be inferred: all tasks of this model share one network; "
                "name the task, or use a method with separate weights for each task, such as pr-bbb"
            )

    def _one_softmax_answer(self, x: Tensor, labels: Tensor | None) -> RealAnswer:
        raise ConfigError("a softmax over all tasks does not apply to regression; choose a method without one")


def _between(assigned: Sequence[Assigned], mean: Tensor) -> Tensor:
    """The variance of the tasks' means around the mean of all (N, D)."""
    total = torch.zeros_like(mean)
    for _, rows, statistics, share in assigned:
        total[rows] += share.unsqueeze(1) * (statistics["mean"] - mean[rows]).square()
    return total
