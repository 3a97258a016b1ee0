"""Changes of a model's tasks after they were learned: more classes for one, or one task fewer."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import torch
from torch import Generator, Tensor

from metareplay.errors import ConfigError, MetaReplayError
from metareplay.model import ContinualModel
from metareplay.nets.registry import build_seeded
from metareplay.nets.weights import WeightSpec
from metareplay.task_maps.heads import HeadLayout


def widen_task(model: ContinualModel, task: int, classes: int, *, generator: Generator) -> Tensor:
    """Give a task this many classes instead of fewer; True for the weights that its posterior has not learned (W,)."""
    old = model.heads[task].stop
    if any(model.auxiliary_outputs):
        raise ConfigError(
            "a task that was trained with auxiliary outputs (training.other, training.rotations) cannot get more "
            "classes, because those outputs follow its classes; add the new classes as a new task"
        )
    if model.layout is not HeadLayout.SINGLE:
        raise ConfigError(
            "a known task cannot get more classes where tasks share weights and have outputs of their own; add the new "
            "classes as a new task, or choose a method with weights for each task, such as pr-bbb"
        )
    with model.on_cpu():
        model.old_positions = None
        if classes > model.outputs:
            model.grow_to(classes, generator)
            model.task_buffers.grow(model.network)
        model.heads[task], model.auxiliary[task] = slice(0, classes), slice(classes, classes)
        fresh = torch.zeros(model.spec.numel, dtype=torch.bool)
        for outputs, new in ((classes, True), (old, False)):
            fresh[_narrower(model, outputs).positions_in(model.spec)] = new
    return fresh.to(model.device)


def unused_weights(model: ContinualModel, tasks: Sequence[int]) -> Tensor | None:
    """True for the weights of outputs that a task does not have (T, W); None if there are none.

    Where one set of outputs serves all tasks, the network has as many as the task with most classes needs.
    """
    return _unused(model, tasks, model.spec.numel, lambda narrower: narrower.positions_in(model.spec))


def unused_theta(model: ContinualModel, tasks: Sequence[int]) -> Tensor | None:
    """The same for the elements of theta that these weights are made of (T, P)."""
    family, spec = model.family, model.spec
    return _unused(model, tasks, family.num_parameters(spec), lambda narrower: family.positions_in(narrower, spec))


def other_heads_theta(model: ContinualModel, tasks: Sequence[int]) -> Tensor | None:
    """True for the elements of theta behind outputs of other tasks (T, P); None if tasks share their outputs."""
    if model.layout is not HeadLayout.MULTI or model.num_tasks < 2:
        return None
    family, spec, positions = model.family, model.spec, dict[int, Tensor]()

    def within(outputs: int) -> Tensor:
        """True for what a network with only the first outputs has (P,)."""
        if outputs not in positions:
            smaller = _narrower(model, outputs) if outputs else _without_outputs(model)
            positions[outputs] = torch.zeros(family.num_parameters(spec), dtype=torch.bool)
            positions[outputs][family.positions_in(smaller, spec)] = True
        return positions[outputs]

    own = [within(model.auxiliary[task].stop) & ~within(model.heads[task].start) for task in tasks]  # (P,) each
    return (~(torch.stack(own) | within(0))).to(model.device)  # (T, P)


def _without_outputs(model: ContinualModel) -> WeightSpec:
    """The weights that do not depend on the number of outputs: those that do lose the dimension that counts them."""
    narrow = _narrower(model, model.auxiliary[0].stop)
    shapes = (
        torch.Size(0 if few < many else many for few, many in zip(small, large, strict=True))
        for small, large in zip(narrow.shapes, model.spec.shapes, strict=True)
    )
    return WeightSpec(model.spec.names, tuple(shapes))


def _unused(
    model: ContinualModel, tasks: Sequence[int], size: int, positions: Callable[[WeightSpec], Tensor]
) -> Tensor | None:
    widths = [model.auxiliary[task].stop for task in tasks]
    if model.layout is not HeadLayout.SINGLE or all(width == model.outputs for width in widths):
        return None
    of_width = {width: torch.zeros(size, dtype=torch.bool) for width in widths}
    for width, unused in of_width.items():
        with suppress(MetaReplayError):  # a network of the user's own may not be able to have fewer outputs
            used = positions(_narrower(model, width))
            unused.fill_(True)[used] = False
    return torch.stack([of_width[width] for width in widths]).to(model.device)  # (T, size)


def _narrower(model: ContinualModel, outputs: int) -> WeightSpec:
    """The weights of the network with fewer outputs."""
    if outputs == model.outputs:
        return model.spec
    return WeightSpec.of(build_seeded(model.factory, outputs, torch.Generator().manual_seed(0)))


def remove_task(model: ContinualModel, task: int) -> None:
    """Remove a task with all that is stored for it alone; later tasks move down, and their posteriors stay the same.

    Outputs of the network that only it used remain, unused.
    """
    if model.num_tasks == 1:
        raise ConfigError("the only task of a model cannot be removed; start a new model instead")
    if model.layout.one_softmax:
        raise ConfigError(
            "a task cannot be removed where one softmax spans the classes of all tasks, because they were learned "
            "against each other; learn the other tasks again, or choose a method such as pr-bbb"
        )
    model.task_map.remove_task(task)  # or refuses, before anything has changed
    model.task_buffers.remove_task(task)
    del model.heads[task], model.auxiliary[task]
    model.lineage.remove(task)
    later = model.introduced_by_task > task
    model.introduced_by_task = model.introduced_by_task - later.long()
