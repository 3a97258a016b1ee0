"""Many tasks: the few that are compared pair by pair, and that nothing is lost by leaving the others out."""

import pytest
import torch
from torch import Generator, Tensor

from metareplay.inference.statistics.combine import Combination, differences
from metareplay.inference.statistics.density import InputDensity, PrincipalDirections, costs_together
from metareplay.inference.statistics.evidence import TaskEvidence
from metareplay.inference.statistics.moments import AffineMap, Moments
from metareplay.inference.statistics.shortlist import (
    distances,
    first_scores,
    listed_scores,
    pairwise,
    rivals,
    short_list,
)
from metareplay.inference.statistics.spaces import Space

LAYER = "layers.1"
NAMES = ("inputs", "residuals", "entropy", "energy", f"pooled {LAYER}")
NETWORKS = 3


def costs_of(rng: Generator, tasks: int, rows: int) -> Tensor:
    return 3 * torch.randn(tasks, rows, generator=rng, dtype=torch.float64)


def networks_of(rng: Generator, tasks: int, rows: int) -> Tensor:
    """Costs (K, T, N) in the networks of the first tasks, which know no earlier ones."""
    costs = torch.stack([costs_of(rng, tasks, rows) for _ in range(NETWORKS)])
    for network in range(NETWORKS):
        costs[network, :network] = torch.nan
    return costs


def evidence_of(rng: Generator, tasks: int, rows: int) -> TaskEvidence:
    inputs, residuals, entropies, energies = (costs_of(rng, tasks, rows) for _ in range(4))
    return TaskEvidence(
        inputs=inputs,
        residuals=residuals,
        entropies=entropies,
        energies=energies,
        margins=torch.zeros_like(inputs),
        pooled={LAYER: networks_of(rng, tasks, rows)},
    )


def combination_of(rng: Generator, tasks: int) -> Combination:
    weights = 0.2 + torch.rand(len(NAMES), generator=rng, dtype=torch.float64)
    spread = 0.5 + torch.rand(tasks, len(NAMES), generator=rng, dtype=torch.float64)
    return Combination(NAMES, weights, torch.eye(len(NAMES)).double(), 1.0, spread, seen=100)


def listed(evidence: TaskEvidence, combination: Combination, most: int) -> TaskEvidence:
    first = first_scores(combination, evidence.terms())
    return TaskEvidence(**{**vars(evidence), "first": first, "listed": short_list(first, most)})


def test_the_short_list_has_the_lowest_first_scores_in_the_order_of_the_tasks() -> None:
    first = torch.tensor([[3.0, 1.0], [1.0, 1.0], [2.0, 1.0], [0.0, 0.5]])
    assert short_list(first, 2).T.tolist() == [[1, 3], [0, 3]]  # of equal ones the earlier


def test_first_scores_know_no_outputs(rng: Generator) -> None:
    evidence, combination = evidence_of(rng, 7, 20), combination_of(rng, 7)
    first = first_scores(combination, evidence.terms())
    unknown = torch.full_like(evidence.entropies, torch.nan)
    without = TaskEvidence(**{**vars(evidence), "entropies": unknown, "energies": unknown})
    assert torch.equal(first, first_scores(combination, without.terms()))
    assert first.isfinite().all()
    better = TaskEvidence(**{**vars(evidence), "inputs": evidence.inputs.index_fill(0, torch.tensor(4), -50.0)})
    assert (first_scores(combination, better.terms())[4] <= first[4]).all()
    assert (first_scores(combination, better.terms())[4] < first[4]).any()  # unless it was the lowest


def test_with_all_tasks_listed_the_scores_are_those_of_all_pairs(rng: Generator) -> None:
    evidence, combination = evidence_of(rng, 9, 40), combination_of(rng, 9)
    actual = listed_scores(combination, listed(evidence, combination, 9))
    torch.testing.assert_close(actual, combination.scores(evidence))


def test_listed_tasks_are_compared_with_each_other_as_if_there_were_no_others(rng: Generator) -> None:
    tasks, rows, most = 12, 15, 4
    evidence, combination = evidence_of(rng, tasks, rows), combination_of(rng, tasks)
    few = listed(evidence, combination, most)
    assert few.listed is not None
    scores = listed_scores(combination, few)
    for row in range(rows):
        chosen = few.listed[:, row]
        terms = {name: values[:, chosen, row : row + 1] for name, values in evidence.terms().items()}
        alone = Combination(NAMES, combination.weights, combination.precision, 1.0, combination.spread[chosen])
        torch.testing.assert_close(scores[chosen, row], alone.lost(terms)[:, 0])


def test_no_task_outside_the_list_comes_before_one_of_it(rng: Generator) -> None:
    evidence, combination = evidence_of(rng, 20, 50), combination_of(rng, 20)
    few = listed(evidence, combination, 5)
    assert few.listed is not None
    scores = listed_scores(combination, few)
    inside = torch.zeros_like(scores, dtype=torch.bool).scatter_(0, few.listed, True)
    worst = scores.masked_fill(~inside, -torch.inf).amax(0)
    assert (scores.masked_fill(inside, torch.inf).amin(0) >= worst).all()
    probabilities = combination.probabilities(scores)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(50, dtype=torch.float64))
    assert (probabilities > 0).all()


def test_where_one_kind_of_evidence_is_clear_the_choice_is_that_of_all_pairs(rng: Generator) -> None:
    """Tasks on a line: nearly everything that could win is listed."""
    tasks, combination = 60, combination_of(rng, 60)
    true = torch.arange(200) % tasks
    apart = (torch.arange(tasks).unsqueeze(1) - true).abs().double()  # (T, N)
    random = evidence_of(rng, tasks, 200)
    pooled = {LAYER: random.pooled[LAYER] / 3 + apart}
    evidence = TaskEvidence(**{**vars(random), "inputs": random.inputs / 3 + 2 * apart, "pooled": pooled})
    exact = combination.scores(evidence).argmin(0)
    agreement = {
        most: (listed_scores(combination, listed(evidence, combination, most)).argmin(0) == exact).double().mean()
        for most in (4, 16)
    }
    assert agreement[4] > 0.9
    assert agreement[16] > 0.97


