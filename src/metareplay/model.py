"""The model: network + posterior family + task map. (x, task) -> predictive samples, batched over weight samples."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import cast

import torch
from torch import Generator, Tensor

from metareplay.batches.auxiliary import NO_AUXILIARY, AuxiliaryOutputs
from metareplay.errors import CheckpointError, ConfigError, NotTrainedError
from metareplay.likelihoods import Likelihood
from metareplay.nets.base import SeesInputs
from metareplay.nets.frozen import frozen_weights, restore_frozen, share_frozen
from metareplay.nets.lending import borrowed
from metareplay.nets.mlp import MLP
from metareplay.nets.noise import drawing_from, drawing_in_evaluation
from metareplay.nets.norm import TaskBuffers, clear_batch_norm
from metareplay.nets.own import check_growth, check_outputs
from metareplay.nets.registry import NetworkFactory, build_seeded
from metareplay.nets.weights import Buffers, WeightSpec, run_flat, training_mode
from metareplay.posteriors.base import Posterior, PosteriorFamily
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.families.mixture import member_family, members_of
from metareplay.posteriors.local_reparametrisation import run_locally
from metareplay.task_maps.base import Start, TaskMap
from metareplay.task_maps.heads import HeadLayout
from metareplay.task_maps.lineage import Lineage

STATISTICS = "statistics."
"""Prefix of the names of stored buffers."""
FROZEN = "frozen."
"""Prefix of the names of stored weights that have no posterior."""


class ContinualModel:
    """A network whose weights have a posterior per task.

    The module only defines how weights are used; its own parameters and buffers are never trained. It is in evaluation
    mode except during training steps.
    """

    def __init__(
        self,
        factory: NetworkFactory,
        family: PosteriorFamily,
        make_task_map: Callable[[int, Generator], TaskMap],
        layout: HeadLayout,
        likelihood: Likelihood,
        target_variances: Callable[[PosteriorFamily, torch.nn.Module, WeightSpec], Tensor | None],
        total_outputs: int | None = None,
        device: torch.device | None = None,
        auxiliary_outputs: AuxiliaryOutputs = NO_AUXILIARY,
    ) -> None:
        self.device = device or torch.device("cpu")
        """Where theta lives and the network runs; tasks are added on the CPU, and data and predictions stay there."""
        self.factory, self.family, self.make_task_map = factory, family, make_task_map
        self.layout, self.likelihood, self.target_variances = layout, likelihood, target_variances
        self.total_outputs = total_outputs
        """Outputs that the network has from the start (``HeadLayout.SHARED``)."""
        self.heads: list[slice] = []
        """The outputs of each task's classes or regression targets."""
        self.auxiliary_outputs = auxiliary_outputs
        self.auxiliary: list[slice] = []
        """The outputs after them that a task is only trained with; usually none."""
        self.introduced_by_task: Tensor
        """The task that introduced each weight: 0 for most, a later one for those of an added head; (W,)."""
        self.old_positions: Tensor | None = None
        """Where the last task moved the old elements of theta (P before,); None if theta did not grow."""
        self.outputs = 0
        self.lineage = Lineage()
        """What became of the tasks; random numbers of a task are drawn by its number there."""
        self.task_buffers = TaskBuffers(self.members)
        """Each task's buffers of the network, e.g. running statistics of batch normalisation."""
        self.frozen: dict[str, torch.nn.Parameter] = {}
        """The network's weights that have no posterior, the same for all tasks."""
        self.network: torch.nn.Module
        self.spec: WeightSpec
        self.task_map: TaskMap

    @property
    def num_tasks(self) -> int:
        """The number of tasks the model has learned."""
        return len(self.heads)

    @property
    def members(self) -> int:
        """The number of networks in a task's ensemble; 1 without an ensemble."""
        return member_family(self.family)[1]

    @property
    def fresh(self) -> Tensor:
        """True for weights introduced by the last task: all for the first, later those of a new head; (W,) bool."""
        return self.introduced_by_task == self.num_tasks - 1

    def add_task(self, classes: int, *, generator: Generator, probe: Tensor | None = None) -> int:
        """Add a task with ``classes`` outputs (classes or regression targets); returns its index.

        ``probe`` are inputs (N, ...) of the task: two show whether the network accepts them; if not, the model is left
        unchanged.
        """
        if probe is not None and not self.heads and isinstance(self.factory, SeesInputs):
            self.factory.see(probe)
        head = self._next_head(classes)
        stop = head.stop + self.auxiliary_outputs.count(classes)
        outputs = max(self.outputs, stop) if self.total_outputs is None else self.total_outputs
        with self.on_cpu():
            self._place(head, self.grow_to(outputs, generator, None if probe is None else probe[:2]), generator)
        return len(self.heads) - 1

    @contextmanager
    def on_cpu(self) -> Iterator[None]:
        """Changes of shapes are made on the CPU."""
        home = self.device
        self.to(torch.device("cpu"))
        try:
            yield
        finally:
            self.to(home)

    def _place(self, head: slice, start: Start, generator: Generator) -> None:
        auxiliary = slice(head.stop, head.stop + self.auxiliary_outputs.count(head.stop - head.start))
        self.task_map.add_task(start, generator=generator)
        self.task_buffers.add_task(self.network)
        self.heads.append(head)
        self.auxiliary.append(auxiliary)
        self.lineage.add()

    def grow_to(self, outputs: int, generator: Generator, probe: Tensor | None = None) -> Start:
        """Build the network with this many outputs, and grow what depends on it; where a new task would start."""
        return self._grown(build_seeded(self.factory, outputs, generator).eval(), outputs, generator, probe)

    def _grown(self, network: torch.nn.Module, outputs: int, generator: Generator, probe: Tensor | None) -> Start:
        """Let theta grow to this network; returns where a new task's theta starts."""
        frozen = self.frozen if self.outputs else frozen_weights(network)
        if self.outputs and (frozen or frozen_weights(network)):
            share_frozen(network, frozen)
        spec = WeightSpec.of(network)
        if self.outputs:
            spec = spec.grown_from(self.spec) if outputs > self.outputs else self.spec
        if probe is not None:
            self._check(network, spec, outputs, probe)
        theta = self.family.initial(network, spec, generator=generator)
        variances = self.target_variances(self.family, network, spec)
        start = Start(theta, variances, None if variances is None else self.family.weight_mask(spec))
        introduced_by_task = torch.full((spec.numel,), len(self.heads))
        if self.outputs:
            introduced_by_task[self.spec.positions_in(spec)] = self.introduced_by_task
        self.introduced_by_task = introduced_by_task
        grows = bool(self.outputs) and outputs > self.outputs
        self.old_positions = self.family.positions_in(self.spec, spec) if grows else None
        if outputs > self.outputs:
            self.lineage.growth.append((len(self.heads), outputs))
        if not self.outputs:
            self.task_map = self.make_task_map(self.family.num_parameters(spec), generator)
        elif self.old_positions is not None:
            self.task_map.grow(self.old_positions, start, generator=generator)
        self.network, self.spec, self.outputs, self.frozen = network, spec, outputs, frozen
        return start

    def _check(self, network: torch.nn.Module, spec: WeightSpec, outputs: int, probe: Tensor) -> None:
        """Refuse a network that does not accept the inputs, or loses what was learned when its outputs grow."""
        buffers = self.task_buffers.initial(network)
        generator = torch.Generator().manual_seed(0)
        with drawing_in_evaluation(network, generator):
            check_outputs(network, probe, outputs, buffers)
        if self.heads and outputs > self.outputs:
            with drawing_from(generator):
                check_growth((self.network, self.spec, self.task_buffers.start), (network, spec, buffers), probe)

    def try_out(self, input_shape: Sequence[int]) -> None:
        """Find out whether the network draws random numbers in evaluation mode, so that predictions need not check."""
        if self.heads:
            x, generator = torch.zeros(2, *input_shape, device=self.device), torch.Generator().manual_seed(0)
            # A user's module may refuse zeros.
            with suppress(Exception), torch.no_grad(), drawing_in_evaluation(self.network, generator):
                self.network(x)

    def to(self, device: torch.device) -> None:
        """Move to this device."""
        moved, self.device = device != self.device, device
        if self.heads and moved:
            self.network, self.task_map, self.introduced_by_task = (
                self.network.to(device),
                self.task_map.to(device),
                self.introduced_by_task.to(device),
            )
            self.task_buffers.to(device)

    def _next_head(self, classes: int) -> slice:
        start = 0 if self.layout is HeadLayout.SINGLE or not self.heads else self.auxiliary[-1].stop
        head = slice(start, start + classes)
        if self.total_outputs is not None and head.stop > self.total_outputs:
            raise ConfigError(
                f"task {len(self.heads)} has {classes} classes, but only {self.total_outputs - start} of the "
                f"{self.total_outputs} outputs that all tasks share are left; start again with a larger total_outputs, "
                "or choose a method whose outputs grow"
            )
        return head

    def training_posterior(self, task: int) -> Posterior:
        """The posterior that a training step of a task samples from."""
        return self.family.while_training(self.task_map.trained_theta(task), self.spec)

    def posterior(self, task: int) -> Posterior:
        """The weight posterior of a task."""
        if not 0 <= task < self.num_tasks:
            raise NotTrainedError(f"task {task} has not been learned; the model knows {self.num_tasks} tasks")
        return self.family.at(self.task_map.theta(task), self.spec)

    @torch.no_grad()
    def central_weights(self, task: int, task_map: TaskMap | None = None) -> Tensor:
        """The weights that stand for a task's posterior: its mean, else always the same sample; (W,).

        Of an ensemble those of the first member. ``task_map`` may be an earlier state of the model's own.
        """
        posterior = self.family.at((task_map or self.task_map).theta(task), self.spec)
        members, count = members_of(posterior)
        if (mean := getattr(members, "mean", None)) is not None:
            return cast(Tensor, mean).detach().reshape(-1, self.spec.numel)[0]  # (M, W) or (W,) -> (W,)
        return posterior.rsample(count, generator=torch.Generator().manual_seed(0))[0].detach()  # (M, W) -> (W,)

    def training_columns(self, task: int, *, auxiliary: bool = True) -> slice:
        """The outputs that compete while a task is learned, with or without its auxiliary ones."""
        if self.layout is HeadLayout.SHARED:
            return slice(0, self.outputs)
        start = 0 if self.layout is HeadLayout.GROWING else self.heads[task].start
        last = -1 if self.layout is HeadLayout.GROWING and self.task_map.one_theta else task  # all known ones compete
        return slice(start, (self.auxiliary if auxiliary else self.heads)[last].stop)

    def other_column(self, task: int) -> int | None:
        """The output of a task that means "none of its classes"; None if it was trained without one."""
        return self.auxiliary[task].stop - 1 if self.auxiliary_outputs.other else None

    def buffers(self, task: int) -> list[Buffers]:
        """The network's buffers for a task, one set per member of its ensemble."""
        return self.task_buffers.tasks[task]

    def run(
        self,
        posterior: Posterior,
        x: Tensor,
        samples: int,
        task: int,
        *,
        generator: Generator,
        local: bool = False,
        train: bool = False,
        autocast: bool = False,
    ) -> Tensor:
        """All outputs under newly drawn weight samples: (S, B, C); S is a multiple of an ensemble's members.

        With ``train`` the network is in training mode, and the task's buffers are updated; else in evaluation mode.
        With ``autocast`` it computes in bfloat16; weights and outputs keep their type.
        """
        x = x.to(self.device)
        if local:
            member, members = members_of(posterior)
            network, gaussian = cast(MLP, self.network), cast(MeanFieldGaussian, member)
            outputs = run_locally(network, self.spec, gaussian, x, samples // members, generator=generator)
            return outputs.flatten(0, -3)  # (S, B, C), or (S / M, M, B, C) -> (S, B, C)
        weights, buffers = posterior.rsample(samples, generator=generator), self.buffers(task)  # (S, W)
        low = torch.autocast(self.device.type, torch.bfloat16) if autocast else nullcontext()
        learns = train and not isinstance(self.network, MLP)  # an MLP is the same in both modes
        noise = drawing_from(generator) if learns else drawing_in_evaluation(self.network, generator)
        with (
            borrowed(self.network) as lent,
            noise,
            low,
            training_mode(lent) if learns else nullcontext(),
            clear_batch_norm(),
        ):
            outputs = run_flat(lent, self.spec, weights, x, buffers)  # (S, B, C)
        return outputs.to(weights.dtype)

    def parameter_counts(self) -> dict[str, int]:
        """Weights of the network, parameters of one posterior, all trained ones, those a task adds, its statistics."""
        return {
            "main_network": self.spec.numel,
            "posterior": self.family.num_parameters(self.spec),
            "trained": self.task_map.num_parameters(),
            "per_task": self.task_map.per_task_parameters(),
            "statistics": self.task_buffers.per_task(),
        }

    def tensors(self) -> dict[str, Tensor]:
        """Everything that has to be stored besides ``head_bounds``."""
        stored = {name: tensor.detach() for name, tensor in self.task_map.state_dict().items()}
        stored |= {f"{FROZEN}{name}": weight.detach() for name, weight in self.frozen.items()}
        return stored | {f"{STATISTICS}{name}": tensor for name, tensor in self.task_buffers.tensors().items()}

    def head_bounds(self) -> list[tuple[int, int]]:
        """Start and stop of each task's outputs, as JSON-serialisable integers."""
        return [(head.start, head.stop) for head in self.heads]

    def _regrow(self, heads: Sequence[tuple[int, int]], lineage: Lineage | None) -> None:
        """Grow as the stored model grew, so that all sizes agree; a network that does not grow is built only once."""
        generator, start = torch.Generator().manual_seed(0), None
        for begin, end in [*heads, *([] if lineage is None else [(0, 0)])]:
            head = slice(begin, end) if lineage or not end else self._next_head(end - begin)
            stop = head.stop + self.auxiliary_outputs.count(end - begin)
            needed = max(self.outputs, stop) if self.total_outputs is None else self.total_outputs
            for outputs in [needed] if lineage is None else lineage.growth_at(len(self.heads)):
                if outputs > self.outputs:
                    start = self._grown(self.factory(outputs).eval(), outputs, generator, None)
                    self.task_buffers.grow(self.network)
            if end:  # the last step adds no task: outputs may have grown after the last one
                if start is None or (lineage is not None and len(lineage.numbers) != len(heads)):
                    raise CheckpointError("what is stored about the model's tasks does not fit together; it is damaged")
                self._place(head, start, generator)

    def restore(
        self, heads: Sequence[tuple[int, int]], tensors: dict[str, Tensor], lineage: Lineage | None = None
    ) -> None:
        """Become the model that these heads and tensors come from; the current state is replaced."""
        self.heads, self.auxiliary, self.outputs, self.task_buffers = [], [], 0, TaskBuffers(self.members)
        self.lineage = Lineage()
        home, self.device = self.device, torch.device("cpu")
        try:
            with torch.random.fork_rng(devices=[]):  # every number drawn here is overwritten
                self._regrow(heads, lineage)
        finally:
            self.to(home)
        self.lineage = lineage or self.lineage
        if self.head_bounds() != [tuple(bounds) for bounds in heads]:
            raise CheckpointError(
                f"the stored outputs {list(heads)} do not fit this model; they belong to another configuration"
            )
        if not heads:
            return
        of_tasks, of_frozen = (
            {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            for prefix in (STATISTICS, FROZEN)
        )
        self.task_buffers.restore(of_tasks)
        restore_frozen(self.frozen, of_frozen)
        try:
            self.task_map.load_state_dict(
                {name: tensor for name, tensor in tensors.items() if not name.startswith((STATISTICS, FROZEN))}
            )
        except RuntimeError as error:
            raise CheckpointError(
                f"the stored weights do not fit this model: {str(error).splitlines()[-1].strip()}; "
                "they belong to another configuration"
            ) from error
