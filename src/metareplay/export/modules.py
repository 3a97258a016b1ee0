"""Plain ``nn.Module``s that answer as a learned model does; they know nothing of posteriors or hypernetworks."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from metareplay.benchmarks.base import TaskInfo
from metareplay.errors import ConfigError
from metareplay.inference.calibration.classes import ClassCalibration
from metareplay.inference.calibration.targets import TargetCalibration
from metareplay.inference.criteria.agreement import expected_entropy
from metareplay.inference.criteria.entropy import total_entropy
from metareplay.inference.predictive import log_predictive
from metareplay.inference.predictor import ClassPredictor
from metareplay.inference.real_predictor import RealPredictor
from metareplay.learner.learner import ContinualLearner
from metareplay.nets.mlp import MLP
from metareplay.nets.weights import Buffers
from metareplay.posteriors.families.laplace import LinearisedGaussian
from metareplay.scaling import Scaling


class Learned(NamedTuple):
    """A learned model: what an estimator has."""

    learner: ContinualLearner
    tasks: Sequence[TaskInfo]
    scaling: Scaling
    inputs: Mapping[str, Any] = MappingProxyType({})
    """How rows of tables become inputs, if the model learned from such."""

    @property
    def classifies(self) -> bool:
        """Whether answers are classes."""
        return self.learner.problem == "classification"

    @property
    def labels(self) -> list[object]:
        """All labels, in the order of the columns of probabilities."""
        return list(dict.fromkeys(label for task in self.tasks for label in task.classes))


class ScaledInputs(nn.Module):
    """Inputs in the user's units, scaled as the model needs them."""

    x_mean: Tensor
    x_scale: Tensor

    def __init__(self, scaling: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.register_buffer("x_mean", scaling.get("x_mean", torch.zeros(())).clone())
        self.register_buffer("x_scale", scaling.get("x_scale", torch.ones(())).clone())

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.x_mean) / self.x_scale


