"""Settings of strategies."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from metareplay.posteriors.divergences import Penalty
from metareplay.settings import Settings


class StrategySettings(Settings):
    """What binds the tasks."""

    strength: float = Field(1.0, ge=0, description="weight of the penalty: beta of posterior replay, lambda of EWC, of the distillation")
    decay: float = Field(1.0, ge=0, le=1, description="gamma: factor of the old tasks' Fisher information after each task (EWC)")
    fisher_samples: int | None = Field(None, ge=1, description="examples of a task for its Fisher information; null: all")
    fisher_weight_samples: int = Field(
        10, ge=1, description="weight samples for the Fisher information of a task's posterior (penalty fisher)"
    )
    linearised: bool = Field(
        True, description="EWC's Gaussian predicts through the network linearised at the point; false: weight samples go into the network"
    )
    penalty: Penalty = Field("mse", description="distance of an old task's posterior from what it was: mse, fkl, rkl, w2 or fisher")
    penalty_samples: int = Field(10, ge=1, description="weight samples of a Monte Carlo fkl or rkl penalty (normalising flows)")
    old_tasks: int | None = Field(None, ge=1, description="how many random old tasks are regularised in a step; null: all")
    penalty_every: int = Field(
        1, ge=1, description="the penalty is computed in one of so many steps, drawn at random, and counts so many times; 1: in all"
    )
    targets: Literal["stored", "recomputed"] = Field(
        "stored", description="old posteriors kept for the time of a task, or recomputed in each step from the checkpointed hypernetwork"
    )
    age_discount: float = Field(
        1.0, gt=0, le=1, description="factor of an old task's penalty for each task that came after it; the latest old task has 1"
    )
    task_strengths: tuple[Annotated[float, Field(ge=0)], ...] | None = Field(
        None, description="factors of the old tasks' penalties, the first task's first; tasks beyond the list, or null: 1"
    )
    prior_from_earlier: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the earlier tasks' posteriors in a new task's prior (posterior replay of Gaussians and flows); 0: none",
    )
    coreset_size: int = Field(
        100, ge=1, description="how many random examples of each task are kept for later (experience replay, coresets)"
    )
    replay_batch_size: int = Field(16, ge=1, description="how many kept inputs are replayed in a step, equally many of each old task")
    replay_batch_per_task: bool = Field(
        False, description="replay_batch_size inputs of every old task instead of all old tasks together: the batch grows with the tasks"
    )
    finetune_iterations: int | None = Field(None, ge=1, description="steps of fine-tuning on coresets; null: as for a task")
    finetune_epochs: int | None = Field(None, ge=1, description="passes over a modified coreset instead of steps; null: as for a task")
    finetune_batch_size: int = Field(128, ge=2, description="examples of each task's modified coreset in a step of fine-tuning")
    finetune_learning_rate: float | None = Field(None, gt=0, description="Adam's learning rate in fine-tuning; null: as for a task")
    finetune_prior_scale: float | None = Field(
        None, ge=0, description="factor of the KL to the learned posterior in fine-tuning; null: posterior.prior_scale"
    )
    finetune_others: Literal["uniform", "random", "none"] | None = Field(
        None,
        description="targets of other tasks' inputs in fine-tuning: uniform; random, new labels in each step; none, leave them out; "
        "null: uniform for classes, none for regression",
    )
    finetune_own_share: float | None = Field(
        None, gt=0, lt=1, description="share of a task's own coreset in its batches of fine-tuning; null: as in all coresets together"
    )

    @model_validator(mode="after")
    def _one_length(self) -> "StrategySettings":
        if self.finetune_iterations is not None and self.finetune_epochs is not None:
            raise ValueError("give finetune_iterations or finetune_epochs, not both")
        return self
