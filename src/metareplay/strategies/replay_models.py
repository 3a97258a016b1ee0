"""Models of old inputs that replay from noise: their contract, and the variational autoencoder that replays itself."""

from collections.abc import Mapping
from copy import deepcopy
from typing import ClassVar, NamedTuple, Protocol, final

import torch
from pydantic import Field
from torch import Generator, Tensor, nn

from metareplay.nets.autoencoder import (
    Decoder,
    as_inputs,
    class_gates,
    encoded,
    make_encoder,
    reconstruction_error,
    reconstruction_loss,
)
from metareplay.nets.registry import build_seeded
from metareplay.optimisers import adam, optimiser_tensors, restore_optimiser
from metareplay.seeding import generator_for, normal
from metareplay.settings import Settings, Widths
from metareplay.strategies.base import CURRENT


class ReplayModelSettings(Settings):
    """The autoencoder that replays."""

    group: ClassVar[str] = "strategy"
    generator_hidden: Widths = Field(
        (400, 400), description="hidden widths of the encoder of inputs; the decoder has them in reverse"
    )
    latent_size: int = Field(100, ge=1, description="number of latent variables from which an input is generated")
    generator_rate: float = Field(0.001, gt=0, description="Adam's learning rate for the model that generates inputs")


class Replay(NamedTuple):
    """Generated inputs of old tasks, flat (B, D), with the class or the task that each was generated for (B,)."""

    x: Tensor
    source: Tensor


class ReplayModel(Protocol):
    """Generates inputs like those of all tasks so far; it learns each task alongside the classifier."""

    def begin(self, task: int, inputs: int, *, binary: bool, device: torch.device) -> None:
        """A task with this many numbers per input is about to be learned."""
        ...

    def replay(self, count: int, classes: int, *, generator: Generator) -> Replay:
        """Inputs of the tasks before, as the model was before the task."""
        ...

    def learn(self, x: Tensor, y: Tensor, replay: Replay | None, share: float, *, generator: Generator) -> None:
        """One step on inputs (B, D) with classes (B,), which count ``share``, and on replayed ones for the rest."""
        ...

    def end(self) -> None:
        """The task is learned; forget what only it needed."""
        ...

    def state(self) -> dict[str, Tensor]:
        """All that it remembers."""
        ...

    def load_state(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Become the model that this state was taken from."""
        ...


@final
class SelfReplay:
    """One autoencoder for all tasks, which learns from its own samples of old ones besides the new inputs."""

    def __init__(self, settings: ReplayModelSettings, seed: int, share_off: float = 0.0) -> None:
        self.settings, self.seed, self.share_off = settings, seed, share_off
        self.binary = True
        self.now: nn.ModuleDict | None = None
        """Encoder and decoder."""
        self.before: nn.ModuleDict | None = None
        """As they were before the task; None in the first one and between tasks."""
        self.optimiser: torch.optim.Optimizer | None = None

    def begin(self, task: int, inputs: int, *, binary: bool, device: torch.device) -> None:
        if self.now is None:
            self.binary, self.now = binary, self._built(inputs).to(device)
        self.before = deepcopy(self.now).requires_grad_(False) if task > 0 else None
        self.optimiser = adam(list(self.now.parameters()), self.settings.generator_rate)

    def _built(self, inputs: int) -> nn.ModuleDict:
        hidden, latent = self.settings.generator_hidden, self.settings.latent_size

        def build(_: int) -> nn.Module:
            parts = {"encoder": make_encoder(inputs, hidden, latent), "decoder": Decoder(latent, hidden[::-1], inputs)}
            return nn.ModuleDict(parts)

        built = build_seeded(build, 0, generator_for(self.seed, "replay model"))
        assert isinstance(built, nn.ModuleDict)
        return built

    def _gates(self, classes: Tensor) -> Tensor | None:
        """Gates of inputs of these classes: (B,) -> (B, units)."""
        if self.share_off == 0:
            return None
        count, units = int(classes.max()) + 1, sum(self.settings.generator_hidden)
        return class_gates(count, units, self.share_off, self.seed).to(classes.device)[classes]

    @torch.no_grad()
    def replay(self, count: int, classes: int, *, generator: Generator) -> Replay:
        model = self.before or self.now
        assert model is not None
        device = next(model.parameters()).device
        chosen = torch.randint(classes, (count,), generator=generator).to(device)
        z = normal(count, self.settings.latent_size, generator=generator, like=torch.zeros((), device=device))
        return Replay(as_inputs(model["decoder"](z, self._gates(chosen)), binary=self.binary), chosen)

    def learn(self, x: Tensor, y: Tensor, replay: Replay | None, share: float, *, generator: Generator) -> None:
        assert self.now is not None
        assert self.optimiser is not None
        error, divergence = self._errors(x, y, generator)
        if replay is not None:
            replayed = self._errors(replay.x, replay.source, generator)
            error, divergence = (
                share * new + (1 - share) * old for new, old in zip((error, divergence), replayed, strict=True)
            )
        loss = reconstruction_loss(error, x.shape[1], binary=self.binary) + divergence
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def _errors(self, x: Tensor, classes: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Both parts of the negative evidence lower bound of inputs (B, D)."""
        assert self.now is not None
        z, divergence = encoded(self.now["encoder"], x, generator=generator)  # type: ignore[arg-type]
        outputs = self.now["decoder"](z, self._gates(classes))  # (B, D)
        return reconstruction_error(outputs, x, binary=self.binary), divergence

    def end(self) -> None:
        self.before = self.optimiser = None

    def state(self) -> dict[str, Tensor]:
        if self.now is None:
            return {}
        stored = {f"now.{name}": tensor.detach().clone() for name, tensor in self.now.state_dict().items()}
        stored["binary"] = torch.tensor(self.binary)
        if self.before is not None:
            stored |= {f"{CURRENT}before.{name}": tensor for name, tensor in self.before.state_dict().items()}
        if self.optimiser is not None:
            tensors = optimiser_tensors(self.optimiser)
            stored |= {f"{CURRENT}optimiser.{name}": tensor.clone() for name, tensor in tensors.items()}
            stored[f"{CURRENT}learning"] = torch.tensor(True)
        return stored

    def load_state(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        self.now = self.before = self.optimiser = None
        if "binary" not in state:
            return
        inputs = state["now.encoder.layers.0.weight"].shape[1]
        self.binary, self.now = bool(state["binary"]), self._built(inputs).to(device)
        self.now.load_state_dict(under("now.", state))
        if before := under(f"{CURRENT}before.", state):
            self.before = self._built(inputs).to(device).requires_grad_(False)
            self.before.load_state_dict(before)
        if f"{CURRENT}learning" in state:
            self.optimiser = adam(list(self.now.parameters()), self.settings.generator_rate)
            restore_optimiser(self.optimiser, under(f"{CURRENT}optimiser.", state))


def under(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
