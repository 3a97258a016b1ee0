import pytest
import torch

from metareplay.benchmarks.base import TaskData
from metareplay.errors import ConfigError
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.strategies.baselines import Joint


def test_a_refused_task_is_refused_again() -> None:
    strategy = Joint(GaussianPrior())
    for _ in range(2):
        with pytest.raises(ConfigError, match="only 0 are at hand"):
            strategy.data_for(1, TaskData(torch.zeros(2, 3), torch.zeros(2)))
