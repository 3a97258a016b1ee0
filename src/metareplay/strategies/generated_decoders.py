"""A hypernetwork that generates a decoder of inputs for each task, and is kept from changing those of old tasks.

Hypernetwork-protected replay, the replay model of HNET+R [vonOswald2020]: the penalty on changes of the hypernetwork's
outputs [Henning2021, eq. hnet:reg:l2] keeps old decoders, so the model need not learn from its own samples. Only
decoders are generated: an encoder serves the training of its own task, and is then forgotten.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import cast, final

import torch
from pydantic import Field
from torch import Generator, Tensor, nn
from torch.func import functional_call

from metareplay.nets.autoencoder import (
    Decoder,
    as_inputs,
    encoded,
    make_encoder,
    reconstruction_error,
    reconstruction_loss,
)
from metareplay.nets.mlp import MLP
from metareplay.nets.registry import build_seeded
from metareplay.nets.weights import WeightSpec
from metareplay.optimisers import adam, optimiser_tensors, restore_optimiser
from metareplay.seeding import generator_for, normal
from metareplay.settings import Composition, Widths
from metareplay.strategies.base import CURRENT, Strategy, StrategyContext, StrategyPart, register_strategy
from metareplay.strategies.generative_replay import GenerativeReplay, ReplayedTargetsSettings
from metareplay.strategies.replay_models import Replay, ReplayModelSettings, under
from metareplay.task_maps.base import Start
from metareplay.task_maps.generated import build_hypernetwork
from metareplay.task_maps.hypernetwork import Hypernetwork
from metareplay.task_maps.initialise import hyperfan_variances
from metareplay.task_maps.replay_distance import SquaredChange
from metareplay.task_maps.settings import HypernetSettings

LATEST = 0.02
"""The weight of a step in the spread of errors."""


class GeneratedDecodersSettings(ReplayModelSettings):
    """The hypernetwork of the decoders."""

    generator_strength: float = Field(
        1.0, ge=0, description="weight of the penalty on changes of the decoders of old tasks: beta"
    )
    generator_hypernet: Widths = Field(
        (100, 100), description="hidden widths of the chunked hypernetwork that generates the decoders"
    )
    generator_embedding: int = Field(32, ge=1, description="length of its task and chunk embeddings")
    generator_chunk: int | None = Field(
        None, ge=1, description="weights of a decoder per chunk; null: as many as keep it smaller than a decoder"
    )


@final
class GeneratedDecoders:
    """One decoder per task, from one hypernetwork; a revised task gets one more, for its new inputs."""

    def __init__(self, settings: GeneratedDecodersSettings, seed: int, *, noisy: bool = False) -> None:
        self.settings, self.seed, self.binary, self.noisy = settings, seed, True, noisy
        self.spread: Tensor | None = None
        """Mean squared error of each number of an input, by decoder (T, D), where replayed inputs have noise."""
        self.decoder: Decoder | None = None
        """How weights are used; its own are not trained."""
        self.spec: WeightSpec
        self.hypernet: Hypernetwork
        self.encoder: MLP | None = None
        """Of the task being learned."""
        self.optimiser: torch.optim.Optimizer | None = None
        self.change: SquaredChange | None = None
        self.thetas: Tensor | None = None
        """Decoders of all earlier tasks as they were before this one (T, P)."""

    def begin(self, task: int, inputs: int, *, binary: bool, device: torch.device) -> None:
        if self.decoder is None:
            self.binary = binary
            self._build(inputs, device)
        self._hold(deepcopy(self.hypernet) if self.hypernet.num_tasks else None)
        number = self.hypernet.num_tasks
        self._add_task(generator_for(self.seed, "decoders", number), device)
        if self.noisy:
            old = torch.zeros(0, inputs, device=device) if self.spread is None else self.spread
            self.spread = torch.cat([old, torch.zeros(1, inputs, device=device)])  # (T, D) -> (T + 1, D)
        self._train(self._new_encoder(inputs, number, device))

    def _build(self, inputs: int, device: torch.device) -> None:
        """The decoder, and the hypernetwork, still without tasks."""
        settings, hidden = self.settings, self.settings.generator_hidden[::-1]
        built = build_seeded(lambda outputs: Decoder(settings.latent_size, hidden, outputs), inputs, Generator())
        self.decoder = cast(Decoder, built.to(device))
        self.spec = WeightSpec.of(self.decoder)
        shape = HypernetSettings(
            hidden=settings.generator_hypernet,
            chunk_size=settings.generator_chunk,
            task_embedding_size=settings.generator_embedding,
            chunk_embedding_size=settings.generator_embedding,
        )
        self.hypernet = build_hypernetwork(shape, self.spec.numel, generator_for(self.seed, "replay model")).to(device)

    def _add_task(self, generator: Generator, device: torch.device) -> None:
        """One more decoder; the first ones start as an ordinary network would."""
        variances = hyperfan_variances(self.spec, relu=True)
        start = Start(torch.zeros(self.spec.numel), variances, torch.ones(self.spec.numel, dtype=torch.bool))
        self.hypernet.to("cpu").add_task(start, generator=generator)
        self.hypernet.to(device)

    def _new_encoder(self, inputs: int, number: int, device: torch.device) -> MLP:
        settings = self.settings

        def build(_: int) -> nn.Module:
            return make_encoder(inputs, settings.generator_hidden, settings.latent_size)

        return cast(MLP, build_seeded(build, 0, generator_for(self.seed, "encoder", number)).to(device))

    def _hold(self, before: Hypernetwork | None) -> None:
        """Keep the decoders of a hypernetwork as they are there."""
        self.change = self.thetas = None
        if before is not None:
            tasks = list(range(before.num_tasks))
            self.change = SquaredChange(before.requires_grad_(False), tasks)
            self.thetas = before.thetas(tasks).detach()  # (T, P)

    def _train(self, encoder: MLP) -> None:
        self.encoder = encoder
        trained = [*self.hypernet.parameters(), *encoder.parameters()]
        self.optimiser = adam(trained, self.settings.generator_rate)

    def _decoded(self, theta: Tensor, z: Tensor) -> Tensor:
        """(P,), (B, L) -> (B, D)."""
        assert self.decoder is not None
        return cast(Tensor, functional_call(self.decoder, self.spec.unflatten(theta), (z,)))

    @torch.no_grad()
    def replay(self, count: int, classes: int, *, generator: Generator) -> Replay:
        thetas = self.thetas
        if thetas is None:
            thetas = self.hypernet.thetas(range(self.hypernet.num_tasks))  # (T, P)
        source = (torch.randperm(count, generator=generator) % len(thetas)).sort().values  # equally many of each; (B,)
        z = normal(count, self.settings.latent_size, generator=generator, like=thetas)  # (B, L)
        parts = z.split(torch.bincount(source, minlength=len(thetas)).tolist())
        outputs = torch.cat([self._decoded(theta, part) for theta, part in zip(thetas, parts, strict=True)])  # (B, D)
        x, source = as_inputs(outputs, binary=self.binary), source.to(outputs.device)
        if self.spread is not None:  # a sample of p(x | z), not its mean: else new inputs differ by being sharp
            x = x + self.spread[source].sqrt() * normal(*x.shape, generator=generator, like=x)  # (B, D)
            x = x.clamp(0, 1) if self.binary else x
        return Replay(x, source)

    def learn(self, x: Tensor, y: Tensor, replay: Replay | None, share: float, *, generator: Generator) -> None:
        assert self.encoder is not None
        assert self.optimiser is not None
        theta = self.hypernet.theta(self.hypernet.num_tasks - 1)  # (P,)
        z, divergence = encoded(self.encoder, x, generator=generator)
        outputs = self._decoded(theta, z)
        self._follow(outputs.detach(), x)
        error = reconstruction_error(outputs, x, binary=self.binary)
        loss = reconstruction_loss(error, x.shape[1], binary=self.binary) + divergence
        if self.change is not None and self.thetas is not None and self.settings.generator_strength > 0:
            old = self.change(self.hypernet, range(len(self.thetas)), targets=self.thetas)  # eq. hnet:reg:l2
            loss = loss + self.settings.generator_strength / len(self.thetas) * old
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def _follow(self, outputs: Tensor, x: Tensor) -> None:
        """Update the spread of the latest decoder's errors, a mean over the last steps."""
        if self.spread is not None:
            now = (as_inputs(outputs, binary=self.binary) - x).square().mean(0)  # (B, D) -> (D,)
            latest = self.spread[-1]
            latest.copy_(latest.lerp(now, LATEST) if bool(latest.any()) else now)

    def remove(self, number: int) -> None:
        """Forget one of the decoders; later ones move down."""
        self.hypernet.remove_task(number)
        if self.spread is not None:
            self.spread = torch.cat([self.spread[:number], self.spread[number + 1 :]])  # (T, D)

    def end(self) -> None:
        self.encoder = self.optimiser = self.change = self.thetas = None

    def state(self) -> dict[str, Tensor]:
        if self.decoder is None:
            return {}
        stored = {f"now.{name}": tensor.detach().clone() for name, tensor in self.hypernet.state_dict().items()}
        stored["facts"] = torch.tensor([self.binary, self.decoder.inputs, self.hypernet.num_tasks])
        if self.spread is not None:
            stored["spread"] = self.spread.clone()
        if self.change is not None:
            stored |= {f"{CURRENT}before.{name}": tensor for name, tensor in self.change.old.state_dict().items()}
        if self.encoder is not None and self.optimiser is not None:
            encoder, tensors = self.encoder.state_dict(), optimiser_tensors(self.optimiser)
            stored |= {f"{CURRENT}encoder.{name}": tensor.detach().clone() for name, tensor in encoder.items()}
            stored |= {f"{CURRENT}optimiser.{name}": tensor.clone() for name, tensor in tensors.items()}
        return stored

    def load_state(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        self.end()
        self.decoder = None
        self.spread = state["spread"].clone().to(device) if "spread" in state else None
        if "facts" not in state:
            return
        binary, inputs, tasks = (int(number) for number in state["facts"])
        self.binary = bool(binary)
        self._build(inputs, device)
        before = under(f"{CURRENT}before.", state)
        for task in range(tasks):
            if before and task == tasks - 1:  # the earlier state lacks the present task
                old = deepcopy(self.hypernet)
                old.load_state_dict(before)
                self._hold(old)
            self._add_task(torch.Generator().manual_seed(0), device)  # every number drawn here is overwritten
        self.hypernet.load_state_dict(under("now.", state))
        if encoder := under(f"{CURRENT}encoder.", state):
            self._train(self._new_encoder(inputs, 0, device))
            assert self.encoder is not None
            assert self.optimiser is not None
            self.encoder.load_state_dict(encoder)
            restore_optimiser(self.optimiser, under(f"{CURRENT}optimiser.", state))


def _build(parts: Composition, context: StrategyContext) -> Strategy:
    model = GeneratedDecoders(parts.get(GeneratedDecodersSettings), context.seed)
    return GenerativeReplay(model, context.prior, temperature=parts.get(ReplayedTargetsSettings).temperature)


register_strategy(
    StrategyPart(
        name="hypernetwork-replay",
        phrase="replay from decoders that a hypernetwork generates",
        settings=(GeneratedDecodersSettings, ReplayedTargetsSettings),
        build=_build,
    )
)
