"""What is computed for the same inputs at the end of a run is computed once, and the same bits."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from metareplay.benchmarks import build_benchmark
from metareplay.evaluation.answers import answer_quality
from metareplay.evaluation.evaluate import Evaluator
from metareplay.experiments import labels
from metareplay.experiments.labels import label_figures
from metareplay.inference.predictive import WeightSamples
from metareplay.inference.remembered import Remembered
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner

DIGITS = build_benchmark("split-digits")[:3]


def test_results_are_kept_by_content_and_within_a_bound() -> None:
    x = torch.arange(6.0)
    marks = [Remembered.mark(each) for each in (x, x.clone(), x.reshape(2, 3), x.double(), x + 1, x[:0], x[::2])]
    assert marks[0] == marks[1]
    assert len(set(marks)) == 6
    memory = Remembered(most=10)
    assert memory.get("a") is None
    memory.put("a", value="first", numbers=6)
    memory.put("b", value="too many", numbers=5)
    assert (memory.get("a"), memory.get("b"), memory.held) == ("first", None, 6)
    memory.put("a", value="second", numbers=10)  # in place of the first
    assert (memory.take("a"), memory.held) == ("second", 0)
    assert memory.take("a") is None


@pytest.fixture(scope="module", params=["pr-bbb", "pr-bbb with rotations", "pr-ensemble"])
def learned(request: pytest.FixtureRequest) -> ContinualLearner:
    method, _, more = request.param.partition(" ")
    settings = {
        "training.iterations": 4,
        "inference.samples": 7,
        "training.rotations": bool(more),
        "inference.calibrate": True,
    }
    config = build_config({"benchmark": "split-digits", "method": method, "network": "mlp-8"}, settings, "test")
    learner = ContinualLearner(config, DIGITS.problem, DIGITS.scenario, DIGITS.input_shape)
    for index, task in enumerate(DIGITS):
        for _ in learner.begin_task(task.train, DIGITS.width(task)):
            pass
        learner.finish_task(task.train, DIGITS.task_infos()[: index + 1])
    return learner


def figures(learner: ContinualLearner) -> list[Any]:
    """All that a run finds out from its test inputs, as plain values."""
    predictor = learner.predictor
    tests = [DIGITS.test(index) for index in range(3)]  # new tensors each time
    again = [DIGITS.test(index) for index in range(3)]
    quality = answer_quality(predictor, again, DIGITS.task_infos())
    inferred = Evaluator(predictor, tasks=DIGITS.task_infos()).inferred(tests)
    confusion = label_figures(predictor, DIGITS, [DIGITS.test(index) for index in range(3)], seed=0)
    assert quality is not None
    assert confusion is not None
    rows = {name: [result.score, result.confusion, result.counts.tolist()] for name, result in inferred.items()}
    return [dataclasses.asdict(quality), rows, confusion.confusion]


@pytest.mark.parametrize("most", [labels.MOST_INPUTS, 60])
def test_figures_are_the_same_bits(learned: ContinualLearner, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MOST_INPUTS", most)
    runs: list[int] = []
    draw = WeightSamples.draw

    def counted(self: WeightSamples, samples: int, x: Tensor) -> Tensor:
        runs.append(samples * len(x))
        return draw(self, samples, x)

    monkeypatch.setattr(WeightSamples, "draw", counted)
    alone = figures(learned)
    before, runs[:] = sum(runs), []
    with learned.predictor.remembering():
        assert figures(learned) == alone
        assert learned.predictor.memory is not None
        assert 0 < learned.predictor.memory.held <= learned.predictor.memory.most
    assert learned.predictor.memory is None
    assert sum(runs) < before


def test_without_room_everything_is_computed_again(learned: ContinualLearner, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = figures(learned)
    monkeypatch.setattr(Remembered, "put", lambda *_, **__: None)
    with learned.predictor.remembering():
        assert figures(learned) == alone
