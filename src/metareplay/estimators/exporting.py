"""Exports of a learned model: plain PyTorch modules, state dicts, ONNX graphs and adapters for PEFT."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from metareplay.benchmarks.base import TaskInfo
from metareplay.errors import ConfigError
from metareplay.files import write_atomically, write_together
from metareplay.learner.learner import ContinualLearner
from metareplay.nets.backbones import has_backbone, is_adapted
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

    def export_peft(
        self, folder: str | Path, task: TaskName, *, content: str = "mean", samples: int | None = None
    ) -> None:
        """Write one task's adapters as a folder that the package PEFT loads onto the same pretrained network.

        ``content="samples"`` writes weight samples instead of the mean, by default those that predictions use, each as
        a folder ``sample-0``, ``sample-1`` and so on. The network behind the backbone is in ``head.safetensors``.
        """
        from metareplay.export.peft import peft_files

        learned = self._learned(adapters=True)
        files = peft_files(learned, self._task_index(task), content=content, samples=samples)
        write_together({Path(folder) / name: file for name, file in files.items()})

    def _learned(self, *, adapters: bool = False) -> "Learned":
        from metareplay.export.modules import Learned

        learner = self._trained()
        network = learner.config.network
        if adapters and not is_adapted(network):
            raise ConfigError(f"{network!r} has no adapters, which are what PEFT's format holds; choose another format")
        if has_backbone(network) and not adapters:
            advice = "export the adapters with --format peft" if is_adapted(network) else "predict with metareplay"
            raise ConfigError(
                f"the backbone of {network!r} is not part of this model, so it cannot be exported with it; {advice}, "
                "or learn with your own network"
            )
        return Learned(learner, self.tasks, self.scaling, self.inputs)
