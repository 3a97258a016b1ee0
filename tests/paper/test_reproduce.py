"""The paper's tables as data, the runs they need, and ours next to the paper's."""

import json
from io import StringIO
from itertools import count
from pathlib import Path

import pytest
from rich.console import Console

from metareplay.benchmarks.registry import BENCHMARKS
from metareplay.errors import ConfigError
from metareplay.experiments import estimate
from metareplay.experiments.plan import make_plan
from metareplay.experiments.results import BoundaryThresholds, Results, Seconds, SquaredErrors
from metareplay.inference.criteria import CRITERIA
from metareplay.learner.methods import METHODS
from metareplay.paper.comparison import (
    FIGURES,
    Comparison,
    compare,
    comparison_cells,
    finished,
    number_of,
    paper_comparison_table,
)
from metareplay.paper.reproduce import chosen_rows, planned_runs, shortened
from metareplay.paper.tables import PaperRow, paper_table, paper_tables

TABLE = paper_table("gmm")
NAMES = [
    "gmm",
    "regression",
    "split-mnist",
    "split-mnist-small",
    "split-mnist-lenet",
    "permuted-mnist-10",
    "permuted-mnist-100",
    "split-cifar-10",
    "split-cifar-10-wrn",
    "split-cifar-100",
    "ku",
    "runtimes",
]


def everything() -> Results:
    """A run that has every figure, whatever its problem."""
    by_criterion = dict.fromkeys((*CRITERIA, "softmax"), 50.0)
    errors = SquaredErrors(tgiven_during=1.0, tgiven_final=1.0, tinfer_final=1.0)
    figures = {"tinfer_final": by_criterion, "batch_wise": by_criterion, "task_inference_accuracy": {"variance": 90.0}}
    return results(50.0).model_copy(update={**figures, "mse": errors, "peak_memory_mib": 400.0})


def test_every_table_names_methods_and_figures_that_exist() -> None:
    assert set(NAMES) <= set(paper_tables())
    for table in paper_tables().values():
        assert table.own_rows
        for row in table.own_rows:
            assert row.method in METHODS, row
            for figure, (mean, error) in row.figures.items():
                assert figure in FIGURES
                assert figure.startswith("boundary_") or number_of(table, row, figure)(everything()) is not None, (
                    table.name,
                    row,
                    figure,
                )
                assert mean >= 0
                assert error is None or error >= 0


def test_some_figures_of_the_paper() -> None:
    rows = {row.paper: row for row in TABLE.rows}
    assert rows["PR-BbB"].figures["agree"] == (90.02, 3.57)
    assert rows["VCL-multihead"].method == "vcl"
    mnist = {row.paper: row for row in paper_table("split-mnist").rows}
    assert mnist["PR-BbB-BW"].batch_wise
    assert mnist["DGR*"].method == "dgr"
    assert mnist["PR-Dirac**"].method is None
    assert mnist["EWC-growing"].figures == {"softmax": (27.32, 0.6)}


def test_tables_are_found_by_label_and_others_refused() -> None:
    assert paper_table("sm:tab:gmm") is TABLE
    with pytest.raises(ConfigError, match=r"table 'gmn' is unknown; .*did you mean 'gmm'"):
        paper_table("gmn")


@pytest.mark.parametrize(
    ("label", "name"), [("tab:gmm", "gmm"), ("tab:split:mnist", "split-mnist"), ("tab:split:cifar", "split-cifar-10")]
)
def test_tables_of_the_main_text_are_known(label: str, name: str) -> None:
    assert paper_table(label).name == name


def test_rows_are_chosen_by_either_name() -> None:
    assert [row.method for row in chosen_rows(TABLE, ["VCL-multihead", "pr-bbb"])] == ["pr-bbb", "vcl"]
    assert chosen_rows(TABLE, []) == TABLE.own_rows
    with pytest.raises(ConfigError, match="table gmm has no row 'si'; its rows are pr-dirac, pr-bbb"):
        chosen_rows(TABLE, ["si"])


def test_a_table_of_the_paper_is_made_with_the_papers_settings(tmp_path: Path) -> None:
    """Where this project has a cheaper recipe, too: that is what a run takes, unless it asks for the published one."""
    table = paper_table("split-mnist")
    planned = planned_runs(table, chosen_rows(table, ["pr-bbb"]), range(1), tmp_path)[0]
    own = make_plan({"benchmark": "split-mnist"})
    asked = make_plan({"benchmark": "split-mnist"}, published=True)
    assert planned.plan.source == asked.source != own.source
    assert planned.config.hypernet == asked.config.hypernet
    assert len(asked.config.hypernet.hidden) > len(own.config.hypernet.hidden)


