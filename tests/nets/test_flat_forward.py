"""A module run on flat weights does what the module itself does: outputs, gradients, many samples at once."""

from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor, nn

from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec, run_flat


class Attentive(nn.Module):
    """A network as a user might write it: convolution, embedded positions, attention, two normalisations."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 8, 2, stride=2)
        self.group_norm = nn.GroupNorm(2, 8)
        self.position = nn.Embedding(9, 8)
        self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.group_norm(self.convolution(x)).flatten(2).transpose(1, 2)  # (B, 1, 6, 6) -> (B, 9, 8)
        tokens = tokens + self.position(torch.arange(9))
        scores = self.query(tokens) @ self.key(tokens).transpose(1, 2) / 8**0.5  # (B, 9, 9)
        mixed = tokens + scores.softmax(-1) @ self.value(tokens)
        return self.head(self.norm(mixed).mean(1))  # (B, 9, 8) -> (B, outputs)


Builder = Callable[[], tuple[nn.Module, tuple[int, ...]]]
MODULES: dict[str, Builder] = {
    "linear": lambda: (MLP((5,), (), 3), (5,)),
    "narrow": lambda: (MLP((5,), (1,), 1), (5,)),
    "deep": lambda: (MLP((5,), (7, 4, 6), 3, "tanh"), (5,)),
    "image": lambda: (MLP((1, 3, 3), (8, 8), 2), (1, 3, 3)),
    "attentive": lambda: (Attentive(3), (1, 6, 6)),
    "multihead": lambda: (Multihead(), (4, 6)),
}


class Multihead(nn.Module):
    """PyTorch's own attention layer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        mixed, _ = self.attention(x, x, x)
        return self.head(mixed.mean(1))  # (B, L, 6) -> (B, 2)


@pytest.fixture(params=MODULES)
def module_and_inputs(request: pytest.FixtureRequest, rng: Generator) -> tuple[nn.Module, Tensor]:
    module, shape = MODULES[request.param]()
    return module.double(), torch.randn(6, *shape, dtype=torch.float64, generator=rng)


def test_outputs_equal_the_modules_own(module_and_inputs: tuple[nn.Module, Tensor]) -> None:
    module, x = module_and_inputs
    spec = WeightSpec.of(module)
    flat = spec.flatten(module)
    torch.testing.assert_close(
        run_flat(module, spec, flat.unsqueeze(0), x), module(x).unsqueeze(0), rtol=1e-12, atol=1e-12
    )
    torch.testing.assert_close(
        run_flat(module, spec, flat.expand(2, -1), x), module(x).expand(2, -1, -1), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("samples", [1, 2])
def test_gradients_equal_the_modules_own(module_and_inputs: tuple[nn.Module, Tensor], samples: int) -> None:
    module, x = module_and_inputs
    spec = WeightSpec.of(module)
    flat = spec.flatten(module).requires_grad_()
    run_flat(module, spec, flat.expand(samples, -1), x).square().sum().backward()
    assert all(parameter.grad is None for parameter in module.parameters())
    module(x).square().sum().backward()
    own = torch.cat([parameter.grad.reshape(-1) for parameter in module.parameters() if parameter.grad is not None])
    assert flat.grad is not None
    torch.testing.assert_close(flat.grad, samples * own, rtol=1e-10, atol=1e-10)


def test_many_samples_at_once_equal_a_loop(module_and_inputs: tuple[nn.Module, Tensor], rng: Generator) -> None:
    module, x = module_and_inputs
    spec = WeightSpec.of(module)
    weights = torch.randn(4, spec.numel, dtype=torch.float64, generator=rng).requires_grad_()
    together = run_flat(module, spec, weights, x)
    one_by_one = torch.cat([run_flat(module, spec, sample.unsqueeze(0), x) for sample in weights])
    torch.testing.assert_close(together, one_by_one, rtol=1e-11, atol=1e-11)
    gradients = [torch.autograd.grad(outputs.square().sum(), weights)[0] for outputs in (together, one_by_one)]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-9, atol=1e-9)


def test_samples_that_differ_give_different_outputs(rng: Generator) -> None:
    module = MLP((2,), (3,), 2)
    spec = WeightSpec.of(module)
    outputs = run_flat(module, spec, torch.randn(3, spec.numel, generator=rng), torch.ones(5, 2))
    assert outputs.shape == (3, 5, 2)
    assert not torch.allclose(outputs[0], outputs[1])


class Recurrent(nn.Module):
    """A layer for which PyTorch has no batching rule."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(3, 4, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(x)[0][:, -1])


def test_layers_without_a_batching_rule_run_sample_by_sample() -> None:
    module, x = Recurrent(), torch.randn(5, 6, 3)
    spec = WeightSpec.of(module)
    weights = torch.stack([spec.flatten(module), 0.5 * spec.flatten(module)])
    outputs = run_flat(module, spec, weights, x)
    assert outputs.shape == (2, 5, 2)
    torch.testing.assert_close(outputs[0], module(x))
    assert not torch.allclose(outputs[0], outputs[1])
