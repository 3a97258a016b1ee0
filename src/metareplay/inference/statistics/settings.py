"""Settings of task statistics."""

from typing import ClassVar

from pydantic import Field

from metareplay.settings import Settings

FINER = 4
"""How many times as many Gaussians a class of inputs of few columns may have."""


class StatisticsSettings(Settings):
    """What is stored about a task while its data are available, to infer tasks and to recognise unknown inputs."""

    group: ClassVar[str] = "statistics"

    collect: bool = Field(True, description="store statistics of every task: moments of its inputs, never examples")
    layers: tuple[str, ...] = Field(
        (),
        description="layers of the main network whose outputs are described, by name; empty: the inputs of the linear "
        "layers and convolutions, at most three of them spread over the depth",
    )
    networks: int = Field(
        2,
        ge=0,
        description="number of earlier tasks' networks (the first ones) in which every task is described; more "
        "compare better, but each costs a forward pass and some memory per task",
    )
    width: int = Field(
        256, ge=2, description="features per layer; wider layers are averaged over positions, then projected"
    )
    shortlist: int = Field(
        32,
        ge=2,
        description="number of tasks that are compared pair by pair; if there are more, those that fit an input best "
        "by statistics that need no network of their own; a new task is compared with as many earlier ones when it "
        "ends",
    )
    components: int = Field(
        4,
        ge=1,
        description="number of Gaussians that describe the inputs of a class; fewer for fewer than 40 examples; of "
        "inputs of few columns (at most as many as statistics.directions) up to four times as many, if these describe "
        "unseen inputs better",
    )
    directions: int = Field(20, ge=1, description="principal directions of each of these Gaussians")
    edges: bool = Field(
        True,
        description="describe the edges of images as well, and the colours of those with several channels: evidence "
        "for the task, and for unknown images",
    )
    megabytes: float = Field(
        16.0,
        gt=0,
        description="maximum size of one task's statistics; components, directions and width are lowered to fit",
    )
    outputs: bool = Field(
        True,
        description="entropy and energy of a task's outputs are evidence for it; those of one linear layer say nothing "
        "that statistics of its inputs do not say better",
    )
    compensate: bool = Field(
        True, description="transform the statistics in a network when later tasks change that network"
    )
    held_out: float = Field(
        0.1,
        ge=0,
        le=0.5,
        description="share of a task's training examples, at most 1000, that training does not use: thresholds and "
        "probabilities are calibrated on them; tasks of fewer than 200 examples keep all of them for training",
    )
    false_rejections: float = Field(
        0.05, gt=0, lt=1, description="share of a task's own inputs that may be taken for unknown"
    )

    def few_columns(self, features: int) -> bool:
        """Whether all directions of the inputs are described."""
        return features <= self.directions

    def density_size(self, classes: int, features: int) -> tuple[int, int]:
        """Gaussians per class and directions of each, as half of the permitted size allows; (1, 0) if too few."""
        if self.few_columns(features):
            vectors = self._vectors(classes, features)
            return max(1, min(FINER * self.components, vectors // (1 + features))), features
        return self.gaussians_that_fit(classes, features)

    def gaussians_that_fit(self, classes: int, features: int, *, used: int = 0, kinds: int = 1) -> tuple[int, int]:
        """The same for many features of as many kinds, of whose permitted size some bytes have been used."""
        vectors, most = self._vectors(classes, features, used), kinds * self.directions
        components = min(self.components, max(1, vectors // (1 + most)))
        directions = min(most, vectors // components - 1)
        return components, directions if directions >= min(5, self.directions) else 0

    def _vectors(self, classes: int, features: int, used: int = 0) -> int:
        """How many of them half of the permitted size holds for each class."""
        return int((0.5 * self.megabytes * 2**20 - used) / 4 / max(classes * features, 1))
