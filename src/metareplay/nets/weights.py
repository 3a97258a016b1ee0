"""WeightSpec: any ``nn.Module`` as a function of one flat weight vector."""

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import cast
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call
from torch.nn.modules.conv import _ConvNd

from metareplay.column_blocks import ColumnBlocks
from metareplay.errors import ConfigError
from metareplay.nets.frozen import fixed_buffers, fixed_layers
from metareplay.nets.mlp import MLP
from metareplay.nets.noise import exchanged

Buffers = dict[str, Tensor]
"""A module's tensors that are not weights, by name: running statistics, constants."""

SLOWNESS = "There is a performance drop"
JACOBIAN_ELEMENTS = 2**25
"""Elements of the Jacobians held in memory at once, 128 MiB in float32."""


@dataclass(frozen=True)
class WeightSpec:
    """Names and shapes of a module's weights, in the order of the flat vector; frozen weights are not among them."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    groups: Tensor | None = field(default=None, compare=False, repr=False)
    """Which weights were added together, once the outputs have grown (W,); None: each weight tensor is a group."""

    @classmethod
    def of(cls, module: nn.Module) -> "WeightSpec":
        """The specification of a module; weight tying is refused."""
        everything = module.named_parameters(remove_duplicate=False)
        named = [(name, parameter) for name, parameter in everything if parameter.requires_grad]
        if not named:
            raise ConfigError(
                f"{type(module).__name__} has no trainable weights; at least one needs requires_grad=True"
            )
        seen: dict[int, str] = {}
        for name, parameter in named:
            if id(parameter) in seen:
                raise ConfigError(
                    f"the weights {seen[id(parameter)]!r} and {name!r} of {type(module).__name__} are one tensor; "
                    "tied weights cannot each have a posterior: give the layers separate weights"
                )
            seen[id(parameter)] = name
        return cls(tuple(name for name, _ in named), tuple(parameter.shape for _, parameter in named))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of elements of each weight."""
        return tuple(prod(shape) for shape in self.shapes)

    @cached_property
    def numel(self) -> int:
        """Length of the flat vector."""
        return sum(self.sizes)

    def flatten(self, module: nn.Module) -> Tensor:
        """The module's current weights as one detached vector."""
        weights = dict(module.named_parameters())
        return torch.cat([weights[name].detach().reshape(-1) for name in self.names])  # (W,)

    @cached_property
    def from_oldest(self) -> ColumnBlocks | None:
        """Each weight's position when ordered from oldest to newest; None if all are of the same age."""
        if self.groups is None:
            return None
        by_age = self.groups.cpu().argsort(stable=True)  # groups are numbered in order of age
        return ColumnBlocks.of(by_age.argsort(), self.numel)

    @cached_property
    def runs(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Lengths of the runs of consecutive weights in the same group, and their groups."""
        if self.groups is None:
            return self.sizes, tuple(range(len(self.sizes)))
        groups, sizes = self.groups.unique_consecutive(return_counts=True)
        return tuple(sizes.tolist()), tuple(groups.tolist())

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of the flat vector, named and shaped like the module's weights; leading dimensions are kept."""
        if flat.shape[-1] != self.numel:
            raise ConfigError(
                f"the flat weight vector has {flat.shape[-1]} elements; this network has {self.numel} weights"
            )
        parts = flat.split(self.sizes, dim=-1)  # one split: a single gradient buffer in the backward pass
        return {
            name: part.view((*flat.shape[:-1], *shape))  # (..., W) -> (..., *shape)
            for name, shape, part in zip(self.names, self.shapes, parts, strict=True)
        }

    def grown_from(self, smaller: "WeightSpec") -> "WeightSpec":
        """This specification with the groups from before the outputs grew; the new weights form new groups."""
        new_groups = torch.repeat_interleave(torch.arange(len(self.sizes)), torch.tensor(self.sizes))  # (W,)
        before = smaller.groups
        if before is None:
            before = torch.repeat_interleave(torch.arange(len(smaller.sizes)), torch.tensor(smaller.sizes))
        groups = new_groups + int(before.max()) + 1
        groups[smaller.positions_in(self)] = before
        return replace(self, groups=groups.unique(return_inverse=True)[1])

    def positions_in(self, larger: "WeightSpec") -> Tensor:
        """The position of each of this network's weights in the flat vector of the same network with more outputs.

        Each weight must be the leading corner of the larger network's; other networks are refused.
        """
        positions, shapes = (
            torch.arange(larger.numel).split(larger.sizes),
            dict(zip(larger.names, larger.shapes, strict=True)),
        )
        corners = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            new = shapes.get(name)
            if new is None or len(new) != len(shape) or any(b < a for a, b in zip(shape, new, strict=True)):
                raise ConfigError(
                    f"the network cannot be given more outputs: its weight {name!r} of shape {tuple(shape)} then "
                    f"{'is missing' if new is None else f'has shape {tuple(new)}'}, and the old one is not its "
                    "leading corner; let the number of outputs change only the last layer"
                )
            index = larger.names.index(name)
            block = positions[index].view(larger.shapes[index])
            corners.append(block[tuple(slice(0, size) for size in shape)].reshape(-1))
        return torch.cat(corners)  # (W,)


_ONE_BY_ONE: WeakSet[nn.Module] = WeakSet()
"""Modules that turned out not to support batching over weight samples."""
_WARNS: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
"""Whether PyTorch warns that it runs some layers of a module sample by sample, once known."""
_KNOWN_LOCK, _WARNINGS_LOCK = threading.Lock(), threading.RLock()


def one_by_one(module: nn.Module) -> bool:
    """Whether weight samples are run one after another.

    Batched over samples, a convolution becomes a grouped one with a group per sample: on a CPU that is slower for all
    but tiny networks (measured with 10 samples: LeNet 2.3 times, ResNet-32 1.2 times), and it holds the activations of
    all samples at once. Frozen ones before the first trained layer are the same for all samples.
    """
    with _KNOWN_LOCK:
        known = module in _ONE_BY_ONE
    return known or any(isinstance(layer, _ConvNd) and layer.weight.requires_grad for layer in module.modules())


def run_flat(
    module: nn.Module, spec: WeightSpec, weights: Tensor, x: Tensor, buffers: Sequence[Buffers] = ()
) -> Tensor:
    """Outputs of the module under weight samples (S, W) for inputs (B, ...): (S, B, C).

    ``buffers`` replace the module's own: sample i uses set i modulo their number. In training mode each sample starts
    from its set, which is then replaced by the mean of its samples' updated buffers.
    """
    if isinstance(module, MLP) and len(weights) > 1:
        return module.run_samples(spec.unflatten(weights), x)
    sets = buffers or [dict(module.named_buffers())]
    if module.training or len(sets) > 1:
        still = fixed_buffers(module)
        fixed = {name: sets[0][name] for name in still if name in sets[0]}
        per_set = [{name: own[name] for name in own if name not in still} for own in sets] if still else sets
    else:
        fixed, per_set = sets[0], [{}]
    rows = [per_set[index % len(per_set)] for index in range(len(weights))]

    def single(flat: Tensor, own: Buffers) -> tuple[Tensor, Buffers]:
        state = {**spec.unflatten(flat), **fixed, **own}
        outputs: Tensor = functional_call(module, state, (x,), tie_weights=False)  # there are none, see WeightSpec.of
        return outputs, {name: state[name].detach() for name in own}  # changed in place, or replaced by the module

    outputs, changed = _over_samples(module, single, weights, rows)
    for index, own in enumerate(sets if module.training else ()):
        for name, values in changed.items():
            updated = values[index :: len(sets)]  # (S, ...) -> (S / M, ...)
            if not torch.equal(updated, own[name].expand_as(updated)):  # constants stay exactly as they are
                own[name] = updated.mean(0) if updated.is_floating_point() else updated[0]
    return outputs


def _over_samples(
    module: nn.Module,
    single: Callable[[Tensor, Buffers], tuple[Tensor, Buffers]],
    weights: Tensor,
    rows: Sequence[Buffers],
) -> tuple[Tensor, Buffers]:
    """``single`` for each weight sample (S, W) and its buffers, stacked; batched where that works and is faster."""
    state = torch.get_rng_state() if exchanged() else None
    if len(rows) > 1 and not one_by_one(module):
        try:
            return _without_slowness_warning(module, lambda: _batched(single, weights, rows))
        except RuntimeError:  # layers that cannot be batched, e.g. recurrent ones
            with _KNOWN_LOCK:
                _ONE_BY_ONE.add(module)
            if state is not None:
                torch.set_rng_state(state)
    flats = weights.unbind() if len(weights) > 1 else (weights.squeeze(0),)  # a view needs no copy of the gradient
    results = [
        single(flat, {name: value.clone() for name, value in row.items()})
        for flat, row in zip(flats, rows, strict=True)
    ]
    return torch.stack([outputs for outputs, _ in results]), {
        name: torch.stack([own[name] for _, own in results]) for name in rows[0]
    }


def _batched(
    single: Callable[[Tensor, Buffers], tuple[Tensor, Buffers]], weights: Tensor, rows: Sequence[Buffers]
) -> tuple[Tensor, Buffers]:
    if not rows[0]:  # less to wrap
        run = torch.func.vmap(lambda flat: single(flat, {})[0], randomness="different")
        return run(weights), {}  # (S, W) -> (S, B, C)
    # Counts are the same for all samples.
    counts = {name: value.clone() for name, value in rows[0].items() if not value.is_floating_point()}
    own = {name: torch.stack([row[name] for row in rows]) for name in rows[0] if name not in counts}  # (S, ...)
    batched = torch.func.vmap(lambda flat, own: single(flat, {**own, **counts}), randomness="different")
    outputs, changed = batched(weights, own)  # (S, W) -> (S, ...)
    return outputs, changed


def _without_slowness_warning(module: nn.Module, run: Callable[[], tuple[Tensor, Buffers]]) -> tuple[Tensor, Buffers]:
    """Run without PyTorch's warning about layers that it runs sample by sample.

    Python's warning filters are shared by all threads, so only one thread at a time changes them, and only for modules
    with such layers.
    """
    with _KNOWN_LOCK:
        warns = _WARNS.get(module)
    if warns is False:
        return run()
    with _WARNINGS_LOCK, warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", SLOWNESS)
        result = run()
    slow = [warning for warning in caught if str(warning.message).startswith(SLOWNESS)]
    with _KNOWN_LOCK:
        _WARNS[module] = bool(slow)
    for warning in caught:
        if warning not in slow:
            warnings.warn(warning.message, warning.category, stacklevel=2)
    return result


@contextmanager
def without_slowness_warning() -> Iterator[None]:
    """The same for what runs once, with gradients inside: PyTorch cannot batch those of all layers, e.g. attention."""
    with _WARNINGS_LOCK, warnings.catch_warnings():
        warnings.filterwarnings("ignore", SLOWNESS)
        yield


def linearised_outputs(
    module: nn.Module,
    spec: WeightSpec,
    mean: Tensor,
    scale: Tensor,
    x: Tensor,
    columns: slice = slice(None),
    buffers: Buffers | None = None,
) -> tuple[Tensor, Tensor]:
    """Mean (B, C) and covariance (B, C, C) of some outputs of the module, linearised at ``mean``, for Gaussian weights.

    With J the Jacobian of an input's outputs with respect to the weights, their covariance is J diag(scale^2) J':
    exact, without weight samples.
    """
    buffers = dict(module.named_buffers()) if buffers is None else buffers

    def outputs(flat: Tensor, inputs: Tensor) -> Tensor:
        result: Tensor = functional_call(module, {**spec.unflatten(flat), **buffers}, (inputs,))
        return result[:, columns]  # (b, C)

    def slope(single: Tensor) -> Tensor:
        return cast(Tensor, torch.func.jacrev(lambda flat: outputs(flat, single.unsqueeze(0))[0])(mean))  # (C, W)

    width = outputs(mean, x[:1]).numel()
    at_once = max(1, JACOBIAN_ELEMENTS // (width * spec.numel))
    means, covariances = [], []
    for part in x.split(at_once):
        try:
            with without_slowness_warning():
                slopes = torch.func.vmap(slope)(part)  # (b, C, W)
        except RuntimeError:  # layers that cannot be batched, e.g. recurrent ones
            slopes = torch.stack([slope(single) for single in part])
        scaled = slopes * scale
        covariances.append(scaled @ scaled.mT)  # (b, C, C)
        means.append(outputs(mean, part))
    return torch.cat(means), torch.cat(covariances)


@contextmanager
def training_mode(module: nn.Module) -> Iterator[None]:
    """The module in training mode, except for what is frozen; otherwise it is in evaluation mode.

    In evaluation mode statistics are fixed, and nothing is dropped.
    """
    module.train()
    for name in fixed_layers(module):
        module.get_submodule(name).eval()
    try:
        yield
    finally:
        module.eval()


def global_seed_from(generator: Generator) -> int:
    """A seed drawn from a generator, for code that only knows PyTorch's global random state."""
    return int(torch.randint(2**62, (1,), generator=generator))
