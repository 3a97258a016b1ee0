"""Costs of assigning inputs to tasks, against formulas written out."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor
from torch.distributions import MultivariateNormal

from metareplay.inference.statistics.density import InputDensity, PrincipalDirections
from metareplay.inference.statistics.evidence import (
    Descriptions,
    Stored,
    TaskEvidence,
    gather,
    output_costs,
    space_name,
    spaces_of,
)
from metareplay.inference.statistics.moments import LEAST_SHRINKAGE, Moments, MomentSums, with_sphere
from metareplay.inference.statistics.passes import INPUTS as NARROW
from metareplay.inference.statistics.passes import Pass
from metareplay.inference.statistics.rows import joined, part_of
from metareplay.inference.statistics.spaces import LEAST_SHARE, Space

INPUTS, FEATURES, CLASSES, LAYER = 3, 4, 2, "layers.1"


def network(k: int, x: Tensor) -> Tensor:
    """The features that task k's network computes of inputs (N, 3): (N, 4)."""
    weights = torch.randn(INPUTS, FEATURES, generator=Generator().manual_seed(k))
    return torch.tanh(x @ weights + 0.1 * k)


def examples(task: int, rows: int = 60) -> tuple[Tensor, Tensor]:
    y = torch.arange(rows) % CLASSES
    noise = torch.randn(rows, INPUTS, generator=Generator().manual_seed(50 + task))
    return noise + task + 2.0 * y.unsqueeze(1), y


def moments_of(task: int, k: int) -> Moments:
    x, y = examples(task)
    sums = MomentSums(CLASSES)
    sums.add(network(k, x), y)
    return sums.moments()


def stored_task(task: int, networks: int) -> Stored:
    """What is stored about a task: the density of its inputs, and its moments in its own and earlier networks."""
    x, y = examples(task)
    parts = [PrincipalDirections.empty(INPUTS).updated(x[y == label], 2) for label in range(CLASSES)]
    stored = InputDensity.of(parts).tensors()
    for k in range(min(task + 1, networks)):
        stored |= moments_of(task, k).tensors(space_name(k, LAYER))
    return stored


def evidence_of(tasks: int, networks: int, x: Tensor, asked: list[tuple[int, bool]] | None = None) -> TaskEvidence:
    def run(task: int, inputs: Tensor, features: bool) -> Pass:
        if asked is not None:
            asked.append((task, features))
        outputs = inputs @ torch.randn(INPUTS, 2 * tasks, generator=Generator().manual_seed(task))
        return Pass({LAYER: network(task, inputs)} if features else {}, outputs)

    heads = [slice(2 * task, 2 * task + 2) for task in range(tasks)]
    descriptions = Descriptions.of([stored_task(task, networks) for task in range(tasks)])
    return gather(descriptions, x, heads, run, classes=True, distances=range(tasks))


def mixture_cost(features: Tensor, means: Tensor, covariance: Tensor) -> Tensor:
    """-log sum over classes of N(f; mean, C), without the constant of the normal distribution: (N,)."""
    constant = 0.5 * FEATURES * math.log(2 * math.pi)
    log_p = torch.stack([MultivariateNormal(mean, covariance).log_prob(features) + constant for mean in means])
    return -log_p.logsumexp(0)


def floor_of(described: Sequence[Moments]) -> Tensor:
    """What is added to every covariance of a space whose tasks have equal sizes (F, F)."""
    within = torch.stack([moments.covariance.diagonal().mean() for moments in described]).mean()
    between = torch.cat([moments.mean for moments in described]).var(0, correction=0).mean()
    return LEAST_SHARE * (within + between) * torch.eye(FEATURES, dtype=torch.float64)


@pytest.fixture
def x(rng: Generator) -> Tensor:
    return torch.randn(9, INPUTS, generator=rng) + 1.0


def test_in_each_network_the_tasks_from_its_own_on_are_described(x: Tensor) -> None:
    asked: list[tuple[int, bool]] = []
    evidence = evidence_of(4, 2, x, asked)
    costs = evidence.pooled[LAYER]
    assert costs.shape == (2, 4, 9)
    unknown = torch.tensor([[False, False, False, False], [True, False, False, False]])
    assert torch.equal(costs.isnan(), unknown.unsqueeze(2).expand(2, 4, 9))
    assert not evidence.own  # features are compared by a shared covariance alone
    for values in (evidence.nearest[LAYER], evidence.relative[LAYER], evidence.inputs, evidence.energies):
        assert values.shape == (4, 9)
        assert values.isfinite().all()
    assert asked == [(0, True), (1, True), (2, False), (3, False)]  # one pass each
    assert spaces_of(stored_task(3, 2)) == [(0, LAYER), (1, LAYER)]


def test_networks_of_tasks_with_a_single_class_say_nothing_by_their_features(x: Tensor) -> None:
    """They were trained to answer the same whatever the input."""
    evidence = evidence_of(4, 2, x)
    both, first = replace(evidence, lone=(0, 1, 3)), replace(evidence, lone=(0, 3))
    assert both.terms()[f"pooled {LAYER}"].isnan().all()
    costs = first.terms()[f"pooled {LAYER}"]
    assert costs[0].isnan().all()
    assert torch.equal(costs[1, 1:], evidence.pooled[LAYER][1, 1:])  # a network with several classes does
    narrow = replace(evidence, lone=(0, 1), pooled={NARROW: evidence.pooled[LAYER]})
    assert not narrow.terms()[f"pooled {NARROW}"][0].isnan().any()  # inputs are what they are


