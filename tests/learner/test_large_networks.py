"""One step of pr-bbb in the second task with the paper's largest networks, in a separate process to measure memory."""

import json
import subprocess
import sys
from typing import Any

import pytest

SCRIPT = """
import json, resource, sys, time
import torch
from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner

settings = json.loads(sys.argv[1])
torch.set_num_threads(settings.pop("threads"))
short = {"method": "pr-bbb-sr", "training.iterations": 1, "training.batch_size": 32, "posterior.train_samples": 1}
config = build_config(short, settings, "test")
learner = ContinualLearner(config, "classification", Scenario.CLASS, (3, 32, 32))
x, seconds, losses = torch.randn(32, 3, 32, 32), [], []
for task in range(2):  # the second has an old posterior to keep
    trainer = learner.begin_task(TaskData(x, torch.arange(32) % 2), 2)
    began = time.process_time()
    losses += [float(step.terms.total) for step in trainer]
    seconds.append(time.process_time() - began)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps({"losses": losses, "seconds": seconds, "gibibytes": peak, "counts": learner.model.parameter_counts()}))
"""

# The published hypernetworks of PR-BbB-SR on split-cifar-10 and split-cifar-100.
SHAPES: dict[str, dict[str, Any]] = {
    "wrn-28-10": {
        "hypernet.hidden": [250, 500, 1000],
        "hypernet.task_embedding_size": 32,
        "hypernet.chunk_size": 50_000,
        "hypernet.chunk_embedding_size": 32,
        "hypernet.chunk_embeddings_per_task": True,
        "hypernet.initialisation": "gaussian",
        "posterior.keep_network_init": True,
        "strategy.penalty": "fkl",
        "strategy.targets": "recomputed",
        "training.clip_norm": 1.0,
    },
    "resnet-18": {
        "hypernet.hidden": [],
        "hypernet.activation": "sigmoid",
        "hypernet.task_embedding_size": 32,
        "hypernet.chunk_size": 300_000,
        "hypernet.chunk_embedding_size": 32,
        "hypernet.initialisation": "gaussian",
        "strategy.penalty": "w2",
        "strategy.targets": "recomputed",
    },
}
LIMIT = 8.0
"""Gibibytes."""


@pytest.mark.slow
@pytest.mark.parametrize("network", SHAPES)
def test_a_step_fits_in_memory(network: str) -> None:
    settings = {**SHAPES[network], "network": network, "threads": 1}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(settings)], capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    actual = json.loads(done.stdout)
    print(f"{network}: {actual}")
    assert all(abs(loss) < float("inf") for loss in actual["losses"])
    assert actual["gibibytes"] < LIMIT
    assert actual["counts"]["trained"] < actual["counts"]["posterior"]
