"""A frozen backbone with low-rank adapters: the equation, where adapters go, how they start, what is stored."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from metareplay import permissions
from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.errors import ConfigError
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.recipe_book import default_settings
from metareplay.nets.adapters import AdaptedFactory, AdaptedNetwork
from metareplay.nets.backbones import find_backbone, shared_backbone, split_name
from metareplay.nets.frozen import frozen_weights, own_buffers
from metareplay.nets.low_rank import LowRankLayer, chosen_names, factors_of, is_adaptable, matches
from metareplay.nets.registry import is_linear, is_mlp, is_own, network_kind
from metareplay.nets.weights import WeightSpec, run_flat, training_mode


class Small(nn.Module):
    """Convolutions, statistics, dropout, a layer that is never used, and one without a plain form."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.norm, self.drop = nn.BatchNorm2d(4), nn.Dropout(0.5)
        self.grouped = nn.Conv2d(4, 4, 3, groups=4)
        self.query, self.last, self.unused = nn.Linear(16, 16), nn.Linear(16, 6), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(self.grouped(self.norm(self.first(x)).relu())).flatten(1)  # (N, 16)
        return self.last(self.query(h).relu())


def torch_encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.Sequential(nn.Flatten(2), nn.Linear(64, 8), layer, nn.Flatten(1))


@pytest.fixture(autouse=True)
def backbones(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(
        small=lambda: Small(), none=lambda: nn.Sequential(nn.AvgPool2d(4), nn.Flatten()), encoder=torch_encoder
    )
    monkeypatch.setitem(sys.modules, "my_nets", module)
    monkeypatch.setattr(permissions, "_permitted", {f"my_nets:{name}" for name in vars(module)})


SHAPE = (1, 8, 8)


def images(count: int = 6) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(count))


def learner(method: str, network: str = "adapters:my_nets:small", **settings: Any) -> ContinualLearner:
    defaults, _ = default_settings("custom", method, network)
    given = {key.replace("__", "."): value for key, value in settings.items()}
    config = build_config(defaults, {"adapters.rank": 2, **given}, "test")
    return ContinualLearner(config, "classification", Scenario.CLASS, SHAPE)


def begun(method: str, **settings: Any) -> ContinualLearner:
    """With a first task that no step was taken for."""
    made, x = learner(method, **settings), images(40)
    made.begin_task(TaskData(x, torch.arange(40) % 3), 3)
    return made


def network_of(made: ContinualLearner) -> AdaptedNetwork:
    assert isinstance(made.model.network, AdaptedNetwork)
    return made.model.network


def test_names_have_a_backbone_and_a_small_network() -> None:
    assert split_name("adapters:a/b+mlp-3-4") == ("a/b", "mlp-3-4")
    name = "adapters:my_nets:small+mlp-5"
    assert network_kind(name).name == "adapters"
    assert not any(kind(name) for kind in (is_mlp, is_linear, is_own))


@pytest.mark.parametrize("base", [nn.Linear(5, 7), nn.Conv2d(3, 4, 3, stride=2, padding=1)])
def test_a_layer_is_changed_by_a_product_of_low_rank(base: nn.Linear | nn.Conv2d) -> None:
    layer, generator = LowRankLayer(base, 2, 6.0), torch.Generator().manual_seed(0)
    x = torch.randn(4, 5, generator=generator) if isinstance(base, nn.Linear) else torch.randn(4, 3, 6, 6)
    assert torch.equal(layer(x), base(x))  # B starts at zero
    layer.lora_B.weight.data.normal_(generator=generator)
    first, second = factors_of(layer, layer.lora_A.weight, layer.lora_B.weight)
    inputs = base.weight[0].numel()
    assert float(first.abs().max()) <= inputs**-0.5
    changed = base.weight + 6.0 / 2 * (second.flatten(1) @ first.flatten(1)).view_as(base.weight)
    torch.testing.assert_close(layer.weight, changed)
    if isinstance(base, nn.Linear):
        direct = nn.functional.linear(x, changed, base.bias)
    else:
        direct = nn.functional.conv2d(x, changed, base.bias, base.stride, base.padding)
    torch.testing.assert_close(layer(x), direct, rtol=1e-4, atol=1e-5)


def test_wide_and_narrow_layers_have_the_same_prior() -> None:
    generator = torch.Generator().manual_seed(0)
    for inputs in (10, 1000):
        layer = LowRankLayer(nn.Linear(inputs, 300), 4, 4.0)
        layer.lora_A.weight.data.normal_(generator=generator)
        layer.lora_B.weight.data.normal_(generator=generator)
        x = torch.randn(300, inputs, generator=generator)
        assert float((layer(x) - layer.base(x)).detach().var()) == pytest.approx(4.0, rel=0.35)  # r (alpha / r)^2


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        ((), ["query"]),
        (("last",), ["last"]),
        (("*",), ["first", "query", "last"]),
        (("la*", "first"), ["first", "last"]),
    ],
)
def test_layers_are_chosen_by_name(patterns: tuple[str, ...], chosen: list[str]) -> None:
    factory = learner("pr-bbb", adapters__layers=patterns).model.factory
    assert isinstance(factory, AdaptedFactory)
    assert factory.layers == chosen  # neither what is never called nor a convolution with groups


