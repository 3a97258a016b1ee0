"""The penalty mse without the weights of other tasks' outputs: which are left out, by both forms, and where."""

from collections.abc import Sequence
from typing import cast

import pytest
import torch
from torch import Generator, Tensor

from metareplay.errors import ConfigError
from metareplay.learner.config import RunConfig, build_config
from metareplay.likelihoods import Categorical
from metareplay.model import ContinualModel
from metareplay.model_changes import other_heads_theta, remove_task
from metareplay.nets.mlp import MLP
from metareplay.posteriors.base import PosteriorFamily
from metareplay.posteriors.families.dirac import DiracFamily
from metareplay.posteriors.families.flow import FlowFamily, FlowSettings
from metareplay.posteriors.families.gaussian import GaussianFamily
from metareplay.posteriors.families.implicit import ImplicitFamily, ImplicitSettings
from metareplay.posteriors.families.mixture import MixtureFamily
from metareplay.posteriors.families.radial import RadialFamily
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.strategies.posterior_replay import PosteriorReplay
from metareplay.strategies.replay_settings import ReplaySettings
from metareplay.task_maps.base import TaskMap
from metareplay.task_maps.chunked import ChunkedHypernetwork
from metareplay.task_maps.ensemble import EnsembleMap
from metareplay.task_maps.heads import HeadLayout
from metareplay.task_maps.hypernetwork import PlainHypernetwork

CLASSES = (2, 3, 2, 1)
HEADS = ((0, 2), (2, 5), (5, 7), (7, 8))
FAMILIES: dict[str, tuple[PosteriorFamily, int]] = {
    "dirac": (DiracFamily(), 1),
    "bbb": (GaussianFamily(), 2),
    "radial": (RadialFamily(), 2),
    "ensemble": (MixtureFamily(DiracFamily(), 2, "ensemble"), 2),
}
every_family = pytest.mark.parametrize("name", FAMILIES)


def model_of(
    family: PosteriorFamily,
    rng: Generator,
    *,
    chunked: bool = True,
    total: int | None = None,
    layout: HeadLayout = HeadLayout.MULTI,
    classes: Sequence[int] = CLASSES,
) -> ContinualModel:
    def task_map(size: int, generator: Generator) -> TaskMap:
        members = getattr(family, "members", 1)
        inner = (
            ChunkedHypernetwork(
                size // members,
                hidden=(5,),
                chunk_size=7,
                task_embedding_size=3,
                chunk_embedding_size=2,
                generator=generator,
            )
            if chunked
            else PlainHypernetwork(size // members, hidden=(4,), task_embedding_size=3, generator=generator)
        )
        return inner if members == 1 else EnsembleMap(inner, members)

    model = ContinualModel(
        lambda outputs: MLP((2,), (3,), outputs),
        family,
        task_map,
        layout,
        Categorical(),
        lambda family, network, spec: None,
        total,
    )
    for count in classes:
        model.add_task(count, generator=rng)
    return model


def replay(**settings: object) -> PosteriorReplay:
    given = {"own_outputs": True, **settings}
    return PosteriorReplay(ReplaySettings.model_validate(given), GaussianPrior(2.0), seed=0)


def shake(model: ContinualModel, rng: Generator) -> None:
    for parameter in model.task_map.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=rng)


def others(model: ContinualModel, tasks: Sequence[int], copies: int, heads: Sequence[tuple[int, int]]) -> Tensor:
    """The same mask, from the names and shapes of the weights: (T, P)."""
    rows = []
    for task in tasks:
        weights = torch.zeros(model.spec.numel, dtype=torch.bool)
        views = model.spec.unflatten(weights)
        for name in ("layers.1.weight", "layers.1.bias"):
            views[name][:] = True
            views[name][slice(*heads[task])] = False
        rows.append(weights.repeat(copies))
    return torch.stack(rows)


@every_family
@pytest.mark.parametrize("total", [None, 11])
def test_left_out_are_the_weights_of_outputs_that_are_not_a_tasks_own(
    name: str, total: int | None, rng: Generator
) -> None:
    family, copies = FAMILIES[name]
    model = model_of(family, rng, total=total)
    actual = other_heads_theta(model, [0, 1, 3])
    assert actual is not None
    assert torch.equal(actual, others(model, [0, 1, 3], copies, HEADS))


def test_outputs_of_a_removed_task_are_nobodys(rng: Generator) -> None:
    model = model_of(DiracFamily(), rng)
    remove_task(model, 1)
    actual = other_heads_theta(model, [0, 1, 2])
    assert actual is not None
    assert torch.equal(actual, others(model, [0, 1, 2], 1, (HEADS[0], HEADS[2], HEADS[3])))


