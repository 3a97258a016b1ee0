"""Entropies of earlier tasks drift while later ones are learned: thresholds for strangers have to hold all the same."""

from typing import Any

import pytest
import torch
from torch import Generator

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.inference.statistics.entropies import (
    FACTOR,
    FOLLOWED,
    PROBES,
    THEN,
    as_if_unseen,
    as_they_are_now,
    due,
    factor,
    factors,
)
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner

INPUTS = 6


def learner_of(method: str, **settings: Any) -> ContinualLearner:
    given = {
        "method": method,
        "network": "mlp-12-9",
        "inference.samples": 3,
        "training.learning_rate": 0.003,
        "statistics.directions": INPUTS - 1,  # with as many as inputs, entropies would not count
        **settings,
    }
    return ContinualLearner(build_config(given, {}, "test"), "classification", Scenario.CLASS, (INPUTS,))


def rows_of(task: int, count: int, draw: int) -> TaskData:
    """Two classes that overlap, so that answers are uncertain; another ``draw`` has other rows of the same kind."""
    means = torch.randn(2, INPUTS, generator=Generator().manual_seed(task))
    y = torch.arange(count) % 2
    return TaskData(torch.randn(count, INPUTS, generator=Generator().manual_seed(1000 * draw + task)) + means[y], y)


def learn(learner: ContinualLearner, data: TaskData) -> None:
    list(learner.begin_task(data, 2))
    learner.finish_task(data)


def rejected(learner: ContinualLearner, task: int, data: TaskData) -> float:
    """The share of a task's own inputs, which nothing was taken from, that is called unknown; in percent."""
    return 100 * float((learner.predictor.keeper.strangeness_to(task, data.x) > 1).double().mean())


def test_own_inputs_stay_known_though_the_network_became_less_certain() -> None:
    """Without replay the first tasks' networks drift far in a few tasks."""
    settings = {"strategy.strength": 0.0, "training.iterations": 60, "statistics.held_out": 0.5}
    learner, first = learner_of("pr-dirac", **settings), [rows_of(task, 1000, 2) for task in range(3)]
    for task in range(8):
        learn(learner, rows_of(task, 400, 1))
    shares = [rejected(learner, task, data) for task, data in enumerate(first)]
    stored = learner.predictor.keeper.stored()
    assert all(float(of_task[FACTOR]) <= 1.0 for of_task in stored[:-1])
    assert float(stored[-1][FACTOR]) == 1.0  # nothing came after it
    learner.predictor.task_statistics.put(
        "statistics", [{name: value for name, value in of_task.items() if name != FACTOR} for of_task in stored]
    )
    unfollowed = [rejected(learner, task, data) for task, data in enumerate(first)]
    assert sum(unfollowed) / 3 > 15  # so there is something to follow
    assert sum(shares) / 3 < 6


@pytest.mark.slow
def test_thresholds_hold_within_a_point_after_twenty_further_tasks() -> None:
    """On average over eight tasks, with the usual replay; without following entropies it would be many points."""
    first, then = [rows_of(task, 2000, 7) for task in range(8)], []
    learner = learner_of("pr-dirac", **{"training.iterations": 60, "statistics.held_out": 0.5})
    for task in range(28):
        learn(learner, rows_of(task, 600, 1))
        if task < 8:
            then.append(rejected(learner, task, first[task]))
    now = [rejected(learner, task, data) for task, data in enumerate(first)]
    assert sum(now) / 8 == pytest.approx(sum(then) / 8, abs=1.0), (then, now)
    assert sum(then) / 8 == pytest.approx(5.0, abs=1.4)  # 300 held-out rows each: a standard error of 1.3 / root 8


@pytest.mark.parametrize("method", ["exp-replay", "pr-dirac"])
def test_what_a_network_learned_from_says_little_about_what_it_did_not(method: str) -> None:
    """Nothing is held out of so few examples, and the network has learned them by heart."""
    learner = learner_of(method, **{"training.iterations": 300, "training.learning_rate": 0.01})
    for task in range(2):
        learn(learner, rows_of(task, 80, 1))
    shares = [rejected(learner, task, rows_of(task, 1000, 2)) for task in range(2)]
    assert sum(shares) / 2 < 10.0, shares  # 5 % are stated; 17 by what exp-replay learned from


def test_entropies_of_learned_inputs_become_those_of_equally_ranked_probes() -> None:
    learned, of_probes = torch.tensor([0.0, 0.5, 0.1, 0.2]).double(), torch.tensor([0.7, 0.3, 0.1, 0.5])
    expected = torch.tensor([0.175, 0.625, 0.325, 0.475]).double()  # quantiles at 1/8, 7/8, 3/8 and 5/8
    torch.testing.assert_close(as_if_unseen(learned, of_probes), expected, rtol=0, atol=1e-6)
    assert as_if_unseen(learned + 1, of_probes).tolist() == (learned + 1).tolist()  # never lower
    assert len(as_if_unseen(learned[:0], of_probes)) == 0


def test_a_factor_takes_entropies_back_to_what_they_were() -> None:
    then = torch.rand(PROBES, generator=Generator().manual_seed(0))
    assert float(factor(then, then)) == 1.0
    assert float(factor(then, 1.5 * then)) == pytest.approx(1 / 1.5, rel=0.01)
    assert float(factor(then, 0.5 * then)) == 1.0  # more certain than then
    assert float(factor(torch.zeros(PROBES), torch.zeros(PROBES))) == 1.0


def test_of_many_tasks_those_are_followed_that_wait_longest() -> None:
    def of(followed: int | None) -> dict[str, torch.Tensor]:
        return {THEN: torch.ones(PROBES)} | ({} if followed is None else {FOLLOWED: torch.tensor(followed)})

    assert due([of(5), of(None), of(3), {}, of(4)], 3) == [1, 2, 4]
    assert due([of(5), of(None)], 32) == [0, 1]
    assert due([{}], 3) == []


def test_each_step_follows_a_bounded_number_of_tasks_and_none_is_left_out() -> None:
    learner = learner_of("pr-dirac", **{"training.iterations": 2, "statistics.shortlist": 2})
    for task in range(6):
        learn(learner, rows_of(task, 60, 1))
    followed = [int(of_task[FOLLOWED]) for of_task in learner.predictor.keeper.stored()]
    assert followed == [5, 6, 5, 6, 5, 6]  # two in each step, in turns; the last has just ended


def test_thresholds_in_terms_of_the_present_network() -> None:
    """An entropy of 0.6 now is one of 0.3 then, as strange by either."""
    then = {
        "unknown.middle": torch.tensor([0.1, 7.0]),
        "unknown.unit": torch.tensor([0.2, 3.0]),
        FACTOR: torch.tensor(0.5),
    }
    now = as_they_are_now({**then, THEN: torch.ones(PROBES)})
    assert now.keys() == {"unknown.middle", "unknown.unit"}
    for name in ("unknown.middle", "unknown.unit"):
        assert torch.equal(now[name][1:], then[name][1:])
    one, other = ((e - t["unknown.middle"][0]) / t["unknown.unit"][0] for e, t in ((0.3, then), (0.6, now)))
    assert float(one) == pytest.approx(float(other))
    assert torch.equal(factors([then, {}]), torch.tensor([0.5, 1.0], dtype=torch.float64))