def test_without_attention_all_linear_layers_else_all_convolutions() -> None:
    mixed = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Conv2d(1, 1, 1)})
    assert chosen_names("x", mixed, ["a", "b"], ()) == ["a"]
    assert chosen_names("x", mixed, ["b"], ()) == ["b"]
    assert matches("encoder.layer.0.query", "query")
    assert matches("encoder.layer.0.query", "layer.*.query")
    assert not matches("encoder.layer.0.myquery", "query")


def test_what_cannot_be_adapted_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"adapters.layers: 'grouped' matches none of the layers .*first, query"):
        learner("pr-bbb", adapters__layers=("grouped",))
    with pytest.raises(ConfigError, match="runs no linear layer"):
        learner("pr-bbb", network="adapters:my_nets:none")
    with pytest.raises(ConfigError, match="computes one linear layer in closed form"):
        learner("slda")
    with pytest.raises(ConfigError, match=r"local_reparametrisation works for MLPs only"):
        learner("pr-bbb", posterior__local_reparametrisation=True)
    with pytest.raises(ConfigError, match=r"an adapter has .* weights"):
        begun("pr-bbb", adapters__rank=10**12)


def head_alone(made: ContinualLearner, x: Tensor) -> Tensor:
    """The frozen backbone with the small network that a posterior's mean has."""
    network, factory = network_of(made), made.model.factory
    assert isinstance(factory, AdaptedFactory)
    mean = made.model.spec.unflatten(made.model.central_weights(0))
    features = (factory.backbone.features(x) - network.centre) / network.spread
    weights = {name.removeprefix("head."): value for name, value in mean.items() if name.startswith("head.")}
    return torch.func.functional_call(network.head, weights, (features,))


