"""Settings of posterior replay."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from metareplay.errors import ConfigError, listed
from metareplay.posteriors.base import FAMILIES, FamilyPart, HasFisher, HasLogProb
from metareplay.posteriors.divergences import Penalty, kl, known_penalties
from metareplay.posteriors.families.dirac import Dirac
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.families.radial import Radial
from metareplay.posteriors.priors.earlier import EarlierPriorSettings
from metareplay.posteriors.settings import FixedPriorSettings
from metareplay.settings import Composition
from metareplay.strategies.fisher import FisherSettings
from metareplay.task_maps.settings import HeadsSettings


class ReplayPriorSettings(FixedPriorSettings):
    """The prior's part of the Fisher information, and the prior itself where posteriors have one."""

    def without_effect(self, composition: Composition) -> Mapping[str, str]:
        """Point estimates have no prior, unless their Fisher information is asked for."""
        penalty = composition.get(ReplaySettings).penalty
        if not family_of(composition).point or penalty == "fisher":
            return {}
        return {"posterior.prior_variance": f"{family_of(composition).phrase} have no prior"}


class ReplaySettings(FisherSettings, EarlierPriorSettings):
    """How old tasks' posteriors are preserved."""

    group: ClassVar[str] = "strategy"
    strength: float = Field(1.0, ge=0, description="weight of the penalty: beta")
    penalty: Penalty = Field(
        "mse", description="distance of an old task's posterior from what it was: mse, fkl, rkl, w2 or fisher"
    )
    divide_twice: bool = Field(
        False,
        description="the mean over old tasks of fkl, rkl or w2 is divided by their number once more, as in the "
        "published runs",
    )
    own_outputs: bool = Field(
        False,
        description="where each task has outputs of its own, mse leaves out the weights of other tasks' outputs, as in "
        "the published runs",
    )
    penalty_samples: int = Field(
        10, ge=1, description="weight samples of a Monte Carlo fkl or rkl penalty (normalising flows)"
    )
    old_tasks: int | None = Field(
        None, ge=1, description="number of random old tasks that are regularised in a step; null: all"
    )
    penalty_every: int = Field(
        1,
        ge=1,
        description="compute the penalty in one of this many steps, at random, scaled up by the same factor; 1: always",
    )
    targets: Literal["stored", "recomputed"] = Field(
        "stored",
        description="old posteriors are stored during a task, or recomputed in each step from the checkpoint",
    )
    age_discount: float = Field(
        1.0,
        gt=0,
        le=1,
        description="factor of an old task's penalty for each task after it; the latest old task has factor 1",
    )
    task_strengths: tuple[Annotated[float, Field(ge=0)], ...] | None = Field(
        None,
        description="factors of the old tasks' penalties, the first task's first; tasks beyond the list, or null: 1",
    )

    def without_effect(self, composition: Composition) -> Mapping[str, str]:
        """Settings of estimates that are not needed."""
        posterior = family_of(composition).posterior
        unused = {**super().without_effect(composition), **_unused_estimates(self.penalty, composition)}
        if self.penalty not in ("fkl", "rkl", "w2"):
            unused["strategy.divide_twice"] = "the published runs did so with the penalties fkl, rkl and w2 only"
        if (reason := _all_outputs(self.penalty, composition)) is not None:
            unused["strategy.own_outputs"] = reason
        if self.penalty not in ("fkl", "rkl"):
            unused["strategy.penalty_samples"] = f"strategy.penalty={self.penalty} is not estimated from weight samples"
        elif kl.supports(posterior, posterior):
            unused["strategy.penalty_samples"] = f"the penalty {self.penalty} of its posteriors has a closed form"
        return unused

    def check(self, composition: Composition) -> None:
        """The penalty must be defined for the posteriors."""
        family = family_of(composition)
        allowed = known_penalties(family.posterior)
        if self.penalty not in allowed:
            raise ConfigError(
                f"strategy.penalty={self.penalty} is not defined for {family.phrase}, which "
                f"{composition.method_name} has; choose {listed(allowed)}"
            )


class StochasticReplaySettings(ReplaySettings):
    """A few random old tasks in each step."""

    old_tasks: int = Field(1, ge=1, description="number of random old tasks that are regularised in a step")


def family_of(composition: Composition) -> FamilyPart:
    """The posterior family of a method."""
    part = composition.parts()["family"]
    assert isinstance(part, FamilyPart)
    return part


def _all_outputs(penalty: Penalty, composition: Composition) -> str | None:
    """Why no outputs can be left out of the penalty; None if they can."""
    if penalty != "mse":
        return "the published runs left out other tasks' outputs with the penalty mse only"
    heads, family = composition.find(HeadsSettings), family_of(composition)
    if heads is None or heads.heads != "multi":
        return "all tasks use the same outputs; set heads=multi"
    if not has_weights_of_outputs(family.posterior):
        return f"{family.phrase} have no parameters that belong to single weights"
    return None


def has_weights_of_outputs(posterior: type) -> bool:
    """Whether every element of theta belongs to a single weight."""
    return issubclass(posterior, Dirac | MeanFieldGaussian | Radial)


def _unused_estimates(penalty: Penalty, composition: Composition) -> dict[str, str]:
    """Settings for estimating the Fisher information that are not used."""
    family = family_of(composition)
    samples, weights = "strategy.fisher_samples", "strategy.fisher_weight_samples"
    if penalty != "fisher":
        reason = "it needs the Fisher information of old tasks with strategy.penalty=fisher only"
        return dict.fromkeys((samples, weights), reason)
    single = FAMILIES[family.members] if family.members is not None else family
    if isinstance(single.build(composition), HasFisher):
        return dict.fromkeys((samples, weights), "the Fisher information of its posteriors has a closed form")
    if single.point:
        return {weights: f"{family.phrase} have no weight samples"}
    if issubclass(single.posterior, HasLogProb):
        return {samples: "the Fisher information of its posteriors is estimated from their density, not from data"}
    return {}
