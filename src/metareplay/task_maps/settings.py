"""Settings of task-conditioned hypernetworks."""

from typing import Literal

from pydantic import Field, model_validator

from metareplay.nets.mlp import Activation
from metareplay.settings import Settings


class HypernetSettings(Settings):
    """Shape and start of the hypernetwork."""

    kind: Literal["plain", "chunked"] = Field("chunked", description="all of theta in one pass, or chunk by chunk")
    hidden: tuple[int, ...] = Field((100, 100), description="widths of the hidden layers; empty for a linear hypernetwork")
    activation: Activation = Field("relu", description="activation of the hidden layers")
    task_embedding_size: int = Field(32, ge=1, description="length of a task embedding")
    task_embedding_std: float = Field(1.0, gt=0, description="initial standard deviation of task embeddings")
    chunk_size: int | None = Field(
        None, ge=1, description="elements of theta per chunk; null: as many as keep the hypernetwork below the posterior's size"
    )
    chunk_embedding_size: int = Field(32, ge=1, description="length of a chunk embedding")
    chunk_embedding_std: float = Field(1.0, gt=0, description="initial standard deviation of chunk embeddings")
    chunk_embeddings_per_task: bool = Field(False, description="every task has chunk embeddings of its own")
    initialisation: Literal["xavier", "gaussian", "hyperfan"] = Field(
        "xavier",
        description="xavier; gaussian: outputs vary like a Gaussian posterior's ordinary start; hyperfan: Chang et al. 2020",
    )
    smaller_than_posterior: bool = Field(
        False, description="refuse a hypernetwork that, with all tasks' embeddings, has more parameters than the posterior of one task"
    )

    smaller_than_network: bool = Field(
        False, description="refuse a hypernetwork that, with all tasks' embeddings, has more parameters than the main network has weights"
    )

    @model_validator(mode="after")
    def _positive_widths(self) -> "HypernetSettings":
        if any(width < 1 for width in self.hidden):
            raise ValueError("hidden: every width must be at least 1")
        return self
