"""The combination of evidence: log-odds between tasks, their weights, and probabilities."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

from metareplay.inference.statistics.certainty import History, adjusted_temperature, learned_temperature
from metareplay.inference.statistics.combine import (
    FEW,
    PRIOR_PRECISION,
    PRIOR_WEIGHT,
    Combination,
    against_others,
    differences,
    updated,
)
from metareplay.inference.statistics.evidence import TaskEvidence

LAYER = "layers.1"
NAMES = ("inputs", "residuals", "entropy", "energy", f"own {LAYER}", f"pooled {LAYER}")


def evidence_of(inputs: Tensor, **others: Tensor) -> TaskEvidence:
    """Costs of the inputs (T, N), and of whatever else; the rest tells nothing."""
    zero = torch.zeros_like(inputs)
    return TaskEvidence(
        inputs=inputs,
        residuals=others.get("residuals", zero),
        entropies=others.get("entropies", zero),
        energies=others.get("energies", zero),
        margins=zero,
        own={LAYER: others.get("own", zero.unsqueeze(0))},
        pooled={LAYER: zero.unsqueeze(0)},
    )


def random_evidence(rng: Generator, tasks: int, rows: int) -> TaskEvidence:
    def costs() -> Tensor:
        return torch.randn(tasks, rows, generator=rng, dtype=torch.float64)

    networks = torch.randn(2, tasks, rows, generator=rng, dtype=torch.float64)
    networks[1, 0] = torch.nan  # task 0 is not described in network 1
    return evidence_of(costs(), residuals=costs(), entropies=costs(), energies=costs(), own=networks)


def newest(rng: Generator, tasks: int, gap: float, rows: int = 400) -> Tensor:
    """Costs (T, N) of inputs of the last task, which fits better by a gap on average."""
    costs = torch.randn(tasks, rows, generator=rng, dtype=torch.float64)
    costs[:-1] += gap
    return costs


def test_the_odds_of_two_tasks_are_opposite(rng: Generator) -> None:
    evidence = random_evidence(rng, 4, 30)
    weights, spread = torch.rand(6, generator=rng).double(), 0.5 + torch.rand(4, 6, generator=rng).double()
    combination = Combination(NAMES, weights, torch.eye(6).double(), 1.0, spread)
    odds = combination.log_odds(evidence.terms())
    assert odds.shape == (4, 4, 30)
    torch.testing.assert_close(odds, -odds.transpose(0, 1))
    assert odds.isfinite().all()


def test_networks_that_know_both_tasks_are_averaged() -> None:
    nan = math.nan
    costs = torch.tensor([[[1.0], [4.0], [6.0]], [[nan], [2.0], [10.0]]], dtype=torch.float64)  # (K, T, 1)
    actual = differences(costs).squeeze(2)
    assert actual.tolist() == [[0.0, 3.0, 5.0], [-3.0, 0.0, 5.0], [-5.0, -5.0, 0.0]]  # (8 + 2) / 2 between 1 and 2
    assert differences(costs[:1]).squeeze(2).tolist() == [[0.0, 3.0, 5.0], [-3.0, 0.0, 2.0], [-5.0, -2.0, 0.0]]


def test_two_tasks_by_hand() -> None:
    """One kind of evidence: log-odds w asinh(d / s); score -log sigmoid of it; probabilities a softmax of scores."""
    evidence = evidence_of(torch.tensor([[1.0], [4.0]], dtype=torch.float64))
    weights = torch.tensor([2.0, 0.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    spread = torch.full((2, 6), 1.5, dtype=torch.float64)
    combination = Combination(NAMES, weights, torch.eye(6).double(), 0.7, spread, seen=98)
    odds = 2.0 * math.asinh(3.0 / 1.5)
    scores = combination.scores(evidence)
    assert scores[:, 0].tolist() == pytest.approx([math.log1p(math.exp(-odds)), math.log1p(math.exp(odds))])
    certain = 1 / (1 + math.exp(-0.7 * odds))  # the difference of the scores is the log-odds
    probability = 0.99 * certain + 0.01 * 0.5  # 98 inputs seen: 1 % of doubt
    assert combination.probabilities(scores)[0].tolist() == pytest.approx([probability, 1 - probability])


def test_what_tells_tasks_apart_gains_weight_and_what_misleads_loses_it(rng: Generator) -> None:
    good, bad = newest(rng, 3, 3.0), newest(rng, 3, -1.0)
    evidence = evidence_of(good, energies=bad, residuals=newest(rng, 3, 0.0))
    combination = updated(Combination.stored(NAMES, [{}, {}]), evidence)
    by_name = dict(zip(NAMES, combination.weights.tolist(), strict=True))
    assert (combination.weights >= 0).all()
    assert by_name["inputs"] > 1.0 > PRIOR_WEIGHT > 0.3 > by_name["residuals"] > by_name["energy"]
    assert by_name["energy"] < 0.01
    assert by_name[f"pooled {LAYER}"] == pytest.approx(PRIOR_WEIGHT, abs=1e-3)  # says nothing, and nothing about it
    right = combination.scores(evidence).argmin(0) == 2
    assert right.double().mean() > 0.9
    probabilities = combination.probabilities(combination.scores(evidence))
    torch.testing.assert_close(probabilities.sum(1), torch.ones(400, dtype=torch.float64))
    assert abs(float(probabilities[:, 2].mean()) - float(right.double().mean())) < 0.07  # as sure as it is right


def test_each_task_goes_on_from_what_the_last_one_left(rng: Generator) -> None:
    first = updated(Combination.stored(NAMES, []), evidence_of(newest(rng, 1, 0.0)))
    assert first.seen == 0  # one task alone teaches nothing
    assert first.weights.tolist() == [PRIOR_WEIGHT] * 6
    second = updated(Combination.stored(NAMES, [first.tensors()]), evidence_of(newest(rng, 2, 2.0)))
    stored = [first.tensors(), second.tensors()]
    again = Combination.stored(NAMES, stored)
    assert torch.equal(again.weights, second.weights)
    assert torch.equal(again.precision, second.precision)
    assert torch.equal(again.spread, second.spread)
    assert (again.temperature, again.seen) == (second.temperature, second.seen) == (second.temperature, 400)
    assert torch.linalg.eigvalsh(second.precision - PRIOR_PRECISION * torch.eye(6).double()).min() > -1e-9
    third = updated(again, evidence_of(newest(rng, 3, 2.0)))
    assert third.seen == 800
    assert third.spread.shape == (3, 6)
    assert float(third.precision[0, 0]) > float(second.precision[0, 0]) > PRIOR_PRECISION
    moved = [float((later.weights - before.weights).norm()) for before, later in ((first, second), (second, third))]
    assert moved[1] < 0.5 * moved[0]  # what agrees with the prior hardly changes it


def test_scores_do_not_depend_on_what_else_is_scored(rng: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = random_evidence(rng, 3, 25)
    combination = updated(Combination.stored(NAMES, [{}, {}]), evidence)
    whole = combination.scores(evidence)
    monkeypatch.setattr("metareplay.inference.statistics.combine.AT_ONCE", 4)
    torch.testing.assert_close(combination.scores(evidence), whole)
    assert combination.scores(evidence_of(torch.zeros(3, 0, dtype=torch.float64))).shape == (3, 0)


def test_features_that_no_longer_speak_for_an_old_task_lose_weight(rng: Generator) -> None:
    """On inputs imagined from its density they speak for the newest task; evidence of inputs is left as it is."""
    costs = newest(rng, 2, 2.0)
    evidence = evidence_of(costs, own=newest(rng, 2, 2.0).unsqueeze(0))
    first = Combination.stored(NAMES, [])
    first = updated(first, evidence_of(costs[:1]))
    wrong = evidence_of(torch.zeros(2, 50, dtype=torch.float64), own=newest(rng, 2, 2.0, rows=50).unsqueeze(0))
    right = evidence_of(torch.zeros(2, 50, dtype=torch.float64), own=newest(rng, 2, 2.0, rows=50).flip(0).unsqueeze(0))
    own = NAMES.index(f"own {LAYER}")
    without, doubted, confirmed = (updated(first, evidence, parts).weights for parts in (None, {0: wrong}, {0: right}))
    assert float(doubted[own]) < 0.5 * float(without[own])
    assert float(confirmed[own]) > 0.9 * float(without[own])
    assert float(doubted[0]) > float(without[0])


def on_a_line(rng: Generator, task: int, rows: int, *, apart: float = 1.0) -> TaskEvidence:
    """Inputs of one of three tasks whose means lie on a line, so that the middle one is the hardest to tell."""
    means = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    x = 1 + apart * (means[task] - 1) + torch.randn(rows, generator=rng, dtype=torch.float64)  # (n,)
    return evidence_of(0.5 * (x - means.unsqueeze(1)).square())


def temperature_after(evidence: TaskEvidence, imagined: dict[int, TaskEvidence]) -> float:
    nothing = Combination.stored(NAMES, [])
    two = replace(nothing, spread=torch.ones(2, len(NAMES), dtype=torch.float64))
    return updated(two, evidence, imagined).temperature


def test_tasks_between_others_make_probabilities_less_certain(rng: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = {task: on_a_line(rng, task, 200) for task in range(2)}
    few, enough = on_a_line(rng, 2, FEW - 1), on_a_line(rng, 2, FEW)  # held out: nothing was drawn from the newest task
    found = [temperature_after(few, drawn), temperature_after(enough, drawn)]
    monkeypatch.setattr("metareplay.inference.statistics.combine.FEW", FEW + 1)
    assert temperature_after(few, drawn) == found[0]
    assert temperature_after(enough, drawn) < found[1]


def test_drawn_inputs_that_are_too_easy_are_corrected(rng: Generator) -> None:
    """Where inputs drawn from the newest task are easier than its real ones, those of the others are as well."""
    newest, easy = on_a_line(rng, 2, 60), {task: on_a_line(rng, task, 200, apart=3.0) for task in (0, 2)}
    old, own = {0: easy[0], 1: on_a_line(rng, 1, 200)}, easy[2]
    assert temperature_after(newest, {**old, 2: own}) < temperature_after(newest, old)


def test_evidence_that_no_network_has_of_two_tasks_is_none() -> None:
    costs = torch.tensor([[[1.0], [2.0], [4.0]], [[torch.nan], [5.0], [9.0]]])  # (K, T, B)
    nothing = costs.index_fill(0, torch.tensor([0]), torch.nan)  # the first network's costs do not count
    assert against_others(nothing, 2).flatten().tolist() == [0.0, -4.0, 0.0]
    assert torch.equal(differences(nothing)[2], against_others(nothing, 2))


def test_tasks_that_are_told_apart_at_any_temperature_do_not_make_later_ones_certain() -> None:
    """The second task is clear, the third overlaps with the first: what was clear must not sharpen what is not."""
    clear = torch.zeros(2, 40, dtype=torch.float64)
    clear[0] = 8.0
    first = learned_temperature(clear, 1, 1.0)
    assert 0.9 < first < 2.0
    wrong = torch.zeros(3, 40, dtype=torch.float64)
    wrong[0, 10:], wrong[2, :10], wrong[1] = 2.0, 2.0, 20.0  # a quarter of its inputs fit the first task better
    assert learned_temperature(wrong, 2, first) < 1.2
    assert learned_temperature(torch.zeros(2, 40, dtype=torch.float64) + clear.flip(0), 1, 1.0) < 0.1  # all wrong


def test_one_task_that_is_hard_to_tell_apart_does_not_make_all_answers_uncertain() -> None:
    """Three tasks were clear when they were the newest; of the fourth, half of the inputs are taken for others'."""
    clear, history = torch.zeros(4, 30, dtype=torch.float64), History.empty()
    clear[:-1] = 4.0
    hard = clear.clone()
    hard[-1, :15], hard[:-1, :15] = 4.0, 0.0
    for _ in range(3):
        history = history.after(clear, {})
    before, both = history.temperature(90), history.after(hard, {})
    alone = History.empty().after(hard, {}).temperature(30)
    assert both.tasks == 4
    assert 2 * alone < both.temperature(120) < before
    torch.testing.assert_close(both.losses, (3 * history.losses + History.empty().after(hard, {}).losses) / 4)


