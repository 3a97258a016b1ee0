"""The only training loop."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from metareplay.errors import TrainingDiverged
from metareplay.model import ContinualModel
from metareplay.optimisers import adam, clip_gradients, optimiser_tensors, restore_optimiser
from metareplay.posteriors.base import Posterior, Prior, PriorMatching
from metareplay.posteriors.dirac import Dirac
from metareplay.posteriors.mixture import members_of
from metareplay.posteriors.prior_matching import DirectMatching
from metareplay.posteriors.settings import PosteriorSettings
from metareplay.posteriors.tempering import tempered
from metareplay.seeding import generator_for
from metareplay.strategies.base import LossTerms, Strategy, TrainingData
from metareplay.training.batches import BatchOrder
from metareplay.training.settings import TrainingSettings


class Step(NamedTuple):
    """What a training step reports."""

    task: int
    iteration: int
    """Steps done so far in this task."""
    iterations: int
    terms: LossTerms


class TaskTrainer:
    """Learns one task, step by step: ``for step in trainer: ...``. Its state can be taken and restored between any two steps."""

    def __init__(
        self,
        model: ContinualModel,
        strategy: Strategy,
        task: int,
        data: TrainingData,
        settings: TrainingSettings,
        posterior: PosteriorSettings,
        *,
        seed: int,
        matching: PriorMatching | None = None,
    ) -> None:
        self.matching: PriorMatching = DirectMatching() if matching is None else matching
        self.model, self.strategy, self.task, self.data = model, strategy, task, data
        self.settings, self.posterior = settings, posterior
        self.noise = generator_for(seed, "noise", task)
        self.batches = BatchOrder(len(data.x), settings.batch_size, generator_for(seed, "batches", task))
        self.iterations = settings.iterations or self.batches.batches_per_epoch * (settings.epochs or 1)
        self.iteration = 0
        self.parameters = model.task_map.trained_parameters(task)
        self.optimiser = adam(self.parameters, settings.learning_rate)

    def __iter__(self) -> Iterator[Step]:
        while self.iteration < self.iterations:
            terms = self._step()
            self.iteration += 1
            if self.iteration == self.iterations:
                self._check_parameters()
            yield Step(self.task, self.iteration, self.iterations, terms)
        with torch.no_grad():
            self.strategy.after_task(self.model, self.task, self.data)

    def _check_parameters(self) -> None:
        """The last step has no later loss that would show its harm."""
        if not all(bool(parameter.isfinite().all()) for parameter in self.parameters):
            raise TrainingDiverged(
                f"the parameters of task {self.task} became NaN or infinite in iteration {self.iteration}; the last good state is kept. "
                "Try a smaller training.learning_rate, set training.clip_norm, or look for extreme inputs"
            )

    def _step(self) -> LossTerms:
        index = self.batches.next()
        posterior = self.model.training_posterior(self.task)
        prior = self._prior_of(posterior)
        if prior is not None:
            self.matching.learn(posterior, prior, generator=self.noise)
        terms = self.loss_terms(self.data.x[index], self.data.y[index], posterior)
        loss = terms.total
        if not loss.isfinite():
            parts = ", ".join(f"{name} {float(value.detach()):.3g}" for name, value in terms._asdict().items())
            raise TrainingDiverged(
                f"the loss of task {self.task} became {float(loss.detach()):.3g} in iteration {self.iteration + 1} ({parts}); "
                "the last good state is kept. Try a smaller training.learning_rate, set training.clip_norm, or look for extreme inputs"
            )
        self.optimiser.zero_grad()
        loss.backward()
        clip_gradients(self.parameters, value=self.settings.clip_value, norm=self.settings.clip_norm)
        self.optimiser.step()
        return LossTerms(*(term.detach() for term in terms))

    def _prior_of(self, posterior: Posterior) -> Prior | None:
        """The prior that the posterior is matched with; None where there is none."""
        if isinstance(members_of(posterior)[0], Dirac) or self.posterior.prior_scale == 0:
            return None
        return tempered(self.strategy.prior_for(self.task), self.posterior.prior_power)

    def loss_terms(self, x: Tensor, y: Tensor, posterior: Posterior | None = None) -> LossTerms:
        """Negative ELBO of the task, scaled to its whole data set, plus the strategy's penalty."""
        model, zero = self.model, torch.zeros(())
        posterior = model.training_posterior(self.task) if posterior is None else posterior
        each, members = members_of(posterior)
        samples = members * (1 if isinstance(each, Dirac) else self.posterior.train_samples)  # the mean over members too
        outputs = model.run(posterior, x, samples, generator=self.noise, local=self.posterior.local_reparametrisation)  # (K, B, C)
        nll = model.likelihood.nll(outputs[..., model.training_columns(self.task)], y)
        data = len(self.data.x) * nll  # N/K sum_k mean_batch NLL(w_k): first term of SM eq. elbo
        prior, matching = self._prior_of(posterior), zero
        if prior is not None:
            matching = self.matching.term(posterior, prior, self.posterior.prior_samples, generator=self.noise)
        replay = self.strategy.penalty(model, self.task, generator=self.noise)
        scaled = self.posterior.prior_scale * matching  # second term of SM eq. elbo, tempered as a whole
        return LossTerms(data, scaled, zero if replay is None else replay)

    def tensors(self) -> dict[str, Tensor]:
        """Optimiser, prior matching, random generators and position in the data; the model and the strategy store themselves."""
        stored = {f"batches.{name}": tensor for name, tensor in self.batches.tensors().items()}
        stored["noise"] = self.noise.get_state()
        stored["iteration"] = torch.tensor(self.iteration)
        stored |= {f"optimiser.{name}": tensor for name, tensor in optimiser_tensors(self.optimiser).items()}
        return stored | {f"matching.{name}": tensor for name, tensor in self.matching.tensors().items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue where a checkpoint stopped."""
        self.batches.restore(_under("batches.", tensors))
        self.noise.set_state(tensors["noise"])
        self.iteration = int(tensors["iteration"])
        restore_optimiser(self.optimiser, _under("optimiser.", tensors))
        self.matching.restore(_under("matching.", tensors))


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
