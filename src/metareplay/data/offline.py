"""Offline mode: neither this library nor those it reads data with use the network."""

import os

OFFLINE_VARIABLE = "METAREPLAY_OFFLINE"
_HUB_VARIABLES = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")


def is_offline() -> bool:
    """Whether METAREPLAY_OFFLINE, HF_HUB_OFFLINE or HF_DATASETS_OFFLINE is on."""
    return any(
        os.environ.get(name, "").lower() in {"1", "on", "yes", "true"} for name in (OFFLINE_VARIABLE, *_HUB_VARIABLES)
    )


def go_offline() -> None:
    """Turn offline mode on for this process and those it starts."""
    for name in (OFFLINE_VARIABLE, *_HUB_VARIABLES):
        os.environ[name] = "1"
