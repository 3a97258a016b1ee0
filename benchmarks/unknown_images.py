"""Whether images of one's own making are recognised as unknown by a model of split-mnist.

metareplay run split-mnist --data-dir FOLDER --out RUN
python -m benchmarks.unknown_images RUN --data-dir FOLDER

Strangeness of drawn shapes (``benchmarks/image_sets.py``, bright strokes on a dark ground; nothing was chosen by them),
of test digits that were changed as a run's report changes them, and of a blank image, against that of test digits.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.image_sets import SHAPES, drawn
from metareplay import ContinualClassifier
from metareplay.data.sources import load_mnist
from metareplay.evaluation.strangers import auroc, strangers
from metareplay.seeding import generator_for

DIGITS, PER_SHAPE, CHANGED = 2000, 125, 1000


def shapes(count: int, seed: int = 0) -> dict[str, Tensor]:
    """Drawn shapes of every kind, in [0, 1]: (N, 1, 28, 28) each."""
    random = np.random.default_rng(seed)
    return {
        shape: torch.tensor(np.stack([drawn(shape, random) for _ in range(count)])[:, None]).float() / 255
        for shape in SHAPES
    }


def strangeness(model: ContinualClassifier, x: Tensor) -> Tensor:
    """Of images, with the task unknown: (N, 1, 28, 28) -> (N,)."""
    found = model.predict_full(x.numpy()).strangeness
    assert found is not None  # split-mnist has statistics
    return torch.tensor(found)


def measured(model: ContinualClassifier, digits: Tensor) -> dict[str, tuple[float, float]]:
    """AUROC and the rejected share in percent, by kind; of the digits themselves only the latter counts."""
    known, some = strangeness(model, digits), digits[:CHANGED]
    of_shapes = {shape: strangeness(model, x) for shape, x in shapes(PER_SHAPE).items()}
    changed = strangers(some, generator_for(0, "strangers"))
    kinds: Mapping[str, Tensor] = {
        "digits": known,
        "all shapes": torch.cat(list(of_shapes.values())),
        **of_shapes,
        **{kind: strangeness(model, x) for kind, x in changed.items()},
        "blank": strangeness(model, torch.zeros(1, *digits.shape[1:])),
    }
    return {kind: (auroc(known, values), 100 * float((values > 1).double().mean())) for kind, values in kinds.items()}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    digits = load_mnist(arguments.data_dir).test_x[:DIGITS].float() / 255
    print("| images | AUROC | rejected % |\n|---|---|---|")
    few = {"inference.samples": 2}  # strangeness needs none
    model = ContinualClassifier.load(arguments.run / "model", settings=few)
    for kind, (area, rejected) in measured(model, digits).items():
        print(f"| {kind} | {'' if kind == 'digits' else f'{area:.3f}'} | {rejected:.1f} |")


if __name__ == "__main__":
    main()
