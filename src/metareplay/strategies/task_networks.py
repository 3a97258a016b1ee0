"""A network that infers the task of an input, trained on replayed inputs of old tasks: HNET+TIR [vonOswald2020].

The classifier is that of posterior replay. Alongside it, a hypernetwork generates a decoder of inputs for each task
(``generated_decoders.py``), and an ordinary network learns to distinguish inputs of the present task from what the
decoders of the others replay; these are samples of p(x | z), with the spread of the decoder's errors, because otherwise
every sharp input would be taken for one of the present task. At test time its answer chooses the task's embedding, by
the criterion
``task-net``.
"""

from collections.abc import Mapping
from typing import cast, final

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor, nn

from metareplay.batches.base import Batch
from metareplay.benchmarks.base import TaskData
from metareplay.model import ContinualModel
from metareplay.nets.mlp import MLP
from metareplay.nets.registry import build_seeded
from metareplay.optimisers import adam, optimiser_tensors, restore_optimiser
from metareplay.posteriors.base import Prior
from metareplay.seeding import generator_for
from metareplay.settings import Composition, Widths
from metareplay.strategies.base import (
    CURRENT,
    QuietStrategy,
    StepChange,
    Strategy,
    StrategyContext,
    StrategyPart,
    of_current,
    part_of_state,
    register_strategy,
    state_of_part,
)
from metareplay.strategies.generated_decoders import GeneratedDecoders, GeneratedDecodersSettings
from metareplay.strategies.posterior_replay import PosteriorReplay
from metareplay.strategies.replay_models import under
from metareplay.strategies.replay_settings import ReplayPriorSettings, ReplaySettings
from metareplay.task_maps.hypernetwork import BlankLinear

POSTERIORS, DECODERS, NETWORK = "posteriors.", "generator.", "tasks."
"""Prefixes of the names of the parts' state."""


class TaskNetworkSettings(GeneratedDecodersSettings):
    """The network that infers tasks, and the decoders that it learns from."""

    task_hidden: Widths = Field((400, 400), description="hidden widths of the network that infers the task of an input")
    task_rate: float = Field(0.001, gt=0, description="Adam's learning rate for the network that infers tasks")


