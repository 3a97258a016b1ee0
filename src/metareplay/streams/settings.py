"""Settings of learning from a stream whose task boundaries are unknown."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationError

from metareplay.errors import ConfigError
from metareplay.settings import Settings

Signal = Literal["strangeness", "uncertainty", "loss"]
SIGNALS: tuple[Signal, ...] = ("strangeness", "uncertainty", "loss")


class StreamSettings(Settings):
    """How a new task is detected, and when there are enough examples to learn it."""

    group: ClassVar[str] = "stream"

    detector: Literal["window", "adwin"] = Field(
        "window",
        description="what detects a change: the mean over a window, compared with held-out examples of the task; or "
        "ADWIN [Bifet and Gavalda 2007], which needs the package river",
    )
    signals: tuple[Signal, ...] = Field(
        SIGNALS,
        min_length=1,
        description="what is monitored: whether inputs are unfamiliar to the task, how uncertain its networks are, and "
        "how improbable the labels are",
    )
    window: int = Field(
        20, ge=2, description="successive examples that are averaged, and that decide after an alarm which task this is"
    )
    grace: int = Field(
        400,
        ge=20,
        description="examples of a new task gathered before it is learned; no change is detected meanwhile",
    )
    threshold: float = Field(
        6.0, gt=0, description="detector window: standard errors above the held-out mean that count as a change"
    )
    known: float = Field(
        3.5,
        gt=0,
        description="standard errors above the held-out mean up to which examples may belong to a known task: of a "
        "task that returns, or of the same task after a false alarm",
    )
    delta: float = Field(0.001, gt=0, lt=1, description="detector adwin: its confidence parameter")
    held_out: float = Field(
        0.15,
        gt=0,
        lt=1,
        description="share of the gathered examples that are held out from training: they show what the signals are "
        "like on the task's own examples",
    )
    fewest: int = Field(
        50, ge=2, description="examples of an unfinished task that are learned when the stream ends; fewer are left out"
    )
    refine: bool = Field(
        False, description="update a task with every further grace examples while it lasts, or when it returns"
    )

    @classmethod
    def of(cls, settings: "StreamSettings | Mapping[str, Any] | None") -> "StreamSettings":
        """From a mapping such as ``{"window": 50}``; unknown or invalid values are errors."""
        if isinstance(settings, cls):
            return settings
        try:
            return cls.model_validate(dict(settings or {}))
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(["stream", *(str(part) for part in first["loc"])])
            known = ", ".join(cls.model_fields)
            if first["type"] == "extra_forbidden":
                raise ConfigError(f"{name} is unknown; settings of streams are {known}") from error
            raise ConfigError(f"{name}={first['input']!r} is invalid: {first['msg']}") from error
