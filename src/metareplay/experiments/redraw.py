"""Arrays for figures that the folder of a finished run lacks, recomputed from the stored model."""

from pathlib import Path

from torch import Tensor

from metareplay.data.inside import refuse_named
from metareplay.errors import DataError
from metareplay.experiments.curves import predictive_picture, weight_samples
from metareplay.experiments.plan import benchmark_for
from metareplay.learner.store import load_model


def predictions_of(folder: Path) -> dict[str, Tensor]:
    """The arrays of ``predictive.safetensors``, with the run's weight samples; empty unless inputs are 1D or 2D."""
    learner = load_model(folder).learner
    refuse_named(learner.config.data.path, f"the model in {folder}")
    return predictive_picture(learner.predictor, benchmark_for(learner.config))


def weights_of(folder: Path) -> dict[str, Tensor]:
    """Samples of some weights, of any model whose posteriors are not point estimates."""
    learner = load_model(folder).learner
    if learner.model.family.weight_sets is not None:
        raise DataError(
            f"{folder} has point estimates, which have no weight density; choose a run of a method such as pr-avb"
        )
    return weight_samples(learner.predictor)
