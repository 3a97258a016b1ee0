"""What figures show of a finished run whose folder does not hold it: computed again from the stored model."""

from pathlib import Path

from torch import Tensor

from metareplay.errors import DataError
from metareplay.experiments.curves import predictive_picture, weight_samples
from metareplay.experiments.plan import benchmark_for
from metareplay.learner.store import load_model


def predictions_of(folder: Path) -> dict[str, Tensor]:
    """The arrays of ``predictive.safetensors``, with the same samples as the run's own; empty where inputs are no line or plane."""
    learner = load_model(folder).learner
    return predictive_picture(learner.predictor, benchmark_for(learner.config))


def weights_of(folder: Path) -> dict[str, Tensor]:
    """Samples of some weights of any model whose posteriors have several."""
    learner = load_model(folder).learner
    if learner.model.family.weight_sets is not None:
        raise DataError(
            f"{folder} has point estimates, which have no density of weights; choose a run of another method, such as pr-avb"
        )
    return weight_samples(learner.predictor)