class UnscaledTargets(nn.Module):
    """Regression outputs in the user's units."""

    y_mean: Tensor
    y_scale: Tensor

    def __init__(self, scaling: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.register_buffer("y_mean", scaling.get("y_mean", torch.zeros(())).clone())
        self.register_buffer("y_scale", scaling.get("y_scale", torch.ones(())).clone())

    def forward(self, outputs: Tensor) -> Tensor:
        return outputs * self.y_scale + self.y_mean


class Calibrated(nn.Module):
    """Outputs -> probabilities, by a task's temperature and doubt where predictions are calibrated: (..., C)."""

    temperature: Tensor
    doubt: Tensor
    prior: Tensor

    def __init__(self, calibration: ClassCalibration) -> None:
        super().__init__()
        for name, value in calibration.tensors().items():
            self.register_buffer(name, value.float())

    def forward(self, outputs: Tensor) -> Tensor:
        certain = (outputs / self.temperature.to(outputs.dtype)).softmax(-1)
        return (1 - self.doubt.to(outputs.dtype)) * certain + (self.doubt * self.prior).to(outputs.dtype)


def calibrated(learned: Learned, task: int) -> nn.Module:
    """How a task's outputs become probabilities, as predictions of inputs that are not strange to it do that."""
    predictor = learned.learner.predictor
    if not isinstance(predictor, ClassPredictor) or not predictor.calibrated:
        return nn.Softmax(-1)
    calibration = predictor.calibration(task)
    return nn.Softmax(-1) if len(calibration.prior) == 1 else Calibrated(calibration)


class Mean(nn.Module):
    """Scaled targets: the network's, and a share of the task's linear fit where it has one."""

    share: Tensor
    linear: Tensor

    def __init__(self, calibration: TargetCalibration | None) -> None:
        super().__init__()
        self.mixes = calibration is not None and calibration.share is not None and calibration.linear is not None
        if calibration is not None and calibration.share is not None and calibration.linear is not None:
            self.register_buffer("share", calibration.share.float().clone())
            self.register_buffer("linear", calibration.linear.float().clone())

    def forward(self, x: Tensor, outputs: Tensor) -> Tensor:
        if not self.mixes:
            return outputs
        of_linear = x.flatten(1) @ self.linear[:-1] + self.linear[-1]  # (N, ...) -> (N, D)
        return self.share * outputs + (1 - self.share) * of_linear


def mean_of(learned: Learned, task: int) -> Mean:
    """What corrects the task's targets."""
    predictor = learned.learner.predictor
    return Mean(predictor.calibration(task) if isinstance(predictor, RealPredictor) and predictor.calibrated else None)


class TaskNetwork(nn.Module):
    """One task's network under the mean of its posterior: inputs -> probabilities of its classes, or targets."""

    def __init__(self, learned: Learned, task: int) -> None:
        super().__init__()
        self.inputs = ScaledInputs(learned.scaling.tensors)
        self.network = mean_network(learned.learner, task)
        self.targets = None if learned.classifies else UnscaledTargets(learned.scaling.tensors)
        self.head = learned.learner.model.heads[task]
        self.probabilities, self.mean = calibrated(learned, task), mean_of(learned, task)

    def outputs(self, x: Tensor) -> Tensor:
        """Logits of the task's classes or scaled targets, for scaled inputs: (N, ...) -> (N, C)."""
        return cast(Tensor, self.network(x))[:, self.head]

    def forward(self, x: Tensor) -> Tensor:
        scaled = self.inputs(x)
        outputs = self.outputs(scaled)  # (N, ...) -> (N, C)
        if self.targets is None:
            return cast(Tensor, self.probabilities(outputs))
        return cast(Tensor, self.targets(self.mean(scaled, outputs)))


class SampledNetworks(nn.Module):
    """One task's networks under weight samples, the same as predictions use.

    Inputs -> probabilities and their total, aleatoric and epistemic uncertainty, or mean and standard deviation.
    """

    def __init__(self, learned: Learned, task: int, samples: int | None = None) -> None:
        super().__init__()
        model = learned.learner.model
        self.inputs, self.head = ScaledInputs(learned.scaling.tensors), model.heads[task]
        self.targets = None if learned.classifies else UnscaledTargets(learned.scaling.tensors)
        self.probabilities, self.mean = calibrated(learned, task), mean_of(learned, task)
        weights = predictive_weights(learned.learner, task, samples)  # (S, W)
        self.together = isinstance(model.network, MLP)
        self.names, buffers = model.spec.names, model.buffers(task)
        if self.together:
            self.networks: nn.Module = deepcopy(model.network)
            for index, values in enumerate(model.spec.unflatten(weights).values()):
                self.register_buffer(f"weights{index}", values.clone())
        else:
            copies = [_with(learned.learner, flat, buffers[i % len(buffers)]) for i, flat in enumerate(weights)]
            self.networks = nn.ModuleList(copies)

    def outputs(self, x: Tensor) -> Tensor:
        """Of every weight sample: (N, ...) -> (S, N, C)."""
        if self.together:
            stacked = {name: self.get_buffer(f"weights{index}") for index, name in enumerate(self.names)}
            return cast(MLP, self.networks).run_samples(stacked, x)[..., self.head]
        return torch.stack([network(x) for network in cast(nn.ModuleList, self.networks)])[..., self.head]

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        scaled = self.inputs(x)
        outputs = self.outputs(scaled)
        if self.targets is not None:
            std = outputs.std(0, correction=0) * self.targets.y_scale  # (S, N, D) -> (N, D)
            return self.targets(self.mean(scaled, outputs.mean(0))), std
        exact = isinstance(self.probabilities, nn.Softmax)
        log_probs = outputs.double().log_softmax(-1) if exact else self.probabilities(outputs.double()).log()
        total, aleatoric = total_entropy(log_probs), expected_entropy(log_probs)  # (S, N, C) -> (N,)
        epistemic = (total - aleatoric).clamp_min(0)
        parts = (log_predictive(log_probs).exp(), total, aleatoric, epistemic)
        return tuple(part.float() for part in parts)


def mean_network(learner: ContinualLearner, task: int) -> nn.Module:
    """The network under the weights that stand for a task's posterior: its mean, where it has one."""
    return _with(learner, learner.model.central_weights(task), learner.model.buffers(task)[0])


def _with(learner: ContinualLearner, weights: Tensor, buffers: Buffers) -> nn.Module:
    network = deepcopy(learner.model.network)
    state = {**learner.model.spec.unflatten(weights.cpu()), **buffers}
    network.load_state_dict({name: value.detach().clone().contiguous() for name, value in state.items()}, strict=False)
    return network.requires_grad_(False).eval()


@torch.no_grad()
def predictive_weights(learner: ContinualLearner, task: int, samples: int | None) -> Tensor:
    """The weight samples that predictions of a task use (S, W); ``samples`` may ask for another number."""
    if isinstance(learner.model.posterior(task), LinearisedGaussian):
        raise ConfigError(
            f"{learner.config.method} predicts with a linearised network, without weight samples; export the mean"
        )
    drawn = learner.predictor.samples(task, samples)
    return torch.cat([drawn.weights(step) for step in drawn.steps]).cpu()  # (S, W)
