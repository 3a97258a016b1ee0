"""Networks by name, their initialisation, and where its random numbers come from."""

import pytest
import torch
from torch import Generator, nn

from metareplay.errors import ConfigError
from metareplay.nets.activations import ACTIVATIONS
from metareplay.nets.mlp import MLP
from metareplay.nets.registry import build_seeded, network_factory
from metareplay.nets.weights import WeightSpec


@pytest.mark.parametrize(("name", "widths"), [("mlp", []), ("mlp-7", [7]), ("mlp-100-3-20", [100, 3, 20])])
def test_a_name_gives_the_widths(name: str, widths: list[int]) -> None:
    network = network_factory(name, (2, 3))(4)
    assert isinstance(network, MLP)
    layers = [layer for layer in network.layers if isinstance(layer, nn.Linear)]
    assert [(layer.out_features, layer.in_features) for layer in layers] == list(
        zip([*widths, 4], [6, *widths], strict=True)
    )


@pytest.mark.parametrize("name", ["mlp-0", "mlp-", "mlp-10-", "MLP-10", "lstm-5", "", "mlp--5", "mlp-10 "])
def test_an_unknown_network_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is unknown"):
        network_factory(name, (2,))


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ConfigError, match="'softsign' is unknown; choose one of relu"):
        MLP((2,), (3,), 1, "softsign")


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_activation_stands_between_layers_only(name: str) -> None:
    network = MLP((3,), (4, 5), 2, name)
    x = torch.randn(6, 3)
    first, second, third = network.layers
    activation = ACTIVATIONS[name]()
    torch.testing.assert_close(network(x), third(activation(second(activation(first(x))))))


def test_weights_start_xavier_uniform_and_biases_at_zero() -> None:
    network = MLP((300,), (200,), 100)
    for layer, (n_in, n_out) in zip(network.layers, [(300, 200), (200, 100)], strict=True):
        assert isinstance(layer, nn.Linear)
        bound = (6 / (n_in + n_out)) ** 0.5
        weight = layer.weight.detach()
        assert 0.999 * bound < float(weight.abs().max()) <= bound
        # The standard error of the mean square of n uniform numbers is bound^2 sqrt(4/45 / n): five of them.
        error = bound**2 * (4 / 45 / weight.numel()) ** 0.5
        assert abs(float(weight.square().mean()) - bound**2 / 3) < 5 * error
        assert not layer.bias.any()


def test_the_start_depends_on_the_generator_only() -> None:
    factory = network_factory("mlp-8", (3,))

    def start(global_seed: int, generator: Generator) -> torch.Tensor:
        torch.manual_seed(global_seed)
        network = build_seeded(factory, 2, generator)
        return WeightSpec.of(network).flatten(network)

    first = start(1, Generator().manual_seed(5))
    assert torch.equal(first, start(2, Generator().manual_seed(5)))
    assert not torch.equal(first, start(1, Generator().manual_seed(6)))
    generator = Generator().manual_seed(5)
    assert torch.equal(first, start(1, generator))
    assert not torch.equal(first, start(1, generator))  # the generator has moved on


def test_the_start_is_the_same_where_other_devices_are_seeded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = []
    for available in (False, True):
        monkeypatch.setattr(torch.accelerator, "is_available", lambda available=available: available)
        network = build_seeded(network_factory("mlp-8", (3,)), 2, Generator().manual_seed(5))
        starts.append(WeightSpec.of(network).flatten(network))
    assert torch.equal(*starts)


def test_building_leaves_the_global_generator_untouched(rng: Generator) -> None:
    state = torch.get_rng_state()
    build_seeded(network_factory("mlp-8", (3,)), 2, rng)
    assert torch.equal(torch.get_rng_state(), state)
