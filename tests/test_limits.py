"""Limits have defaults, are raised by the environment, and are named by who exceeds them."""

import pytest

from metareplay.errors import ConfigError, DataError
from metareplay.limits import Limits, limits, machine_gb, refuse_beyond


def test_what_exceeds_a_limit_is_told_how_to_raise_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAREPLAY_MAX_THREADS", "8")
    refuse_beyond("threads", 8, "threads")
    with pytest.raises(DataError, match=r"threads: 9 is beyond the limit of 8 .*METAREPLAY_MAX_THREADS"):
        refuse_beyond("threads", 9, "threads")
    with pytest.raises(ConfigError):
        refuse_beyond("threads", float("nan"), "threads", ConfigError)


def test_a_limit_must_be_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAREPLAY_MAX_YAML_MB", "lots")
    with pytest.raises(ConfigError, match="METAREPLAY_MAX_YAML_MB='lots' is not a valid limit"):
        limits()


def test_memory_is_that_of_the_machine() -> None:
    assert Limits().memory_gb == machine_gb() > 0.1
