"""LeNet and the residual networks: published sizes, which inputs they take, how they start and what they compute."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metareplay.errors import ConfigError
from metareplay.nets.base import NETWORKS, ActivationSettings
from metareplay.nets.registry import network_factory, network_part
from metareplay.nets.resnet import BasicBlock, WideBlock
from metareplay.nets.weights import WeightSpec
from metareplay.parts import Alone

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)
IMAGE_NETWORKS = ("lenet", "resnet-32", "resnet-18", "wrn-28-10")


def weights(network: nn.Module) -> int:
    return WeightSpec.of(network).numel


def biases_of_convolutions(network: nn.Module) -> int:
    return sum(
        layer.bias.numel() for layer in network.modules() if isinstance(layer, nn.Conv2d) and layer.bias is not None
    )


def test_lenet_has_the_published_size() -> None:
    network = network_factory("lenet", MNIST)(10)
    assert weights(network) == (25 + 1) * 20 + (20 * 25 + 1) * 50 + (50 * 16 + 1) * 500 + 501 * 10 == 431_080


def test_resnet_32_has_the_published_size() -> None:
    network = network_factory("resnet-32", CIFAR)(10)
    # 0.46 million in He et al. 2016, who have no biases there
    assert weights(network) - biases_of_convolutions(network) == 464_154
    assert biases_of_convolutions(network) == 16 * 11 + 32 * 10 + 64 * 10
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert len(layers) == 32


@pytest.mark.parametrize(("name", "outputs", "size"), [("resnet-18", 10, 11_173_962), ("wrn-28-10", 10, 36_479_194)])
def test_larger_networks_have_the_published_size(name: str, outputs: int, size: int) -> None:
    with torch.device("meta"):
        network = network_factory(name, CIFAR)(outputs)
    assert weights(network) == size  # the paper: 36.5 million for WRN-28-10
    assert biases_of_convolutions(network) == 0


@pytest.mark.parametrize("name", IMAGE_NETWORKS)
def test_outputs_have_a_column_each(name: str) -> None:
    shape = (3, 16, 18) if name != "wrn-28-10" else (3, 8, 8)
    network = network_factory(name, shape)(4).eval()
    x = torch.randn(2, *shape)
    outputs = network(x)
    assert outputs.shape == (2, 4)
    assert outputs.isfinite().all()
    torch.testing.assert_close(network(x[1:]), outputs[1:], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", IMAGE_NETWORKS)
@pytest.mark.parametrize("shape", [(784,), (28, 28), (1, 7, 28), (1, 28, 7), (2, 1, 28, 28)])
def test_inputs_that_do_not_suit_are_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ConfigError, match=rf"{name} needs images .*as \(channels, height, width\).*shape \({shape[0]},"
    ) as error:
        network_factory(name, shape)
    assert ("(1, 28, 28)" in str(error.value)) == (shape == (28, 28))


def test_the_smallest_images() -> None:
    assert network_factory("lenet", (1, 16, 16))(2)(torch.randn(2, 1, 16, 16)).shape == (2, 2)
    assert network_factory("resnet-32", (1, 8, 8))(2)(torch.randn(2, 1, 8, 8)).shape == (2, 2)
    with pytest.raises(ConfigError, match="at least 16 x 16"):
        network_factory("lenet", (1, 15, 16))


@pytest.mark.parametrize("name", ["lenet", "resnet-32"])
def test_weights_start_xavier_uniform_and_biases_at_zero(name: str) -> None:
    for layer in network_factory(name, (3, 16, 16))(10).modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            weight = layer.weight.detach()
            field = weight[0, 0].numel()
            bound = (6 / (field * (weight.shape[0] + weight.shape[1]))) ** 0.5
            assert 0.9 * bound < float(weight.abs().max()) <= bound
            assert layer.bias is not None
            assert not layer.bias.any()
        elif isinstance(layer, nn.BatchNorm2d):
            assert (layer.weight == 1).all()
            assert not layer.bias.any()


def test_lenet_step_by_step() -> None:
    network, x = (
        network_factory("lenet", MNIST, Alone(ActivationSettings(activation="tanh")))(3),
        torch.randn(2, *MNIST),
    )
    parts = dict(network.named_children())
    h = F.max_pool2d(torch.tanh(parts["conv1"](x)), 2)  # pooling and a rising activation may change places
    h = F.max_pool2d(torch.tanh(parts["conv2"](h)), 2)
    assert h.shape == (2, 50, 4, 4)
    torch.testing.assert_close(network(x), parts["head"](torch.tanh(parts["hidden"](h.flatten(1)))))


def _by_hand(block: nn.Module, x: Tensor) -> Tensor:
    parts = dict(block.named_children())
    return parts["norm2"](parts["conv2"](F.relu(parts["norm1"](parts["conv1"](x)))))


def test_a_shortcut_without_weights_takes_every_second_pixel_and_pads_channels() -> None:
    block, x = BasicBlock(4, 6, 2, "relu", bias=True, projection=False).eval(), torch.randn(2, 4, 5, 8)
    shortcut = torch.cat([x[:, :, ::2, ::2], torch.zeros(2, 2, 3, 4)], dim=1)
    torch.testing.assert_close(block(x), F.relu(_by_hand(block, x) + shortcut))


def test_shortcuts_of_basic_blocks() -> None:
    x = torch.randn(2, 4, 6, 6)
    same = BasicBlock(4, 4, 1, "relu", bias=False, projection=True).eval()
    assert same.shortcut is None
    torch.testing.assert_close(same(x), F.relu(_by_hand(same, x) + x))
    projected = BasicBlock(4, 8, 2, "relu", bias=False, projection=True).eval()
    assert projected.shortcut is not None
    torch.testing.assert_close(projected(x), F.relu(_by_hand(projected, x) + projected.shortcut(x)))


def test_a_wide_block_normalises_before_it_convolves() -> None:
    block, x = WideBlock(4, 8, 2, "relu").eval(), torch.randn(2, 4, 6, 6)
    assert block.shortcut is not None
    ready = F.relu(block.norm1(x))
    expected = block.conv2(F.relu(block.norm2(block.conv1(ready)))) + block.shortcut(ready)
    torch.testing.assert_close(block(x), expected)


def test_groups_halve_the_image() -> None:
    for name, channels, size in (("resnet-32", 64, 8), ("resnet-18", 512, 4)):
        network = network_factory(name, CIFAR)(2).eval()
        parts = dict(network.named_children())
        assert parts["blocks"](parts["stem"](torch.randn(1, *CIFAR))).shape == (1, channels, size, size)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("resnet32", "resnet-32"), ("LeNet", "lenet"), ("wrn-28-1", "wrn-28-10"), ("mlp100-100", "mlp-100-100")],
)
def test_a_misspelt_name_gets_a_hint(wrong: str, right: str) -> None:
    with pytest.raises(ConfigError, match=f"is unknown; did you mean {right}[?] choose one of .*mlp-WIDTH"):
        network_part(wrong)


def test_every_network_is_described() -> None:
    assert set(IMAGE_NETWORKS) < set(NETWORKS)
    assert all(len(part.description) > 20 for part in NETWORKS.values())
