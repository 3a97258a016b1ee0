"""Frozen weights in a network of one's own: they have no posterior, never change, and are stored once."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from metareplay import ContinualClassifier
from metareplay.errors import CheckpointError, ConfigError
from metareplay.nets.frozen import fixed_buffers, fixed_layers, restore_frozen, share_frozen
from metareplay.nets.weights import WeightSpec, one_by_one, run_flat, training_mode


class Tuned(nn.Module):
    """A frozen part with statistics of its own, and a trained one; weights are drawn anew every time it is built."""

    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.ReLU()).requires_grad_(
            False
        )
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.body(x).mean((2, 3))))


class Unfrozen(Tuned):
    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(input_shape, outputs)
        self.requires_grad_(True)


QUICK = {"training.iterations": 40, "training.learning_rate": 0.01, "inference.samples": 3}
SHAPE = (1, 6, 6)


def pictures(task: int) -> tuple[np.ndarray, np.ndarray]:
    rng, y = np.random.default_rng(task), np.arange(40) % 2
    return (rng.normal(size=(40, *SHAPE)) + y[:, None, None, None] * (1.0 + task)).astype(np.float32), y + 2 * task


def test_only_trained_weights_count() -> None:
    network = Tuned(SHAPE, 3)
    assert WeightSpec.of(network).names == ("norm.weight", "norm.bias", "head.weight", "head.bias")
    assert fixed_layers(network) == ("body",)
    assert fixed_buffers(network) == {
        f"body.1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")
    }
    assert not one_by_one(network)  # its convolutions are the same for all weight samples
    assert one_by_one(Unfrozen(SHAPE, 3))
    with training_mode(network):
        assert network.norm.training
        assert not any(layer.training for layer in network.body.modules())
    with pytest.raises(ConfigError, match="has no trainable weights"):
        WeightSpec.of(nn.Linear(2, 2).requires_grad_(False))


def test_weight_samples_share_what_is_frozen() -> None:
    network, x = Tuned(SHAPE, 2).eval(), torch.randn(5, *SHAPE, generator=Generator().manual_seed(0))
    spec = WeightSpec.of(network)
    weights = torch.randn(3, spec.numel, generator=Generator().manual_seed(1), requires_grad=True)
    buffers = [dict(network.named_buffers())]
    before = {name: tensor.clone() for name, tensor in buffers[0].items()}
    with training_mode(network):
        outputs = run_flat(network, spec, weights, x, buffers)
    assert outputs.shape == (3, 5, 2)
    outputs.sum().backward()
    assert all(weight.grad is None for weight in network.body.parameters())
    changed = {name for name, tensor in buffers[0].items() if not torch.equal(tensor, before[name])}
    assert changed == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}


@pytest.mark.parametrize("method", ["pr-bbb", "vcl", "fine-tuning", "pr-ensemble"])
def test_frozen_weights_stay_while_tasks_are_learned_and_are_stored_once(method: str, tmp_path: Path) -> None:
    model = ContinualClassifier(method, Tuned, settings=QUICK)
    model.learn_task(*pictures(0))
    assert model.learner is not None
    first = {name: weight.clone() for name, weight in model.learner.model.frozen.items()}
    assert set(first) == {"body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias"}
    model.learn_task(*pictures(1))  # for vcl and fine-tuning with more outputs
    network = model.learner.model.network
    assert all(torch.equal(network.get_parameter(name), weight) for name, weight in first.items())
    assert model.learner.model.parameter_counts()["main_network"] == 8 + 5 * model.learner.model.outputs
    stored = [name for name in model.learner.tensors(training=False) if "body.0.weight" in name]
    assert stored == ["model.frozen.body.0.weight"]
    x, y = pictures(1)
    assert model.score(x, y, task=1) > 0.8
    model.save(tmp_path)
    again = ContinualClassifier.load(tmp_path)
    np.testing.assert_array_equal(again.predict_full(x).probabilities, model.predict_full(x).probabilities)
    for either in (model, again):
        either.learn_task(x, y + 10)
    np.testing.assert_array_equal(again.predict_full(x).probabilities, model.predict_full(x).probabilities)


def test_what_does_not_fit_is_refused() -> None:
    first, weights = Tuned(SHAPE, 2), dict(Tuned(SHAPE, 2).body.named_parameters(prefix="body"))
    with pytest.raises(ConfigError, match=r"'body.0.weight' is not frozen all the time"):
        share_frozen(Unfrozen(SHAPE, 2), weights)
    wide = SimpleNamespace(shape=torch.Size((9,)))
    with pytest.raises(
        ConfigError, match=r"'body.0.bias' of shape \(9,\) changes to \(4,\) with the number of outputs"
    ):
        share_frozen(first, {**weights, "body.0.bias": wide})  # type: ignore[dict-item]
    with pytest.raises(CheckpointError, match=r"'body.0.bias' does not fit this network"):
        restore_frozen(weights, {name: weight for name, weight in weights.items() if name != "body.0.bias"})
    with pytest.raises(CheckpointError, match=r"'body.0.bias' does not fit"):
        restore_frozen(weights, {**weights, "body.0.bias": torch.zeros(9)})