def test_planned_runs_take_all_rows_first_and_share_runs(tmp_path: Path) -> None:
    table = paper_table("split-mnist")
    rows = chosen_rows(table, ["pr-bbb", "pr-dirac"])
    assert len(rows) == 3  # PR-BbB alone and batch-wise are one run
    runs = planned_runs(table, rows, range(1, 3), tmp_path, given={"inference.samples": 7})
    assert [(run.method, run.config.seed) for run in runs] == [
        ("pr-dirac", 1),
        ("pr-bbb", 1),
        ("pr-dirac", 2),
        ("pr-bbb", 2),
    ]
    assert len({run.folder for run in runs}) == 4
    assert all(run.config.inference.samples == 7 for run in runs)
    assert runs[0].config.training.iterations == 5000


def test_a_budget_shortens_training_and_fine_tuning(tmp_path: Path) -> None:
    config = planned_runs(
        paper_table("split-mnist"), chosen_rows(paper_table("split-mnist"), ["pr-bbb-cs"]), range(1), tmp_path
    )[0].config
    short = shortened(config, 0.01)
    assert short.training.iterations == 50
    before, after = config.strategy.finetune_iterations, short.strategy.finetune_iterations
    assert after == (None if before is None else max(1, round(before * 0.01)))
    assert shortened(config, 1.0) is config
    for wrong in (0.0, -1.0, 1.5):
        with pytest.raises(ConfigError, match="must be above 0 and at most 1"):
            shortened(config, wrong)


def test_the_budget_is_what_the_runs_have(tmp_path: Path) -> None:
    rows = chosen_rows(TABLE, ["sp-dirac"])
    assert planned_runs(TABLE, rows, range(1), tmp_path)[0].budget == 1.0
    assert planned_runs(TABLE, rows, range(1), tmp_path, budget=0.5)[0].budget == pytest.approx(0.5, abs=1e-4)
    assert planned_runs(TABLE, rows, range(1), tmp_path, given={"training.iterations": 1000})[
        0
    ].budget == pytest.approx(1000 / 10001)
    assert planned_runs(TABLE, rows, range(1), tmp_path, given={"training.epochs": 3})[0].budget is None


@pytest.mark.parametrize("key", ["method", "benchmark", "network", "seed"])
def test_a_row_stays_what_the_table_says(key: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"--set {key} is not allowed here"):
        planned_runs(TABLE, chosen_rows(TABLE, ["sp-dirac"]), range(1), tmp_path, given={key: "vcl"})


def test_run_times_are_compared_with_the_same_settings_for_all(tmp_path: Path) -> None:
    table = paper_table("runtimes")
    configs = {run.method: run.config for run in planned_runs(table, table.own_rows, range(1), tmp_path)}
    assert {(config.training.iterations, config.training.batch_size) for config in configs.values()} == {(2000, 128)}
    assert (configs["pr-ssge"].posterior.ssge_samples, configs["pf-ssge"].posterior.prior_samples) == (10, 1)
    assert {configs[name].hypernet.hidden for name in ("pr-dirac", "pr-bbb", "pr-ssge", "hnet-fine-tuning")} == {
        (100, 100)
    }


def test_boundaries_are_those_that_suit_all_runs() -> None:
    """Thresholds from 2 to 6 suit one run, from 5 to 9 the other, so 5 to 6 suits both: a tenth of the range of 10."""
    bounds = {"at_boundaries": 6.0, "elsewhere": 2.0, "lowest": 0.0, "highest": 10.0}
    other = bounds | {"at_boundaries": 9.0, "elsewhere": 5.0}
    actual = [{"loss": BoundaryThresholds(**each)} for each in (bounds, other)]
    runs = [results(50.0).model_copy(update={"task_boundaries": each}) for each in actual]
    row = PaperRow("signals", "pr-bbb", {"boundary_loss": (14.11, None)})
    (entry,) = compare(paper_table("task-boundaries"), [row], {"pr-bbb": runs})
    assert (entry.ours, entry.error, entry.seeds) == (pytest.approx(10.0), None, 2)


def test_a_narrow_terminal_shows_everything_too() -> None:
    rows = chosen_rows(TABLE, ["pr-bbb"])
    entries = compare(TABLE, rows, {"pr-bbb": [results(70.0), results(80.0)]}, {"pr-bbb": 0.25})
    for width in (72, 128, 200):
        console = Console(width=width, record=True, file=StringIO())
        console.print(paper_comparison_table(TABLE, entries, width))
        text = console.export_text()
        assert "…" not in text
        for words in ("PR-BbB", "75.00 ± 5.00", "81.07 ± 6.78", "25 %", "3 s"):
            assert words in text, (width, words)


def results(ent: float, seconds: float = 2.0) -> Results:
    return Results(
        benchmark="modes-2d",
        method="pr-bbb",
        network="mlp-10-10",
        seed=0,
        num_tasks=3,
        tgiven_during=100.0,
        tgiven_final=100.0,
        tinfer_final={"ent": ent},
        seconds=Seconds(train=seconds, evaluate=1.0),
    )


