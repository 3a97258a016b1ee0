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
    assert page.count("svg") == 6  # curves, matrix and one confusion per criterion
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
    assert len(page.attributes("viewbox")) == page.count("svg", role="img") == 6


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
    assert page.count("table", **{"class": "sortable"}) == 2  # criteria and tasks
    assert page.count("th", scope="col", **{"aria-sort": "none"}) == page.count("button", type="button") == 8
    assert "table.sortable thead button" in page.text
    cells = re.findall(r'<td data-sort="([^"]*)">([^<]*)', page.text)
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
    assert f"{results['mse']['tinfer_final']:.3g}" in without.visible
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
    assert '<td data-sort="95.5" class="best">95.50 <span class="error">± 0.50</span></td>' in page.text
    assert '<td data-sort="80.0">80.00 <span class="error">± 0.00</span></td>' in page.text
    assert '<td data-sort="">—</td>' in page.text
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
        page.text.index("TInfer ent") < page.text.index("<h2>regression-1d</h2>") < page.text.index("MSE TInfer-Final")
    )


def test_many_tasks_are_folded(report: Report, make_lean_run: MakeRun, make_results: Results, tmp_path: Path) -> None:
    tasks = 20
    matrix = [[97.0] * (i + 1) for i in range(tasks)]
    results = make_results(num_tasks=tasks, task_names=None, tgiven_matrix=matrix, task_confusion=None)
    page = report([make_lean_run("run", results)], tmp_path / "report.html")
    assert "Each of the 20 tasks" in page.visible
    assert page.count("svg") == 1
