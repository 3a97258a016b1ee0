"""Features by layer of any module, under weights that are not its own."""

import pytest
import torch
from torch import Generator, Tensor, nn

from metareplay.errors import ConfigError
from metareplay.nets.features import layer_features, weighted_layers
from metareplay.nets.lenet import LeNet
from metareplay.nets.mlp import MLP
from metareplay.nets.resnet import resnet_32
from metareplay.nets.weights import WeightSpec


class Reader(nn.Module):
    """A user's module: a recurrent layer, a linear layer over all positions, and one that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.each, self.twice = nn.GRU(3, 5, batch_first=True), nn.Linear(5, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.each(self.recurrent(x)[0])  # (B, L, 3) -> (B, L, 4)
        return self.twice(self.twice(h.mean(1)))  # type: ignore[no-any-return]


def weights_of(module: nn.Module, samples: int, rng: Generator) -> tuple[WeightSpec, Tensor]:
    spec = WeightSpec.of(module)
    return spec, spec.flatten(module) + 0.1 * torch.randn(samples, spec.numel, generator=rng)


def test_what_enters_the_layers_of_an_mlp(rng: Generator) -> None:
    module, x = MLP((4,), (6, 5), 3).eval(), torch.randn(7, 4, generator=rng)
    spec, weights = weights_of(module, 2, rng)
    features = layer_features(module, spec, weights, x, batch_size=3)
    assert list(features) == weighted_layers(module) == ["layers.0", "layers.1", "layers.2"]
    named = spec.unflatten(weights)
    first = torch.relu(torch.einsum("bi,shi->sbh", x, named["layers.0.weight"]) + named["layers.0.bias"].unsqueeze(1))
    torch.testing.assert_close(features["layers.0"], x.expand(2, 7, 4))
    torch.testing.assert_close(features["layers.1"], first)
    # outputs, before the activation
    single = layer_features(module, spec, weights[1], x, layers=["layers.0"])["layers.0"]
    torch.testing.assert_close(single.relu(), first[1])


@pytest.mark.parametrize("pooled", [True, False])
def test_feature_maps_are_averaged_or_flattened(pooled: bool, rng: Generator) -> None:
    module, x = LeNet((1, 16, 16), 2).eval(), torch.randn(3, 1, 16, 16, generator=rng)
    spec, weights = weights_of(module, 2, rng)
    features = layer_features(module, spec, weights, x, layers=["conv1", "head"], pooled=pooled)
    named = spec.unflatten(weights[1])
    maps = nn.functional.conv2d(x, named["conv1.weight"], named["conv1.bias"])  # (B, 20, 12, 12)
    torch.testing.assert_close(
        features["conv1"][1], maps.mean((2, 3)) if pooled else maps.flatten(1), rtol=1e-4, atol=1e-5
    )
    assert features["head"].shape == (2, 3, 2)


def test_each_sample_has_its_set_of_buffers(rng: Generator) -> None:
    module, x = resnet_32((3, 8, 8), 2).eval(), torch.randn(3, 3, 8, 8, generator=rng)
    spec, weights = weights_of(module, 1, rng)
    sets = [{name: buffer.clone() for name, buffer in module.named_buffers()} for _ in range(2)]
    for name, buffer in sets[1].items():
        if name.endswith("running_mean"):
            buffer += 1.0
    last = weighted_layers(module)[-1]
    both = layer_features(module, spec, weights.expand(2, -1), x, sets)[last]
    assert not torch.equal(both[0], both[1])
    for index, buffers in enumerate(sets):
        assert torch.equal(layer_features(module, spec, weights[0], x, [buffers])[last], both[index])


def test_a_user_s_module(rng: Generator) -> None:
    module, x = Reader().eval(), torch.randn(6, 9, 3, generator=rng)
    spec, weights = weights_of(module, 1, rng)
    automatic = layer_features(module, spec, weights, x)
    assert {name: tuple(values.shape) for name, values in automatic.items()} == {"each": (1, 6, 5), "twice": (1, 6, 4)}
    named = layer_features(module, spec, weights[0], x, layers=["recurrent", "twice"], pooled=False)
    assert named["recurrent"].shape == (6, 9 * 5)
    with torch.no_grad():
        outputs = torch.func.functional_call(module, spec.unflatten(weights[0]), (x,))
    torch.testing.assert_close(named["twice"], outputs)  # the last use counts
    with pytest.raises(ConfigError, match="no layer 'thrice'; it has recurrent, each, twice"):
        layer_features(module, spec, weights, x, layers=["thrice"])
    assert not any(layer._forward_hooks for layer in module.modules())
