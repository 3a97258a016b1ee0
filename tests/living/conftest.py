"""Small tables that come month by month, and a model that has learned two of them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metareplay.data.settings import DataSettings
from metareplay.living.changes import new_model
from metareplay.living.learning import add_tasks

PLACES = {"pen": (0.0, 0.0), "cup": (4.0, 0.0), "hat": (0.0, 4.0), "mug": (4.0, 4.0)}
TINY = {
    "training.iterations": 30,
    "training.checkpoint_every": 5,
    "inference.samples": 3,
    "hypernet.hidden": [6],
    "hypernet.task_embedding_size": 3,
    "hypernet.chunk_embedding_size": 2,
}
MONTHS = {"january": ("pen", "cup"), "february": ("pen", "hat"), "march": ("cup", "mug")}


def rows(month: str, labels: tuple[str, ...], seed: int, count: int = 30) -> list[str]:
    rng = np.random.default_rng(seed)
    chosen = [labels[index % len(labels)] for index in range(count)]
    x = np.array([PLACES[label] for label in chosen]) + 0.4 * rng.standard_normal((count, 2))
    return [f"{a:.4f},{b:.4f},{label},{month}" for (a, b), label in zip(x, chosen, strict=True)]


def write(path: Path, *parts: list[str]) -> Path:
    path.write_text("\n".join(["price,weight,product,task", *(row for part in parts for row in part)]) + "\n")
    return path


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table for each month, all of them in year.csv; more of january in late.csv, a class new to it in mugs.csv."""
    folder = tmp_path_factory.mktemp("tables")
    parts = {month: rows(month, labels, seed) for seed, (month, labels) in enumerate(MONTHS.items())}
    for month, part in parts.items():
        write(folder / f"{month}.csv", part)
    write(folder / "year.csv", *parts.values())
    write(folder / "late.csv", rows("january", ("pen", "cup"), 7))
    write(folder / "mugs.csv", rows("january", ("mug",), 8))
    return folder


@pytest.fixture(scope="session")
def tiny() -> dict[str, Any]:
    """Settings with which a task is learned in a fraction of a second."""
    return TINY


@pytest.fixture(scope="session")
def data(tables: Path) -> Callable[[str], DataSettings]:
    """How a table is read."""
    return lambda name: DataSettings(path=str(tables / f"{name}.csv"), label="product")


@pytest.fixture(scope="session")
def two_months(tmp_path_factory: pytest.TempPathFactory, data: Callable[[str], DataSettings]) -> Path:
    """A model of january and february; not to be changed."""
    folder = tmp_path_factory.mktemp("living") / "shop"
    new_model(folder, network="mlp-4", settings=TINY)
    for month in ("january", "february"):
        add_tasks(folder, data(month), name=month)
    return folder


@pytest.fixture
def shop(two_months: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(two_months, tmp_path / "shop"))
