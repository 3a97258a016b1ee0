"""More tasks than are short-listed: what a task and an input cost does not grow, and everything still works."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from metareplay import ContinualClassifier
from metareplay.benchmarks.base import Problem, Scenario, TaskData
from metareplay.inference.statistics import reader
from metareplay.inference.statistics.combine import Combination
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner

SHORTLIST = 4
CRITERIA = ("stats", "pairs", "pca", "mahalanobis", "relative", "energy", "margin", "ent")
SETTINGS = {"training.iterations": 3, "inference.samples": 3, "statistics.networks": 2}


def examples(task: int, problem: Problem = "classification", rows: int = 40) -> TaskData:
    generator = Generator().manual_seed(task)
    y = torch.arange(rows) % 2
    x = torch.randn(rows, 4, generator=generator) + 8 * torch.randn(4, generator=generator) + 2 * y.unsqueeze(1)
    return TaskData(x, y if problem == "classification" else x[:, :1].sin())


def learner_of(problem: Problem = "classification", method: str = "pr-dirac-sr", **settings: Any) -> ContinualLearner:
    given = {"method": method, "network": "mlp-6", **SETTINGS, "statistics.shortlist": SHORTLIST, **settings}
    return ContinualLearner(build_config(given, {}, "test"), problem, Scenario.CLASS, (4,))


def learn(learner: ContinualLearner, task: int) -> None:
    data = examples(task, learner.problem)
    list(learner.begin_task(data, 2 if learner.problem == "classification" else 1))
    learner.finish_task(data)


class Work:
    """Counts forward passes for statistics, and comparisons of pairs of tasks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passes = self.pairs = 0
        run, odds = reader.run_pass, Combination.log_odds

        def counted_run(*arguments: Any, **named: Any) -> Any:
            self.passes += 1
            return run(*arguments, **named)

        def counted_odds(combination: Combination, terms: Any, tasks: Tensor | None = None) -> Tensor:
            result = odds(combination, terms, tasks)
            self.pairs += result.numel()
            return result

        monkeypatch.setattr(reader, "run_pass", counted_run)
        monkeypatch.setattr(Combination, "log_odds", counted_odds)

    def taken(self) -> tuple[int, int]:
        """Since the last call."""
        result = self.passes, self.pairs
        self.passes = self.pairs = 0
        return result


def test_neither_a_task_nor_an_input_costs_more_with_more_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, work = learner_of(), Work(monkeypatch)
    finishing, asking = [], []
    for task in range(3 * SHORTLIST):
        work.taken()
        learn(learner, task)
        finishing.append(work.taken())
        learner.predictor.predict(examples(0).x[:1], criterion="stats")
        asking.append(work.taken())
    assert finishing[1] < finishing[2] < finishing[SHORTLIST - 1]
    assert set(finishing[SHORTLIST:]) == {finishing[SHORTLIST]}
    assert finishing[SHORTLIST][1] <= finishing[SHORTLIST - 1][1]
    networks = 2
    for passes, pairs in asking[SHORTLIST:]:
        assert SHORTLIST <= passes <= SHORTLIST + networks
        assert pairs == SHORTLIST**2
    sizes = learner.predictor.keeper.sizes()
    assert len(set(sizes[networks:])) == 1


def test_up_to_the_short_list_all_pairs_are_compared_and_bits_are_the_same() -> None:
    x = torch.cat([examples(task).x[:5] for task in range(SHORTLIST)])
    answers = []
    for most in (SHORTLIST, 1000):
        learner = learner_of(**{"statistics.shortlist": most})
        for task in range(SHORTLIST):
            learn(learner, task)
        evidence = learner.predictor.keeper.evidence(x, outputs=False)
        assert evidence.listed is None
        assert evidence.entropies.isfinite().all()
        answer = learner.predictor.predict(x)
        answers.append([answer.task_probabilities, answer.probabilities, answer.strangeness])
        answers[-1] += [value for _, value in sorted(learner.predictor.task_statistics.tensors().items())]
    assert all(torch.equal(one, other) for one, other in zip(*answers, strict=True))


