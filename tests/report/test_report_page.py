"""The page: complete, self-contained, escaped, and clear about what is missing."""

import json
import re
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from metareplay.errors import DataError
from metareplay.report import write_report

Results = Callable[..., dict[str, Any]]
MakeRun = Callable[..., Path]

VOID = {"meta", "br", "link", "img", "input", "hr"}
EVIL = "<script>alert('x')</script>&\"$x$"


class Page(HTMLParser):
    """Reads a page and refuses tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = text
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.words.append(data)

    @property
    def visible(self) -> str:
        return " ".join(" ".join(self.words).split())

    def attributes(self, name: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(name)) is not None]

    def count(self, tag: str, **wanted: str) -> int:
        return sum(found == tag and wanted.items() <= attributes.items() for found, attributes in self.tags)


def report(folders: list[Path], out: Path) -> Page:
    return Page(write_report(folders, out).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, write_run: Callable[..., Path], make_results: Results) -> Page:
    """The page of one whole run."""
    folder = tmp_path_factory.mktemp("page")
    return report([write_run(folder / "run", make_results())], folder / "report.html")


@pytest.fixture
def make_lean_results(make_results: Results) -> Results:
    """Results with fewer pictures, for tests that look at something else."""
    return partial(make_results, task_confusion=None)


def test_a_run_has_cards_tables_pictures_and_the_way_to_repeat_it(make_run: MakeRun, make_results: Results, tmp_path: Path) -> None:
    results = make_results()
    page = report([make_run("run", results)], tmp_path / "report.html")
    for value in (results["tgiven_final"], results["forgetting"], *results["tinfer_final"].values(), *results["batch_wise"].values()):
        assert f"{value:.2f}" in page.visible
    for words in ("pr-bbb on split-digits", "Accuracy on all tasks after the last one", "24,960 numbers are trained", "12.3 s", "0.70×"):
        assert words in page.visible
    titles = ("Learning curves", "Memory over time", "Tasks inferred by ent", "Tasks inferred by ku")
    assert all(title in page.visible for title in titles)
    assert page.count("svg") == 6  # curves, matrix and one confusion per criterion
    assert f"metareplay run --config {tmp_path}/run/config.yaml --out repeated" in page.visible
    assert "learning_rate: 0.001" in page.visible
    assert "2.13.0" in page.visible


def test_the_page_fetches_nothing(page: Page) -> None:
    assert "http://" not in page.text
    assert "https://" not in page.text
    assert "@import" not in page.text
    assert not {tag for tag, _ in page.tags} & {"link", "iframe", "object", "embed", "base"}
    references = page.attributes("src") + page.attributes("href") + page.attributes("xlink:href")
    assert all(reference.startswith(("#", "data:")) for reference in references)
    assert any("default-src 'none'" in content for content in page.attributes("content"))


def test_the_page_fits_light_dark_and_phones(page: Page) -> None:
    assert "prefers-color-scheme: dark" in page.text
    assert "width=device-width, initial-scale=1" in page.attributes("content")
    assert "max-width: 520px" in page.text
    assert ("html", {"lang": "en"}) in page.tags
    assert len(page.attributes("viewbox")) == page.count("svg", role="img") == 6


def test_ids_are_unique_and_every_reference_has_its_target(make_run: MakeRun, make_lean_results: Results, tmp_path: Path) -> None:
    folders = [make_run(name, make_lean_results(name)) for name in ("pr-bbb", "vcl")]
    page = report(folders, tmp_path / "report.html")
    ids = page.attributes("id")
    assert len(ids) == len(set(ids)) > 50
    assert set(re.findall(r"(?:url\(#|href=\"#)([^\")]+)", page.text)) <= set(ids)


def test_the_same_runs_give_the_same_page(make_run: MakeRun, make_lean_results: Results, tmp_path: Path) -> None:
    folder = make_run("run", make_lean_results())
    assert write_report([folder], tmp_path / "a.html").read_bytes() == write_report([folder], tmp_path / "b.html").read_bytes()


def test_everything_foreign_is_escaped(make_run: MakeRun, make_results: Results, tmp_path: Path) -> None:
    results = make_results(benchmark=EVIL, method=EVIL, network=EVIL, scenario=EVIL, environment={EVIL: EVIL, "list": [EVIL]})
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


def test_tables_can_be_sorted(make_run: MakeRun, make_results: Results, tmp_path: Path) -> None:
    page = report([make_run("run", make_results("pr-dirac"))], tmp_path / "report.html")
    assert page.count("table", **{"class": "sortable"}) == 2  # criteria and tasks
    assert page.count("th", scope="col", **{"aria-sort": "none"}) == page.count("button", type="button") == 8
    assert "table.sortable thead button" in page.text
    cells = re.findall(r'<td data-sort="([^"]*)">([^<]*)', page.text)
    numbers = [(float(sort), float(text)) for sort, text in cells if re.fullmatch(r"-?\d+\.\d\d", text)]
    assert len(numbers) == 4 + 2 * 3 + 5 * 3
    assert all(sort == pytest.approx(text, abs=0.006) for sort, text in numbers)


def test_regression_shows_errors_and_its_picture(
    make_run: MakeRun, make_regression_results: Results, add_regression_arrays: Callable[..., None], tmp_path: Path
) -> None:
    results = make_regression_results()
    folder = make_run("run", results)
    without = report([folder], tmp_path / "report.html")
    assert f"{results['mse']['tinfer_final']:.3g}" in without.visible
    assert "Share of inputs given to the task they belong to" in without.visible
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


def test_modes_show_their_maps(make_run: MakeRun, make_results: Results, add_modes_arrays: Callable[[Path], None], tmp_path: Path) -> None:
    matrix = [[100.0], [100.0, 99.0], [100.0, 98.0, 100.0]]
    results = make_results(benchmark="modes-2d", num_tasks=3, task_names=["a", "b", "c"], tgiven_matrix=matrix, task_confusion=None)
    folder = make_run("run", results)
    add_modes_arrays(folder)
    page = report([folder], tmp_path / "report.html")
    assert "Uncertainty maps" in page.visible
    assert len([source for source in page.attributes("href") if source.startswith("data:image/png")]) >= 3


def test_seeds_are_taken_together(make_run: MakeRun, make_results: Results, tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        make_run(f"runs/seed-{seed}", make_results(seed=seed, tgiven_final=90.0 + seed))
    page = report([tmp_path / "runs"], tmp_path / "report.html")
    assert "91.00 ± 0.58 %" in page.visible
    assert "3 seeds, mean ± standard error" in page.visible
    assert "--seeds 3 --out repeated" in page.visible
    assert "Mean over seeds." in page.visible


def test_seeds_that_are_no_range_are_repeated_one_by_one(make_run: MakeRun, make_lean_results: Results, tmp_path: Path) -> None:
    folders = [make_run(f"seed-{seed}", make_lean_results(seed=seed)) for seed in (3, 10)]
    page = report(folders, tmp_path / "report.html")
    assert "--seed 3 --out repeated/seed-3" in page.visible
    assert "--seed 10 --out repeated/seed-10" in page.visible


def test_methods_are_compared(make_run: MakeRun, make_lean_results: Results, tmp_path: Path) -> None:
    softmax: dict[str, Any] = {
        "tinfer_final": {"softmax": 93.21},
        "task_inference_accuracy": None,
        "batch_wise": None,
        "task_confusion": None,
    }
    for seed in (0, 1):
        make_run(f"runs/pr-bbb/seed-{seed}", make_lean_results("pr-bbb", seed, tgiven_final=95.0 + seed))
        make_run(f"runs/exp-replay/seed-{seed}", make_lean_results("exp-replay", seed, tgiven_final=80.0, **softmax))
    page = report([tmp_path / "runs"], tmp_path / "report.html")
    assert "2 methods on split-digits" in page.visible
    assert "4 runs." in page.visible
    assert '<td data-sort="95.5" class="best">95.50 <span class="error">± 0.50</span></td>' in page.text
    assert '<td data-sort="80.0">80.00 <span class="error">± 0.00</span></td>' in page.text
    assert '<td data-sort="">—</td>' in page.text
    assert page.count("details", **{"class": "panel method"}) == 2


def test_settings_of_one_method_are_told_apart(make_run: MakeRun, make_lean_results: Results, tmp_path: Path) -> None:
    folders = [make_run(f"run-{beta}", make_lean_results(), {"strategy": {"name": "pr", "strength": beta}}) for beta in (0.1, 1.0)]
    page = report(folders, tmp_path / "report.html")
    assert "pr-bbb (strength=0.1)" in page.visible
    assert "pr-bbb (strength=1.0)" in page.visible


def test_benchmarks_are_compared_apart(
    make_run: MakeRun, make_lean_results: Results, make_regression_results: Results, tmp_path: Path
) -> None:
    folders = [make_run("digits", make_lean_results()), make_run("regression", make_regression_results())]
    page = report(folders, tmp_path / "report.html")
    assert "2 methods on split-digits, regression-1d" in page.visible
    assert page.text.index("TInfer ent") < page.text.index("<h2>regression-1d</h2>") < page.text.index("MSE TInfer-Final")


def test_a_run_named_twice_counts_once(make_run: MakeRun, make_lean_results: Results, tmp_path: Path) -> None:
    folder = make_run("runs/seed-0", make_lean_results())
    page = report([folder, folder.parent], tmp_path / "report.html")
    assert "seed 0." in page.visible


def test_many_tasks_are_folded(make_run: MakeRun, make_results: Results, tmp_path: Path) -> None:
    tasks = 20
    matrix = [[97.0] * (i + 1) for i in range(tasks)]
    results = make_results(num_tasks=tasks, task_names=None, tgiven_matrix=matrix, task_confusion=None)
    page = report([make_run("run", results)], tmp_path / "report.html")
    assert "Each of the 20 tasks" in page.visible
    assert page.count("svg") == 2


def test_unfinished_runs_are_named_and_left_out(make_run: MakeRun, make_lean_results: Results, tmp_path: Path) -> None:
    make_run("runs/seed-0", make_lean_results())
    unfinished = make_run("runs/seed-1", make_lean_results(seed=1))
    (unfinished / "results.json").unlink()
    (tmp_path / "runs/seed-0/model").mkdir()
    (tmp_path / "runs/seed-0/model/config.yaml").write_text("seed: 0")
    page = report([tmp_path / "runs"], tmp_path / "report.html")
    assert f"Left out, because they have not finished (results.json is missing): {unfinished}." in page.visible


@pytest.mark.parametrize("kind", ["missing", "empty", "file", "unfinished"])
def test_a_folder_without_results_is_refused(kind: str, make_run: MakeRun, make_results: Results, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    if kind == "unfinished":
        make_run("run", make_results())
        (folder / "results.json").unlink()
    elif kind == "empty":
        folder.mkdir()
    elif kind == "file":
        folder.write_text("")
    with pytest.raises(DataError, match=rf"^{re.escape(str(folder))} is no finished run: results.json is missing; .*--resume"):
        write_report([folder], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no folder was given"):
        write_report([], tmp_path / "report.html")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("results.json", "{", "results.json is no valid JSON"),
        ("results.json", "[]", "does not say schema 1"),
        ("results.json", json.dumps({"schema": 2}), "does not say schema 1"),
        ("results.json", json.dumps({"schema": 1, "method": "vcl"}), "lacks benchmark, network, seed, num_tasks"),
        ("config.yaml", "a: [", "config.yaml is no valid YAML"),
        ("metrics.jsonl", '{"task": 0, "iteration": 1, "loss": 1}\n{"task": 0', "metrics.jsonl, line 2"),
        ("metrics.jsonl", '{"loss": 1}', "metrics.jsonl, line 1"),
        ("predictive.safetensors", "no tensors", "predictive.safetensors cannot be read"),
    ],
)
def test_broken_files_are_named(file: str, content: str, message: str, make_run: MakeRun, make_results: Results, tmp_path: Path) -> None:
    folder = make_run("run", make_results())
    (folder / file).write_text(content)
    with pytest.raises(DataError, match=re.escape(message)):
        write_report([folder], tmp_path / "report.html")


def test_arrays_that_are_not_there_are_named(
    make_run: MakeRun, make_results: Results, add_modes_arrays: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = make_run("run", make_results())  # five tasks, arrays of three
    add_modes_arrays(folder)
    with pytest.raises(DataError, match="lacks 'train_x_3'"):
        write_report([folder], tmp_path / "report.html")


def test_only_results_are_needed(make_run: MakeRun, make_results: Results, tmp_path: Path) -> None:
    nothing = dict.fromkeys(("task_confusion", "environment", "seconds", "parameters", "batch_wise", "scenario"))
    folder = make_run("run", make_results() | nothing)
    for name in ("config.yaml", "metrics.jsonl"):
        (folder / name).unlink()
    page = report([folder], tmp_path / "report.html")
    assert "Learning curves" not in page.visible
    assert "The folder holds no config.yaml." in page.visible


def test_lines_written_twice_by_a_resumed_run_count_once(make_run: MakeRun, make_lean_results: Results, tmp_path: Path) -> None:
    folder = make_run("run", make_lean_results())
    before = write_report([folder], tmp_path / "a.html").read_bytes()
    metrics = folder / "metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(['{"task": 0, "iteration": 50, "loss": 9999.0}\n', *lines, *lines[-20:]]))
    assert write_report([folder], tmp_path / "b.html").read_bytes() == before


def test_a_folder_as_target_gets_a_report(make_run: MakeRun, make_lean_results: Results, tmp_path: Path) -> None:
    folder = make_run("run", make_lean_results())
    assert write_report([folder], folder) == folder / "report.html"
    assert (folder / "report.html").stat().st_mode & 0o777 == 0o644
