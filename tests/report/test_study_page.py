"""The page of a study: what it names and draws, and what it leaves out because there is nothing to show."""

from pathlib import Path
from typing import Any

import pytest

from metareplay.report.figures.tuning import after_tasks_figure, history_figure
from metareplay.report.tuning import write_study_page


def trial(number: int, state: str = "finished", **changes: Any) -> dict[str, Any]:
    value = 90.0 + number if state == "finished" else None
    content = {
        "number": number,
        "state": state,
        "value": value,
        "settings": {"training.batch_size": 8},
        "after_tasks": [[0, 95.0], [1, 90.0]],
        "seconds": 2.0,
        "problem": "8 cannot be used" if state == "failed" else None,
        "recipe": False,
    }
    return {**content, **changes}


def study(*trials: dict[str, Any], **changes: Any) -> dict[str, Any]:
    content = {
        "benchmark": "custom",
        "subject": "sales.csv",
        "method": "pr-bbb",
        "network": "mlp-64-64",
        "protocol": "all 2 tasks; 20 % held out",
        "test_set": False,
        "figure": "final accuracy in %, with the task inferred",
        "lower_is_better": False,
        "sampler": "tpe",
        "pruning": True,
        "seed": 0,
        "source": "general defaults",
        "space_source": "space.yaml",
        "space": {"training.batch_size": {"kind": "values", "values": [8, 16]}},
        "best": max((one["number"] for one in trials if one["state"] == "finished"), default=None),
        "recipe": "method: pr-bbb",
        "importances": {},
        "trials": list(trials),
    }
    return {**content, **changes}


def page(tmp_path: Path, content: dict[str, Any]) -> str:
    return write_study_page(content, tmp_path / "report.html").read_text()


def test_settings_with_one_value_have_no_figure(tmp_path: Path) -> None:
    one = {"training.batch_size": {"kind": "values", "values": [8]}}
    assert page(tmp_path, study(trial(0), space=one)).count("<svg") == 2
    assert page(tmp_path, study(trial(0))).count("<svg") == 3


def test_the_line_of_the_best_reaches_the_last_trial() -> None:
    axes = history_figure([trial(0), trial(1), trial(2)], lower_is_better=False, figure="accuracy in %").axes[0]
    x, y = axes.lines[0].get_data()
    assert list(y)[-1] == 92.0
    assert max(x) > 2  # the step at the last trial has a length


def test_a_users_file_is_named_in_the_title(tmp_path: Path) -> None:
    assert "<h1>Settings of pr-bbb on sales.csv</h1>" in page(tmp_path, study(trial(0)))


@pytest.mark.parametrize("states", [("finished", "finished"), ("finished", "pruned", "failed")])
def test_trials_that_were_pruned_or_failed_are_mentioned_only_if_there_are_any(
    tmp_path: Path, states: tuple[str, ...]
) -> None:
    trials = [trial(number, state) for number, state in enumerate(states)]
    text = page(tmp_path, study(*trials))
    assert ("1 pruned, 1 failed; " in text) == ("pruned" in states)
    assert ("Small ticks at the bottom" in text) == ("pruned" in states)
    assert "0 more" not in text
    assert "0 pruned" not in text
    legend = after_tasks_figure(trials, 0, "accuracy in %").axes[0].get_legend()
    assert legend is not None
    labels = [entry.get_text() for entry in legend.get_texts()]
    assert labels == (["pruned", "best"] if "pruned" in states else ["finished", "best"])
