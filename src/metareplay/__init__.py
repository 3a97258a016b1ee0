"""metareplay: Bayesian continual learning with one posterior per task in one small hypernetwork."""

from typing import TYPE_CHECKING, Any

from metareplay.version import __version__

if TYPE_CHECKING:
    from metareplay.estimators import ContinualClassifier, ContinualRegressor, Stream

__all__ = ["ContinualClassifier", "ContinualRegressor", "Stream", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the estimators when they are first used, so that ``metareplay --help`` stays fast."""
    if name in ("ContinualClassifier", "ContinualRegressor", "Stream"):
        from metareplay import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'metareplay' has no attribute {name!r}")
