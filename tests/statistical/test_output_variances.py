"""Over many random hypernetworks, what they generate has the target variances. Seeds are fixed.

Tolerances are five standard errors, taken over independent hypernetworks, plus 3 % for activations whose
pre-activations are Gaussian only in the limit of wide layers.
"""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor, nn

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.nets.activations import ACTIVATIONS
from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec
from metareplay.posteriors.families.gaussian import GaussianFamily
from metareplay.posteriors.families.mixture import members_of
from metareplay.task_maps.base import Start
from metareplay.task_maps.chunked import ChunkedHypernetwork
from metareplay.task_maps.hypernetwork import Hypernetwork, PlainHypernetwork
from metareplay.task_maps.initialise import hyperfan_variances, match_output_variances

HYPERNETWORKS = 300
HIDDEN = (60, 40)
NETWORK = MLP((6,), (5,), 3)
SPEC = WeightSpec.of(NETWORK)


def _assert_variances(thetas: Tensor, targets: Tensor, groups: list[Tensor]) -> None:
    """Mean squares of groups of elements, over hypernetworks (N, P), equal the targets (P,)."""
    for group in groups:
        ratios = (thetas[:, group].square() / targets[group]).mean(1)  # one independent number per hypernetwork
        error = float(ratios.std()) / math.sqrt(len(ratios))
        assert error < 0.08
        assert abs(float(ratios.mean()) - 1) < 5 * error + 0.03


def _generated(
    make: Callable[..., Hypernetwork], size: int, targets: Tensor, rng: Generator, **options: object
) -> Tensor:
    thetas = []
    for _ in range(HYPERNETWORKS):
        hypernetwork = make(size, hidden=HIDDEN, generator=rng, **options)
        hypernetwork.add_task(Start(torch.zeros(size), targets), generator=rng)
        thetas.append(hypernetwork.theta(0).detach())
    return torch.stack(thetas)  # (N, P)


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh"])
@pytest.mark.parametrize("kind", ["gaussian", "hyperfan"])
def test_plain(activation: str, kind: str, rng: Generator) -> None:
    targets = GaussianFamily().initial_variances(NETWORK, SPEC)
    if kind == "hyperfan":
        targets[: SPEC.numel] = hyperfan_variances(SPEC, relu=activation == "relu")
    thetas = _generated(
        PlainHypernetwork,
        len(targets),
        targets,
        rng,
        activation=activation,
        task_embedding_size=20,
        task_embedding_std=0.7,
    )
    layers = list(torch.arange(len(targets)).split([*SPEC.sizes, *SPEC.sizes]))
    _assert_variances(thetas, targets, layers)


@pytest.mark.parametrize(
    ("activation", "per_task"), [("relu", False), ("sigmoid", False), ("tanh", False), ("relu", True)]
)
def test_chunked(activation: str, per_task: bool, rng: Generator) -> None:
    # the same in every chunk; the last one is cut
    targets = torch.tensor([0.01] * 8 + [0.5] * 8 + [4.0] * 4).repeat(4)[:70]
    thetas = _generated(
        ChunkedHypernetwork,
        len(targets),
        targets,
        rng,
        activation=activation,
        chunk_size=20,
        task_embedding_size=10,
        task_embedding_std=1.0,
        chunk_embedding_size=20,
        chunk_embedding_std=0.3,
        chunk_embeddings_per_task=per_task,
    )
    _assert_variances(thetas, targets, [(targets == value).nonzero()[:, 0] for value in (0.01, 0.5, 4.0)])


def test_outputs_that_are_added_later(rng: Generator) -> None:
    small, targets = torch.full((30,), 0.2), torch.tensor([0.01, 0.2, 0.2, 4.0]).repeat(15)
    old_positions = (targets == 0.2).nonzero()[:, 0]  # new outputs stand between the old ones
    thetas = []
    for _ in range(HYPERNETWORKS):
        hypernetwork = PlainHypernetwork(30, hidden=HIDDEN, task_embedding_size=20, generator=rng)
        hypernetwork.add_task(Start(torch.zeros(30), small), generator=rng)
        hypernetwork.grow(old_positions, Start(torch.zeros(60), targets), generator=rng)
        thetas.append(hypernetwork.theta(0).detach())
    _assert_variances(torch.stack(thetas), targets, [(targets == value).nonzero()[:, 0] for value in (0.01, 0.2, 4.0)])


