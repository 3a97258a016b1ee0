"""A note where dates alone tell tasks apart: in runs, and in models that learn task after task."""

from pathlib import Path
from typing import Any

import pytest

from metareplay.benchmarks.own import own_benchmark
from metareplay.data.periods import joint_period, separating_dates
from metareplay.data.settings import DataSettings
from metareplay.errors import CheckpointError
from metareplay.learner.history import HistoryEntry, read_entries
from metareplay.living.changes import new_model, rename_task
from metareplay.living.learning import Terms, add_tasks, update_task

NOTE = "the dates in 'sold' alone tell the tasks apart, so rows with later dates will look unknown; --ignore sold"
QUICK = {"training.iterations": 3, "inference.samples": 2}


def write(path: Path, months: dict[str, str], count: int = 12) -> Path:
    """A table with a date column; the dates of each task lie in the month that it is given."""
    lines = ["colour,sold,a,label,task"]
    for task, month in months.items():
        lines += [
            f"{'red' if row % 3 else 'blue'},{month}-0{row % 3 + 1},{row % 5},{'xy'[row % 2]},{task}"
            for row in range(count)
        ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_run_says_when_dates_alone_tell_tasks_apart(tmp_path: Path) -> None:
    def notes(months: dict[str, str], **settings: Any) -> tuple[str, ...]:
        path = write(tmp_path / "rows.csv", months)
        return own_benchmark(DataSettings(path=str(path), **settings), data_seed=1).notes

    apart = {"north": "2024-01", "south": "2023-02", "west": "2024-03"}
    assert [note for note in notes(apart) if "tell the tasks apart" in note] == [f"{NOTE} leaves it out"]
    assert not any("tell the tasks apart" in note for note in notes({**apart, "east": "2024-03"}))
    assert not any("tell the tasks apart" in note for note in notes(apart, ignore="sold"))
    assert not any("tell the tasks apart" in note for note in notes(apart, tasks_by="sold", ignore="task"))


def test_missing_dates_are_in_no_period(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", {"north": "2024-01", "south": "2024-02"})
    path.write_text(path.read_text().replace("2024-01-02", ""))
    notes = own_benchmark(DataSettings(path=str(path), missing="fill"), data_seed=1).notes
    assert any(note.startswith(NOTE) for note in notes)


def test_a_model_remembers_the_periods_of_its_tasks(tmp_path: Path) -> None:
    told: list[str] = []
    terms, shop = Terms(notes=told.append), tmp_path / "shop"

    def data(month: str) -> DataSettings:
        return DataSettings(path=str(write(tmp_path / f"{month}.csv", {"any": month})))

    new_model(shop, method="sp-bbb", network="mlp-4", settings=QUICK)
    add_tasks(shop, data("2024-01"), name="north", terms=terms)
    assert not any(note.startswith(NOTE) for note in told)  # there is nothing to tell apart yet
    rename_task(shop, "north", "first")
    add_tasks(shop, data("2024-02"), name="south", terms=terms)
    assert [note for note in told if note.startswith(NOTE)] == [f"{NOTE} leaves it out when a new model is learned"]
    told.clear()
    update_task(shop, data("2024-06"), name="first", terms=terms)
    add_tasks(shop, data("2024-03"), name="west", terms=terms)
    assert not any(note.startswith(NOTE) for note in told)  # within the period of the updated task
    assert [entry.facts.get("periods", {}).get("sold") for entry in read_entries(shop)] == [
        *(["2024-01-01", "2024-01-03"], None, ["2024-02-01", "2024-02-03"]),
        *(["2024-01-01", "2024-06-03"], ["2024-03-01", "2024-03-03"]),
    ]


def test_tasks_that_are_added_together_are_compared(tmp_path: Path) -> None:
    told: list[str] = []
    path = write(tmp_path / "rows.csv", {"north": "2024-01", "south": "2024-02"})
    new_model(tmp_path / "shop", method="sp-bbb", network="mlp-4", settings=QUICK)
    add_tasks(tmp_path / "shop", DataSettings(path=str(path)), terms=Terms(notes=told.append))
    assert f"{NOTE} leaves it out" in told


def test_periods() -> None:
    one, two = {"a": ("2024-01-01", "2024-01-31")}, {"a": ("2024-01-31", "2024-02-01")}
    assert separating_dates([one, two]) == separating_dates([one]) == separating_dates([one, {}]) == []
    assert separating_dates([{"a": ("2024-02-01", "2024-03-01")}, one]) == ["a"]
    assert joint_period(("2024-01-05", "2024-01-06"), ("2024-01-01", "2024-01-02")) == ("2024-01-01", "2024-01-06")


@pytest.mark.parametrize("periods", [[], {"sold": "2024-01-01"}, {"sold": ["2024-01-01"]}, {"sold": [1, 2]}])
def test_damaged_periods_are_refused(periods: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="periods must name the first and last day"):
        HistoryEntry(verb="add-task", facts={"periods": periods})
    (tmp_path / "history.json").write_text('[{"verb": "add-task", "facts": {"periods": 3}}]')
    with pytest.raises(CheckpointError, match="damaged"):
        read_entries(tmp_path)
