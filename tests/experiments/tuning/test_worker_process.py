"""The process of a worker."""

import subprocess
import sys


def test_a_worker_starts_without_warnings() -> None:
    command = [sys.executable, "-W", "error", "-m", "metareplay.experiments.tuning.worker", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