def _mean_squares(activation: str, *, hyperfan: bool, rng: Generator) -> Tensor:
    """Mean square of each layer's outputs in a generated network, over hypernetworks, for inputs of mean square one."""
    network = MLP((30,), (30, 30, 30, 30), 30, activation)
    spec = WeightSpec.of(network)
    targets = hyperfan_variances(spec, relu=activation == "relu") if hyperfan else None
    phi = ACTIVATIONS[activation]()
    actual = []
    for _ in range(20):
        hypernetwork = PlainHypernetwork(spec.numel, hidden=(200,), task_embedding_size=50, generator=rng)
        hypernetwork.add_task(Start(torch.zeros(spec.numel), targets), generator=rng)
        weights = spec.unflatten(hypernetwork.theta(0).detach())
        h, squares = torch.randn(50, 30, generator=rng), []
        for layer in range(5):
            h = phi(h @ weights[f"layers.{layer}.weight"].T + weights[f"layers.{layer}.bias"])
            squares.append(h.square().mean())
        actual.append(torch.stack(squares))
    return torch.stack(actual).mean(0)


@pytest.mark.parametrize("activation", ["relu", "tanh", "linear"])
def test_hyperfan_keeps_activations_stable_over_depth(activation: str, rng: Generator) -> None:
    squares = _mean_squares(activation, hyperfan=True, rng=rng)
    assert float(squares.max() / squares.min()) < 1.6
    if activation != "tanh":  # tanh shrinks what it gets
        assert (squares > 0.65).all()
        assert (squares < 1.5).all()
    plain = _mean_squares("linear", hyperfan=False, rng=rng)
    assert float(plain.max() / plain.min()) > 3  # an ordinary start does not


def test_a_row_of_weights_and_scales_starts_as_its_weights_should(rng: Generator) -> None:
    """Three chunks of four rows: the first five outputs are weights (the first row serves two), the others scales."""
    targets, weights = torch.tensor([0.01, 0.02, 0.03, 0.04, 0.05] + [4.0] * 7), torch.arange(12) < 5
    layer = nn.Linear(2000, 4)
    match_output_variances(layer, 0.5, targets, rng, weights)
    actual = layer.weight.detach().var(1) * layer.in_features * 0.5
    torch.testing.assert_close(actual, torch.tensor([0.03, 0.02, 0.03, 0.04]), rtol=0.1, atol=0)
    # no weights: the mean of all
    match_output_variances(layer, 0.5, targets[4:], rng, torch.zeros(8, dtype=torch.bool))
    actual = layer.weight.detach().var(1) * layer.in_features * 0.5
    torch.testing.assert_close(actual, torch.tensor([2.025, 4.0, 4.0, 4.0]), rtol=0.1, atol=0)


@pytest.mark.parametrize("method", ["pr-bbb", "pr-radial", "pr-ensemble-bbb"])
def test_means_start_as_those_of_a_gaussian_network(method: str) -> None:
    """Variance 0.1^2 / 3, as without a hypernetwork (uniform in [-0.1, 0.1]), though their rows also make scales."""
    given = {
        "hypernet.kind": "chunked",
        "hypernet.chunk_size": 300,
        "hypernet.initialisation": "gaussian",
        "network": "mlp-60-60",
    }
    learner = ContinualLearner(
        build_config({}, {"method": method, **given}, "test"), "classification", Scenario.CLASS, (20,)
    )
    learner.begin_task(TaskData(torch.zeros(4, 20), torch.tensor([0, 1, 0, 1])), 2)
    mean = members_of(learner.model.posterior(0))[0].mean  # type: ignore[attr-defined]
    assert 0.5 < float(mean.detach().var()) / (0.1**2 / 3) < 1.5
