import pytest
import torch

from metareplay.benchmarks.base import Scenario, Split
from metareplay.errors import ConfigError
from metareplay.experiments.build import build_strategy
from metareplay.experiments.config import build_config
from metareplay.experiments.learner import ContinualLearner
from metareplay.strategies.posterior_replay import PosteriorReplay


def test_a_refused_task_leaves_no_trace() -> None:
    config = build_config({"method": "joint", "network": "mlp-4"}, {"training.iterations": 1}, "test")
    first, second = (ContinualLearner(config, "classification", Scenario.CLASS, (2,)) for _ in range(2))
    train = Split(torch.randn(4, 2), torch.tensor([0, 1, 0, 1]))
    for _ in first.begin_task(train, 2):
        pass
    second.restore(first.facts(), first.tensors(training=False))
    for _ in range(2):
        with pytest.raises(ConfigError, match="only 0 are at hand"):
            second.begin_task(train, 2)
        assert second.num_tasks == 1


def test_a_stochastic_method_regularises_one_task_unless_told_otherwise() -> None:
    strategy = build_strategy(build_config({"method": "pr-bbb-sr"}, {}, "test"))
    assert isinstance(strategy, PosteriorReplay)
    assert strategy.settings.old_tasks == 1
