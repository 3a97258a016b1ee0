"""Posterior meta-replay: preserve the posteriors of old tasks while the hypernetwork learns a new one.

[Henning2021, eq. hnet:reg:analytic:divergence, eq. hnet:reg:l2, and sm:eq:kl:taylor with the Fisher information of old
posteriors]
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import cast, final

import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import TaskData
from metareplay.errors import ConfigError
from metareplay.kernels.quadratic import quadratic_change
from metareplay.model import ContinualModel
from metareplay.model_changes import other_heads_theta, unused_theta, unused_weights
from metareplay.posteriors.base import Prior
from metareplay.posteriors.divergences import replay_divergence
from metareplay.posteriors.families.flow import Flow
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.families.mixture import members_of
from metareplay.posteriors.priors.earlier import MixturePrior, with_fixed_prior
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.seeding import generator_for
from metareplay.settings import Composition
from metareplay.strategies.base import (
    QuietStrategy,
    StrategyContext,
    StrategyPart,
    current_state,
    of_current,
    register_strategy,
)
from metareplay.strategies.fisher import is_known, known_information, posterior_information
from metareplay.strategies.replay_settings import (
    ReplayPriorSettings,
    ReplaySettings,
    StochasticReplaySettings,
    has_weights_of_outputs,
)
from metareplay.task_maps.base import TaskMap
from metareplay.task_maps.left_out import LeftOut
from metareplay.task_maps.replay_distance import SquaredChange, small_matrices_pay

INFORMATION = "information"
"""The name under which the Fisher information of finished tasks is stored."""


@final
class PosteriorReplay(QuietStrategy):
    """Penalise the change of old tasks' posteriors against a checkpoint of the hypernetwork taken before the task."""

    def __init__(self, settings: ReplaySettings, prior: GaussianPrior, *, seed: int) -> None:
        super().__init__(prior)
        self.settings, self.fixed, self.seed = settings, prior, seed
        self.checkpoint: TaskMap | None = None
        self.stored: Tensor | None = None
        self.change: SquaredChange | None = None
        self.mixture: MixturePrior | None = None
        self.information: Tensor | None = None
        """Diagonals of R^(t') of all finished tasks (T, P), if the penalty is fisher and they have no closed form."""
        self.kept_tasks: list[int] = []
        """The tasks whose posteriors are preserved: all but those being trained."""
        self.unused: Tensor | None = None
        """True for what belongs to outputs that a kept task does not have, and is free to change (T, P)."""

    def prior_for(self, task: int) -> Prior:
        return self.fixed if self.mixture is None else self.mixture

    def before_task(self, model: ContinualModel, task: int) -> None:
        if task > 0 and self._estimates(model):
            self.information = self._grown(model, task)
        self.keep_all_but(model, [task])

    def before_revision(self, model: ContinualModel, task: int, *, resumed: bool) -> None:
        if not resumed and model.old_positions is not None and self._estimates(model):
            self.information = self._grown(model, model.num_tasks)
        self.keep_all_but(model, [task], self.checkpoint if resumed else None)
        if self.checkpoint is not None:
            self.unused = unused_theta(model, self.kept_tasks)

    def remove_task(self, task: int) -> None:
        if self.information is not None:
            self.information = torch.cat([self.information[:task], self.information[task + 1 :]])  # (T, P)

    def keep_all_but(self, model: ContinualModel, trained: Sequence[int], checkpoint: TaskMap | None = None) -> None:
        """Remember the posteriors of all tasks except these, as they are or as they were in a checkpoint."""
        self.forget_checkpoint()
        self.kept_tasks = [task for task in range(model.num_tasks) if task not in trained]
        if self.kept_tasks and (self.settings.strength > 0 or self.settings.prior_from_earlier > 0):
            self._keep(model, checkpoint or deepcopy(model.task_map))

    def _estimates(self, model: ContinualModel) -> bool:
        """Whether the Fisher information of a posterior must be estimated after its task."""
        return self.settings.penalty == "fisher" and self.settings.strength > 0 and not is_known(model.family)

    def _grown(self, model: ContinualModel, task: int) -> Tensor:
        """The old tasks' information for the theta of the current network: zero for weights that they do not use."""
        if self.information is None or len(self.information) < task:
            available = 0 if self.information is None else len(self.information)
            raise ConfigError(
                f"strategy.penalty=fisher in task {task} needs the Fisher information of all {task} earlier tasks, "
                f"but only {available} are available; learn the tasks again, or choose the penalty mse"
            )
        if model.old_positions is None:
            return self.information
        grown = torch.zeros(task, model.family.num_parameters(model.spec), device=model.device)
        grown[:, model.old_positions] = self.information[:task].to(model.device)  # (T, P before) -> (T, P)
        return grown

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        if self._estimates(model):
            generator = generator_for(self.seed, "fisher", task)
            variance = self.fixed.variance
            new = posterior_information(model, task, data, self.settings, variance, generator=generator).unsqueeze(0)
            old = new[:0] if self.information is None else self.information.to(new.device)
            self.information = torch.cat([old[:task], new, old[task + 1 :]])  # (T, P), (1, P) -> (T + 1, P)
        self.forget_checkpoint()

    def _keep(self, model: ContinualModel, checkpoint: TaskMap) -> None:
        self.checkpoint, count = checkpoint.requires_grad_(False), len(self.kept_tasks)
        self.unused = None if self.settings.penalty == "mse" else unused_theta(model, self.kept_tasks)
        if self.settings.prior_from_earlier > 0:
            thetas = checkpoint.thetas(self.kept_tasks)  # (T, P)
            posteriors = model.family.at(thetas, model.spec)  # q_s of all earlier tasks; (T, W)
            kept = torch.tensor(self.kept_tasks, device=model.device).unsqueeze(1)  # (T, 1)
            later = model.introduced_by_task > kept  # weights that a task did not have when it was learned; (T, W)
            if (unused := unused_weights(model, self.kept_tasks)) is not None:
                later = later | unused
            earlier = with_fixed_prior(cast(MeanFieldGaussian | Flow, posteriors), self.fixed, later)
            share = self.settings.prior_from_earlier
            self.mixture = MixturePrior(self.fixed, earlier, count, share)  # sm:sec:graceful:forgetting
        at_once = min(count, self.settings.old_tasks or count)
        implicit = self.settings.penalty == "mse" and small_matrices_pay(checkpoint, at_once, stored=True)
        stored = self.kept_tasks if self.settings.targets == "stored" else ()
        self.change = SquaredChange(checkpoint, stored, self._left_out(model))
        if self.settings.targets == "stored" and not implicit:
            self.stored = checkpoint.thetas(self.kept_tasks)  # theta^(t',*) of eq. hnet:reg:analytic:divergence; (T, P)

    def _left_out(self, model: ContinualModel) -> LeftOut | None:
        """The weights of other tasks' outputs, if the penalty leaves them out as in the published runs."""
        if not self.settings.own_outputs or self.settings.penalty != "mse":
            return None
        if not has_weights_of_outputs(type(members_of(model.posterior(self.kept_tasks[0]))[0])):
            return None
        elements = other_heads_theta(model, self.kept_tasks)  # (T, P)
        return None if elements is None else LeftOut(self.kept_tasks, elements)

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        if self.checkpoint is None or self.settings.strength == 0:
            return None
        every = self.settings.penalty_every
        if every > 1 and int(torch.randint(every, (), generator=generator)) > 0:
            return None
        count, rows = len(self.kept_tasks), list(range(len(self.kept_tasks)))
        if self.settings.old_tasks is not None and self.settings.old_tasks < count:  # stochastic regularisation
            rows = torch.randperm(count, generator=generator)[: self.settings.old_tasks].tolist()
        tasks = [self.kept_tasks[row] for row in rows]
        current, weights = model.task_map, self.weights(tasks, max(self.kept_tasks) + 1)
        weights = None if weights is None else weights.to(model.device)
        if self.settings.penalty == "mse" and self.unused is None:
            targets = None if self.stored is None else self.stored[rows]  # (R, P)
            change = cast(SquaredChange, self.change)
            total = change(current, tasks, targets=targets, weights=weights)  # eq. hnet:reg:l2
        else:
            old = self.checkpoint.thetas(tasks) if self.stored is None else self.stored[rows]  # (R, P)
            new = current.thetas(tasks)
            if self.unused is not None:
                old = torch.where(self.unused[rows], new.detach(), old)  # no change, and no gradient
            changes = self._change(model, tasks, old, new, generator)  # (R,)
            total = changes.sum() if weights is None else (weights * changes).sum()
        twice = self.settings.divide_twice and self.settings.penalty in ("fkl", "rkl", "w2")
        share = len(tasks) * (count if twice else 1)
        return every * self.settings.strength / share * total  # mean over the regularised old tasks

    def _change(
        self, model: ContinualModel, tasks: Sequence[int], old: Tensor, new: Tensor, generator: Generator
    ) -> Tensor:
        """D(q* || q) of some old tasks: (R, P) twice -> (R,)."""
        family, spec = model.family, model.spec
        if self.settings.penalty == "mse":
            return (new - old).square().sum(1) / model.members  # eq. hnet:reg:l2; (R, P) -> (R,)
        if self.settings.penalty != "fisher":
            q_old, q_new = family.at(old, spec), family.at(new, spec)
            return replay_divergence(
                self.settings.penalty, q_old, q_new, self.settings.penalty_samples, generator=generator
            )
        if is_known(family):
            return quadratic_change(known_information(family, old, spec), old, new)
        information = cast(Tensor, self.information)[list(tasks)]  # (R, P)
        return quadratic_change(information.to(old.device), old, new)

    def weights(self, tasks: Sequence[int], task: int) -> Tensor | None:
        """Factors (R,) of old tasks' penalties while learning a task (SM sec. Graceful forgetting); None: all 1."""
        strengths, discount = self.settings.task_strengths or (), self.settings.age_discount
        factors = [discount ** (task - 1 - old) * (strengths[old] if old < len(strengths) else 1.0) for old in tasks]
        return None if all(factor == 1 for factor in factors) else torch.tensor(factors)

    def forget_checkpoint(self) -> None:
        """Called when the task, or the update, is finished."""
        self.checkpoint, self.stored, self.mixture, self.change, self.unused = None, None, None, None, None

    def lasting_state(self) -> dict[str, Tensor]:
        """What later tasks need."""
        return {} if self.information is None else {INFORMATION: self.information}

    def state(self) -> dict[str, Tensor]:
        current = {} if self.checkpoint is None else current_state(self.checkpoint.state_dict())
        return self.lasting_state() | current

    def load_state(self, model: ContinualModel, state: Mapping[str, Tensor]) -> None:
        self.forget_checkpoint()
        self.information = state.get(INFORMATION)
        self.kept_tasks = list(range(model.num_tasks - 1))
        if tensors := of_current(state):
            checkpoint = deepcopy(model.task_map)
            checkpoint.load_state_dict(tensors)
            self._keep(model, checkpoint)


def _build(parts: Composition, context: StrategyContext) -> PosteriorReplay:
    return PosteriorReplay(parts.get(ReplaySettings), context.prior, seed=context.seed)


register_strategy(
    StrategyPart(
        name="posterior-replay", phrase="posterior replay", settings=(ReplaySettings, ReplayPriorSettings), build=_build
    )
)
register_strategy(
    StrategyPart(
        name="stochastic-posterior-replay",
        phrase="stochastic posterior replay",
        settings=(StochasticReplaySettings, ReplayPriorSettings),
        build=_build,
    )
)
