"""Strategies without a penalty: separate tasks, and all data at once."""

import pytest
import torch

from metareplay.benchmarks.base import TaskData
from metareplay.errors import ConfigError
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.strategies.base import LossTerms
from metareplay.strategies.baselines import Joint, Unbound


def data(task: int, size: int = 2) -> TaskData:
    return TaskData(torch.full((size, 3), float(task)), torch.full((size,), task))


def test_each_task_sees_its_own_data() -> None:
    strategy = Unbound(GaussianPrior(3.0))
    for task in range(3):
        own = data(task)
        assert strategy.data_for(task, own) is own
        assert strategy.prior_for(task).variance == 3.0


def test_joint_training_sees_all_data_so_far() -> None:
    strategy = Joint(GaussianPrior(3.0))
    assert strategy.data_for(0, data(0, 1)).y.tolist() == [0]
    assert strategy.data_for(1, data(1, 2)).y.tolist() == [0, 1, 1]
    seen = strategy.data_for(2, data(2, 3))
    assert seen.y.tolist() == [0, 1, 1, 2, 2, 2]
    assert seen.x[:, 0].tolist() == [0, 1, 1, 2, 2, 2]
    assert strategy.prior_for(1).variance == 3.0


def test_a_task_given_again_replaces_its_data() -> None:
    strategy = Joint(GaussianPrior())
    strategy.data_for(0, data(0, 1))
    strategy.data_for(1, data(1, 1))
    assert strategy.data_for(1, data(7, 2)).y.tolist() == [0, 7, 7]  # a resumed run says its data again
    assert strategy.data_for(0, data(5, 1)).y.tolist() == [5]


@pytest.mark.parametrize(("known", "task"), [(0, 1), (0, 3), (1, 2), (2, 4)])
def test_joint_training_without_earlier_data_is_refused(known: int, task: int) -> None:
    strategy = Joint(GaussianPrior())
    for earlier in range(known):
        strategy.data_for(earlier, data(earlier))
    with pytest.raises(
        ConfigError, match=f"needs the data of all {task} earlier tasks, but only {known} are available"
    ):
        strategy.data_for(task, data(task))


def test_the_loss_is_the_sum_of_its_terms() -> None:
    assert float(LossTerms(torch.tensor(1.0), torch.tensor(2.0), torch.tensor(4.0)).total) == 7


def test_a_refused_task_is_refused_again() -> None:
    strategy = Joint(GaussianPrior())
    for _ in range(2):
        with pytest.raises(ConfigError, match="only 0 are available"):
            strategy.data_for(1, data(1))
