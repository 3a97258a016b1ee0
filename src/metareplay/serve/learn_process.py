"""The process that learns a task while the server answers: ``python -m metareplay.serve.learn_process JOB``."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from metareplay.errors import MetaReplayError
from metareplay.faults import fault_of
from metareplay.permissions import permit
from metareplay.serve.learning import learn
from metareplay.texts import read_json_file


class StoppedError(MetaReplayError):
    """The server ends, and nothing of the task is to remain."""


def main(job: Path) -> int:
    """Do what a job's file says; an error is one line of JSON on standard output."""
    os.nice(10)  # answers go first
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then ends this process
    facts = read_json_file(job)
    for name in facts["permitted"]:
        permit(name)
    try:
        learn(Path(facts["folder"]), Path(facts["path"]), facts["name"], facts["label"], facts["max_change"])
    except MetaReplayError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 2
    except Exception as error:
        print(json.dumps({"error": f"{fault_of(error).sentence}; the model is unchanged"}), flush=True)
        return 1
    return 0


def _stop(*_: Any) -> None:
    raise StoppedError("the server was stopped; the model is unchanged")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