def test_pooled_costs(x: Tensor) -> None:
    evidence = evidence_of(3, 2, x)
    for k in range(2):
        features, tasks = network(k, x).double(), range(k, 3)
        described: Sequence[Moments] = [moments_of(task, k) for task in tasks]
        shared = sum(moments.covariance for moments in described) / len(described)  # tasks of equal size
        floor = floor_of(described)
        pooled = with_sphere(torch.as_tensor(shared), LEAST_SHRINKAGE) + floor
        volume = float(torch.linalg.slogdet(pooled).logabsdet) / 2
        for task, moments in zip(tasks, described, strict=True):
            direct = mixture_cost(features, moments.mean, pooled) - volume  # the same for all tasks
            torch.testing.assert_close(evidence.pooled[LAYER][k, task], direct, rtol=1e-3, atol=1e-3)


def test_own_costs_of_narrow_inputs(x: Tensor) -> None:
    described: list[Moments] = []
    stored = []
    for task in range(2):
        inputs, labels = examples(task)
        sums = MomentSums(CLASSES)
        sums.add(inputs, labels)
        described.append(sums.moments())
        stored.append({**stored_task(task, 0), **described[-1].tensors(space_name(0, NARROW))})
    passed = Pass({NARROW: x}, torch.zeros(len(x), 4))
    evidence = gather(Descriptions.of(stored), x, [slice(0, 2), slice(2, 4)], lambda *_: passed, classes=True)
    within = torch.stack([moments.covariance.diagonal().mean() for moments in described]).mean()
    between = torch.cat([moments.mean for moments in described]).var(0, correction=0).mean()
    floor = LEAST_SHARE * (within + between) * torch.eye(INPUTS, dtype=torch.float64)
    for task, moments in enumerate(described):
        constant = 0.5 * INPUTS * math.log(2 * math.pi)
        covariance = moments.shrunk() + floor
        log_p = [MultivariateNormal(mean, covariance).log_prob(x.double()) + constant for mean in moments.mean]
        own = -torch.stack(log_p).logsumexp(0)
        torch.testing.assert_close(evidence.own[NARROW][0, task], own, rtol=1e-3, atol=1e-3)


def test_distances_are_taken_in_the_tasks_home(x: Tensor) -> None:
    """Tasks beyond the last network that is followed are at home there."""
    evidence = evidence_of(3, 2, x)
    for task, home in enumerate((0, 1, 1)):
        moments, features = moments_of(task, home), network(home, x).double()
        floor = floor_of([moments_of(described, home) for described in range(home, 3)])
        inverse = torch.linalg.inv(moments.shrunk() + floor)
        centred = features.unsqueeze(1) - moments.mean  # (N, C, F)
        nearest = 0.5 * torch.einsum("ncf,fg,ncg->nc", centred, inverse, centred).amin(1)
        torch.testing.assert_close(evidence.nearest[LAYER][task], nearest, rtol=1e-3, atol=1e-3)
        assert (evidence.relative[LAYER][task] < evidence.nearest[LAYER][task]).all()  # less a distance


def test_outputs_costs() -> None:
    outputs = torch.tensor([[3.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    entropy, energy, margin = output_costs(outputs)
    p = outputs.double().softmax(1)
    torch.testing.assert_close(entropy, -(p * p.log()).sum(1))
    torch.testing.assert_close(energy, -outputs.double().exp().sum(1).log())
    assert margin.tolist() == [-2.0, 0.0]
    sure = output_costs(torch.tensor([[2000.0, 0.0]]))
    assert sure.isfinite().all()
    assert output_costs(torch.tensor([[1.5]]))[2].tolist() == [-1.5]  # a single class


def test_what_tasks_are_compared_by_does_not_depend_on_the_inputs(x: Tensor) -> None:
    evidence = evidence_of(2, 2, x)
    names = ["inputs", "residuals", "entropy", "energy", f"pooled {LAYER}"]
    assert list(evidence.terms()) == names
    assert list(evidence_of(2, 2, 1e4 * x).terms()) == names  # however confident the networks are
    assert [values.shape for values in evidence.terms().values()] == [(1, 2, 9)] * 4 + [(2, 2, 9)]


def test_outputs_may_be_left_out_of_the_comparison(x: Tensor) -> None:
    without = replace(evidence_of(2, 2, x), outputs=False)
    names = ["inputs", "residuals", f"pooled {LAYER}"]
    assert list(without.terms()) == names
    assert list(part_of(without, slice(3)).terms()) == list(joined([without, without]).terms()) == names


def test_a_task_of_many_examples_decides_the_shared_covariance() -> None:
    few, many = moments_of(0, 0), moments_of(1, 0)
    heavy = Moments(many.mean, many.covariance, 1_000_000)
    space = Space.of(0, LAYER, [few, heavy])
    between = torch.cat([few.mean, many.mean]).var(0, correction=0).mean()
    floor = LEAST_SHARE * (many.covariance.diagonal().mean() + between) * torch.eye(FEATURES, dtype=torch.float64)
    expected = torch.linalg.inv(with_sphere(many.covariance, LEAST_SHRINKAGE) + floor)
    actual = space.pooled.factor.double() @ space.pooled.factor.double().T  # A A' = C^-1
    torch.testing.assert_close(actual, expected, rtol=1e-2, atol=1e-2 * float(expected.max()))


def test_features_that_collapsed_to_a_point_do_not_decide() -> None:
    """A task whose features do not vary has a volume, and inputs of others are at a distance that can be compared."""
    usual = moments_of(0, 0)
    point = Moments(usual.mean[:1], torch.zeros_like(usual.covariance), usual.count)
    space = Space.of(0, LAYER, [usual, point])
    features = network(0, examples(0)[0])
    costs = [
        gaussian.log_volume - (-gaussian.distances(features)).logsumexp(1) for gaussian in map(space.own, space.tasks)
    ]
    assert all(cost.abs().max() < 1e3 for cost in costs)
