"""Draw the pictures in docs/images from finished runs of the toy problems.

    metareplay run regression-1d --method pr-bbb --seed 1 --out runs/picture-regression
    python docs/make_images.py runs/picture-regression docs/images/regression-1d

writes docs/images/regression-1d-light.svg and docs/images/regression-1d-dark.svg. Another ending as the third
argument (png) gives another format.
"""

import sys
from pathlib import Path

import numpy as np

from metareplay.report import DARK, LIGHT, Theme, regression_figure, save_figure
from metareplay.report.runs import read_run

TASKS = ("first task", "second task", "third task")


def draw(run_folder: Path, target: Path, theme: Theme) -> Path:
    """The posteriors of 1D regression in one theme."""
    arrays = read_run(run_folder).predictive()
    if arrays is None:
        raise SystemExit(f"{run_folder} has no predictive.safetensors; only runs of the toy problems have a picture")
    train = [(np.ravel(arrays[f"train_x_{task}"]), np.ravel(arrays[f"train_y_{task}"])) for task in range(len(TASKS))]
    figure = regression_figure(
        arrays["x"], arrays["mean"], arrays["std"], train, TASKS, truth=arrays["truth"], theme=theme
    )
    return save_figure(figure, target)


def main(run_folder: str, stem: str, ending: str = "svg") -> None:
    """Both themes."""
    for name, theme in (("light", LIGHT), ("dark", DARK)):
        print(draw(Path(run_folder), Path(f"{stem}-{name}.{ending}"), theme))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