def start_and_alone(made: ContinualLearner, samples: int = 0) -> tuple[Tensor, Tensor]:
    model, x = made.model, images()
    weights = model.central_weights(0).unsqueeze(0)
    if samples:
        weights = model.posterior(0).rsample(samples, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return run_flat(model.network, model.spec, weights, x, model.buffers(0)), head_alone(made, x)


@pytest.mark.parametrize("method", ["sp-bbb", "sp-dirac", "sp-radial", "vcl", "ewc-multihead", "fine-tuning"])
def test_the_mean_starts_as_the_backbone_with_a_fresh_head(method: str) -> None:
    made = begun(method, adapters__layers=("*",))
    started, alone = start_and_alone(made)
    torch.testing.assert_close(started[0], alone, rtol=1e-4, atol=1e-5)
    head = made.model.spec.unflatten(made.model.central_weights(0))["head.layers.0.weight"]
    assert float(head.std()) == pytest.approx((2 / 9) ** 0.5, rel=0.5)  # Xavier
    assert float(alone.std()) > 0.1


def test_a_plain_hypernetwork_starts_there_too_and_chunks_nearby() -> None:
    started, alone = start_and_alone(begun("pr-bbb", hypernet__kind="plain"))
    torch.testing.assert_close(started[0], alone, rtol=1e-4, atol=1e-5)
    made = begun("pr-bbb", hypernet__kind="chunked", hypernet__chunk_size=20, adapters__alpha=2.0)
    mean = made.model.spec.unflatten(made.model.central_weights(0))
    layer = network_of(made).get_submodule("backbone.module.query")
    assert isinstance(layer, LowRankLayer)
    first, second = factors_of(layer, *(mean[f"backbone.module.query.lora_{part}.weight"] for part in "AB"))
    change = second @ first  # alpha = r
    assert 0 < float(change.norm()) < 0.2 * float(layer.base.weight.norm())  # one row serves both factors


def test_samples_start_near_the_backbone() -> None:
    made = begun("sp-bbb")
    started, alone = start_and_alone(made, samples=50)
    drawn = made.model.posterior(0).rsample(1, generator=torch.Generator().manual_seed(0)).detach()
    second = made.model.spec.unflatten(drawn)["backbone.module.query.lora_B.weight"]
    assert float(second.std()) == pytest.approx(0.08, rel=0.5)  # scales start as everywhere
    assert float((started.mean(0) - alone).abs().mean()) < 0.3 * float(alone.std())


def test_only_adapters_and_head_have_posteriors_and_only_they_are_stored() -> None:
    made = begun("pr-bbb")
    model, network = made.model, network_of(made)
    assert model.spec.names == (
        "backbone.module.query.lora_A.weight", "backbone.module.query.lora_B.weight", "head.layers.0.weight",
        "head.layers.0.bias",
    )  # fmt: skip
    assert frozen_weights(network) == {}
    assert sorted(own_buffers(network)) == ["centre", "spread"]
    assert not any("backbone" in name for name in model.tensors())
    assert sum("frozen" in name for name in model.tensors()) == 0
    made.begin_task(TaskData(images(40), torch.arange(40) % 5), 5)  # the network is built again, with more outputs
    factory = model.factory
    assert isinstance(factory, AdaptedFactory)
    first, second = network.backbone.module, network_of(made).backbone.module
    assert first is not second
    tensors = {id(weight) for weight in factory.backbone.loaded.module.parameters()}
    for module in (first, second):
        assert {id(weight) for weight in module.parameters() if not weight.requires_grad} == tensors


def test_the_same_backbone_is_held_once() -> None:
    name = "adapters:my_nets:small"
    assert shared_backbone(name) is not find_backbone(name)
    kept = shared_backbone(name)
    assert shared_backbone(name) is kept
    assert find_backbone(name) is not kept


def test_the_backbone_stays_in_evaluation_mode() -> None:
    made = begun("pr-bbb")
    network, x = network_of(made), images()
    statistics = network.backbone.module.norm.running_mean.clone()  # type: ignore[union-attr, operator]
    weights = made.model.central_weights(0).unsqueeze(0)
    with training_mode(network):
        assert network.head.training
        assert not any(layer.training for layer in network.backbone.modules())
        outputs = run_flat(network, made.model.spec, weights, x, made.model.buffers(0))
    assert torch.equal(outputs, run_flat(network, made.model.spec, weights, x, made.model.buffers(0)))
    assert torch.equal(network.backbone.module.norm.running_mean, statistics)  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize("layers", [(), ("*",)])
def test_samples_together_and_inputs_in_parts_change_nothing(layers: tuple[str, ...]) -> None:
    made = begun("sp-bbb", adapters__layers=layers)
    model, network, x = made.model, network_of(made), images(7)
    weights = model.posterior(0).rsample(3, generator=torch.Generator().manual_seed(0)).detach() * 3
    together = run_flat(network, model.spec, weights, x)
    single = torch.cat([run_flat(network, model.spec, flat.unsqueeze(0), x) for flat in weights])
    torch.testing.assert_close(together, single, rtol=1e-4, atol=1e-5)
    network.at_once = 2
    with torch.no_grad():
        torch.testing.assert_close(run_flat(network, model.spec, weights, x), single, rtol=1e-4, atol=1e-5)


def test_layers_whose_weights_are_taken_are_adapted_too() -> None:
    """PyTorch's own transformer layers take a short cut past their parts where no gradient is needed."""
    made = begun("sp-dirac", network="adapters:my_nets:encoder", adapters__layers=("linear1", "linear2"))
    model, x = made.model, images()
    weights = model.central_weights(0) + 0.3
    slow = run_flat(model.network, model.spec, weights.clone().requires_grad_().unsqueeze(0), x)
    with torch.no_grad():
        fast = run_flat(model.network, model.spec, weights.unsqueeze(0), x)
    torch.testing.assert_close(fast, slow, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(fast, run_flat(model.network, model.spec, model.central_weights(0).unsqueeze(0), x))


def test_encoders_of_transformers_have_adapters_on_queries_and_values(image_encoder: Path, text_encoder: Path) -> None:
    for folder, shape, ends in (
        (image_encoder, (3, 10, 10), ("q_proj", "v_proj")),
        (text_encoder, (20,), ("query", "value")),
    ):
        network = f"adapters:{folder}+mlp-4"
        config = build_config(default_settings("custom", "pr-bbb", network)[0], {"adapters.rank": 2}, "test")
        made = ContinualLearner(config, "classification", Scenario.CLASS, shape)
        factory = made.model.factory
        assert isinstance(factory, AdaptedFactory)
        assert {name.rpartition(".")[2] for name in factory.layers} == set(ends)
        built = factory(2)
        spec = WeightSpec.of(built)
        x = torch.randint(1, 100, (3, *shape)).float() / (1 if len(shape) == 1 else 100)
        weights = spec.flatten(built) + 0.1 * torch.randn(2, spec.numel, generator=torch.Generator().manual_seed(0))
        together = run_flat(built, spec, weights, x)
        single = torch.cat([run_flat(built, spec, flat.unsqueeze(0), x) for flat in weights])
        torch.testing.assert_close(together, single, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(single[0], single[1])


def test_a_convolution_that_pads_in_its_own_way_has_no_adapter() -> None:
    class Padded(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(nn.functional.pad(x, (0, 1, 0, 1)))

    assert is_adaptable(nn.Conv2d(3, 4, 3))
    assert is_adaptable(Padded(3, 4, 1))  # one pixel at a time
    assert not is_adaptable(Padded(3, 4, 3))
