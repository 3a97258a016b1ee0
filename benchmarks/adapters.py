"""What adapters are worth where a backbone's features are not enough.

python -m benchmarks.adapters --data-dir FOLDER [--seeds 0 1] [--choose] [--backbone FOLDER]

A small vision transformer is trained on the digits 0 to 4 of MNIST. Two tasks with the digits 5 to 9 follow, turned by
90 and by 180 degrees, with 1000 training images each and 400 steps. ``--choose`` compares settings on 1000 more
training images of each task and reads no test image; without it the default settings are tested on 1000 test images of
each task.
"""

import argparse
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from metareplay import ContinualClassifier
from metareplay.data.sources import load_mnist

TASKS = {"turned by 90 degrees": 1, "turned by 180 degrees": 2}
"""Quarter turns."""
TRAINED, APART = 1000, 1000
STEPS, BATCH = 1200, 128
SETTINGS: Mapping[str, Any] = {"training.iterations": 400, "inference.samples": 10}
Images = tuple[Tensor, Tensor]


def digits(folder: Path | None, *, test: bool) -> Images:
    """Images (N, 1, 28, 28) with pixels from 0 to 1, and digits (N,)."""
    images = load_mnist(folder)
    x, y = (images.test_x, images.test_y) if test else (images.train_x, images.train_y)
    return x.float().view(-1, 1, 28, 28) / 255, y  # (N, 28, 28) -> (N, 1, 28, 28)


def trained_backbone(folder: Path, images: Images) -> None:
    """Train the transformer on the digits 0 to 4, and store it as transformers do."""
    import transformers

    torch.manual_seed(0)
    model = transformers.ViTModel(
        transformers.ViTConfig(
            hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128, image_size=28,
            patch_size=7, num_channels=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        ),
        add_pooling_layer=False,
    )  # fmt: skip
    head, (x, y) = nn.Linear(64, 5), images
    x, y = x[y < 5], y[y < 5]
    parameters = [*model.parameters(), *head.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=STEPS)
    for _ in range(STEPS):
        rows = torch.randint(len(x), (BATCH,))
        features = model(pixel_values=(x[rows] - 0.5) / 0.5).last_hidden_state[:, 0]  # (B, 64)
        loss = nn.functional.cross_entropy(head(features), y[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    model.save_pretrained(folder)


def task_images(images: Images, turns: int, rows: slice) -> tuple[np.ndarray, np.ndarray]:
    """Some images of the digits 5 to 9, turned."""
    x, y = images
    x, y = x[y >= 5][rows], y[y >= 5][rows]
    return x.rot90(turns, (2, 3)).numpy(), np.array([f"{digit} by {turns}" for digit in y.tolist()])


def figures(
    network: str, train: Images, tested: Images, rows: slice, seed: int, settings: Mapping[str, Any], method: str
) -> tuple[list[float], float, float]:
    """Accuracy in percent of every task if it is known, and of all if it is not; processor seconds of training."""
    model, begun = (
        ContinualClassifier(method, network, seed=seed, settings={**SETTINGS, **settings}),
        time.process_time(),
    )
    for name, turns in TASKS.items():
        model.learn_task(*task_images(train, turns, slice(0, TRAINED)), name=name)
    seconds, given, inferred = time.process_time() - begun, [], []
    for name, turns in TASKS.items():
        x, y = task_images(tested, turns, rows)
        given.append(100 * model.score(x, y, task=name))
        inferred.append(100 * model.score(x, y))
    return given, sum(inferred) / len(inferred), seconds


class Way(NamedTuple):
    """What is compared."""

    words: str
    network: str
    method: str = "pr-bbb"
    settings: Mapping[str, Any] = {}


def compare(folder: Path, data: Path | None, seeds: Sequence[int], ways: Sequence[Way], *, test: bool) -> None:
    """Print a row for every way."""
    train = digits(data, test=False)
    if not (folder / "config.json").exists():
        trained_backbone(folder, train)
    tested, rows = (digits(data, test=True), slice(0, APART)) if test else (train, slice(TRAINED, TRAINED + APART))
    print(f"| network | {' | '.join(TASKS)} | task inferred | training, processor seconds |")
    print(f"|{'---|' * (len(TASKS) + 3)}")
    for words, network, method, settings in ways:
        runs = [figures(network.format(folder), train, tested, rows, seed, settings, method) for seed in seeds]
        given = np.mean([run[0] for run in runs], axis=0)
        cells = [*(f"{value:.1f}" for value in given), f"{np.mean([run[1] for run in runs]):.1f}"]
        print(f"| {words} | {' | '.join(cells)} | {np.mean([run[2] for run in runs]):.0f} |", flush=True)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--backbone", type=Path, help="folder of a backbone that was trained before, or to keep it in")
    parser.add_argument("--choose", action="store_true", help="compare settings, on training images")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    frozen, adapted = "features:{}", "adapters:{}"
    ways = [
        Way("features, linear layer", frozen),
        Way("features, mlp-100", frozen + "+mlp-100"),
        Way("adapters, linear layer", adapted),
    ]
    if options.choose:
        chunked = {"hypernet.kind": "chunked", "training.learning_rate": 0.005}
        ways.append(Way("adapters, linear layer, chunked hypernetwork", adapted, settings=chunked))
    with tempfile.TemporaryDirectory() as place:
        compare(options.backbone or Path(place), options.data_dir, options.seeds, ways, test=not options.choose)


if __name__ == "__main__":
    main()
