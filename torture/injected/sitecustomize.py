"""Loaded by Python itself in processes that a tested command starts: only the campaign puts it on their path."""

import os
import sys
from pathlib import Path

if "TORTURE_FAULT" in os.environ:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from torture.faults import install_from_environment

    install_from_environment()
    sys.path.pop(0)
