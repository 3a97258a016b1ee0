"""Figures of continual learning on pages, in the terminal and in records."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metareplay.experiments.results import Results
from metareplay.report.continual import CONTINUAL, cadence, continual_line
from metareplay.report.records import read_records, record_runs
from metareplay.report.records.base import Figure
from metareplay.report.tables import parameters_line

FIGURES = {
    "average_incremental": 97.25,
    "average_incremental_inferred": 81.5,
    "forgetting_inferred": 12.5,
    "backward_transfer_inferred": -15.625,
    "forward_transfer": 1.75,
    "intransigence": -0.25,
    "joint": "random forest",
    "minimum_accuracy": 88.75,
    "stability_gap": 3.375,
    "calibration_error_by_task": [1.25, 2.5, 3.0, 4.0, 5.0],
    "nll_by_task": [0.125, 0.25, 0.375, 0.5, 0.625],
    "model_bytes": [2048, 3072, 4096, 5120, 6144],
    "test_inputs": 60,
    "test_every": 25,
}
SHOWN = ("97.25", "81.50", "12.50", "-15.62", "1.75", "-0.25", "88.75", "3.38")
"""All of them with two digits."""
Make = Callable[..., dict[str, Any]]


def test_a_page_has_every_figure_its_meaning_and_the_cadence(
    report: Callable[..., Any], make_lean_run: Callable[..., Path], make_lean_results: Make, tmp_path: Path
) -> None:
    run = make_lean_run("run", make_lean_results(continual=FIGURES))
    text = report([run], tmp_path / "page.html").visible
    assert [shown for shown in SHOWN if shown not in text] == []
    assert [each.meaning for each in CONTINUAL if each.meaning not in text] == []
    assert "tracked on 60 test inputs of each task, old ones every 25 steps of a new one" in text
    assert "Intransigence is against: random forest" in text
    assert all(word in text for word in ("1.25", "0.125", "2 KiB"))


def test_methods_are_side_by_side(
    report: Callable[..., Any], make_lean_run: Callable[..., Path], make_lean_results: Make, tmp_path: Path
) -> None:
    make_lean_run("runs/vcl", make_lean_results("vcl", continual=FIGURES))
    make_lean_run("runs/er", make_lean_results("er", continual={"average_incremental": 55.5}))
    text = report([tmp_path / "runs"], tmp_path / "page.html").text
    table = text.partition("<summary>More figures of continual learning")[2].partition("</details>")[0]
    assert table.count("<tr") == 3
    assert all(shown in table for shown in (*SHOWN, "55.50", "—"))
    assert "Minimum accuracy: Lowest accuracy of each old task" in table


def test_the_terminal_says_what_was_tracked_and_how_often(make_lean_results: Make) -> None:
    tracked = Results.model_validate(make_lean_results(continual=FIGURES))
    line = continual_line([tracked])
    assert line is not None
    assert line.startswith("tracked on 60 test inputs of each task, old ones every 25 steps of a new one: average")
    assert "stability gap 3.38" in line
    untracked = FIGURES | {"test_inputs": None, "test_every": None}
    assert continual_line([Results.model_validate(make_lean_results(continual=untracked))]) is None


def test_errors_are_not_called_accuracies(make_regression_results: Make) -> None:
    figures = {"average_incremental": 0.02, "test_inputs": 10}
    assert continual_line([Results.model_validate(make_regression_results(continual=figures))]) is None


@pytest.mark.parametrize(
    ("inputs", "every", "words"),
    [
        (1, None, "tracked on 1 test input of each task"),
        (5, 1, "tracked on 5 test inputs of each task, old ones every step of a new one"),
        (5, 1000, "tracked on 5 test inputs of each task, old ones every 1,000 steps of a new one"),
    ],
)
def test_the_cadence_in_words(inputs: int, every: int | None, words: str, make_lean_results: Make) -> None:
    figures = {"test_inputs": inputs, "test_every": every}
    assert cadence([Results.model_validate(make_lean_results(continual=figures))]) == words


def test_records_have_them(make_run: Callable[..., Path], make_results: Make, tmp_path: Path) -> None:
    record_runs(tmp_path / "records", [make_run("run", make_results(continual=FIGURES))])
    (recorded,) = read_records(tmp_path / "records").values()
    figures = recorded.rows[0].figures
    assert figures["continual.stability_gap"] == Figure(value=3.375, unit="%")
    assert sum(name.startswith("continual.") for name in figures) == len(CONTINUAL)


def test_memory_includes_what_is_kept_besides(
    report: Callable[..., Any], make_lean_run: Callable[..., Path], make_lean_results: Make, tmp_path: Path
) -> None:
    counts = {"main_network": 1000, "posterior": 1000, "trained": 1000, "per_task": 0}
    results = make_lean_results("er", parameters=counts | {"kept": 2500})
    runs = [make_lean_run("runs/er", results), make_lean_run("runs/si", make_lean_results("si", parameters=counts))]
    assert "2,500 numbers kept (examples," in str(parameters_line(Results.model_validate(results)))
    alone = report(runs[:1], tmp_path / "one.html").visible
    assert "3.50× 1,000 numbers are trained for all tasks, and 2,500 kept besides (examples," in alone
    both = report([tmp_path / "runs"], tmp_path / "both.html").text
    assert 'data-label="Memory ×">3.50</td>' in both
    assert 'data-label="Memory ×">1.00</td>' in both