@pytest.fixture(scope="module")
def many() -> ContinualLearner:
    learner = learner_of()
    for task in range(2 * SHORTLIST + 1):
        learn(learner, task)
    return learner


def test_tasks_are_found_as_by_all_pairs(many: ContinualLearner) -> None:
    predictor, x = many.predictor, torch.cat([examples(task).x[:10] for task in range(many.num_tasks)])
    true = torch.repeat_interleave(torch.arange(many.num_tasks), 10)
    answer = predictor.predict(x, criterion="stats")
    assert answer.task_probabilities is not None
    torch.testing.assert_close(answer.task_probabilities.sum(1), torch.ones(len(x), dtype=torch.float64))
    evidence = predictor.keeper.evidence(x, outputs=False)
    exact = predictor.keeper.combination(evidence).scores(predictor.keeper.evidence(x)).argmin(0)
    assert (answer.task == exact).double().mean() > 0.95
    assert (answer.task == true).double().mean() > 0.9


def test_only_networks_of_listed_tasks_are_asked_unless_a_criterion_needs_all(many: ContinualLearner) -> None:
    keeper, x = many.predictor.keeper, examples(3).x[:6]
    some, every = keeper.evidence(x, distances=False, outputs=False), keeper.evidence(x, distances=False)
    assert some.listed is not None
    assert every.listed is not None
    assert torch.equal(some.listed, every.listed)
    assert every.entropies.isfinite().all()
    asked = ~some.entropies.isnan()
    assert asked.gather(0, some.listed).all()
    assert not asked.all()
    torch.testing.assert_close(some.energies[asked], every.energies[asked])


@pytest.mark.parametrize("criterion", CRITERIA)
def test_every_criterion_chooses_among_many_tasks(criterion: str, many: ContinualLearner) -> None:
    x = torch.cat([examples(task).x[:3] for task in range(many.num_tasks)])
    answer = many.predictor.predict(x, criterion=criterion)
    assert answer.scores is None or answer.scores.isfinite().all()
    assert answer.strangeness is not None
    assert answer.strangeness.isfinite().all()
    together = many.predictor.contests([many.predictor.criterion(name) for name in CRITERIA[:-1]], x)
    if criterion in CRITERIA[:-1]:
        scores = together[CRITERIA.index(criterion)].scores()
        assert torch.equal(scores.argmin(0), answer.task)
    assert many.predictor.predict(x, criterion=criterion, batch_wise=3).task.shape == (len(x),)


def test_regression_with_many_tasks() -> None:
    learner = learner_of("regression", "pr-bbb-sr")
    for task in range(SHORTLIST + 2):
        learn(learner, task)
    x = torch.cat([examples(task).x[:5] for task in range(learner.num_tasks)])
    answer = learner.predictor.predict(x)
    assert answer.task_probabilities is not None
    assert answer.task_probabilities.isfinite().all()
    assert (answer.task == torch.repeat_interleave(torch.arange(learner.num_tasks), 5)).double().mean() > 0.8


def rows_of(task: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    x, y = examples(task)
    return x.numpy(), np.array([f"{task}-{label}" for label in y.tolist()])


def test_a_model_of_many_tasks_is_saved_revised_and_shortened(tmp_path: Path) -> None:
    model = ContinualClassifier(
        "pr-bbb-sr", network="mlp-6", settings={**SETTINGS, "statistics.shortlist": SHORTLIST}, seed=1
    )
    for task in range(SHORTLIST + 3):
        model.learn_task(*rows_of(task), name=f"t{task}")
    x = np.concatenate([rows_of(task)[0][:4] for task in range(SHORTLIST + 3)])
    model.save(tmp_path / "model")
    again = ContinualClassifier.load(tmp_path / "model")
    assert np.array_equal(model.predict_full(x).task_probabilities, again.predict_full(x).task_probabilities)
    again.update_task("t1", *rows_of(1))
    again.remove_task("t0")
    again.learn_task(*rows_of(20), name="new")
    answer = again.predict_full(x)
    assert answer.task_probabilities.shape == (len(x), SHORTLIST + 3)
    assert np.allclose(answer.task_probabilities.sum(1), 1.0)
    assert again.predict_task(rows_of(20)[0][:10]).count("new") > 7
