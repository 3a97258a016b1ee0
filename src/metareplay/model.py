"""The model: network + posterior family + task map. (x, task) -> predictive samples, batched over weight samples."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import cast

import torch
from torch import Generator, Tensor

from metareplay.errors import CheckpointError, ConfigError, NotTrainedError
from metareplay.hypernets.task_maps import Start, TaskMap
from metareplay.likelihoods import Likelihood
from metareplay.nets.mlp import MLP
from metareplay.nets.registry import NetworkFactory, build_seeded
from metareplay.nets.weights import WeightSpec, run_flat
from metareplay.posteriors.base import Posterior, PosteriorFamily
from metareplay.posteriors.gaussian import MeanFieldGaussian
from metareplay.posteriors.local_reparametrisation import run_locally
from metareplay.posteriors.mixture import members_of


class HeadLayout(StrEnum):
    """Which of the network's outputs belong to a task."""

    SINGLE = "single"
    """Every task uses the first outputs, as many as it has classes: its weights are its own, or its classes are shared."""
    MULTI = "multi"
    """Every task adds outputs of its own; each task has a softmax of its own."""
    GROWING = "growing"
    """Every task adds outputs to one softmax over all classes so far."""
    SHARED = "shared"
    """One softmax that spans the classes of all tasks from the start, so their number must be known."""

    @property
    def one_softmax(self) -> bool:
        """Whether the classes of different tasks compete."""
        return self in (HeadLayout.GROWING, HeadLayout.SHARED)


