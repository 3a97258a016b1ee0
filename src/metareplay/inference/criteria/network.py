"""The criterion task-net: the answer of a network that was trained to infer tasks [vonOswald2020, HNET+TIR]."""

from torch import Tensor

from metareplay.errors import ConfigError
from metareplay.inference.criteria.base import Criterion, Evidence, register_criterion

TASK_NETWORK = "task-net"


def task_surprise(evidence: Evidence) -> Tensor:
    """-log p(task | x) of the network that infers tasks (T, B)."""
    if evidence.log_tasks is None:
        raise ConfigError(
            f"criterion={TASK_NETWORK!r} asks a network that infers tasks; learn with the method hnet-tir"
        )
    return -evidence.log_tasks


def task_probabilities(evidence: Evidence, scores: Tensor) -> Tensor:
    """p(task | x): (T, B) -> (B, T)."""
    return (-scores).softmax(0).T


register_criterion(
    Criterion(
        name=TASK_NETWORK,
        description="most probable task according to a network trained to tell replayed inputs apart (hnet-tir)",
        compare=task_surprise,
        probabilities=task_probabilities,
        problems=("classification", "regression"),
        asks_network=True,
    )
)
