"""Base of all settings: typed, frozen, unknown keys refused. Each part of the library defines its own."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """A group of settings; ``Field(description=...)`` explains each one where it is defined."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
