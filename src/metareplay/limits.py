"""How much anything from outside may claim: limits with defaults, raised by environment variables of their names."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from metareplay.errors import ConfigError, DataError

PREFIX = "METAREPLAY_MAX_"
"""``METAREPLAY_MAX_MEMORY_GB=64`` sets ``memory_gb``."""
GB = 1e9
TRAINED = 16
"""Bytes of a trained number: itself, its gradient, and what Adam keeps of it."""
WITH_POSTERIOR = 64
"""Bytes of a weight with a posterior: mean and scale, a sample, those of the task before, and their gradients."""
_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_FALLBACK_GB = 16.0


def machine_gb() -> float:
    """The memory that this process can have at most: of the machine, its container and its own limit."""
    sizes = []
    with suppress(AttributeError, ValueError, OSError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in _GROUPS:
        with suppress(OSError, ValueError):
            sizes.append(int(Path(name).read_text()))
    with suppress(ImportError, OSError, ValueError):
        import resource

        sizes.append(resource.getrlimit(resource.RLIMIT_AS)[0])
    known = [size for size in sizes if size > 0]
    return min(known) / GB if known else _FALLBACK_GB


class Limits(BaseModel):
    """The limits; the error for exceeding a limit names it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    memory_gb: float = Field(
        default_factory=machine_gb,
        gt=0,
        description="estimated memory of one array, archive, network or batch; "
        "default: the memory of the machine or container",
    )
    yaml_mb: float = Field(0.25, gt=0, description="size of a YAML text: configurations")
    json_mb: float = Field(256.0, gt=0, description="size of a JSON text: results, metadata of models")
    nesting: int = Field(100, ge=1, description="levels of lists and mappings in YAML and JSON")
    values: int = Field(1_000_000, ge=1, description="number of values in a YAML text once its aliases are expanded")
    image_megapixels: float = Field(89.0, gt=0, description="number of pixels in one image, in millions")
    threads: int = Field(1024, ge=1, description="processor threads of a run")


VARIABLES = tuple((name, f"{PREFIX}{name.upper()}") for name in Limits.model_fields)
"""The environment variable of each."""


def limits() -> Limits:
    """The limits that hold now."""
    return _checked(tuple((name, text) for name, key in VARIABLES if (text := os.environ.get(key))))


@lru_cache(maxsize=16)
def _checked(given: tuple[tuple[str, str], ...]) -> Limits:
    values: Mapping[str, str] = dict(given)
    try:
        return Limits.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        words = f"the environment variable {PREFIX}{name.upper()}={values[name]!r} is not a valid limit"
        raise ConfigError(f"{words}: {first['msg'][0].lower()}{first['msg'][1:]}") from error


def refuse_beyond(name: str, amount: float, what: str, kind: type[Exception] = DataError) -> None:
    """Refuse what exceeds a limit: ``what`` says in words what has this amount."""
    limit = float(getattr(limits(), name))
    if not amount <= limit:
        raise kind(
            f"{what}: {_number(amount)} is beyond the limit of {_number(limit)} ({name}); if this is intended, raise "
            f"the limit with the environment variable {PREFIX}{name.upper()}"
        )


def refuse_layers(widths: Sequence[int], what: str, bytes_each: int = TRAINED) -> None:
    """Refuse fully connected layers of these widths if their weights would not fit, before any is made."""
    weights = sum((n_in + 1) * n_out for n_in, n_out in pairwise(widths))
    words = f"{what} has {weights:,} weights, and each needs {bytes_each} bytes while it is trained, in GB together"
    refuse_beyond("memory_gb", bytes_each * weights / GB, words, ConfigError)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or float(value).is_integer() else f"{value:.3g}"