class ContinualModel:
    """A network whose weights have a posterior per task.

    The module itself only says how weights are used; its own parameters are never trained.
    """

    def __init__(
        self,
        factory: NetworkFactory,
        family: PosteriorFamily,
        make_task_map: Callable[[int, Generator], TaskMap],
        layout: HeadLayout,
        likelihood: Likelihood,
        wished_variances: Callable[[PosteriorFamily, torch.nn.Module, WeightSpec], Tensor | None],
        total_outputs: int | None = None,
    ) -> None:
        self.factory, self.family, self.make_task_map = factory, family, make_task_map
        self.layout, self.likelihood, self.wished_variances = layout, likelihood, wished_variances
        self.total_outputs = total_outputs
        """Outputs that the network has from the start (``HeadLayout.SHARED``)."""
        self.heads: list[slice] = []
        self.born: Tensor
        """The task that each weight came with: 0 for most, a later one for those of a head that was added; (W,)."""
        self.kept: Tensor | None = None
        """Where the elements of theta from before the last task stand now (P before,); None where theta did not grow."""
        self.outputs = 0
        self.network: torch.nn.Module
        self.spec: WeightSpec
        self.task_map: TaskMap

    @property
    def num_tasks(self) -> int:
        """How many tasks the model knows."""
        return len(self.heads)

    @property
    def fresh(self) -> Tensor:
        """True for the weights that came with the last task: all of them with the first, a new head's later; (W,) bool."""
        return self.born == self.num_tasks - 1

    def add_task(self, classes: int, *, generator: Generator) -> int:
        """Make room for a task with so many classes (or regression targets); returns its index."""
        head = self._next_head(classes)
        outputs = max(self.outputs, head.stop) if self.total_outputs is None else self.total_outputs
        network = build_seeded(self.factory, outputs, generator)
        spec = WeightSpec.of(network)
        if self.heads:
            spec = spec.grown_from(self.spec) if outputs > self.outputs else self.spec
        begin = Start(self.family.initial(network, spec, generator=generator), self.wished_variances(self.family, network, spec))
        born = torch.full((spec.numel,), len(self.heads))
        if self.heads:
            born[self.spec.positions_in(spec)] = self.born
        self.born = born
        self.kept = self.family.positions_in(self.spec, spec) if self.heads and outputs > self.outputs else None
        if not self.heads:
            self.task_map = self.make_task_map(self.family.num_parameters(spec), generator)
        elif self.kept is not None:
            self.task_map.grow(self.kept, begin, generator=generator)
        self.network, self.spec, self.outputs = network, spec, outputs
        self.task_map.add_task(begin, generator=generator)
        self.heads.append(head)
        return len(self.heads) - 1

    def _next_head(self, classes: int) -> slice:
        start = 0 if self.layout is HeadLayout.SINGLE or not self.heads else self.heads[-1].stop
        head = slice(start, start + classes)
        if self.total_outputs is not None and head.stop > self.total_outputs:
            raise ConfigError(
                f"task {len(self.heads)} has {classes} classes, but of the {self.total_outputs} outputs that all tasks share only "
                f"{self.total_outputs - start} are left; start again with a larger total_outputs, or choose a method whose outputs grow"
            )
        return head

    def training_posterior(self, task: int) -> Posterior:
        """What a training step of a task samples from."""
        return self.family.while_training(self.task_map.theta(task), self.spec)

    def posterior(self, task: int) -> Posterior:
        """The weight posterior of a task."""
        if not 0 <= task < self.num_tasks:
            raise NotTrainedError(f"task {task} has not been learned; the model knows {self.num_tasks} tasks")
        return self.family.at(self.task_map.theta(task), self.spec)

    def training_columns(self, task: int) -> slice:
        """The outputs that compete while a task is learned."""
        if self.layout is HeadLayout.SHARED:
            return slice(0, self.outputs)
        return slice(0, self.heads[task].stop) if self.layout is HeadLayout.GROWING else self.heads[task]

    def run(self, posterior: Posterior, x: Tensor, samples: int, *, generator: Generator, local: bool = False) -> Tensor:
        """All outputs under fresh weight samples: (S, B, C); S is a multiple of an ensemble's members."""
        if local:
            each, members = members_of(posterior)
            network, gaussian = cast(MLP, self.network), cast(MeanFieldGaussian, each)
            outputs = run_locally(network, self.spec, gaussian, x, samples // members, generator=generator)
            return outputs.flatten(0, -3)  # (S, B, C), or (S / M, M, B, C) -> (S, B, C)
        return run_flat(self.network, self.spec, posterior.rsample(samples, generator=generator), x)

    def parameter_counts(self) -> dict[str, int]:
        """Weights of the main network, parameters of one task's posterior, all trained parameters, and those a task adds."""
        return {
            "main_network": self.spec.numel,
            "posterior": self.family.num_parameters(self.spec),
            "trained": self.task_map.num_parameters(),
            "per_task": self.task_map.per_task_parameters(),
        }

    def tensors(self) -> dict[str, Tensor]:
        """Everything that has to be stored beside ``head_bounds``."""
        return {name: tensor.detach() for name, tensor in self.task_map.state_dict().items()}

    def head_bounds(self) -> list[tuple[int, int]]:
        """First and last-plus-one output of each task, as numbers that JSON can hold."""
        return [(head.start, head.stop) for head in self.heads]

    def restore(self, heads: Sequence[tuple[int, int]], tensors: dict[str, Tensor]) -> None:
        """Become the model that gave these heads and tensors; what was there before is replaced."""
        generator = torch.Generator().manual_seed(0)  # every number drawn here is overwritten
        self.heads, self.outputs = [], 0
        for start, stop in heads:  # grow as the stored model grew, so that all sizes agree
            self.add_task(stop - start, generator=generator)
        if self.head_bounds() != [tuple(bounds) for bounds in heads]:
            raise CheckpointError(f"the stored outputs {list(heads)} do not fit this model; they belong to another configuration")
        if not heads:
            return
        try:
            self.task_map.load_state_dict(tensors)
        except RuntimeError as error:
            raise CheckpointError(
                f"the stored weights do not fit this model: {str(error).splitlines()[-1].strip()}; they belong to another configuration"
            ) from error
