"""The process that learns a task while the server answers: ``python -m metareplay.serve.learn_process JOB``."""

import json
import os
import sys
from pathlib import Path

from metareplay.errors import MetaReplayError
from metareplay.serve.learning import learn


def main(job: Path) -> int:
    """Do what a job's file says; an error is one line of JSON on standard output."""
    os.nice(10)  # answers go first
    facts = json.loads(job.read_text(encoding="utf-8"))
    try:
        examples = job.with_name("examples").read_bytes()
        learn(Path(facts["folder"]), facts["name"], examples, facts["kind"], facts["label"])
    except MetaReplayError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
