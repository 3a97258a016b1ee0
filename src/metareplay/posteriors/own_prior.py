"""A learned posterior as the prior of its own task [Henning2021, sm:sec:coresets]."""

from metareplay.posteriors.base import Posterior, Prior
from metareplay.posteriors.radial import Radial


def as_prior(learned: Posterior) -> Prior:
    """The prior that a learned posterior is: itself, known by its density or by its samples.

    A radial posterior stands there as the Gaussian with its means and variances: its own density has a pole at the mean, so that
    a Monte Carlo estimate of the cross-entropy to it has no finite variance. The term keeps its minimum at the learned posterior.
    """
    return learned.moments() if isinstance(learned, Radial) else learned