@pytest.mark.parametrize(("layout", "classes"), [(HeadLayout.SINGLE, (2, 3, 2)), (HeadLayout.MULTI, (2,))])
def test_where_tasks_share_outputs_none_are_left_out(
    layout: HeadLayout, classes: Sequence[int], rng: Generator
) -> None:
    assert other_heads_theta(model_of(DiracFamily(), rng, layout=layout, classes=classes), [0]) is None


@every_family
@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("targets", ["stored", "recomputed"])
@pytest.mark.parametrize("small", [True, False])
def test_the_penalty_is_the_mean_over_old_tasks_without_what_is_left_out(
    name: str, chunked: bool, targets: str, small: bool, rng: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("task_maps.replay_distance", "strategies.posterior_replay"):
        monkeypatch.setattr(f"metareplay.{module}.small_matrices_pay", lambda *given, **more: small)
    family, copies = FAMILIES[name]
    model, strategy = model_of(family, rng, chunked=chunked), replay(targets=targets, strength=0.7)
    tasks = [0, 1, 2]
    old = model.task_map.thetas(tasks).detach().clone()
    strategy.before_task(model, 3)
    start = cast(Tensor, strategy.penalty(model, 3, generator=rng))
    parameters = list(model.task_map.parameters())
    assert float(start.detach()) == pytest.approx(0, abs=1e-10)
    shake(model, rng)
    penalty = cast(Tensor, strategy.penalty(model, 3, generator=rng))
    kept = ~others(model, tasks, copies, HEADS)
    new = model.task_map.thetas(tasks)
    squares = (new - old)[kept].square().sum() / (2 if name == "ensemble" else 1)
    torch.testing.assert_close(penalty, 0.7 / 3 * squares, rtol=1e-4, atol=1e-7)
    actual, expected = (
        torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
        for value in (penalty, 0.7 / 3 * squares)
    )
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("small", [True, False])
def test_no_gradient_reaches_the_new_tasks_outputs(
    small: bool, rng: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("task_maps.replay_distance", "strategies.posterior_replay"):
        monkeypatch.setattr(f"metareplay.{module}.small_matrices_pay", lambda *given, **more: small)
    model, strategy = model_of(GaussianFamily(), rng, chunked=False), replay()
    strategy.before_task(model, 3)
    shake(model, rng)
    cast(Tensor, strategy.penalty(model, 3, generator=rng)).backward()
    hypernetwork = cast(PlainHypernetwork, model.task_map)
    free = others(model, [0, 1, 2], 2, HEADS).all(0)  # by all old tasks: the new task's
    assert free.sum() == 2 * 4  # mean and scale of an output's three weights and bias
    slope = cast(Tensor, hypernetwork.output_layer.weight.grad)[cast(Tensor, hypernetwork.slots)]
    assert torch.equal(slope.any(1), ~free)


@pytest.mark.parametrize(
    "family",
    [ImplicitFamily(ImplicitSettings(latent_size=3)), FlowFamily(FlowSettings(flow_transforms=2, flow_hidden=(3,)))],
    ids=["implicit", "flow"],
)
def test_where_parameters_belong_to_no_single_weight_all_count(family: PosteriorFamily, rng: Generator) -> None:
    model, chosen, plain = model_of(family, rng), replay(), replay(own_outputs=False)
    for strategy in (chosen, plain):
        strategy.before_task(model, 3)
    shake(model, rng)
    one, other = (cast(Tensor, strategy.penalty(model, 3, generator=rng)).detach() for strategy in (chosen, plain))
    assert torch.equal(one, other)


REFUSED = [
    ({"method": "pr-avb", "heads": "multi"}, "have no parameters that belong to single weights"),
    ({"method": "pr-flow", "heads": "multi"}, "have no parameters that belong to single weights"),
    ({"method": "pr-bbb"}, "all tasks use the same outputs; set heads=multi"),
    ({"method": "pr-bbb", "heads": "single"}, "all tasks use the same outputs; set heads=multi"),
    ({"method": "pr-bbb", "heads": "multi", "strategy.penalty": "w2"}, "with the penalty mse only"),
]


@pytest.mark.parametrize(("given", "reason"), REFUSED)
def test_it_is_refused_where_it_means_nothing(given: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        build_config({}, {"network": "mlp-3", **given, "strategy.own_outputs": True}, "test")
    ignored = build_config({"network": "mlp-3", "strategy.own_outputs": True}, given, "test")
    assert "own_outputs" not in ignored.dump()["strategy"]


@pytest.mark.parametrize("method", ["pr-dirac", "pr-bbb", "pr-radial", "pr-ensemble", "pr-dirac-sr", "pr-bbb-cs"])
def test_it_is_accepted_with_outputs_of_their_own(method: str) -> None:
    given = {"method": method, "network": "mlp-3", "heads": "multi", "strategy.own_outputs": True}
    config: RunConfig = build_config({}, given, "test")
    assert config.dump()["strategy"]["own_outputs"] is True
