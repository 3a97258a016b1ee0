"""Any module's weights as one flat vector, and back."""

import pytest
import torch
from torch import Tensor, nn

from metareplay.errors import ConfigError
from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec, run_flat


class Odd(nn.Module):
    """Weights of one to four dimensions, in an order that is not alphabetic."""

    def __init__(self) -> None:
        super().__init__()
        self.zoom = nn.Parameter(torch.randn(1))
        self.convolution = nn.Conv2d(2, 3, 2)
        self.bias = nn.Parameter(torch.randn(3))
        self.linear = nn.Linear(3, 4)


def test_flattening_and_unflattening_give_the_weights_back() -> None:
    module = Odd()
    spec = WeightSpec.of(module)
    weights = spec.unflatten(spec.flatten(module))
    expected = dict(module.named_parameters())
    assert list(weights) == list(expected)
    for name, weight in weights.items():
        assert torch.equal(weight, expected[name])


def test_the_flat_vector_has_one_element_per_weight() -> None:
    module = Odd()
    spec = WeightSpec.of(module)
    assert spec.numel == sum(weight.numel() for weight in module.parameters()) == 1 + 24 + 3 + 3 + 12 + 4
    assert spec.sizes[0] == 1
    assert spec.shapes[0] == (1,)
    assert spec.flatten(module).shape == (spec.numel,)
    assert not spec.flatten(module).requires_grad


def test_unflattening_keeps_leading_dimensions() -> None:
    module = Odd()
    spec = WeightSpec.of(module)
    flat = torch.randn(5, 2, spec.numel)
    weights = spec.unflatten(flat)
    for name, parameter in module.named_parameters():
        assert weights[name].shape == (5, 2, *parameter.shape)
        assert torch.equal(weights[name][3, 1], spec.unflatten(flat[3, 1])[name])


def test_unflattened_weights_are_views() -> None:
    module = Odd()
    spec = WeightSpec.of(module)
    flat = torch.zeros(spec.numel)
    spec.unflatten(flat)["bias"].fill_(7.0)
    assert int((flat == 7.0).sum()) == 3


def test_a_vector_of_the_wrong_length_is_refused() -> None:
    spec = WeightSpec.of(nn.Linear(3, 2))
    with pytest.raises(ConfigError, match="7 elements; this network has 8 weights"):
        spec.unflatten(torch.zeros(7))


def test_tied_weights_are_refused() -> None:
    module = nn.ModuleDict({"first": nn.Linear(3, 3), "second": nn.Linear(3, 3)})
    WeightSpec.of(module)  # fine until the two are tied
    module["second"].weight = module["first"].weight
    with pytest.raises(ConfigError, match=r"'first\.weight' and 'second\.weight'"):
        WeightSpec.of(module)


def test_buffers_are_not_weights() -> None:
    assert WeightSpec.of(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))).numel == 12 + 6


def test_a_module_without_weights_is_refused() -> None:
    with pytest.raises(ConfigError, match="ReLU has no trainable weights"):
        WeightSpec.of(nn.ReLU())


@pytest.mark.parametrize("hidden", [(), (4,), (5, 3)])
@pytest.mark.parametrize(("small", "large"), [(2, 3), (1, 6), (3, 3)])
def test_a_grown_network_with_the_old_weights_gives_the_old_outputs(
    hidden: tuple[int, ...], small: int, large: int
) -> None:
    old, new = MLP((3,), hidden, small).double(), MLP((3,), hidden, large).double()
    old_spec, new_spec = WeightSpec.of(old), WeightSpec.of(new)
    positions = old_spec.positions_in(new_spec)
    flat = new_spec.flatten(new)
    flat[positions] = old_spec.flatten(old)
    x = torch.randn(7, 3, dtype=torch.float64)
    grown = run_flat(new, new_spec, flat.unsqueeze(0), x)[0]
    torch.testing.assert_close(grown[:, :small], old(x))
    if large > small:  # the new columns are the new network's own
        untouched = torch.ones(new_spec.numel, dtype=torch.bool)
        untouched[positions] = False
        assert torch.equal(flat[untouched], new_spec.flatten(new)[untouched])
        assert int(untouched.sum()) == (large - small) * ((3, *hidden)[-1] + 1)


def test_positions_of_a_convolutional_head_are_its_leading_corner() -> None:
    small, large = WeightSpec.of(nn.Conv1d(2, 2, 3)), WeightSpec.of(nn.Conv1d(2, 4, 3))
    expected = torch.cat([torch.arange(12), 24 + torch.arange(2)])
    assert torch.equal(small.positions_in(large), expected)


def test_positions_are_unique() -> None:
    small, large = WeightSpec.of(MLP((4,), (6,), 2)), WeightSpec.of(MLP((4,), (6,), 5))
    positions: Tensor = small.positions_in(large)
    assert len(positions.unique()) == small.numel
    assert int(positions.max()) < large.numel


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
