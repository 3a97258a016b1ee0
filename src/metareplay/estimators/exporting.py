"""Exports of a learned model: plain PyTorch modules, state dicts and ONNX graphs."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from metareplay.benchmarks.base import TaskInfo
from metareplay.errors import ConfigError
from metareplay.files import write_atomically
from metareplay.learner.learner import ContinualLearner
from metareplay.nets.backbones import is_features
from metareplay.scaling import Scaling

if TYPE_CHECKING:
    from metareplay.export.modules import Learned

TaskName = str | int


class Exports:
    """What an estimator can be turned into."""

    tasks: list[TaskInfo]
    scaling: Scaling
    inputs: Mapping[str, Any]

    @abstractmethod
    def _trained(self) -> ContinualLearner: ...

    @abstractmethod
    def _task_index(self, task: TaskName) -> int: ...

    def export_module(self, task: TaskName) -> nn.Module:
        """One task's mean network as a plain module: inputs in your units -> probabilities of its classes, or targets.

        Its state dict is what ``export_state_dict`` writes.
        """
        from metareplay.export.modules import TaskNetwork

        return TaskNetwork(self._learned(), self._task_index(task)).eval()

    def export_state_dict(self, file: str | Path, task: TaskName) -> None:
        """Write one task's mean network as a state dict (safetensors), with labels and columns as metadata."""
        from metareplay.export.state_dict import state_dict_content

        write_atomically(Path(file), state_dict_content(self._learned(), self._task_index(task)))

    def export_onnx(
        self,
        file: str | Path,
        task: TaskName | None = None,
        *,
        content: str = "mean",
        samples: int | None = None,
        criterion: str | None = None,
    ) -> None:
        """Write an ONNX graph: one task's network, or without ``task`` all mean networks with the choice of the task.

        ``content="samples"`` holds weight samples of one task instead of the mean, by default those that predictions
        use. ``criterion`` chooses the task, by default that of predictions (extra ``onnx``).
        """
        from metareplay.export.onnx import onnx_graph

        learned, index = self._learned(), None if task is None else self._task_index(task)
        graph = onnx_graph(learned, index, content=content, samples=samples, criterion=criterion)
        write_atomically(Path(file), graph)

    def _learned(self) -> "Learned":
        from metareplay.export.modules import Learned

        learner = self._trained()
        if is_features(learner.config.network):
            raise ConfigError(
                f"the backbone of {learner.config.network!r} is no part of this model, so it cannot be exported with "
                "it; predict with metareplay, or learn with a network of your own"
            )
        return Learned(learner, self.tasks, self.scaling, self.inputs)
