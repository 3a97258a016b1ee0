"""The campaign in its short form, as a command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")


def test_the_short_campaign_finds_nothing(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "torture", "--short", "--scratch", str(tmp_path)]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for part in ("kills: 4", "full disks: 1", "saves beside readers: 3", "damaged inputs: 8", "0 failed"):
        assert part in ended.stdout
    assert not list(tmp_path.iterdir())  # it tidies up
