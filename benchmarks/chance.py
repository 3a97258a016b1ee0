"""Whether default recipes for images ever end at chance: the lowest accuracies over seeds, and the warnings.

python -m benchmarks.chance [--networks mlp,lenet,resnet-32] [--seeds 5] [--tasks 2] [--images 600] [--out FOLDER]

Every seed is one file, and what has been written is not done again. The streams are those of ``benchmarks.image_sets``;
"no signal" is the first of them with its labels shuffled, which nothing can learn: every task should be warned about.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import benchmarks.image_sets  # noqa: F401 (registers its streams)
from benchmarks.data_sets import Examples, Month, stream
from metareplay import ContinualClassifier
from metareplay.errors import TrainingWarning
from metareplay.files import write_atomically

STREAMS = ("MNIST, pairs", "CIFAR-10, pairs", "no signal")
MLP = "mlp"
"""The network by rule."""


def months(name: str, seed: int, tasks: int, images: int) -> list[Month]:
    """The first tasks of a stream, with at most so many training images; networks see pairs of classes."""
    shuffled = name == "no signal"
    random = np.random.default_rng(seed)
    found = []
    for train, test in stream(STREAMS[0] if shuffled else name, seed).months[:tasks]:
        y = random.permutation(train.y) if shuffled else train.y
        found.append(Month(Examples(train.x[:images], y[:images]), test))
    return found


def learned(name: str, network: str, seed: int, tasks: int, images: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Accuracy of each task with the task given, and how many warnings each training gave."""
    model = ContinualClassifier(network=None if network == MLP else network, seed=seed, settings=settings)
    parts, warned, began = months(name, seed, tasks, images), [], time.process_time()
    for index, month in enumerate(parts):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.learn_task(month.train.x, month.train.y, name=str(index))
        warned.append(sum(issubclass(warning.category, TrainingWarning) for warning in caught))
    seconds = (time.process_time() - began) / len(parts)
    scores = [100 * model.score(month.test.x, month.test.y, task=index) for index, month in enumerate(parts)]
    return {"scores": scores, "warned": warned, "seconds": seconds, "network": model.config.network}


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="mlp,lenet,resnet-32")
    parser.add_argument("--streams", default=None, help="separated by semicolons")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--images", type=int, default=600, help="training images of a task, at most 800")
    parser.add_argument("--iterations", type=int, help="instead of the default")
    parser.add_argument("--out", type=Path, default=Path("runs/chance"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    settings = {} if asked.iterations is None else {"training.iterations": asked.iterations}
    print("| images | network | seeds | lowest accuracy of each task | mean | tasks warned about | s/task |")
    print("|---|---|---|---|---|---|---|")
    for network in asked.networks.split(","):
        for name in asked.streams.split(";") if asked.streams else STREAMS:
            found = []
            for seed in range(asked.seeds):
                file = asked.out / f"{network}.{name.partition(',')[0].replace(' ', '-')}.{seed}.json"
                if not file.exists():
                    file.parent.mkdir(parents=True, exist_ok=True)
                    part = learned(name, network, seed, asked.tasks, asked.images, settings)
                    write_atomically(file, json.dumps(part))
                found.append(json.loads(file.read_text()))
            scores = np.array([part["scores"] for part in found])
            lowest = ", ".join(f"{score:.1f}" for score in scores.min(0))
            warned = f"{sum(min(count, 1) for part in found for count in part['warned'])} of {scores.size}"
            seconds = np.mean([part["seconds"] for part in found])
            cells = [name, found[0]["network"], len(found), lowest, f"{scores.mean():.1f}", warned, f"{seconds:.1f}"]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
