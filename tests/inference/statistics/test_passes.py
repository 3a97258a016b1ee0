"""One pass through a network: which layers are described, how wide they are, and the network's outputs."""

import pytest
import torch
from torch import Generator

from metareplay.inference.statistics.passes import chosen_layers, projected, run_pass
from metareplay.inference.statistics.settings import StatisticsSettings
from metareplay.likelihoods import Categorical
from metareplay.model import ContinualModel
from metareplay.nets.registry import network_factory
from metareplay.posteriors.families.dirac import DiracFamily
from metareplay.task_maps.direct import PerTaskParameters
from metareplay.task_maps.heads import HeadLayout

SHAPES: dict[str, tuple[int, ...]] = {"mlp-7-6": (4,), "mlp": (4,), "lenet": (1, 28, 28), "resnet-32": (3, 32, 32)}


def model_of(name: str) -> ContinualModel:
    model = ContinualModel(
        network_factory(name, SHAPES[name]),
        DiracFamily(),
        lambda size, _: PerTaskParameters(size),
        HeadLayout.SINGLE,
        Categorical(),
        lambda family, network, spec: None,
    )
    model.add_task(3, generator=Generator().manual_seed(0), probe=torch.zeros(2, *SHAPES[name]))
    return model


@pytest.mark.parametrize(("name", "count"), [("mlp", 0), ("mlp-7-6", 2), ("lenet", 3), ("resnet-32", 3)])
def test_layers_are_all_but_the_first_and_at_most_three(name: str, count: int) -> None:
    network = network_factory(name, SHAPES[name])(3)
    layers, chosen = [key for key, value in network.named_parameters() if value.dim() > 1], chosen_layers(network)
    names = [key.removesuffix(".weight") for key in layers]
    assert len(chosen) == count
    assert names[0] not in chosen
    assert chosen == [key for key in names if key in chosen]  # in order
    if chosen:
        assert chosen[-1] == names[-1]  # the penultimate features
        gaps = torch.tensor([names.index(key) for key in chosen]).diff()
        assert int(gaps.max() - gaps.min()) <= 1  # spread evenly


@pytest.mark.parametrize("name", SHAPES)
def test_features_fit_the_width_and_outputs_are_the_networks(name: str, rng: Generator) -> None:
    model, x = model_of(name), torch.randn(5, *SHAPES[name], generator=rng)
    weights = model.central_weights(0)
    done = run_pass(model, weights, 0, x, StatisticsSettings(), width=20, batch_size=2)
    layers = list(done.features)
    if len(x[0].flatten()) <= 20:  # narrow inputs are described as a layer too
        assert torch.equal(done.features[layers.pop(0)], x)
    assert layers == chosen_layers(model.network)
    assert all(values.shape[0] == 5 and values.shape[1] <= 20 for values in done.features.values())
    plain = run_pass(model, weights, 0, x, StatisticsSettings(), features=False)
    assert plain.features == {}
    torch.testing.assert_close(plain.outputs, done.outputs, rtol=1e-4, atol=1e-5)
    state = {**model.spec.unflatten(weights), **model.buffers(0)[0]}
    direct = torch.func.functional_call(model.network.eval(), state, (x,))
    torch.testing.assert_close(done.outputs, direct.detach(), rtol=1e-4, atol=1e-5)


def test_feature_maps_keep_the_finest_grid_that_fits(rng: Generator) -> None:
    model, x = model_of("lenet"), torch.randn(4, 1, 28, 28, generator=rng)
    convolution = chosen_layers(model.network)[0]
    channels = dict(model.network.named_modules())[convolution].in_channels
    for side in (1, 2, 3):
        width = channels * side**2 + 1
        done = run_pass(model, model.central_weights(0), 0, x, StatisticsSettings(), width=width)
        assert done.features[convolution].shape == (4, channels * side**2)
    one, two = (
        run_pass(model, model.central_weights(0), 0, x, StatisticsSettings(), width=channels * side**2).features
        for side in (1, 2)
    )
    cells = two[convolution].unflatten(1, (channels, 4))
    torch.testing.assert_close(cells.mean(2), one[convolution])  # an even grid: cells average to the whole


def test_named_layers_are_described_by_their_outputs(rng: Generator) -> None:
    model, x = model_of("mlp-7-6"), torch.randn(5, 4, generator=rng)
    first = chosen_layers(model.network)[0]
    done = run_pass(model, model.central_weights(0), 0, x, StatisticsSettings(layers=("layers.0",)))
    assert list(done.features)[-1] == "layers.0"
    assert first not in done.features
    by_rule = run_pass(model, model.central_weights(0), 0, x, StatisticsSettings()).features[first]
    torch.testing.assert_close(done.features["layers.0"].relu(), by_rule)  # the next layer's inputs


def test_wide_features_are_projected_always_in_the_same_way(rng: Generator) -> None:
    x = torch.randn(6, 300, generator=rng)
    narrow = projected(x, 40)
    assert narrow.shape == (6, 40)
    assert torch.equal(projected(x, 40), narrow)
    torch.testing.assert_close(projected(2 * x[:3], 40), 2 * narrow[:3])
    assert (narrow.norm(dim=1) <= x.norm(dim=1)).all()  # directions are orthonormal
    rotation = projected(torch.eye(300), 40)
    torch.testing.assert_close(rotation.T @ rotation, torch.eye(40), rtol=0, atol=1e-5)
    assert torch.equal(projected(x, 300), x)
