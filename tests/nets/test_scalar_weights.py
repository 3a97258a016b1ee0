import torch
from torch import Tensor, nn

from metareplay.nets.weights import WeightSpec, run_flat


class Scaled(nn.Module):
    """A linear layer with a learned temperature, a weight without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(2.0))
        self.linear = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.temperature


def test_weights_without_dimensions_are_weights_too() -> None:
    module = Scaled()
    spec = WeightSpec.of(module)
    flat, x = spec.flatten(module), torch.randn(4, 3)
    assert spec.unflatten(flat)["temperature"].shape == ()
    torch.testing.assert_close(run_flat(module, spec, flat.expand(2, -1), x), module(x).expand(2, -1, -1))
    torch.testing.assert_close(run_flat(module, spec, flat.expand(1, -1), x)[0], module(x))
