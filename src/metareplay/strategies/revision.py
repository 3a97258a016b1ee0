"""A known task trained further on new data: its posterior is the prior of the update, other tasks are protected as
usual.

The plain Bayesian update p(W | D, D') ~ p(D' | W) p(W | D) [Henning2021, sm:sec:coresets, for new data]. Two things
are not in a posterior. A point estimate has no width that could hold it: it is pulled to its old value by a Gaussian of
the prior's variance. And outputs of new classes never competed with the old ones. In both cases the task also rehearses
inputs that are drawn from what is stored about it, with its own old answers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast, final

import torch
from torch import Generator, Tensor

from metareplay.batches.base import Batch
from metareplay.benchmarks.base import TaskData
from metareplay.errors import ConfigError
from metareplay.model import ContinualModel
from metareplay.posteriors.base import Posterior, Prior
from metareplay.posteriors.families.dirac import Dirac
from metareplay.posteriors.families.flow import Flow
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.families.mixture import Mixture, members_of
from metareplay.posteriors.priors.earlier import LastPosterior, as_prior, with_fixed_prior
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.strategies.base import CURRENT, StepChange, Strategy, Update, current_state

PREFIX = "revision."
"""Of the names of its state, among that of the current task."""


@final
class Revision:
    """Wraps a method's strategy while one known task is trained further."""

    def __init__(self, inner: Strategy, fixed: GaussianPrior) -> None:
        self.inner, self.fixed = inner, fixed
        self.sees_steps, self.takes_steps, self.keeps_revised = inner.sees_steps, inner.takes_steps, inner.keeps_revised
        self.task = 0
        self.theta: Tensor
        """The task's parameters before the update (P,)."""
        self.fresh: Tensor
        """True for weights of new classes, which the old posterior has not learned: (W,) bool."""
        self.prior: Prior
        self.old_weights: Tensor | None = None
        """What a point estimate is pulled to: (M, W) or (W,)."""
        self.imagined: TaskData | None = None
        self.weight = 0.0
        """Of the imagined inputs relative to the new ones."""

    def begin(self, model: ContinualModel, task: int, fresh: Tensor, imagined: TaskData | None, weight: float) -> None:
        """Remember the posterior of the task and, by the wrapped strategy, those of all others."""
        self.inner.before_revision(model, task, resumed=False)
        self._hold(model, task, model.task_map.theta(task).detach().clone(), fresh)
        self.imagined, self.weight = imagined, weight

    def _hold(self, model: ContinualModel, task: int, theta: Tensor, fresh: Tensor) -> None:
        self.task, self.theta, self.fresh = task, theta, fresh
        posterior = model.family.at(theta, model.spec)
        members = members_of(posterior)[0]
        self.prior = self._prior(posterior)
        self.old_weights = None
        if isinstance(members, Dirac) and not self.keeps_revised:
            self.old_weights = torch.where(fresh, 0.0, members.weights.detach())

    def _prior(self, posterior: Posterior) -> Prior:
        """The old posterior; weights of new classes follow the fixed prior."""
        prior = as_prior(posterior)
        if not bool(self.fresh.any()) or isinstance(members_of(posterior)[0], Dirac):
            return prior
        if isinstance(prior, Mixture) and isinstance(prior.components, MeanFieldGaussian):
            return replace(prior, components=with_fixed_prior(prior.components, self.fixed, self.fresh))
        if isinstance(prior, MeanFieldGaussian | Flow):
            return with_fixed_prior(prior, self.fixed, self.fresh)
        return LastPosterior(posterior, self.fixed, self.fresh)

    def prior_for(self, task: int) -> Prior:
        return self.prior

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        others = self.inner.penalty(model, task, generator=generator)
        if self.old_weights is None:
            return others
        now = cast(Dirac, members_of(model.posterior(task))[0]).weights  # (M, W) or (W,)
        pull = 0.5 / self.fixed.variance * (now - self.old_weights).square().sum(-1).mean()  # -log N(w; w_old, s^2)
        return pull if others is None else others + pull

    def batches_for(self, model: ContinualModel, task: int, batch: Batch, *, generator: Generator) -> Sequence[Batch]:
        batches = self.inner.batches_for(model, task, batch, generator=generator)
        if self.imagined is None or self.weight == 0:
            return batches
        rows = torch.randint(len(self.imagined.x), (len(batch.x),), generator=generator)
        return (*batches, Batch(self.imagined.x[rows], self.imagined.y[rows], self.weight))

    def data_for(self, task: int, data: TaskData) -> TaskData:
        return data

    def revisit(self, task: int, data: Callable[[], TaskData]) -> None:
        self.inner.revisit(task, data)

    def before_task(self, model: ContinualModel, task: int) -> None:
        raise ConfigError(UNFINISHED)

    def before_revision(self, model: ContinualModel, task: int, *, resumed: bool) -> None:
        raise ConfigError(UNFINISHED)

    def remove_task(self, task: int) -> None:
        raise ConfigError(UNFINISHED)

    def begin_update(self, model: ContinualModel, tasks: Sequence[int], *, again: bool) -> Update | None:
        raise ConfigError(UNFINISHED)

    def resume_update(self, model: ContinualModel) -> Update:
        raise ConfigError(UNFINISHED)

    def after_step(self, model: ContinualModel, task: int, step: StepChange, *, generator: Generator) -> None:
        self.inner.after_step(model, task, step, generator=generator)

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        self.inner.after_task(model, task, data)

    def state(self) -> dict[str, Tensor]:
        own: dict[str, Any] = {"task": torch.tensor(self.task), "theta": self.theta, "fresh": self.fresh}
        own["weight"] = torch.tensor(self.weight, dtype=torch.float64)
        if self.imagined is not None:
            own |= {"x": self.imagined.x, "y": self.imagined.y}
        return self.inner.state() | current_state({f"{PREFIX}{name}": tensor for name, tensor in own.items()})

    def load_state(self, model: ContinualModel, state: Mapping[str, Tensor]) -> None:
        start = f"{CURRENT}{PREFIX}"
        own = {name.removeprefix(start): tensor for name, tensor in state.items() if name.startswith(start)}
        self.inner.load_state(model, {name: tensor for name, tensor in state.items() if not name.startswith(start)})
        task, home = int(own["task"]), model.device
        self.inner.before_revision(model, task, resumed=True)
        self._hold(model, task, own["theta"].to(home), own["fresh"].to(home))
        self.imagined = TaskData(own["x"], own["y"]) if "x" in own else None
        self.weight = float(own["weight"])


UNFINISHED = "an update of a known task is under way; finish it first"


def is_revision(state: Mapping[str, Tensor]) -> bool:
    """Whether a strategy's state was taken while a known task was trained further."""
    return f"{CURRENT}{PREFIX}task" in state
