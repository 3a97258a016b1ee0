"""Notes on integers that are identifiers, and on absurd cells: in runs, living models and data frames."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from metareplay import ContinualClassifier
from metareplay.benchmarks.own import own_benchmark
from metareplay.data import reading
from metareplay.data.settings import DataSettings
from metareplay.errors import DataWarning
from metareplay.living.changes import new_model
from metareplay.living.learning import Terms, add_tasks

ROWS = 60
QUICK = {"training.iterations": 3, "inference.samples": 2}


def frame(**columns: Any) -> pd.DataFrame:
    """Rows of two months, in order."""
    rng = np.random.default_rng(0)
    rest = {"a": rng.normal(size=ROWS).round(3), "label": np.tile(["x", "y"], ROWS // 2)}
    return pd.DataFrame({**columns, **rest, "task": np.repeat(["2024-01", "2024-02"], ROWS // 2)})


def notes(folder: Path, **columns: Any) -> list[str]:
    """What a run says about columns."""
    path = folder / "rows.csv"
    frame(**columns).to_csv(path, index=False)
    found = own_benchmark(DataSettings(path=str(path)), data_seed=1).notes
    return [note for note in found if "identifier" in note or "though half" in note]


RNG = np.random.default_rng(3)
IDENTIFIERS = {
    "rising": (1000 + 3 * np.arange(ROWS), "rise from row to row and alone tell the tasks apart"),
    "falling": (-7 * np.arange(ROWS), "fall from row to row and alone tell the tasks apart"),
    "numbers": (RNG.permutation(ROWS), "number the rows"),
    "blocks": (
        np.concatenate([RNG.permutation(30) * 997 + 10**6, RNG.permutation(30) * 983]),
        "alone tell the tasks apart",
    ),
}


@pytest.mark.parametrize("name", IDENTIFIERS)
def test_identifiers_are_noted(name: str, tmp_path: Path) -> None:
    values, ways = IDENTIFIERS[name]
    [note] = notes(tmp_path, number=values)
    assert note.startswith(f"'number' looks like an identifier: its whole numbers {ways}, so rows with later numbers")
    assert note.endswith("; --ignore number leaves it out")


ORDINARY: dict[str, Any] = {
    "age": RNG.integers(18, 90, ROWS),
    "count": RNG.poisson(3, ROWS),
    "year": np.repeat([2023, 2024], ROWS // 2),
    "income": RNG.permutation(10**6)[:ROWS],  # all different, but in no order
    "sorted age": np.sort(RNG.integers(18, 60, ROWS)),
    "measured": np.arange(ROWS) + 0.5,
    "gaps": [None, *range(1, ROWS)],
    "heavy tails": np.exp(3 * RNG.normal(size=ROWS)),
    "rare": [*np.zeros(ROWS - 1), 5e7],
    "constant": np.ones(ROWS),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_numbers_are_not_noted(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    frame(number=ORDINARY[name]).to_csv(path, index=False)
    found = own_benchmark(DataSettings(path=str(path), missing="fill"), data_seed=1).notes
    assert not [note for note in found if "'number'" in note]


def test_few_rows_show_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    frame(number=np.arange(ROWS)).iloc[20:40].to_csv(path, index=False)
    assert not [n for n in own_benchmark(DataSettings(path=str(path)), data_seed=1).notes if "identifier" in n]


def test_large_files_are_searched_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LARGE", 1)
    [note] = notes(tmp_path, number=1000 + 3 * np.arange(ROWS), age=ORDINARY["age"])
    assert note.startswith("'number' looks like an identifier")


def test_absurd_cells_are_noted(tmp_path: Path) -> None:
    values = RNG.normal(size=ROWS).round(3)
    values[6] = 1e12
    [note] = notes(tmp_path, **{"size": values})
    assert f"{tmp_path / 'rows.csv'}, line 8: column 'size' has the value 1e+12, though half of its values" in note
    values[9] = -1e10
    assert ", and 1 more; correct it if it is a typo" in notes(tmp_path, **{"size": values})[0]


def test_a_living_model_has_its_columns_already(tmp_path: Path) -> None:
    told: list[str] = []
    path, terms = tmp_path / "rows.csv", Terms(notes=told.append)
    new_model(
        tmp_path / "shop",
        method="sp-bbb",
        network="mlp-4",
        settings=QUICK,
    )
    for start, end in (("one", "leaves it out"), ("two", "leaves it out when a new model is learned")):
        frame(number=np.arange(ROWS)).drop(columns="task").to_csv(path, index=False)
        add_tasks(tmp_path / "shop", DataSettings(path=str(path)), name=start, terms=terms)
        assert [note for note in told if "identifier" in note][-1].endswith(f"; --ignore number {end}")


def test_data_frames_warn(tmp_path: Path) -> None:
    rows = frame(number=np.arange(ROWS)).drop(columns="task")
    model = ContinualClassifier("sp-bbb", network="mlp-4", settings=QUICK)
    with pytest.warns(DataWarning, match=r"'number' looks like an identifier.*drop\(columns='number'\)"):
        model.learn_task(rows, "label")
    model.learn_task(rows, "label")  # later frames are read as the first