def test_infinite_costs_are_no_accident(rng: Generator) -> None:
    evidence, combination = evidence_of(rng, 8, 10), combination_of(rng, 8)
    lost = TaskEvidence(**{**vars(evidence), "inputs": evidence.inputs.index_fill(0, torch.arange(5), torch.inf)})
    assert not listed_scores(combination, listed(lost, combination, 4)).isnan().any()


def test_pairwise_wins_by_sorting_are_those_of_all_pairs(rng: Generator) -> None:
    layers = [networks_of(rng, 15, 30), costs_of(rng, 15, 30).unsqueeze(0), networks_of(rng, 15, 30)]
    layers[1] = torch.cat([layers[1], torch.full((NETWORKS - 1, 15, 30), torch.nan, dtype=torch.float64)])
    wins = torch.stack([differences(values) for values in layers]).mean(0)
    lost, lead = pairwise(layers)
    assert torch.equal(lost, (wins < 0).double().sum(1))
    torch.testing.assert_close(lead, wins.mean(1))


# When a task ends.


def stored_of(centres: list[float]) -> list[dict[str, Tensor]]:
    return [{"inputs.mean": torch.full((2, 3), centre), "inputs.share": torch.tensor([0.5, 0.5])} for centre in centres]


def test_few_tasks_are_all_compared_and_of_many_a_bounded_number() -> None:
    stored = stored_of([float(task) for task in range(40)])
    assert rivals(stored[:5], stored[5], 5, networks=2) == [0, 1, 2, 3, 4]
    chosen = rivals(stored[:-1], stored[20], 6, networks=2)
    assert chosen == [0, 1, 19, 20, 21, 22] or chosen == [0, 1, 18, 19, 20, 21]  # the networks', and the nearest
    assert len(rivals(stored, stored[0], 3, networks=8)) == 9  # networks are always among them
    assert rivals(stored[:2], stored[2], 1, networks=2) == [0, 1]


def test_distances_to_tasks_are_those_to_their_nearest_gaussians(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Generator().manual_seed(0)
    stored = [
        {"inputs.mean": torch.randn(1 + task % 3, 4, generator=rng), "inputs.share": torch.ones(1 + task % 3)}
        for task in range(10)
    ]
    new = {"inputs.mean": torch.randn(2, 4, generator=rng), "inputs.share": torch.tensor([0.25, 0.75])}
    nearest = torch.stack([torch.cdist(new["inputs.mean"], task["inputs.mean"]).amin(1) for task in stored], 1)
    expected = 0.25 * nearest[0] + 0.75 * nearest[1]
    torch.testing.assert_close(distances(stored, new), expected.double())
    monkeypatch.setattr("metareplay.inference.statistics.shortlist.AT_ONCE", 30)  # in several parts
    torch.testing.assert_close(distances(stored, new), expected.double())


# All tasks in a few operations: the same up to rounding.


@pytest.mark.parametrize("features", [5, 300])
def test_densities_compared_together_are_those_compared_one_by_one(features: int, rng: Generator) -> None:
    densities = [
        InputDensity.of(
            PrincipalDirections.empty(features).updated(torch.randn(50, features, generator=rng) + task, 3)
            for _ in range(1 + task % 2)
        )
        for task in range(5)
    ]
    x = torch.randn(520, features, generator=rng)
    for actual, index in zip(costs_together(densities, x), (0, 1), strict=True):
        torch.testing.assert_close(actual, torch.stack([density.costs(x)[index] for density in densities]))


def moments_of(rng: Generator, classes: int, features: int = 4) -> Moments:
    half = torch.randn(features, features, generator=rng, dtype=torch.float64)
    return Moments(torch.randn(classes, features, generator=rng, dtype=torch.float64), half @ half.T, 50)


@pytest.mark.parametrize("own", [True, False])
def test_tasks_compared_together_are_those_compared_one_by_one(own: bool, rng: Generator) -> None:
    space = Space.of(2, LAYER, [moments_of(rng, classes) for classes in (2, 3, 2, 1, 3)])
    features = torch.randn(30, 4, generator=rng)
    empty = torch.full((7, 30), torch.nan, dtype=torch.float64)
    results = []
    for compare in (space.compare, space.compare_together):
        of_own, pooled = empty.clone() if own else None, empty.clone()
        compare(features, of_own, pooled)
        results.append(torch.stack([pooled, pooled if of_own is None else of_own]))
    torch.testing.assert_close(*results, equal_nan=True, rtol=1e-5, atol=1e-5)
    assert results[1][:, 2:].isfinite().all()
    assert results[1][:, :2].isnan().all()


def test_moments_mapped_together_are_those_mapped_one_by_one(rng: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    old = torch.randn(80, 4, generator=rng)
    change = AffineMap.between(old, torch.tanh(old) + 0.1 * torch.randn(80, 4, generator=rng))
    stored = [moments_of(rng, classes).tensors("a") for classes in (2, 3, 1, 2)]
    monkeypatch.setattr("metareplay.inference.statistics.moments.AT_ONCE", 50)  # three at once
    together = list(Moments.mapped_together(stored, "a", change))
    assert len(together) == 4
    for actual, task in zip(together, stored, strict=True):
        expected = Moments.stored(task, "a").mapped(change).tensors("a")
        for name, values in actual.items():
            torch.testing.assert_close(values, expected[name])
