"""The page: complete, self-contained, escaped, and clear about what is missing."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metareplay.report import write_report

Results = Callable[..., dict[str, Any]]
MakeRun = Callable[..., Path]
Report = Callable[[list[Path], Path], Any]

EVIL = "<script>alert('x')</script>&\"$x$"


@pytest.fixture(scope="module")
def page(
    report: Report, tmp_path_factory: pytest.TempPathFactory, write_run: Callable[..., Path], make_results: Results
) -> Any:
    """The page of one whole run."""
    folder = tmp_path_factory.mktemp("page")
    return report([write_run(folder / "run", make_results())], folder / "report.html")


def test_a_run_has_cards_tables_pictures_and_the_way_to_repeat_it(
    report: Report, make_run: MakeRun, make_results: Results, tmp_path: Path
) -> None:
    results = make_results()
    page = report([make_run("run", results)], tmp_path / "report.html")
    for value in (
        results["tgiven_final"],
        results["forgetting"],
        *results["tinfer_final"].values(),
        *results["batch_wise"].values(),
    ):
        assert f"{value:.2f}" in page.visible
    for words in (
        "pr-bbb on split-digits",
        "Accuracy on all tasks after the last one",
        "24,960 numbers are trained",
        "12.3 s",
        "0.70×",
    ):
        assert words in page.visible
    titles = ("Learning curves", "Memory over time", "Tasks inferred by ent", "Tasks inferred by ku")
    assert all(title in page.visible for title in titles)
    assert page.count("svg") == 3  # curves, matrix and the confusion of the headline
    assert page.text.count('<table class="heat">') == 3  # confusions by the other criteria
    assert f"metareplay run --config {tmp_path}/run/config.yaml --out repeated" in page.visible
    assert "learning_rate: 0.001" in page.visible
    assert "2.13.0" in page.visible


def test_the_page_fetches_nothing(page: Any) -> None:
    assert "http://" not in page.text
    assert "https://" not in page.text
    assert "@import" not in page.text
    assert not {tag for tag, _ in page.tags} & {"link", "iframe", "object", "embed", "base"}
    references = page.attributes("src") + page.attributes("href") + page.attributes("xlink:href")
    assert all(reference.startswith(("#", "data:")) for reference in references)
    assert any("default-src 'none'" in content for content in page.attributes("content"))


def test_the_page_fits_light_dark_and_phones(page: Any) -> None:
    assert "prefers-color-scheme: dark" in page.text
    assert "width=device-width, initial-scale=1" in page.attributes("content")
    assert "max-width: 520px" in page.text
    assert ("html", {"lang": "en"}) in page.tags
    assert len(page.attributes("viewbox")) == page.count("svg", role="img") == 3


def test_ids_are_unique_and_every_reference_has_its_target(
    report: Report, make_run: MakeRun, make_lean_results: Results, tmp_path: Path
) -> None:
    folders = [make_run(name, make_lean_results(name)) for name in ("pr-bbb", "vcl")]
    page = report(folders, tmp_path / "report.html")
    ids = page.attributes("id")
    assert len(ids) == len(set(ids)) > 50
    assert set(re.findall(r"(?:url\(#|href=\"#)([^\")]+)", page.text)) <= set(ids)


def test_the_same_runs_give_the_same_page(make_lean_run: MakeRun, make_lean_results: Results, tmp_path: Path) -> None:
    folder = make_lean_run("run", make_lean_results())
    assert (
        write_report([folder], tmp_path / "a.html").read_bytes()
        == write_report([folder], tmp_path / "b.html").read_bytes()
    )


def test_everything_foreign_is_escaped(
    report: Report, make_run: MakeRun, make_results: Results, tmp_path: Path
) -> None:
    results = make_results(
        benchmark=EVIL, method=EVIL, network=EVIL, scenario=EVIL, environment={EVIL: EVIL, "list": [EVIL]}
    )
    results["task_names"] = [EVIL, *results["task_names"][1:]]
    for key in ("tinfer_final", "task_inference_accuracy", "batch_wise"):
        results[key][EVIL] = 50.0
    results["task_confusion"][EVIL] = results["task_confusion"]["ent"]
    first = make_run("run", results, {EVIL: EVIL, "strategy": {"name": EVIL}})
    second = make_run("other <b>", make_results(EVIL, benchmark="two"), {EVIL: 1})
    for folders in ([first], [first, second]):
        page = report(folders, tmp_path / "report.html")
        assert page.count("script") == 1
        assert "<script>alert" not in page.text
        assert EVIL in page.visible


def test_tables_can_be_sorted(report: Report, make_lean_run: MakeRun, make_results: Results, tmp_path: Path) -> None:
    page = report([make_lean_run("run", make_results("pr-dirac"))], tmp_path / "report.html")
    assert page.count("table", **{"class": "sortable many"}) == 2  # criteria and tasks
    assert page.count("th", scope="col", **{"aria-sort": "none"}) == page.count("button", type="button") == 8
    assert "table.sortable thead button" in page.text
    cells = re.findall(r'<td data-sort="([^"]*)"[^>]*>([^<]*)', page.text)
    numbers = [(float(sort), float(text)) for sort, text in cells if re.fullmatch(r"-?\d+\.\d\d", text)]
    assert len(numbers) == 4 + 2 * 3 + 5 * 3
    assert all(sort == pytest.approx(text, abs=0.006) for sort, text in numbers)


def test_regression_shows_errors_and_its_picture(
    report: Report,
    make_lean_run: MakeRun,
    make_regression_results: Results,
    add_regression_arrays: Callable[..., None],
    tmp_path: Path,
) -> None:
    results = make_regression_results()
    folder = make_lean_run("run", results)
    without = report([folder], tmp_path / "report.html")
    assert f"{results['mse']['tinfer_final'] ** 0.5:.3g}" in without.visible
    assert "Share of inputs assigned to the right task" in without.visible
    assert "TGiven-During" in without.visible
    assert "Forgetting" not in without.visible
    assert "Predictions" not in without.visible
    add_regression_arrays(folder, truth=False)
    page = report([folder], tmp_path / "report.html")
    assert page.count("svg") == without.count("svg") + 1
    assert "Mean and one standard deviation of each task's final prediction" in page.visible
    assert "dashes the truth" not in page.visible
    add_regression_arrays(folder, truth=True)
    assert "dashes the truth" in report([folder], tmp_path / "report.html").visible


def test_modes_show_their_maps(
    report: Report,
    make_lean_run: MakeRun,
    make_results: Results,
    add_modes_arrays: Callable[[Path], None],
    tmp_path: Path,
) -> None:
    matrix = [[100.0], [100.0, 99.0], [100.0, 98.0, 100.0]]
    results = make_results(
        benchmark="modes-2d", num_tasks=3, task_names=["a", "b", "c"], tgiven_matrix=matrix, task_confusion=None
    )
    folder = make_lean_run("run", results)
    add_modes_arrays(folder)
    page = report([folder], tmp_path / "report.html")
    assert "Uncertainty maps" in page.visible
    assert len([source for source in page.attributes("href") if source.startswith("data:image/png")]) >= 3


def test_seeds_are_taken_together(
    report: Report, make_lean_run: MakeRun, make_results: Results, tmp_path: Path
) -> None:
    for seed in (0, 1, 2):
        make_lean_run(f"runs/seed-{seed}", make_results(seed=seed, tgiven_final=90.0 + seed))
    page = report([tmp_path / "runs"], tmp_path / "report.html")
    assert "91.00 ± 0.58 %" in page.visible
    assert "3 seeds, mean ± standard error" in page.visible
    assert "--seeds 3 --out repeated" in page.visible
    assert "Mean over seeds." in page.visible


def test_seeds_that_are_no_range_are_repeated_one_by_one(
    report: Report, make_lean_run: MakeRun, make_lean_results: Results, tmp_path: Path
) -> None:
    folders = [make_lean_run(f"seed-{seed}", make_lean_results(seed=seed)) for seed in (3, 10)]
    page = report(folders, tmp_path / "report.html")
    assert "--seed 3 --out repeated/seed-3" in page.visible
    assert "--seed 10 --out repeated/seed-10" in page.visible


def test_methods_are_compared(
    report: Report, make_lean_run: MakeRun, make_lean_results: Results, tmp_path: Path
) -> None:
    softmax: dict[str, Any] = {
        "tinfer_final": {"softmax": 93.21},
        "task_inference_accuracy": None,
        "batch_wise": None,
        "task_confusion": None,
    }
    for seed in (0, 1):
        make_lean_run(f"runs/pr-bbb/seed-{seed}", make_lean_results("pr-bbb", seed, tgiven_final=95.0 + seed))
        make_lean_run(
            f"runs/exp-replay/seed-{seed}", make_lean_results("exp-replay", seed, tgiven_final=80.0, **softmax)
        )
    page = report([tmp_path / "runs"], tmp_path / "report.html")
    assert "2 methods on split-digits" in page.visible
    assert "4 runs." in page.visible
    known = 'data-label="Task known"'
    assert f'<td data-sort="95.5" class="best" {known}>95.50 <span class="error">± 0.50</span></td>' in page.text
    assert f'<td data-sort="80.0" {known}>80.00 <span class="error">± 0.00</span></td>' in page.text
    assert re.search('<td data-sort="" data-label="[^"]*">—</td>', page.text)
    assert page.count("details", **{"class": "panel method"}) == 2


def test_settings_of_one_method_are_told_apart(
    report: Report, make_lean_run: MakeRun, make_lean_results: Results, tmp_path: Path
) -> None:
    folders = [
        make_lean_run(f"run-{beta}", make_lean_results(), {"strategy": {"name": "pr", "strength": beta}})
        for beta in (0.1, 1.0)
    ]
    page = report(folders, tmp_path / "report.html")
    assert "pr-bbb (strength=0.1)" in page.visible
    assert "pr-bbb (strength=1.0)" in page.visible


def test_benchmarks_are_compared_apart(
    report: Report, make_lean_run: MakeRun, make_lean_results: Results, make_regression_results: Results, tmp_path: Path
) -> None:
    folders = [make_lean_run("digits", make_lean_results()), make_lean_run("regression", make_regression_results())]
    page = report(folders, tmp_path / "report.html")
    assert "2 methods on split-digits, regression-1d" in page.visible
    assert (
        page.text.index("TInfer-Final, ent") < page.text.index("<h2>regression-1d</h2>") < page.text.index("RMSE, task")
    )


def test_many_tasks_are_folded(report: Report, make_lean_run: MakeRun, make_results: Results, tmp_path: Path) -> None:
    tasks = 20
    matrix = [[97.0] * (i + 1) for i in range(tasks)]
    results = make_results(num_tasks=tasks, task_names=None, tgiven_matrix=matrix, task_confusion=None)
    page = report([make_lean_run("run", results)], tmp_path / "report.html")
    assert "Each of the 20 tasks" in page.visible
    assert page.count("svg") == 1


@pytest.fixture(scope="module")
def page_with_statistics(
    report: Report,
    tmp_path_factory: pytest.TempPathFactory,
    write_run: Callable[..., Path],
    make_results: Results,
    add_statistics: Callable[..., dict[str, Any]],
    add_uncertainty_arrays: Callable[..., None],
) -> Any:
    """The page of a run that infers tasks by statistics."""
    folder = tmp_path_factory.mktemp("statistics")
    run = write_run(folder / "run", add_statistics(make_results()))
    (run / "metrics.jsonl").unlink()
    add_uncertainty_arrays(run, strangers=True)
    return report([run], folder / "report.html")


def in_order(text: str, *words: str) -> bool:
    """Whether the words follow one another."""
    place = 0
    for word in words:
        place = text.find(word, place)
        if place < 0:
            return False
        place += len(word)
    return True


def test_the_default_leads_the_page(page_with_statistics: Any) -> None:
    page = page_with_statistics
    assert in_order(
        page.visible, "Task inferred TInfer-Final, stats", "100 at once", "Task known TGiven-Final", "Forgetting"
    )
    assert in_order(
        page.visible, "Unknown inputs 0.999 AUROC", "One kind of unknown inputs (noise)", "6.00 % are falsely rejected"
    )
    assert in_order(page.visible, "Task probabilities 1.25 %", "Statistics: 6 KiB per task")
    rows = re.findall(r"<tr[^>]*><th[^>]*>(?:<[^>]*>)*([^<]*)", page.text[page.text.index("Task inferred by, %") :])
    names = ["stats", "The paper&#x27;s criteria", "ent", "conf", "agree", "ku", "By statistics and outputs"]
    names += ["mahalanobis", "relative", "pairs", "pca", "energy", "margin"]
    assert [row.strip() for row in rows[: len(names)]] == names
    assert page.text.count('<span class="badge">default</span>') == 1
    assert 'pca <span class="badge">no network: reference</span>' in page.text


def test_one_confusion_is_open_and_the_others_are_folded_away(page_with_statistics: Any) -> None:
    text = page_with_statistics.text
    folded = text[text.index("Tasks inferred by the other criteria (10)") :]
    folded = folded[: folded.index("</details>")]
    titles = re.findall(r"<b>Tasks inferred by (\w+)</b>", text)
    assert titles[0] == "stats"
    assert re.findall(r"<b>Tasks inferred by (\w+)</b>", folded) == titles[1:]
    assert len(titles) == 11
    assert in_order(text, "Tasks inferred by stats", "<details", "Tasks inferred by ent")


def test_each_task_says_how_far_it_can_be_relied_on(page_with_statistics: Any) -> None:
    page = page_with_statistics
    headings = ("Right task, %", "Rejected, %", "Brier score", "Statistics", "Moved, %", "Not followed, %")
    assert in_order(page.visible, "Is it any of them?", "Known and unknown inputs", *headings)
    table = page.text[page.text.index("Rejected, %") :]
    first, second = (re.findall(r"<td[^>]*>([^<]*)", row) for row in re.findall(r"<tr>(.*?)</tr>", table)[:2])
    assert first[1:] == ["4.00", "0.0110", "2 KiB", "7.11", "0.20"]  # the layer with most
    assert second[1:] == ["5.00", "0.0220", "4 KiB", "—", "—"]  # a network that is not followed
    assert "noise: AUROC 0.999, 100.0 % rejected" in page.visible
    assert "mixed rows: AUROC 0.875, 75.0 % rejected" in page.visible


def test_runs_of_earlier_versions_have_no_empty_sections(page: Any) -> None:
    assert "Task inferred TInfer-Final, ent" in page.visible
    for words in ("Is it any of them?", "Unknown inputs", "Task probabilities", "Rejected, %", "default", "KiB"):
        assert words not in page.visible


def test_figures_for_batches_need_tests_of_their_size(
    report: Report,
    make_lean_run: MakeRun,
    make_lean_results: Results,
    add_uncertainty_arrays: Callable[..., None],
    tmp_path: Path,
) -> None:
    for size, shown in ((105, True), (106, False)):  # every task has 105 test inputs
        folder = make_lean_run(f"run-{size}", make_lean_results(batch_wise_size=size))
        add_uncertainty_arrays(folder)
        page = report([folder], tmp_path / "report.html")
        assert (f"Batches of {size}" in page.visible) == shown
        assert (f"{size} at once" in page.visible) == shown


def test_regression_shows_every_criterion(
    report: Report,
    make_lean_run: MakeRun,
    make_regression_results: Results,
    add_statistics: Callable[..., dict[str, Any]],
    tmp_path: Path,
) -> None:
    results = add_statistics(make_regression_results(task_confusion=None))
    page = report([make_lean_run("run", results)], tmp_path / "report.html")
    first = "RMSE, task inferred root of MSE TInfer-Final, stats 0.0745"  # the root of 0.00555
    assert in_order(page.visible, first, "Right task", "RMSE, task known")
    assert in_order(page.visible, "Task inferred by", "RMSE", "stats default 0.0745", "variance", "pca", "2.79")
    assert "Batches" not in page.visible


def test_methods_are_compared_by_one_criterion_and_exceptions_are_named(
    report: Report,
    make_lean_run: MakeRun,
    make_lean_results: Results,
    add_statistics: Callable[..., dict[str, Any]],
    tmp_path: Path,
) -> None:
    softmax = {"tinfer_final": {"softmax": 99.99}, "task_inference_accuracy": None, "batch_wise": None}
    stats = [add_statistics(make_lean_results("pr-bbb", seed)) for seed in (0, 1)]
    folders = [make_lean_run(f"pr-bbb-{seed}", results) for seed, results in enumerate(stats)]
    folders.append(make_lean_run("vcl", make_lean_results("vcl")))
    folders.append(make_lean_run("exp-replay", make_lean_results("exp-replay", **softmax)))
    page = report(folders, tmp_path / "report.html")
    mean = sum(results["tinfer_final"]["stats"] for results in stats) / 2
    assert "Highest: task inferred TInfer-Final, stats 99.99 % exp-replay" in page.visible
    assert "or, where a run has no such figure, by ent (vcl) or softmax (exp-replay)." in page.visible
    assert in_order(page.visible, "Comparison", "pr-bbb", "vcl by ent", "exp-replay by softmax")
    rows = dict(re.findall(r"<tr><th[^>]*>([\w-]+)</th>(.*?)</tr>", page.text))
    assert f">{mean:.2f} " in rows["pr-bbb"]
    assert '<span class="meaning">by ent</span>' in page.text
    assert '99.99<span class="meaning">by softmax</span>' in page.text
    assert "Inputs alone: by pca, no network." in page.visible
    assert in_order(page.visible, "Accuracy with the task inferred, by every criterion", "stats", "ent", "softmax")


def test_many_tasks_are_folded_in_every_table(
    report: Report,
    make_lean_run: MakeRun,
    make_lean_results: Results,
    add_statistics: Callable[..., dict[str, Any]],
    tmp_path: Path,
) -> None:
    tasks = 20
    results = make_lean_results(
        num_tasks=tasks, task_names=None, tgiven_matrix=[[97.0] * (i + 1) for i in range(tasks)]
    )
    page = report([make_lean_run("run", add_statistics(results))], tmp_path / "report.html")
    assert "How far each of the 20 tasks can be relied on" in page.visible
    assert "Each of the 20 tasks" in page.visible
