"""Decoders from a hypernetwork: old ones are kept, and replayed equally."""

from typing import Any, cast

import pytest
import torch
from torch import Generator

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.strategies.generated_decoders import GeneratedDecoders
from metareplay.strategies.generative_replay import GenerativeReplay

SMALL = {"generator_hidden": [8], "latent_size": 2, "generator_hypernet": [8], "generator_rate": 0.01}


def learned(strength: float) -> tuple[ContinualLearner, float]:
    """After two tasks, and how far the second moved the decoder of the first."""
    given: dict[str, Any] = {f"strategy.{name}": value for name, value in SMALL.items()}
    given |= {"strategy.generator_strength": strength, "training.iterations": 60, "training.batch_size": 16}
    config = build_config({"method": "hnet-r", "network": "mlp-8"}, {**given, "training.learning_rate": 0.02}, "test")
    learner = ContinualLearner(config, "classification", Scenario.CLASS, (2,))
    model, before = cast(GeneratedDecoders, cast(GenerativeReplay, learner.strategy).replay_model), torch.zeros(())
    for task in range(2):
        y = torch.arange(60) % 2
        centre = torch.stack([4.0 * y - 2, torch.full((60,), 4.0 * task - 2)], 1)
        noise = 0.5 * torch.randn(60, 2, generator=torch.Generator().manual_seed(task))
        for _ in learner.begin_task(TaskData(centre + noise, y), 2):
            pass
        before = model.hypernet.theta(0).detach() if task == 0 else before
    return learner, float((model.hypernet.theta(0).detach() - before).norm())


@pytest.fixture(scope="module")
def kept() -> tuple[ContinualLearner, float]:
    return learned(100.0)


def test_the_penalty_keeps_the_decoders_of_old_tasks(kept: tuple[ContinualLearner, float]) -> None:
    assert kept[1] < 0.3 * learned(0.0)[1]


def test_tasks_are_replayed_equally(kept: tuple[ContinualLearner, float], rng: Generator) -> None:
    strategy = cast(GenerativeReplay, kept[0].strategy)
    drawn = strategy.replay_model.replay(41, 4, generator=rng)
    assert sorted(torch.bincount(drawn.source).tolist()) == [20, 21]
    below = [float((drawn.x[drawn.source == task, 1] < 0).double().mean()) for task in range(2)]
    assert below[0] > below[1] + 0.5  # each task's inputs are where they were
