"""Networks of energies: all labels, single ones, and more of them."""

import torch
from torch import Generator

from metareplay.nets.energy import EnergyMLP, with_labels
from metareplay.nets.registry import network_factory
from metareplay.nets.weights import WeightSpec, run_flat


def test_single_labels_have_the_energies_that_all_have(rng: Generator) -> None:
    network, x = EnergyMLP((2, 3), (5, 4), 7), torch.randn(6, 2, 3, generator=rng)
    labels = torch.randint(7, (6, 2), generator=rng)
    every = network(x)
    assert every.shape == (6, 7)
    torch.testing.assert_close(network(with_labels(x, labels)), every.gather(1, labels))


def test_the_label_gates_the_first_layer(rng: Generator) -> None:
    network, x = EnergyMLP((3,), (4,), 2), torch.randn(5, 3, generator=rng)
    first, last = network.layers
    expected = last((first(x) * network.gates[1]).relu()).squeeze(1)
    torch.testing.assert_close(network(x)[:, 1], expected)


def test_a_new_label_leaves_the_energies_of_the_others(rng: Generator) -> None:
    small, large = (network_factory("energy-5", (3,))(labels) for labels in (2, 4))
    specs, x = (WeightSpec.of(small), WeightSpec.of(large)), torch.randn(6, 3, generator=rng)
    weights = specs[1].flatten(large)
    weights[specs[0].positions_in(specs[1])] = specs[0].flatten(small)
    outputs = run_flat(large, specs[1], weights.unsqueeze(0), x)[0]
    torch.testing.assert_close(outputs[:, :2], small(x))


def test_weight_samples_run_together(rng: Generator) -> None:
    network, x = EnergyMLP((3,), (4,), 3), torch.randn(5, 3, generator=rng)
    spec = WeightSpec.of(network)
    weights = spec.flatten(network) + 0.1 * torch.randn(2, spec.numel, generator=rng)
    together = run_flat(network, spec, weights, x)
    torch.testing.assert_close(together[1], run_flat(network, spec, weights[1:], x)[0])
