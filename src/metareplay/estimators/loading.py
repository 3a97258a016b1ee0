"""The estimator of a stored model, whichever it is."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from metareplay.estimators.classifier import ContinualClassifier
from metareplay.estimators.regressor import ContinualRegressor
from metareplay.learner.store import load_model

AnyEstimator = ContinualClassifier | ContinualRegressor
ESTIMATORS: tuple[type[AnyEstimator], ...] = (ContinualClassifier, ContinualRegressor)


def load_estimator(
    folder: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    network: Callable[..., nn.Module] | None = None,
) -> AnyEstimator:
    """Load a model; ``settings`` of inference replace those it was stored with, ``network`` builds one of your own."""
    stored = load_model(Path(folder), settings, network=network)
    return next(kind for kind in ESTIMATORS if kind.problem == stored.learner.problem).of(stored)
