"""What people ask of a page: is it good, compared with what, which label is mistaken, what went wrong."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metareplay.experiments.results import Results
from metareplay.report.base import show_number
from metareplay.report.labels import label_rows
from metareplay.report.runs import FinishedRun, Group
from metareplay.report.verdict import verdict

Make = Callable[..., dict[str, Any]]
CHANCE = {"known": 50.0, "inferred": 10.0, "by_task": [50.0] * 5}
REFERENCES = {
    "joint": {
        "model": "random forest",
        "score": 97.6,
        "known": 99.5,
        "by_task": [97.0, 98.0, 97.0, 98.0, 98.0],
        "rows": 5000,
        "of_rows": 60000,
    },
    "last_task": {"model": "random forest", "score": 19.9, "by_task": [0.0] * 4 + [99.5], "rows": 236, "of_rows": 236},
}


def group_of(*results: dict[str, Any]) -> Group:
    runs = [FinishedRun(Path("run"), Results.model_validate(each), None, {}, []) for each in results]
    return Group(str(results[0]["method"]), tuple(runs))


def words(group: Group) -> str:
    return re.sub("<[^>]*>", " ", verdict(group)).strip()


@pytest.fixture
def make_known(make_lean_results: Make, add_statistics: Callable[..., dict[str, Any]]) -> Make:
    """A run with everything that a page compares."""

    def make(**changes: Any) -> dict[str, Any]:
        results = add_statistics(make_lean_results(chance=CHANCE, references=REFERENCES, forgetting=0.0))
        results["unknown"]["auroc"] = {"noise": 0.999}
        return results | {"tgiven_final": 99.3, "tinfer_final": {"stats": 98.0}} | changes

    return make


def test_a_good_run_is_called_good_in_one_sentence(make_known: Make) -> None:
    found = verdict(group_of(make_known()))
    assert '<p class="verdict good">' in found
    assert words(group_of(make_known())) == (
        "Learned 5 tasks: 99.3 % right if the task is known; 98.0 % if it is inferred (guessing: 10.0 %, random forest "
        "of all tasks at once: 97.6 %); nothing was forgotten; unknown inputs are recognised (AUROC at least 0.99)."
    )


@pytest.mark.parametrize(
    ("changes", "said", "grade"),
    [
        ({"tinfer_final": {"stats": 54.0}}, "but only 54.0 % if it is inferred", "mixed"),
        ({"tinfer_final": {"stats": 12.0}}, "but 12.0 % if it is inferred, hardly better than guessing", "poor"),
        ({"tgiven_final": 52.0}, "Has hardly learned its 5 tasks: 52.0 % right", "poor"),
        ({"forgetting": 31.0}, "31.0 points were forgotten", "poor"),
        ({"forgetting": 2.0}, "little was forgotten (2.0 points)", "good"),
        ({"unknown": {"auroc": {"far": 0.6}}}, "not reliably recognised (AUROC 0.60 against far)", "mixed"),
        ({"unknown": None}, "nothing was forgotten.", "good"),
        (
            {"unknown": {"auroc": {"far": 0.99, "mixed rows": 0.57}}},
            "(AUROC at least 0.99; 0.57 against rows whose columns come from different rows, which may be ordinary",
            "good",
        ),
        ({"unknown": {"auroc": {"rotated": 0.5}}}, "nothing was forgotten.", "good"),
        ({"tgiven_final": 13.0, "tinfer_final": {"stats": 12.0}}, "; 12.0 % if it is inferred, hardly better", "poor"),
    ],
)
def test_what_is_bad_is_said(changes: dict[str, Any], said: str, grade: str, make_known: Make) -> None:
    group = group_of(make_known(**changes))
    assert said in words(group)
    assert f'class="verdict {grade}"' in verdict(group)


@pytest.mark.parametrize(
    ("inferred", "said", "grade"),
    [
        (87.2, "each; 87.2 % right if the task is inferred (guessing: 25.0 %, random forest", "mixed"),
        (96.0, "each; 96.0 % right if the task is inferred (guessing: 25.0 %, random forest", "good"),
        (
            26.0,
            "each; 26.0 % right if the task is inferred, hardly better than guessing (guessing: 25.0 %, random forest",
            "poor",
        ),
    ],
)
def test_tasks_of_one_class_are_judged_with_the_task_inferred(
    inferred: float, said: str, grade: str, make_known: Make
) -> None:
    single = {"known": 100.0, "inferred": 25.0, "by_task": [100.0] * 5}
    group = group_of(make_known(chance=single, tgiven_final=100.0, tinfer_final={"stats": inferred}))
    assert f"Learned 5 tasks with a single class {said}" in words(group)
    assert "forgotten" not in words(group)  # it could not be
    assert f'class="verdict {grade}"' in verdict(group)
    nothing = make_known(chance=single | {"inferred": 100.0}, tgiven_final=100.0, unknown=None)
    assert words(group_of(nothing)) == "Learned 5 tasks with a single class each."


def without_task(results: dict[str, Any]) -> dict[str, Any]:
    """One network for tasks that share all classes: there is no task to infer."""
    labels = {"labels": ["no", "yes"], "confusion": [[3, 1], [0, 4]], "task_known": False}
    gone = {"tinfer_final": {"stats": None}, "batch_wise": None, "task_inference_accuracy": {}, "label_accuracy": None}
    gone |= {"task_confusion": {}, "default_criterion": None, "task_probabilities": None, "labels": labels}
    return results | gone | {"scenario": "domain", "method": "exp-replay"}


def test_a_method_that_needs_no_task_is_compared_by_its_only_answer(
    make_known: Make, make_lean_run: Callable[..., Path], report: Callable[..., Any], tmp_path: Path
) -> None:
    chance = {"known": 50.0, "inferred": 50.0, "by_task": [50.0] * 5}
    alone = without_task(make_known(tgiven_final=91.0, unknown=None, chance=chance))
    said = "91.0 % right whether or not the task is known (guessing: 50.0 %, random forest of all"
    assert f"Learned 5 tasks; {said}" in words(group_of(alone))
    poor = without_task(make_known(tgiven_final=52.0, unknown=None, chance=chance))
    assert "Has hardly learned its 5 tasks; 52.0 % right whether or not" in words(group_of(poor))
    given = group_of(without_task(make_known()) | {"labels": None})  # its task has to be known
    assert "99.3 % right if the task is known" in words(given)
    folders = [
        make_lean_run("one", make_known(scenario="domain", tgiven_final=89.0, tinfer_final={"stats": 93.0})),
        make_lean_run("two", alone),
    ]
    (folders[1] / "config.yaml").write_text("strategy: {coreset_size: 100}\n")
    page = report(folders, tmp_path / "report.html")
    assert "Highest: task inferred TInfer-Final, stats 93.00 % pr-bbb" in page.visible
    assert "Highest: task known TGiven-Final 91.00 % exp-replay" in page.visible
    assert "Same answer with and without the task: exp-replay." in page.visible
    assert "none where rows of old tasks were not counted" in page.visible


def test_one_method_on_two_benchmarks_is_named(
    make_known: Make, make_lean_run: Callable[..., Path], report: Callable[..., Any], tmp_path: Path
) -> None:
    folders = [make_lean_run(name, make_known(benchmark=name)) for name in ("custom:one", "custom:two")]
    page = report(folders, tmp_path / "report.html")
    assert "pr-bbb on custom:one, custom:two" in page.visible
    assert "2 methods" not in page.visible


def test_regression_is_judged_by_explained_variance(
    make_regression_results: Make, add_statistics: Callable[..., dict[str, Any]]
) -> None:
    results = add_statistics(make_regression_results(chance={"inferred": 0.0111, "known": 0.01, "by_task": []}))
    assert "R² 0.7" in words(group_of(results))
    assert "0.50 if it is inferred" in words(group_of(results))  # 1 - 0.00555 / 0.0111
    hardly = results | {"mse": results["mse"] | {"tgiven_final": 0.012}}
    assert "Has hardly learned its 3 tasks: R² -0.08" in words(group_of(hardly))


def test_warnings_of_the_run_are_shown_and_tasks_at_chance_are_named(make_known: Make) -> None:
    warned = make_known(warnings=[{"task": "0/1", "kind": "chance", "text": "it ended at chance; <try> more"}])
    assert '<ul class="warning"><li>Task 0/1: it ended at chance; &lt;try&gt; more</li></ul>' in verdict(
        group_of(warned)
    )
    matrix = make_known()["tgiven_matrix"]
    unlearned = make_known(tgiven_matrix=[*matrix[:-1], [50.2, *matrix[-1][1:]]])
    said = "hardly better than always giving the most frequent label: 0/1."
    assert said in words(group_of(unlearned))
    assert "always giving" not in words(group_of(make_known()))
    jumped = {"task": "0/1", "kind": "jump", "text": "its loss jumped"}
    assert said in words(group_of(unlearned | {"warnings": [jumped]}))
    assert said not in words(group_of(unlearned | {"warnings": [jumped | {"kind": "chance"}]}))
    assert 'class="verdict good"' in verdict(group_of(make_known(warnings=[jumped])))
    for found in (unlearned, make_known(warnings=[jumped | {"kind": "chance"}])):
        assert 'class="verdict mixed"' in verdict(group_of(found))


def test_every_accuracy_stands_beside_simple_models(
    make_known: Make, make_lean_run: Callable[..., Path], report: Callable[..., Any], tmp_path: Path
) -> None:
    page = report([make_lean_run("run", make_known())], tmp_path / "report.html")
    beside = page.visible[page.visible.index("Compared with simple models") :]
    assert beside.startswith(
        "Compared with simple models Task unknown Accuracy, mean over tasks pr-bbb 98.0 % Random forest of "
        "all tasks at once 5,000 of 60,000 rows 97.6 % Random forest of the last task 236 rows 19.9 % Guessing the "
        "most frequent label 10.0 %"
    )
    assert "Random forest of all tasks at once 99.5 %" in beside
    assert "Change All at once Last task Guessing" in " ".join(beside.replace("↕", "").split())
    without = report([make_lean_run("old", make_known(references=None, chance=None))], tmp_path / "old.html")
    assert "Compared with simple models" not in without.visible


def test_a_comparison_has_the_same_numbers_in_cards_plot_and_table(
    make_known: Make, make_lean_run: Callable[..., Path], report: Callable[..., Any], tmp_path: Path
) -> None:
    shared = {"tinfer_final": {"softmax": 87.2}, "default_criterion": None, "task_inference_accuracy": None}
    folders = [
        make_lean_run("one", make_known(tinfer_final={"stats": 42.34, "ent": 45.0})),
        make_lean_run("two", make_known(method="exp-replay", batch_wise=None, **shared)),
    ]
    page = report(folders, tmp_path / "report.html")
    assert "Highest: task inferred TInfer-Final, stats 87.20 % exp-replay" in page.visible
    assert '87.20<span class="meaning">by softmax</span>' in page.text
    rows = re.findall(r"<tr><th[^>]*>(Random[^<]*|Guessing)</th>(.*?)</tr>", page.text)
    figures = [re.findall(r">(\d+\.\d\d)<", cells) for _, cells in rows[:3]]
    assert figures == [["97.60", "99.50"], ["19.90"], ["10.00", "50.00"]]


def test_labels_have_recall_precision_and_what_they_are_mistaken_for() -> None:
    rows = label_rows(["cat", "dog", "eel"], np.array([[8, 2, 0], [0, 10, 0], [0, 0, 0]]))
    assert [(row.recall, row.inputs, row.confused_with) for row in rows[:2]] == [
        (80.0, 10, "dog (20 %)"),
        (100.0, 10, ""),
    ]
    assert [round(row.precision, 1) for row in rows[:2]] == [100.0, 83.3]
    assert np.isnan([rows[2].recall, rows[2].precision]).all()


def test_labels_are_drawn_and_listed_and_many_are_folded(
    make_known: Make, make_lean_run: Callable[..., Path], report: Callable[..., Any], tmp_path: Path
) -> None:
    few = {"labels": ["<cat>", "dog"], "confusion": [[8, 2], [0, 10]]}
    page = report([make_lean_run("few", make_known(labels=few))], tmp_path / "few.html")
    assert "Which label is it?" in page.visible
    assert "<cat> 80.00 100.00 10 dog (20 %)" in page.visible
    many = {"labels": [str(label) for label in range(70)], "confusion": np.eye(70, dtype=int).tolist()}
    larger = report([make_lean_run("many", make_known(labels=many))], tmp_path / "many.html")
    assert "Each of the 70 labels" in larger.visible
    assert larger.count("svg") == page.count("svg") - 1  # too many to draw


@pytest.mark.parametrize(("trained", "shown"), [(24960, True), (5 * 35620 + 1, False)])
def test_memory_is_shown_where_it_is_saved(
    trained: int,
    shown: bool,
    make_known: Make,
    make_lean_run: Callable[..., Path],
    report: Callable[..., Any],
    tmp_path: Path,
) -> None:
    results = make_known(parameters={"main_network": 17810, "posterior": 35620, "trained": trained})
    page = report([make_lean_run("run", results)], tmp_path / "report.html")
    assert ("Memory 0.70×" in page.visible) == shown
    assert ("Stored per task 6 KiB" in page.visible) != shown


def test_right_labels_lead_where_tasks_share_them(
    make_known: Make, make_lean_run: Callable[..., Path], report: Callable[..., Any], tmp_path: Path
) -> None:
    results = make_known(label_accuracy={"stats": 91.25}, answers={"label_accuracy": 91.25, "calibration_error": 3.5})
    assert "91.2 % if it is inferred" in words(group_of(results))
    page = report([make_lean_run("run", results)], tmp_path / "report.html")
    assert "Right label task inferred, stats 91.25 %" in page.visible
    assert "Label probabilities ECE 3.50 %" in page.visible


def test_intervals_are_shown_and_judged(make_regression_results: Make) -> None:
    chance = {"inferred": 0.0111, "known": 0.01, "by_task": []}
    for inside, grade in ((94.0, "good"), (10.0, "mixed")):
        found = verdict(group_of(make_regression_results(chance=chance, answers={"coverage": inside})))
        assert f"95 % intervals contain {inside:.0f} % of the targets" in found
        assert grade == "good" or f'class="verdict {grade}"' in found
    for inside, rows, wide in ((99.2, 500, True), (99.2, 100, False), (100.0, 120, True), (100.0, 60, False)):
        results = make_regression_results(chance=chance, answers={"coverage": inside, "rows": rows})
        assert ("so they are too wide" in verdict(group_of(results))) == wide
    assert "too wide" not in verdict(group_of(make_regression_results(chance=chance, answers={"coverage": 100.0})))


def test_regressions_have_simple_models_with_the_task_known_too(
    make_regression_results: Make, make_lean_run: Callable[..., Path], report: Callable[..., Any], tmp_path: Path
) -> None:
    joint = {"model": "ridge regression", "score": 0.002, "by_task": [0.002] * 3, "rows": 60, "of_rows": 60}
    chance = {"inferred": 0.01, "known": 0.008, "by_task": [0.008] * 3}
    results = make_regression_results(chance=chance, references={"joint": joint})
    page = report([make_lean_run("run", results)], tmp_path / "report.html")
    known = page.visible[page.visible.index("Task known R², the share") :]
    assert "explained; simple models are not told the task" in known
    assert "Ridge regression of all tasks at once RMSE 0.0447 0.800" in known


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (44321.0, "44,300"),
        (0.5, "0.500"),
        (9.996, "10.0"),
        (0.0745, "0.0745"),
        (0.0, "0"),
        (3e-7, "3e-07"),
        (-2, "-2.00"),
    ],
)
def test_errors_have_three_digits(value: float, shown: str) -> None:
    assert show_number(value, "mse") == shown