def test_figures_are_compared_with_their_standard_errors() -> None:
    row = PaperRow("PR-X", "pr-bbb", {"ent": (80.0, 3.0), "agree": (90.0, 1.0)})
    actual, missing = compare(TABLE, [row], {"pr-bbb": [results(70.0), results(80.0, 4.0)]})
    assert (actual.ours, actual.seeds, actual.error, actual.seconds) == (75.0, 2, pytest.approx(5.0), 4.0)
    assert actual.standard_errors == pytest.approx(-5 / (9 * 10 / 2 + 9) ** 0.5)
    assert not actual.falls_short
    assert (missing.ours, missing.seeds, missing.standard_errors, missing.falls_short) == (None, 0, None, False)


def test_the_papers_figures_are_by_the_papers_criteria_whatever_the_default() -> None:
    errors = SquaredErrors(tinfer_final=0.1, tinfer_by_criterion={"stats": 0.1, "variance": 0.3})
    accuracies = {"ent": 70.0, "softmax": 60.0, "stats": 98.0}
    run = results(70.0).model_copy(
        update={
            "default_criterion": "stats",
            "tinfer_final": accuracies,
            "task_inference_accuracy": {"stats": 100.0, "variance": 95.0},
            "mse": errors,
        }
    )
    regression, row = paper_table("regression"), PaperRow("PR-X", "pr-bbb", {})
    assert number_of(TABLE, row, "ent")(run) == 70.0
    assert number_of(TABLE, row, "softmax")(run) == 60.0
    assert number_of(regression, row, "tinfer_final")(run) == 0.3
    assert number_of(regression, row, "right_task")(run) == 95.0
    earlier = run.model_copy(update={"mse": SquaredErrors(tinfer_final=0.2)})  # by variance, the only one then
    assert number_of(regression, row, "tinfer_final")(earlier) == 0.2


@pytest.mark.parametrize(
    ("ours", "error", "paper", "paper_error", "lower", "short"),
    [
        (92.8, None, 100.0, 1.0, False, True),  # one seed spreads by the root of ten: 2 sqrt(11) + 0.5 are allowed
        (92.9, None, 100.0, 1.0, False, False),
        (80.0, 10.0, 100.0, 1.0, False, False),
        (120.0, None, 100.0, 1.0, False, False),  # better
        (0.0177, None, 0.01, 0.001, True, True),  # 0.0066 + a tenth
        (0.0176, None, 0.01, 0.001, True, False),
        (0.001, None, 0.01, 0.001, True, False),
    ],
)
def test_what_falls_short(
    ours: float, error: float | None, paper: float, paper_error: float, lower: bool, short: bool
) -> None:
    assert Comparison("R", "m", "ent", ours, error, 1, paper, paper_error, lower, None, 1.0).falls_short is short


@pytest.mark.parametrize(("seeds", "short"), [(1, False), (4, True)])
def test_more_seeds_allow_less(seeds: int, short: bool) -> None:
    entry = Comparison("R", "m", "ent", 95.0, 0.1, seeds, 100.0, 1.0, False, None, 1.0)
    assert entry.spread == pytest.approx((10 / seeds + 1) ** 0.5)  # ours is at least the paper's
    assert entry.falls_short is short


def test_a_figure_without_any_spread_can_fall_short_too() -> None:
    entry = Comparison("PR-Dirac", "pr-dirac", "tgiven_final", 66.7, 0.0, 2, 100.0, 0.0, False, None, 1.0)
    assert entry.standard_errors is None
    assert comparison_cells(TABLE, [entry])[0][4] == "— short"


def test_only_finished_runs_count(tmp_path: Path) -> None:
    runs = planned_runs(TABLE, chosen_rows(TABLE, ["sp-dirac"]), range(2), tmp_path)
    assert finished(runs) == {}
    runs[1].folder.mkdir(parents=True)
    (runs[1].folder / "results.json").write_text(json.dumps(results(50.0).content()))
    assert finished(runs) == {"sp-dirac": [results(50.0)]}


@pytest.mark.parametrize("name", ["gmm", "regression"])
def test_the_time_of_a_run_is_that_of_its_steps_in_all_tasks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that says one second more each time it is asked: the timed steps take one second together."""
    table = paper_table(name)
    run = planned_runs(table, table.own_rows[:1], range(1), tmp_path, budget=0.01)[0]
    clock = count()
    monkeypatch.setattr(estimate.time, "perf_counter", lambda: float(next(clock)))
    length, tasks = run.config.training.iterations, BENCHMARKS[table.benchmark].num_tasks
    assert length is not None
    assert estimate.seconds_of_run(run.plan, steps=2) == pytest.approx(length * tasks / 2)