def test_draws_of_the_first_task_count_as_much_as_the_second_one() -> None:
    clear = torch.tensor([[4.0], [0.0]], dtype=torch.float64).expand(2, 30)
    wrong = History.empty().after(clear, {0: clear})  # the first task's draws are taken for the second's
    assert wrong.temperature(30) < 0.2 < 1.0 < History.empty().after(clear, {}).temperature(30)


def test_outputs_for_inputs_that_were_learned_count_no_more_than_for_draws(rng: Generator) -> None:
    """The network is certain about what it was trained on, and not about draws from the same task."""
    inputs, nothing = newest(rng, 3, 2.0), newest(rng, 3, 0.0)
    seen = evidence_of(inputs, entropies=newest(rng, 3, 6.0))
    drawn = {task: evidence_of(nothing.roll(task + 1, 0), entropies=nothing.roll(task + 1, 0)) for task in range(3)}
    weights = {}
    for learned in (False, True):
        before = Combination(
            NAMES, torch.full((6,), 0.5).double(), torch.eye(6).double(), 1.0, torch.ones(2, 6).double()
        )
        after = updated(before, seen, drawn, rough=True, learned=learned)
        weights[learned] = dict(zip(NAMES, after.weights.tolist(), strict=True))
    assert weights[True]["entropy"] < 0.5 * weights[False]["entropy"]
    assert weights[True]["inputs"] > weights[False]["inputs"]