@final
class TaskNetwork:
    """Inputs -> their task: a multilayer perceptron that gets an output with each task."""

    def __init__(self, settings: TaskNetworkSettings, seed: int) -> None:
        self.settings, self.seed = settings, seed
        self.network: MLP | None = None
        self.optimiser: torch.optim.Optimizer | None = None

    @property
    def tasks(self) -> int:
        """Its number of outputs."""
        return 0 if self.network is None else self._output(self.network).out_features

    @staticmethod
    def _output(network: MLP) -> nn.Linear:
        return cast(nn.Linear, network.layers[-1])

    def begin(self, inputs: int, tasks: int, device: torch.device) -> None:
        """The number of tasks to be told apart from now on."""
        if tasks > self.tasks:
            grown, old = self._built(inputs, tasks, device), self.network
            if old is not None:
                with torch.no_grad():
                    for name, tensor in old.state_dict().items():
                        grown.state_dict()[name][: len(tensor)] = tensor  # more outputs are more rows of the last layer
            self.network = grown
        self._train()

    def _built(self, inputs: int, tasks: int, device: torch.device) -> MLP:
        generator = generator_for(self.seed, "task network", tasks)
        built = build_seeded(lambda outputs: MLP((inputs,), self.settings.task_hidden, outputs), tasks, generator)
        return cast(MLP, built.to(device))

    def _train(self) -> None:
        assert self.network is not None
        self.optimiser = adam(list(self.network.parameters()), self.settings.task_rate)

    def learn(self, x: Tensor, task: Tensor, weights: Tensor) -> None:
        """One step on inputs (B, D) of tasks (B,), which count ``weights`` (B,)."""
        assert self.network is not None
        assert self.optimiser is not None
        loss = (weights * F.cross_entropy(self.network(x), task, reduction="none")).sum()  # (B, T), (B,) -> ()
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def remove(self, task: int) -> None:
        """Forget a task; later ones move down."""
        if self.network is None:
            return
        old = self._output(self.network)
        kept = [row for row in range(old.out_features) if row != task]
        new = BlankLinear(old.in_features, len(kept)).to(old.weight.device)
        with torch.no_grad():
            new.weight.copy_(old.weight[kept])
            new.bias.copy_(old.bias[kept])
        self.network.layers[-1] = new

    def end(self) -> None:
        """The task is learned."""
        self.optimiser = None

    def state(self) -> dict[str, Tensor]:
        if self.network is None:
            return {}
        stored = {f"network.{name}": tensor.detach().clone() for name, tensor in self.network.state_dict().items()}
        if self.optimiser is not None:
            tensors = optimiser_tensors(self.optimiser)
            stored |= {f"{CURRENT}optimiser.{name}": tensor.clone() for name, tensor in tensors.items()}
            stored[f"{CURRENT}learning"] = torch.tensor(True)
        return stored

    def load_state(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        self.network = self.optimiser = None
        if not (tensors := under("network.", state)):
            return
        last = max(int(name.split(".")[1]) for name in tensors)
        inputs, tasks = tensors["layers.0.weight"].shape[1], len(tensors[f"layers.{last}.bias"])
        self.network = self._built(inputs, tasks, device)
        self.network.load_state_dict(tensors)
        if f"{CURRENT}learning" in state:
            self._train()
            assert self.optimiser is not None
            restore_optimiser(self.optimiser, under(f"{CURRENT}optimiser.", state))


@final
class TaskNetworkReplay(QuietStrategy):
    """Posterior replay for the classifier; alongside it, decoders that replay and a network that infers tasks."""

    sees_steps = True

    def __init__(self, posteriors: PosteriorReplay, decoders: GeneratedDecoders, network: TaskNetwork) -> None:
        super().__init__(posteriors.fixed)
        self.posteriors, self.decoders, self.network = posteriors, decoders, network
        self.sources: list[int] = []
        """The task of each decoder; a task that was revised has several."""
        self.current: int | None = None
        """The task being learned."""
        self.begun = False

    def prior_for(self, task: int) -> Prior:
        return self.posteriors.prior_for(task)

    def before_task(self, model: ContinualModel, task: int) -> None:
        self.posteriors.before_task(model, task)
        self.current, self.begun = task, False

    def before_revision(self, model: ContinualModel, task: int, *, resumed: bool) -> None:
        self.posteriors.before_revision(model, task, resumed=resumed)
        if not resumed:
            self.current, self.begun = task, False

    def penalty(self, model: ContinualModel, task: int, *, generator: Generator) -> Tensor | None:
        return self.posteriors.penalty(model, task, generator=generator)

    def after_step(self, model: ContinualModel, task: int, step: StepChange, *, generator: Generator) -> None:
        batch = step.batches[0]
        if not self.begun:
            self._begin(model, task, batch)
        x, y = batch.x.to(model.device).flatten(1), batch.y.to(model.device)  # (B, ...) -> (B, D)
        self.decoders.learn(x, y, None, 1.0, generator=generator)
        if len(self.sources) > 1:
            self._tell_apart(x, generator)

    def _begin(self, model: ContinualModel, task: int, batch: Batch) -> None:
        """The first inputs of a task, or of a revision, have come: their number is known."""
        binary, inputs = bool((batch.x >= 0).all() and (batch.x <= 1).all()), batch.x[0].numel()
        self.decoders.begin(len(self.sources), inputs, binary=binary, device=model.device)
        self.network.begin(inputs, model.num_tasks, model.device)
        self.sources, self.begun = [*self.sources, task], True

    def _tell_apart(self, x: Tensor, generator: Generator) -> None:
        """Let the network see new inputs (B, D) and replayed ones; every task counts the same."""
        replay = self.decoders.replay(len(x), 0, generator=generator)
        of_decoder = torch.tensor(self.sources, device=x.device)  # (D,)
        share = 1 / of_decoder.bincount()[of_decoder]  # of each decoder in its task; (D,)
        share = share / share.sum()
        new = share[-1].expand(len(x)) / len(x)  # (B,)
        old = share[replay.source]  # (B,)
        weights = torch.cat([new, (1 - share[-1]) * old / old.sum()])  # (2 B,)
        task = torch.cat([of_decoder[-1].expand(len(x)), of_decoder[replay.source]])  # (2 B,)
        self.network.learn(torch.cat([x, replay.x]), task, weights)

    def after_task(self, model: ContinualModel, task: int, data: TaskData) -> None:
        self.posteriors.after_task(model, task, data)
        self.decoders.end()
        self.network.end()
        self.current, self.begun = None, False

    def remove_task(self, task: int) -> None:
        self.posteriors.remove_task(task)
        for number in reversed(range(len(self.sources))):
            if self.sources[number] == task:
                self.decoders.remove(number)
        self.sources = [source - (source > task) for source in self.sources if source != task]
        self.network.remove(task)

    def generated(self, model: ContinualModel, count: int, *, generator: Generator) -> Tensor:
        return self.decoders.replay(count, 0, generator=generator).x.cpu()

    def told_apart(self) -> int:
        return self.network.tasks

    def task_network(self) -> nn.Module:
        assert self.network.network is not None
        return self.network.network

    def state(self) -> dict[str, Tensor]:
        stored = {
            **state_of_part(POSTERIORS, self.posteriors.state()),
            **state_of_part(DECODERS, self.decoders.state()),
            **state_of_part(NETWORK, self.network.state()),
        }
        if self.sources:
            stored["sources"] = torch.tensor(self.sources)
        if self.current is not None:
            stored[f"{CURRENT}task"] = torch.tensor([self.current, self.begun])
        return stored

    def load_state(self, model: ContinualModel, state: Mapping[str, Tensor]) -> None:
        self.posteriors.load_state(model, part_of_state(POSTERIORS, state))
        self.decoders.load_state(part_of_state(DECODERS, state), model.device)
        self.network.load_state(part_of_state(NETWORK, state), model.device)
        self.sources = state["sources"].tolist() if "sources" in state else []
        self.current, self.begun = None, False
        if "task" in (current := of_current(state)):
            task, begun = current["task"].tolist()
            self.current, self.begun = task, bool(begun)


def _build(parts: Composition, context: StrategyContext) -> Strategy:
    posteriors = PosteriorReplay(parts.get(ReplaySettings), context.prior, seed=context.seed)
    settings = parts.get(TaskNetworkSettings)
    decoders = GeneratedDecoders(settings, context.seed, noisy=True)
    return TaskNetworkReplay(posteriors, decoders, TaskNetwork(settings, context.seed))


register_strategy(
    StrategyPart(
        name="task-network-replay",
        phrase="a network that infers tasks, trained on replay from generated decoders",
        settings=(ReplaySettings, ReplayPriorSettings, TaskNetworkSettings),
        build=_build,
    )
)
