"""Task statistics: what criteria store about each task while its data are available.

They are small tensors, stored with the model, and never examples.
"""

from collections.abc import Mapping, Sequence
from typing import final

from torch import Tensor

from metareplay.errors import CheckpointError
from metareplay.inference.statistics.evidence import Stored


@final
class TaskStatistics:
    """By criterion and task. Statistics of a criterion that is no longer registered are kept."""

    def __init__(self) -> None:
        self._by_criterion: dict[str, list[Stored]] = {}
        self.version = 0
        """Changes whenever the contents do."""

    def known(self, criterion: str) -> tuple[Stored, ...]:
        """What is stored under a name, for as many tasks as there is anything."""
        return tuple(self._by_criterion.get(criterion, ()))

    def of(self, criterion: str, tasks: int) -> tuple[Stored, ...]:
        """What a criterion stored about the first tasks; empty for those that were learned without it."""
        stored = self._by_criterion.get(criterion, [])[:tasks]
        return (*stored, *({} for _ in range(tasks - len(stored))))

    def put(self, criterion: str, stored: Sequence[Stored]) -> None:
        """Replace what is stored about the first tasks; tensors are copied, except for those that are already
        stored."""
        self.version += 1
        before = self._by_criterion.get(criterion, [])
        missing = len(stored) - len(before)
        self._by_criterion[criterion] = [
            new if new is old else {name: _kept(tensor, old.get(name)) for name, tensor in new.items()}
            for new, old in zip(stored, [*before, *({} for _ in range(missing))], strict=False)
        ]

    def drop(self, task: int) -> None:
        """Remove a task; later ones move up."""
        self.version += 1
        for stored in self._by_criterion.values():
            del stored[task : task + 1]

    def tensors(self) -> dict[str, Tensor]:
        """Everything, as CRITERION.TASK.NAME."""
        return {
            f"{criterion}.{task}.{name}": tensor
            for criterion, stored in self._by_criterion.items()
            for task, statistics in enumerate(stored)
            for name, tensor in statistics.items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of ``tensors``."""
        self.version += 1
        by_criterion: dict[str, dict[int, dict[str, Tensor]]] = {}
        for key, tensor in tensors.items():
            criterion, _, rest = key.partition(".")
            task, _, name = rest.partition(".")
            if not task.isdecimal() or not name:
                raise CheckpointError(f"the key {key!r} of stored statistics does not name a task; the file is damaged")
            by_criterion.setdefault(criterion, {}).setdefault(int(task), {})[name] = tensor
        self._by_criterion = {
            criterion: [of_tasks.get(task, {}) for task in range(max(of_tasks) + 1)]
            for criterion, of_tasks in by_criterion.items()
        }


def _kept(tensor: Tensor, old: Tensor | None) -> Tensor:
    """A copy, unless it is what was stored before, which is never modified."""
    return tensor if tensor is old else tensor.detach().cpu().clone().contiguous()
