"""What a strategy that generates old inputs would replay, for the report: images, a few after each task."""

from torch import Tensor

from metareplay.learner.learner import ContinualLearner
from metareplay.seeding import generator_for
from metareplay.strategies.generative_replay import GeneratesInputs

REPLAYED = "replayed"
"""The folder of a run that holds them."""
SHOWN = 12
"""Inputs that are stored after each task."""


def replayed_inputs(learner: ContinualLearner) -> dict[str, Tensor]:
    """Some generated inputs (N, C, H, W); nothing where none are generated, or where inputs are not images."""
    if not isinstance(learner.strategy, GeneratesInputs) or len(learner.input_shape) != 3:
        return {}
    generator = generator_for(learner.config.seed, REPLAYED, learner.num_tasks)
    x = learner.strategy.generated(learner.model, SHOWN, generator=generator)  # (N, D)
    return {"x": x.reshape(-1, *learner.input_shape)}
