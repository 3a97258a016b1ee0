"""The only training loop."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, cast

import torch
from torch import Generator, Tensor
from torch.optim import Optimizer

from metareplay.batches.base import Batch, Batches
from metareplay.benchmarks.base import TaskData
from metareplay.errors import TrainingDiverged
from metareplay.model import ContinualModel
from metareplay.optimisers import adam, clip_gradients, optimiser_tensors, restore_optimiser
from metareplay.posteriors.base import HasUnclipped, Posterior, Prior, PriorMatching
from metareplay.posteriors.families.gaussian import GaussianFamily
from metareplay.posteriors.priors.tempered import tempered
from metareplay.seeding import generator_for
from metareplay.strategies.base import LossTerms, StepChange, Strategy
from metareplay.training.early_stopping import EarlyStopping
from metareplay.training.natural import Ivon
from metareplay.training.objective import Objective
from metareplay.training.schedule import LearningRate
from metareplay.training.settings import TrainingSettings
from metareplay.training.together import Together, averaged, own_part
from metareplay.training.unclipped import Unclipped
from metareplay.training.watch import LossWatch, Notice

HELD_OUT, HELD_OUT_SAMPLES = 200, 4
"""Held-out examples by which training may stop early, and weight samples for them."""
ADVICE = "Try a smaller training.learning_rate, set training.clip_norm, or look for extreme inputs"


class Step(NamedTuple):
    """What a training step reports."""

    iteration: int
    """Steps done so far."""
    iterations: int
    terms: LossTerms
    notice: Notice | None = None
    """What has just been seen to go wrong."""


class Job(NamedTuple):
    """A task, the batches it learns from, and how it is matched with its prior."""

    task: int
    batches: Batches
    matching: PriorMatching
    auxiliary: bool = True
    """Whether the batches have targets for auxiliary outputs, too."""


class TaskTrainer:
    """Learns one task, or several together, step by step: ``for step in trainer: ...``.

    Ordinarily there is one job: the new task with its own data. With several jobs the losses of their tasks are summed
    (multitask learning). The state can be saved and restored between any two steps.
    """

    def __init__(
        self,
        model: ContinualModel,
        strategy: Strategy,
        jobs: Sequence[Job],
        examples: TaskData,
        settings: TrainingSettings,
        objective: Objective,
        *,
        noise: Generator,
        watched: bool = False,
        held_out: TaskData | None = None,
    ) -> None:
        self.model, self.strategy, self.jobs, self.examples = model, strategy, list(jobs), examples
        self.settings, self.objective, self.noise = settings, objective, noise
        longest = max((job.batches for job in self.jobs), key=lambda batches: batches.batches_per_epoch)
        self.iterations = settings.steps(longest.size, longest.batches_per_epoch) if strategy.takes_steps else 0
        self.iteration, self.held_out = 0, held_out
        of_jobs = [parameter for job in self.jobs for parameter in model.task_map.trained_parameters(job.task)]
        self.parameters = list(dict.fromkeys(of_jobs))
        self.unclipped = Unclipped(self.parameters)
        self.signals = torch.full((self.iterations, 2), torch.nan) if settings.record_signals else None
        """Loss and uncertainty of each iteration's batch, (I, 2); sm:sec:task:boundary:detection."""
        self.optimiser = self._optimiser()
        self.rate = LearningRate(settings, self.optimiser, self.jobs[0].batches.batches_per_epoch, self.iterations)
        self.stopping: EarlyStopping | None = None
        if settings.early_stopping is not None and held_out is not None and len(held_out.x):
            self.stopping = EarlyStopping(settings.early_stopping, settings.patience, self.iterations)
        self.watch = LossWatch(model.likelihood.constant_nll(examples.y), self.iterations) if watched else None
        self.nll = torch.zeros(())
        """The mean NLL of the last batch of the first job's own data."""
        self.prior_term = torch.zeros((), device=model.device)
        """The last prior-matching term that was computed without a gradient."""
        self.together: Together | None = None
        """The processes that learn this together; None: one alone."""
        self.when_learned: Callable[[], None] = lambda: None
        """Called after the last step."""

    def __iter__(self) -> Iterator[Step]:
        while self.iteration < self.iterations:
            terms = self._step()
            self.iteration += 1
            if self.stopping is not None and self.stopping.due(self.iteration):
                self.stopping.check(self.iteration, self._held_out_loss())
                self._end_as(self.stopping)
            if self.iteration == self.iterations:
                self._check_parameters()
            notice = None if self.watch is None else self.watch.after_step(float(self.nll))
            yield Step(self.iteration, self.iterations, terms, notice)
        with torch.no_grad():
            for job in self.jobs:
                self.strategy.after_task(self.model, job.task, self.examples)
        self.when_learned()

    @property
    def natural(self) -> bool:
        """Whether the optimiser itself knows the prior, so that its term needs no gradient."""
        return self.settings.optimiser == "ivon"

    def _optimiser(self) -> Optimizer:
        """Adam, or natural-gradient steps for the posterior of the only job."""
        if not self.natural:
            return adam(self.parameters, self.settings.learning_rate)
        (job,), (theta,), prior_scale = self.jobs, self.parameters, self.objective.prior_scale
        prior = tempered(self.strategy.prior_for(job.task), self.objective.prior_power)
        offset = cast(GaussianFamily, self.model.family).offset  # TrainingSettings refuses others
        return Ivon(theta, self.settings, prior, examples=job.batches.size, prior_scale=prior_scale, offset=offset)

    @property
    def tasks(self) -> list[int]:
        """The tasks being trained."""
        return [job.task for job in self.jobs]

    def _check_parameters(self) -> None:
        """After the last step there is no further loss that would reveal divergence."""
        if not all(bool(parameter.isfinite().all()) for parameter in self.parameters):
            raise TrainingDiverged(
                f"the parameters of task {self.tasks[-1]} became NaN or infinite in iteration {self.iteration}; "
                f"the last good state is kept. {ADVICE}"
            )

    def _step(self) -> LossTerms:
        self.optimiser.zero_grad()
        self.unclipped.clear()
        batches, parts = zip(*(self._add_gradients(job) for job in self.jobs), strict=True)
        terms = LossTerms(*(torch.stack(terms).sum() for terms in zip(*parts, strict=True)))
        if self.together is not None:
            terms, self.nll = averaged(self.parameters, terms, self.nll, self.together)
            self.unclipped.average(self.together)
            self._check_loss(self.jobs[-1], terms.total, terms)
        self._take_step(batches)
        self.rate.after_step(terms.data)
        return terms

    def _take_step(self, batches: Sequence[Sequence[Batch]]) -> None:
        """Update the parameters, and notify a strategy that observes steps."""
        if not self.strategy.sees_steps:
            self._clip()
            self.optimiser.step()
            return
        before = [parameter.detach().clone() for parameter in self.parameters]
        gradients = [
            torch.zeros_like(old) if parameter.grad is None else parameter.grad.clone()
            for old, parameter in zip(before, self.parameters, strict=True)
        ]
        self._clip()
        self.optimiser.step()
        change = [parameter.detach() - old for old, parameter in zip(before, self.parameters, strict=True)]
        for job, learned in zip(self.jobs, batches, strict=True):
            step = StepChange(learned, self.parameters, gradients, change)
            self.strategy.after_step(self.model, job.task, step, generator=self.noise)

    def _clip(self) -> None:
        """As the settings say, then add what is not clipped; natural gradients are scaled by curvature instead."""
        if not self.natural:
            clip_gradients(self.parameters, value=self.settings.clip_value, norm=self.settings.clip_norm)
            self.unclipped.release()

    def _add_gradients(self, job: Job) -> tuple[Sequence[Batch], LossTerms]:
        """Compute the loss of one job and accumulate its gradients; only one job's graph is in memory."""
        batch = Batch(*job.batches.next())
        batches = self.strategy.batches_for(self.model, job.task, batch, generator=self.noise)
        posterior = self.model.training_posterior(job.task)
        prior = self._prior_of(job)
        if prior is not None:
            job.matching.learn(posterior, prior, generator=self.noise)
        parts = batches if self.together is None else own_part(batches, self.together)
        terms = self.loss_terms(job, parts, posterior)
        loss = terms.total
        if self.together is None:  # several processes find it together, or the others would wait
            self._check_loss(job, loss, terms)
        if prior is not None and isinstance(job.matching, HasUnclipped) and not self.natural:
            rest = job.matching.unclipped_term(posterior, prior, generator=self.noise)
            self.unclipped.add(None if rest is None else self.objective.prior_scale * rest)
        loss.backward()
        return batches, LossTerms(*(term.detach() for term in terms))

    def _check_loss(self, job: Job, loss: Tensor, terms: LossTerms) -> None:
        """Stop at once when a loss is not finite."""
        if not loss.isfinite():
            parts = ", ".join(f"{name} {float(value.detach()):.3g}" for name, value in terms._asdict().items())
            raise TrainingDiverged(
                f"the loss of task {job.task} became {float(loss.detach()):.3g} in iteration {self.iteration + 1} "
                f"({parts}); the last good state is kept. {ADVICE}"
            )

    def _prior_of(self, job: Job) -> Prior | None:
        """The prior that the posterior is matched with; None if there is none."""
        if self.objective.point or self.objective.prior_scale == 0:
            return None
        return tempered(self.strategy.prior_for(job.task), self.objective.prior_power)

    def loss_terms(self, job: Job, batches: Sequence[Batch], posterior: Posterior) -> LossTerms:
        """Negative ELBO of a job's task, scaled to its whole training set, plus the strategy's penalty."""
        zero = torch.zeros((), device=self.model.device)
        nll = self._nll(job, batches, posterior)
        data = job.batches.size * nll  # N/K sum_k mean_batch NLL(w_k): first term of SM eq. elbo
        prior, matching = self._prior_of(job), zero
        if prior is not None and not self.natural:
            matching = job.matching.term(posterior, prior, generator=self.noise)
        elif prior is not None:
            matching = self._shown_prior(job, posterior, prior)
        replay = self.strategy.penalty(self.model, job.task, generator=self.noise)
        scaled = self.objective.prior_scale * matching  # second term of SM eq. elbo, tempered as a whole
        return LossTerms(data, scaled, zero if replay is None else replay)

    @torch.no_grad()
    def _shown_prior(self, job: Job, posterior: Posterior, prior: Prior) -> Tensor:
        """The prior-matching term where the optimiser needs no gradient of it: computed for steps that are logged."""
        if self.iteration == 0 or (self.iteration + 1) % self.settings.log_every == 0:
            self.prior_term = job.matching.term(posterior, prior, generator=self.noise)
        return self.prior_term

    def _nll(self, job: Job, batches: Sequence[Batch], posterior: Posterior) -> Tensor:
        """The weighted sum over batches of the mean NLL under weight samples."""
        model, samples = self.model, self.model.members * self.objective.train_samples
        local, autocast = self.objective.local_reparametrisation, self.settings.autocast
        losses = []
        for number, (x, y, weight) in enumerate(batches):
            outputs = model.run(  # (K, B, C)
                posterior, x, samples, job.task, generator=self.noise, local=local, train=True, autocast=autocast
            )
            outputs = outputs[..., model.training_columns(job.task, auxiliary=job.auxiliary)]
            nll = model.likelihood.nll(outputs, y.to(model.device))
            if number == 0 and job is self.jobs[0]:
                self.nll = nll.detach()
                self._record(nll, outputs)
            losses.append(nll if weight == 1 else weight * nll)
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    @torch.no_grad()
    def _held_out_loss(self) -> float:
        """The mean NLL of held-out examples, always under the same noise."""
        assert self.held_out is not None
        task, model, step = self.jobs[0].task, self.model, -(-len(self.held_out.x) // HELD_OUT)
        x, y = self.held_out.x[::step], self.held_out.y[::step]
        samples, local = model.members * HELD_OUT_SAMPLES, self.objective.local_reparametrisation
        generator = generator_for(0, "early stopping", task)
        outputs = model.run(model.training_posterior(task), x, samples, task, generator=generator, local=local)
        return float(
            model.likelihood.nll(outputs[..., model.training_columns(task, auxiliary=False)], y.to(model.device))
        )

    def _end_as(self, stopping: EarlyStopping) -> None:
        """Go on as the held-out loss suggests."""
        if stopping.ends < self.iterations:
            self.iterations = stopping.ends
            self.rate.end(stopping.decay_from, stopping.ends)

    @torch.no_grad()
    def _record(self, nll: Tensor, outputs: Tensor) -> None:
        if self.signals is not None:
            uncertainty = self.model.likelihood.uncertainty(outputs).to(nll.dtype)
            self.signals[self.iteration] = torch.stack([nll, uncertainty]).cpu()

    def tensors(self) -> dict[str, Tensor]:
        """Optimiser, prior matching, random generators and position in the data; not the model, nor the strategy."""
        stored: dict[str, Tensor] = {}
        for n, job in enumerate(self.jobs):
            stored |= {f"batches.{n}.{name}": tensor for name, tensor in job.batches.tensors().items()}
            stored |= {f"matching.{n}.{name}": tensor for name, tensor in job.matching.tensors().items()}
        if self.signals is not None:
            stored["signals"] = self.signals
        stored["noise"] = self.noise.get_state()
        stored["iteration"] = torch.tensor(self.iteration)
        if self.natural:
            stored["prior_term"] = self.prior_term
        stored |= {f"rate.{name}": tensor for name, tensor in self.rate.tensors().items()}
        if self.watch is not None:
            stored |= {f"watch.{name}": tensor for name, tensor in self.watch.tensors().items()}
        if self.stopping is not None:
            stored |= {f"stopping.{name}": tensor for name, tensor in self.stopping.tensors().items()}
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
        if self.natural:
            self.prior_term = tensors["prior_term"].to(self.model.device)
        if self.stopping is not None:
            self.stopping.restore(_under("stopping.", tensors))
            self._end_as(self.stopping)
        self.rate.restore(_under("rate.", tensors))
        if self.watch is not None:
            self.watch.restore(_under("watch.", tensors))
        restore_optimiser(self.optimiser, _under("optimiser.", tensors))


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
