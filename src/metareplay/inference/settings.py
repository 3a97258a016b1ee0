"""Settings of inference and evaluation."""

from typing import Literal

from pydantic import Field

from metareplay.inference.criteria.gradient import GradSettings


class InferenceSettings(GradSettings):
    """How predictions are made."""

    samples: int = Field(100, ge=1, description="weight samples K of the posterior predictive")
    predictive: Literal["samples", "moments"] = Field(
        "samples",
        description="samples: run the network under weight samples; moments: means and variances go through the layers of an MLP with "
        "Gaussian weights, and K samples are drawn of its outputs alone",
    )
    adaptive: float | None = Field(
        None,
        gt=0,
        description="draw weight samples for an input and a task only until its decision is so many standard errors clear, 4 for example; "
        "null: all of them",
    )
    autocast: bool = Field(
        False, description="networks compute in bfloat16: faster only where the processor has instructions for it, elsewhere much slower"
    )
    test_inputs: int | None = Field(None, ge=1, description="test inputs of each task that a run uses, drawn by data_seed; null: all")
    batch_wise: int = Field(100, ge=1, description="inputs per batch in batch-wise task inference")
    batch_size: int = Field(500, ge=1, description="inputs per forward pass; changes memory, not results")
