import pytest
import torch

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.errors import ConfigError
from metareplay.learner.build import build_strategy
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.recipe_book import default_settings
from metareplay.strategies.posterior_replay import PosteriorReplay


def test_a_refused_task_leaves_no_trace() -> None:
    config = build_config({"method": "joint", "network": "mlp-4"}, {"training.iterations": 1}, "test")
    first, second = (ContinualLearner(config, "classification", Scenario.CLASS, (2,)) for _ in range(2))
    train = TaskData(torch.randn(4, 2), torch.tensor([0, 1, 0, 1]))
    for _ in first.begin_task(train, 2):
        pass
    second.restore(first.facts(), first.tensors(training=False))
    for _ in range(2):
        with pytest.raises(ConfigError, match="only 0 are available"):
            second.begin_task(train, 2)
        assert second.num_tasks == 1


def test_a_stochastic_method_regularises_one_task_unless_told_otherwise() -> None:
    strategy = build_strategy(build_config({"method": "pr-bbb-sr"}, {}, "test"))
    assert isinstance(strategy, PosteriorReplay)
    assert strategy.settings.old_tasks == 1


@pytest.mark.parametrize("method", ["ewc-growing", "ewc-shared", "vcl-growing"])
def test_one_softmax_over_all_tasks_is_refused_for_regression(method: str) -> None:
    config = build_config({"method": method, "network": "mlp-4"}, {}, "test")
    with pytest.raises(
        ConfigError, match=f"{method} has a softmax over all tasks' classes, but regression has no classes"
    ):
        ContinualLearner(config, "regression", Scenario.DOMAIN, (2,))


def test_a_shared_softmax_that_is_too_small_is_refused_at_once() -> None:
    config = build_config({"method": "ewc-shared", "network": "mlp-4"}, {"total_outputs": 3}, "test")
    with pytest.raises(ConfigError, match="total_outputs=3 is too small: the tasks have 6 classes;"):
        ContinualLearner(config, "classification", Scenario.CLASS, (2,), total_outputs=6)


@pytest.mark.parametrize(("method", "lender"), [("ewc-dirac", "ewc-multihead"), ("vcl-growing", "vcl")])
def test_near_relatives_lend_their_recipes(method: str, lender: str) -> None:
    actual, source = default_settings("split-mnist", method, "mlp-400-400")
    assert source == f"borrowed from split-mnist/{lender}/mlp-400-400"
    build_config(actual, {}, "test")
