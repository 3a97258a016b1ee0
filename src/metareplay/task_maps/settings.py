"""Settings of task-conditioned hypernetworks."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from metareplay.errors import ConfigError
from metareplay.nets.activations import Activation
from metareplay.posteriors.families.implicit import ImplicitSettings
from metareplay.settings import Composition, Settings, Widths


class HeadsSettings(Settings):
    """Tasks whose weights are generated need no separate outputs, but may have them."""

    heads: Literal["single", "multi"] | None = Field(
        None,
        description="outputs; single: shared by all tasks; multi: each task adds its own; null: what the method needs",
    )


class HypernetSettings(Settings):
    """Shape and initialisation of the hypernetwork."""

    group: ClassVar[str] = "hypernet"
    kind: Literal["plain", "chunked"] = Field("chunked", description="all of theta in one pass, or chunk by chunk")
    hidden: Widths = Field((100, 100), description="widths of the hidden layers; empty for a linear hypernetwork")
    activation: Activation = Field("relu", description="activation of the hidden layers")
    task_embedding_size: int = Field(32, ge=1, description="length of a task embedding")
    task_embedding_std: float = Field(1.0, gt=0, description="initial standard deviation of task embeddings")
    chunk_size: int | None = Field(
        None,
        ge=1,
        description="elements of theta per chunk; null: as many as keep the hypernetwork below the posterior's size",
    )
    chunk_embedding_size: int = Field(32, ge=1, description="length of a chunk embedding")
    chunk_embedding_std: float = Field(1.0, gt=0, description="initial standard deviation of chunk embeddings")
    chunk_embeddings_per_task: bool = Field(False, description="every task has its own chunk embeddings")
    initialisation: Literal["xavier", "gaussian", "hyperfan", "embeddings"] = Field(
        "xavier",
        description="xavier; gaussian: outputs vary like an initial Gaussian posterior; hyperfan: Chang et al. 2020; "
        "embeddings: as gaussian, but by the size of the chunk embeddings alone, as in the published runs",
    )
    smaller_than_posterior: bool = Field(
        False,
        description="refuse a hypernetwork that, with all embeddings, has more parameters than one task's posterior",
    )

    smaller_than_network: bool = Field(
        False,
        description="refuse a hypernetwork that, with all embeddings, has more parameters than the main network",
    )

    def without_effect(self, composition: Composition) -> Mapping[str, str]:
        """Chunks of a plain hypernetwork; the network's initialisation where the hypernetwork uses another."""
        unused: dict[str, str] = {}
        if self.kind == "plain":
            chunks = [f"hypernet.{name}" for name in type(self).model_fields if name.startswith("chunk_")]
            unused |= dict.fromkeys(chunks, "a plain hypernetwork has no chunks; set hypernet.kind=chunked")
        if self.initialisation == "xavier":
            unused["posterior.keep_network_init"] = (
                "hypernet.initialisation=xavier initialises the hypernetwork differently; set it to gaussian"
            )
        return unused

    def check(self, composition: Composition) -> None:
        """Hyperfan needs outputs that are weights, and chunk embeddings need chunks."""
        if self.initialisation == "embeddings" and self.kind == "plain":
            raise ConfigError(
                "hypernet.initialisation=embeddings acts through chunk embeddings, which a plain hypernetwork lacks; "
                "choose gaussian, or hypernet.kind=chunked"
            )
        implicit = composition.find(ImplicitSettings)
        if self.initialisation == "hyperfan" and implicit is not None and implicit.generator_chunk_size is not None:
            raise ConfigError(
                "hypernet.initialisation=hyperfan needs a weight generator without chunks; "
                "set posterior.generator_chunk_size to null, or choose xavier"
            )
