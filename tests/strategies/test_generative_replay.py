"""Generative replay: what counts how much, what is replayed, and that it keeps old tasks."""

from typing import Any, cast

import pytest
import torch
from torch import Generator

from metareplay.batches.base import Batch
from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.errors import ConfigError
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.strategies.generative_replay import GenerativeReplay
from metareplay.strategies.replay_models import SelfReplay

SMALL = {"strategy.generator_hidden": [16], "strategy.latent_size": 2, "strategy.generator_rate": 0.02}


def learner(**settings: Any) -> ContinualLearner:
    given = {"training.iterations": 120, "training.batch_size": 32, "training.learning_rate": 0.02, **SMALL, **settings}
    config = build_config({"method": "dgr", "network": "mlp-8"}, given, "test")
    return ContinualLearner(config, "classification", Scenario.CLASS, (2,))


def blobs(task: int, count: int = 90) -> TaskData:
    generator = torch.Generator().manual_seed(task)
    y = torch.arange(count) % 2
    centre = torch.stack([4.0 * y - 2, torch.full((count,), 4.0 * task - 2)], 1)
    return TaskData(centre + 0.5 * torch.randn(count, 2, generator=generator), y)


@pytest.fixture(scope="module")
def learned() -> ContinualLearner:
    model = learner()
    for task in range(2):
        for _ in model.begin_task(blobs(task), 2):
            pass
    return model


def test_the_first_task_is_kept_without_its_examples(learned: ContinualLearner) -> None:
    answer = learned.predictor.predict(blobs(0).x)
    right = (answer.probabilities.argmax(1) == blobs(0).y).double().mean()  # type: ignore[union-attr]
    assert float(right) > 0.9


def test_generated_inputs_are_of_both_tasks(learned: ContinualLearner, rng: Generator) -> None:
    x = cast(GenerativeReplay, learned.strategy).generated(learned.model, 200, generator=rng)
    assert x.shape == (200, 2)
    assert 0.2 < float((x[:, 1] < 0).double().mean()) < 0.8  # tasks are above and below


def test_new_examples_count_one_in_t(rng: Generator) -> None:
    model = learner()
    for _ in model.begin_task(blobs(0), 2):
        pass
    trainer = model.begin_task(blobs(1), 2)
    strategy = cast(GenerativeReplay, model.strategy)
    batch = Batch(blobs(1, 8).x, blobs(1, 8).y + 2)
    batches = strategy.batches_for(model.model, 1, batch, generator=rng)
    assert [part.weight for part in batches] == [0.5]
    assert strategy.drawn is not None
    x, temperature = strategy.drawn.x, 2.0
    outputs = model.model.run(model.model.posterior(1), x, 1, 1, generator=rng)[0]
    old = outputs[:, :2]  # nothing was learned yet: the network of before is the present one
    soft = torch.nn.functional.pad((old / temperature).softmax(1), (0, 2))
    expected = torch.nn.functional.cross_entropy(outputs / temperature, soft)
    penalty = strategy.penalty(model.model, 1, generator=rng)
    assert penalty is not None
    torch.testing.assert_close(penalty, len(trainer.examples.x) * 0.5 * 4 * expected)


def test_gates_take_the_class_and_pictures_are_between_0_and_1(rng: Generator) -> None:
    model = learner(**{"strategy.gates": 0.5, "training.iterations": 2})
    for _ in model.begin_task(TaskData(torch.rand(20, 2, generator=rng), torch.arange(20) % 2), 2):
        pass
    replay = cast(SelfReplay, cast(GenerativeReplay, model.strategy).replay_model)
    assert replay.binary
    drawn = replay.replay(50, 2, generator=rng)
    assert 0 <= float(drawn.x.min()) <= float(drawn.x.max()) <= 1
    assert sorted(drawn.source.unique().tolist()) == [0, 1]


def test_regression_has_no_gates() -> None:
    config = build_config({"method": "dgr"}, {"strategy.gates": 0.5}, "test")
    with pytest.raises(ConfigError, match=r"strategy\.gates .* regression has none; remove it"):
        ContinualLearner(config, "regression", Scenario.DOMAIN, (1,))
