"""The only training loop."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.errors import TrainingDiverged
from metareplay.model import ContinualModel
from metareplay.optimisers import adam, clip_gradients, optimiser_tensors, restore_optimiser
from metareplay.posteriors.base import Posterior, Prior, PriorMatching
from metareplay.posteriors.families.dirac import Dirac
from metareplay.posteriors.families.mixture import members_of
from metareplay.posteriors.matching.direct import DirectMatching
from metareplay.posteriors.priors.tempered import tempered
from metareplay.posteriors.settings import PosteriorSettings
from metareplay.seeding import generator_for
from metareplay.strategies.base import LossTerms, Strategy
from metareplay.training.batches import Batches, OwnBatches
from metareplay.training.schedule import LearningRate
from metareplay.training.settings import TrainingSettings


class Step(NamedTuple):
    """What a training step reports."""

    task: int
    """The task that is learned; the number of tasks while all are updated together."""
    iteration: int
    """Steps done so far in this task."""
    iterations: int
    terms: LossTerms


class Job(NamedTuple):
    """A task, what it learns from, and how it is matched with its prior."""

    task: int
    batches: Batches
    matching: PriorMatching


class TaskTrainer:
    """Learns one task, step by step: ``for step in trainer: ...``. Its state can be taken and restored between any two steps.

    Ordinarily the task's own data are the only job. With several jobs the losses of their tasks are added: multitask learning.
    """

    def __init__(
        self,
        model: ContinualModel,
        strategy: Strategy,
        task: int,
        data: TaskData,
        settings: TrainingSettings,
        posterior: PosteriorSettings,
        *,
        seed: int,
        matching: PriorMatching | None = None,
        jobs: Sequence[Job] | None = None,
    ) -> None:
        self.model, self.strategy, self.task, self.data = model, strategy, task, data
        self.settings, self.posterior = settings, posterior
        self.noise = generator_for(seed, "noise", task)
        own = OwnBatches(data, settings.batch_size, generator_for(seed, "batches", task), settings.augmentation)
        self.jobs = jobs or [Job(task, own, matching or DirectMatching())]
        self.iterations = settings.iterations or max(job.batches.batches_per_epoch for job in self.jobs) * (settings.epochs or 1)
        self.iteration = 0
        of_jobs = [parameter for job in self.jobs for parameter in model.task_map.trained_parameters(job.task)]
        self.parameters = list(dict.fromkeys(of_jobs))
        self.signals = torch.full((self.iterations, 2), torch.nan) if settings.record_signals else None
        """Loss and uncertainty of the batch of each iteration, (I, 2); sm:sec:task:boundary:detection."""
        self.optimiser = adam(self.parameters, settings.learning_rate)
        self.rate = LearningRate(settings, self.optimiser, self.jobs[0].batches.batches_per_epoch, self.iterations)

    def __iter__(self) -> Iterator[Step]:
        while self.iteration < self.iterations:
            terms = self._step()
            self.iteration += 1
            if self.iteration == self.iterations:
                self._check_parameters()
            yield Step(self.task, self.iteration, self.iterations, terms)
        with torch.no_grad():
            for job in self.jobs:
                self.strategy.after_task(self.model, job.task, self.data)

    def _check_parameters(self) -> None:
        """The last step has no later loss that would show its harm."""
        if not all(bool(parameter.isfinite().all()) for parameter in self.parameters):
            raise TrainingDiverged(
                f"the parameters of task {self.task} became NaN or infinite in iteration {self.iteration}; the last good state is kept. "
                "Try a smaller training.learning_rate, set training.clip_norm, or look for extreme inputs"
            )

    def _step(self) -> LossTerms:
        self.optimiser.zero_grad()
        parts = [self._add_gradients(job) for job in self.jobs]
        clip_gradients(self.parameters, value=self.settings.clip_value, norm=self.settings.clip_norm)
        self.optimiser.step()
        terms = LossTerms(*(torch.stack(terms).sum() for terms in zip(*parts, strict=True)))
        self.rate.after_step(terms.data)
        return terms

    def _add_gradients(self, job: Job) -> LossTerms:
        """The loss of one job, its gradients added to those of the others; only one job's graph is in memory."""
        x, y = job.batches.next()
        posterior = self.model.training_posterior(job.task)
        prior = self._prior_of(job, posterior)
        if prior is not None:
            job.matching.learn(posterior, prior, generator=self.noise)
        terms = self.loss_terms(x, y, job, posterior)
        loss = terms.total
        if not loss.isfinite():
            parts = ", ".join(f"{name} {float(value.detach()):.3g}" for name, value in terms._asdict().items())
            raise TrainingDiverged(
                f"the loss of task {job.task} became {float(loss.detach()):.3g} in iteration {self.iteration + 1} ({parts}); "
                "the last good state is kept. Try a smaller training.learning_rate, set training.clip_norm, or look for extreme inputs"
            )
        loss.backward()
        return LossTerms(*(term.detach() for term in terms))

    def _prior_of(self, job: Job, posterior: Posterior) -> Prior | None:
        """The prior that the posterior is matched with; None where there is none."""
        if isinstance(members_of(posterior)[0], Dirac) or self.posterior.prior_scale == 0:
            return None
        return tempered(self.strategy.prior_for(job.task), self.posterior.prior_power)

    def loss_terms(self, x: Tensor, y: Tensor, job: Job | None = None, posterior: Posterior | None = None) -> LossTerms:
        """Negative ELBO of a job's task (by default the first's), scaled to all that it learns from, plus the strategy's penalty."""
        model, zero, job = self.model, torch.zeros((), device=self.model.device), job or self.jobs[0]
        posterior = model.training_posterior(job.task) if posterior is None else posterior
        each, members = members_of(posterior)
        samples = members * (1 if isinstance(each, Dirac) else self.posterior.train_samples)  # the mean over members too
        local, autocast = self.posterior.local_reparametrisation, self.settings.autocast
        outputs = model.run(posterior, x, samples, job.task, generator=self.noise, local=local, train=True, autocast=autocast)  # (K, B, C)
        outputs = outputs[..., model.training_columns(job.task)]
        nll = model.likelihood.nll(outputs, y.to(model.device))
        if self.signals is not None and job is self.jobs[0]:
            with torch.no_grad():
                self.signals[self.iteration] = torch.stack([nll, model.likelihood.uncertainty(outputs).to(nll.dtype)]).cpu()
        data = job.batches.size * nll  # N/K sum_k mean_batch NLL(w_k): first term of SM eq. elbo
        prior, matching = self._prior_of(job, posterior), zero
        if prior is not None:
            matching = job.matching.term(posterior, prior, self.posterior.prior_samples, generator=self.noise)
        replay = self.strategy.penalty(model, job.task, generator=self.noise)
        scaled = self.posterior.prior_scale * matching  # second term of SM eq. elbo, tempered as a whole
        return LossTerms(data, scaled, zero if replay is None else replay)

    def tensors(self) -> dict[str, Tensor]:
        """Optimiser, prior matching, random generators and position in the data; the model and the strategy store themselves."""
        stored: dict[str, Tensor] = {}
        for n, job in enumerate(self.jobs):
            stored |= {f"batches.{n}.{name}": tensor for name, tensor in job.batches.tensors().items()}
            stored |= {f"matching.{n}.{name}": tensor for name, tensor in job.matching.tensors().items()}
        if self.signals is not None:
            stored["signals"] = self.signals
        stored["noise"] = self.noise.get_state()
        stored["iteration"] = torch.tensor(self.iteration)
        stored |= {f"rate.{name}": tensor for name, tensor in self.rate.tensors().items()}
        stored |= {f"optimiser.{name}": tensor for name, tensor in optimiser_tensors(self.optimiser).items()}
        return stored

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue where a checkpoint stopped."""
        for n, job in enumerate(self.jobs):
            job.batches.restore(_under(f"batches.{n}.", tensors))
            job.matching.restore(_under(f"matching.{n}.", tensors))
        if self.signals is not None:
            self.signals.copy_(tensors["signals"])
        self.noise.set_state(tensors["noise"])
        self.iteration = int(tensors["iteration"])
        self.rate.restore(_under("rate.", tensors))
        restore_optimiser(self.optimiser, _under("optimiser.", tensors))


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
