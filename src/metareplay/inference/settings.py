"""Settings of inference and evaluation."""

from pydantic import Field

from metareplay.settings import Settings


class InferenceSettings(Settings):
    """How predictions are made."""

    samples: int = Field(100, ge=1, description="weight samples K of the posterior predictive")
    batch_wise: int = Field(100, ge=1, description="inputs per batch in batch-wise task inference")
    batch_size: int = Field(500, ge=1, description="inputs per forward pass; changes memory, not results")
