"""Settings of inference and evaluation."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from metareplay.posteriors.base import FamilyPart
from metareplay.settings import Composition, Settings


class InferenceSettings(Settings):
    """How predictions are made."""

    group: ClassVar[str] = "inference"
    samples: int = Field(100, ge=1, description="weight samples K of the posterior predictive")
    adaptive: float | None = Field(
        None,
        gt=0,
        description="draw weight samples for an input and a task only until the decision is clear by this many "
        "standard errors, for example 4; null: draw all of them",
    )
    autocast: bool = Field(
        False,
        description="compute networks in bfloat16: faster only on processors that support it, much slower elsewhere",
    )
    calibrate: bool = Field(
        True,
        description="with the task unknown, mix the answers of all probable tasks; calibrate probabilities and "
        "intervals on examples that training did not use; false: the chosen task's raw answer, as published",
    )
    coverage: float = Field(0.95, gt=0, lt=1, description="share of targets that prediction intervals contain")
    test_inputs: int | None = Field(
        None, ge=1, description="test inputs of each task that a run uses, chosen by data_seed; null: all"
    )
    batch_wise: int = Field(100, ge=1, description="inputs per batch in batch-wise task inference")
    batch_size: int = Field(500, ge=1, description="inputs per forward pass; changes memory, not results")

    def without_effect(self, composition: Composition) -> Mapping[str, str]:
        """Adaptive sampling is for tasks that are inferred from weight samples."""
        parts = composition.parts()
        family, outputs = parts["family"], parts["outputs"]
        if isinstance(family, FamilyPart) and family.point:
            return {"inference.adaptive": "it predicts with point estimates, not with weight samples"}
        if outputs.name == "growing":
            return {"inference.adaptive": "one softmax spans all tasks, so no task is inferred"}
        return {}