def test_among_some_of_many_tasks_the_temperature_changes_only_where_inputs_ask_for_it() -> None:
    clear = torch.zeros(4, 50, dtype=torch.float64)
    clear[:-1] = 100.0  # the last task wins at any temperature
    assert adjusted_temperature(clear, 3, 1.0) == pytest.approx(1.0)
    wrong = torch.zeros(4, 50, dtype=torch.float64)
    wrong[-1, :25], wrong[:-1, 25:] = 4.0, 4.0  # half of the inputs are taken for others'
    assert 0.1 < adjusted_temperature(wrong, 3, 1.0) < 0.9


def drifted(rng: Generator, *, newest: bool, precise: bool, rows: int = 400) -> TaskEvidence:
    """Inputs of the older or the newer of two tasks; the newer network is more certain about all inputs alike.

    Inputs that are not ``precise`` are drawn from rough densities, which tell them apart far better.
    """
    own = int(newest)
    inputs, entropies = (torch.randn(2, rows, generator=rng, dtype=torch.float64) for _ in range(2))
    inputs[1 - own] += 1.0 if precise else 4.0
    entropies[0] += 2.0
    return evidence_of(inputs, entropies=entropies)


def test_what_only_speaks_for_the_newest_task_does_not_make_answers_for_old_ones_certain(rng: Generator) -> None:
    seen, before = drifted(rng, newest=True, precise=True), Combination.stored(NAMES, [{}])
    drawn = {task: drifted(rng, newest=bool(task), precise=False) for task in range(2)}
    alone, both = updated(before, seen), updated(before, seen, drawn, rough=True)
    tested = [drifted(rng, newest=bool(task), precise=True) for task in range(2)]

    def right_and_certain(combination: Combination) -> tuple[float, float]:
        scores = torch.stack([combination.scores(each) for each in tested])  # (2, T, N)
        right = scores.argmin(1) == torch.arange(2).unsqueeze(1)
        certain = torch.stack([combination.probabilities(each).amax(1) for each in scores])
        return float(right.double().mean()), float(certain.mean())

    (right, certain), (right_of_both, certain_of_both) = right_and_certain(alone), right_and_certain(both)
    assert certain > right + 0.15  # the older task's inputs are taken for the newer's
    assert right_of_both > right + 0.1
    assert certain_of_both == pytest.approx(right_of_both, abs=0.05)
    entropy, density = NAMES.index("entropy"), NAMES.index("inputs")
    assert both.weights[entropy] < 0.4 < 1.0 < alone.weights[entropy]
    assert both.weights[density] > both.weights[entropy]
