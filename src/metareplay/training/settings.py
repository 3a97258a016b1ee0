"""Settings of training."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from metareplay.batches.augment import Augmentation
from metareplay.batches.auxiliary import AuxiliaryOutputs
from metareplay.errors import ConfigError
from metareplay.posteriors.base import FamilyPart
from metareplay.posteriors.families.gaussian import GaussianSettings, MeanFieldGaussian
from metareplay.posteriors.settings import BayesianSettings
from metareplay.settings import Composition, Settings
from metareplay.strategies.base import StrategyPart
from metareplay.task_maps.base import TaskMapPart

IVON_KEYS = ("ivon_rate", "ivon_momentum", "ivon_decay", "ivon_start")
ADAM_KEYS = ("learning_rate", "clip_norm", "clip_value")


class TrainingSettings(Settings):
    """How a task is learned: by an optimiser that is re-created for each task."""

    group: ClassVar[str] = "training"
    iterations: int | None = Field(2000, ge=1, description="training steps per task; null if epochs are given")
    epochs: int | None = Field(None, ge=1, description="passes over a task's data; null if iterations are given")
    reference_rows: int | None = Field(
        None,
        ge=1,
        description="number of examples for which a task takes exactly these iterations; others take more or fewer, by "
        "the cube root of the ratio; null: all tasks take the same number",
    )
    batch_size: int = Field(128, ge=1, description="examples per step; a task with fewer uses all it has")
    fill_batches: bool = Field(
        False,
        description="a batch that is larger than a task's data runs on into the next epoch, as in the published runs",
    )
    optimiser: Literal["adam", "ivon"] = Field(
        "adam",
        description="adam, or ivon: natural-gradient steps for Gaussian posteriors that are stored, not generated "
        "(vcl, vcl-growing, sp-bbb), with the prior in closed form",
    )
    learning_rate: float = Field(0.001, gt=0, description="Adam's learning rate")
    ivon_rate: float = Field(0.03, gt=0, description="ivon: learning rate of the means")
    ivon_momentum: float = Field(0.9, ge=0, lt=1, description="ivon: share of the mean gradient that a step keeps")
    ivon_decay: float = Field(0.995, ge=0, lt=1, description="ivon: share of the precisions that a step keeps")
    ivon_start: float = Field(
        0.1, ge=0, description="ivon: smallest curvature of an example's loss from which precisions start in a task"
    )
    rate_steps: tuple[tuple[PositiveInt, PositiveFloat], ...] = Field(
        (),
        description="[[epochs, factor], ...]: after these epochs of a task the rate is the initial one times factor",
    )
    cosine: bool = Field(
        False,
        description="decay the learning rate to 0 over each task, following a half cosine",
    )
    warm_up: int = Field(0, ge=0, description="steps over which the learning rate rises to its value")
    early_stopping: int | None = Field(
        None,
        ge=1,
        description="steps between two checks of the loss on held-out examples: a task ends soon after the loss stops "
        "falling; null, or without held-out examples: never",
    )
    patience: int = Field(3, ge=1, description="checks without a lower loss after which a task is brought to its end")
    plateau_patience: int | None = Field(
        None,
        ge=1,
        description="epochs without a lower mean data loss after which the learning rate is reduced; null: never",
    )
    plateau_factor: float = Field(
        0.1**0.5, gt=0, lt=1, description="factor by which the learning rate is multiplied on a plateau"
    )
    plateau_floor: float = Field(5e-7, ge=0, description="the lowest learning rate after plateaus")
    autocast: bool = Field(
        False,
        description="compute the main network in bfloat16 while training (fast where the processor or GPU supports it)",
    )
    clip_norm: float | None = Field(None, gt=0, description="maximum norm of the gradient; null: no clipping")
    clip_value: float | None = Field(
        None, gt=0, description="maximum absolute value of a gradient element; null: no clipping"
    )
    augmentation: Augmentation = Field(
        "none",
        description="augmentation of training images: none, or crop-flip (shifted by up to 4 pixels, randomly flipped)",
    )
    rotations: bool = Field(
        False,
        description="classification of square images: every batch also contains its images rotated by 90, 180 and 270 "
        "degrees, as separate classes",
    )
    other: float = Field(
        0.0,
        ge=0,
        description='classification: transformed copies of each example for one more output, "none of these classes"; '
        "0: none, 1 (or true): as many as examples",
    )
    checkpoint_every: int = Field(500, ge=1, description="steps between two checkpoints inside a task")
    log_every: int = Field(50, ge=1, description="steps between two lines of metrics.jsonl")

    record_signals: bool = Field(
        False,
        description="store loss and uncertainty of every training batch in signals/, for detecting task boundaries",
    )

    @property
    def auxiliary(self) -> AuxiliaryOutputs:
        """The outputs that tasks are trained with besides those of their classes."""
        return AuxiliaryOutputs(self.rotations, self.other > 0)

    @model_validator(mode="after")
    def _consistent(self) -> "TrainingSettings":
        if (self.iterations is None) == (self.epochs is None):
            raise ValueError("give either iterations or epochs, and set the other to null")
        if [epoch for epoch, _ in self.rate_steps] != sorted({epoch for epoch, _ in self.rate_steps}):
            raise ValueError("rate_steps must list distinct epochs in ascending order")
        if self.cosine and (self.rate_steps or self.plateau_patience is not None):
            raise ValueError("cosine is a complete schedule; remove rate_steps and plateau_patience, or cosine")
        return self

    def without_effect(self, composition: Composition) -> Mapping[str, str]:
        """All without training steps; what concerns plateaus or stopping early where these are not looked for."""
        strategy = composition.parts().get("strategy")
        if isinstance(strategy, StrategyPart) and strategy.closed_form:
            reason = "its weights are computed in closed form, without training steps"
            return {f"{self.group}.{name}": reason for name in type(self).model_fields}
        unused = self._of_other_optimiser()
        if self.plateau_patience is None:
            reason = "the learning rate is not reduced on a plateau; set training.plateau_patience"
            unused |= dict.fromkeys(("training.plateau_factor", "training.plateau_floor"), reason)
        if self.early_stopping is None:
            unused["training.patience"] = "training does not stop early; set training.early_stopping"
        if self.iterations is None:
            unused["training.reference_rows"] = "epochs follow from a task's examples already; set training.iterations"
        return unused

    def _of_other_optimiser(self) -> dict[str, str]:
        adam = self.optimiser == "adam"
        reason = "its optimiser is Adam; set training.optimiser=ivon"
        if not adam:
            reason = "its optimiser is IVON, which has training.ivon_rate and scales steps by curvature"
        return {f"training.{key}": reason for key in (IVON_KEYS if adam else ADAM_KEYS)}

    @property
    def first_rate(self) -> float:
        """The learning rate before any schedule."""
        return self.learning_rate if self.optimiser == "adam" else self.ivon_rate

    def steps(self, rows: int, batches_per_epoch: int) -> int:
        """The steps of a task with this many examples."""
        if self.iterations is None:
            return batches_per_epoch * (self.epochs or 1)
        if self.reference_rows is None:
            return self.iterations
        return max(1, round(self.iterations * (rows / self.reference_rows) ** (1 / 3)))

    def check(self, composition: Composition) -> None:
        """Variances need single precision; natural gradients, posteriors that are stored as means and scales."""
        if self.optimiser == "ivon":
            _check_ivon(composition)
        gaussian = composition.find(GaussianSettings)
        if self.autocast and gaussian is not None and gaussian.local_reparametrisation:
            raise ConfigError(
                "training.autocast would round the variances of posterior.local_reparametrisation; disable one of them"
            )


def _check_ivon(composition: Composition) -> None:
    """Refuse posteriors that are not stored Gaussians, and a prior without weight."""
    family, task_map = (composition.parts().get(kind) for kind in ("family", "task map"))
    single = isinstance(family, FamilyPart) and family.members is None and not family.point_in_training
    known = single and getattr(family, "posterior", None) is MeanFieldGaussian
    if not known or (isinstance(task_map, TaskMapPart) and task_map.generated):
        has = "a hypernetwork that generates them" if known else family.phrase if family is not None else "others"
        raise ConfigError(
            f"training.optimiser=ivon is for Gaussian posteriors whose means and variances are stored, but "
            f"{composition.method_name} has {has}; set it to adam, or choose vcl, vcl-growing or sp-bbb"
        )
    bayesian = composition.find(BayesianSettings)
    if bayesian is not None and bayesian.prior_scale == 0:
        raise ConfigError(
            "training.optimiser=ivon divides by posterior.prior_scale, which is 0; set it above 0, or choose adam"
        )
