"""What all measurements share: learners on synthetic data of MNIST's shape, and interleaved timing."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import torch

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.heap import keep_freed_memory
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.recipe_book import default_settings
from metareplay.nets.registry import network_factory
from metareplay.training.loop import Step

SHAPE = (1, 28, 28)
EXAMPLES = 1280


def made_up_task(number: int, classes: int = 2) -> TaskData:
    """Data of MNIST's shape and approximate sparsity; their content does not affect the time of a step."""
    generator = torch.Generator().manual_seed(number)
    x = torch.rand(EXAMPLES, *SHAPE, generator=generator) * (torch.rand(EXAMPLES, *SHAPE, generator=generator) < 0.2)
    return TaskData(x, torch.randint(classes, (EXAMPLES,), generator=generator))


def learner_for(
    method: str, network: str = "mlp-400-400", *, many_tasks: bool = False, fast: bool = False, **given: Any
) -> ContinualLearner:
    """A learner with the published settings for split-mnist, and those given (``__`` stands for the dot in a key)."""
    keep_freed_memory()  # as a run does
    defaults, _ = default_settings("split-mnist", method, network, published=not fast)
    settings = {key.replace("__", "."): value for key, value in given.items()}
    config = build_config(
        defaults,
        {
            "training.iterations": 10**9,
            **({"hypernet.smaller_than_posterior": False} if many_tasks else {}),
            **settings,
        },
        "benchmarks",
    )
    return ContinualLearner(config, "classification", Scenario.CLASS, SHAPE, total_outputs=10)


def steps_in_task(learner: ContinualLearner, task: int) -> Iterator[Step]:
    """Training steps of a task, after a few steps of each task before it."""
    while True:
        number = learner.num_tasks
        trainer = learner.begin_task(made_up_task(number), 2, expected_tasks=max(5, task + 1))
        if number == task:
            return iter(trainer)
        trainer.iterations = 2
        for _ in trainer:
            pass


def plain_steps(network: str = "mlp-400-400", batch_size: int = 128, classes: int = 2) -> Iterator[None]:
    """Training steps of the network itself in plain PyTorch: the reference for all others."""
    module = network_factory(network, SHAPE)(classes)
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-3, fused=True)
    x, y = made_up_task(0, classes)
    while True:
        for chosen in torch.randperm(EXAMPLES).split(batch_size):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(module(x[chosen]), y[chosen])
            loss.backward()
            optimiser.step()
            yield


def in_turns(
    actions: Mapping[str, Callable[[], object]], rounds: int, least_seconds: float = 0.02
) -> dict[str, list[float]]:
    """Seconds per call of each action, for each round; a round calls every action, so that noise affects all alike."""
    calls = {}
    for name, action in actions.items():  # also the warm-up
        action()
        began = time.perf_counter()
        action()
        calls[name] = max(1, round(least_seconds / (time.perf_counter() - began)))
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            began = time.perf_counter()
            for _ in range(calls[name]):
                action()
            seconds[name].append((time.perf_counter() - began) / calls[name])
    return seconds


def ratio(times: Sequence[float], reference: Sequence[float]) -> float:
    """The median over rounds of one time over another."""
    return median(a / b for a, b in zip(times, reference, strict=True))
