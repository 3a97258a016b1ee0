"""Means, standard errors and the tables of the terminal."""

import io
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from metareplay.errors import DataError
from metareplay.experiments.results import Results
from metareplay.report import comparison_table, run_table, seeds_table, summarise
from metareplay.report.base import Estimate, estimate, mean_matrix, show, show_bytes, show_duration
from metareplay.report.criteria import criteria_of, headline_criterion

Make = Callable[..., Results]


@pytest.fixture
def make_results(make_results: Callable[..., dict[str, Any]]) -> Make:
    """Typed, as the tables take them."""
    return lambda *given, **changes: Results.model_validate(make_results(*given, **changes))


@pytest.fixture
def make_regression_results(make_regression_results: Callable[..., dict[str, Any]]) -> Make:
    return lambda *given, **changes: Results.model_validate(make_regression_results(*given, **changes))


def tgiven_final(results: Results) -> float | None:
    return results.tgiven_final


def text_of(table: Table, width: int = 80) -> str:
    buffer = io.StringIO()
    Console(width=width, file=buffer).print(table)
    return buffer.getvalue()


def test_estimate_is_mean_and_standard_error(make_results: Make) -> None:
    runs = [make_results(seed=seed, tgiven_final=value) for seed, value in enumerate((90.0, 92.0, 97.0))]
    value = estimate(runs, tgiven_final)
    assert value is not None
    assert value.mean == pytest.approx(93.0)
    assert value.standard_error == pytest.approx(math.sqrt((9 + 1 + 16) / 2) / math.sqrt(3))
    assert value.n == 3


def test_one_seed_has_no_standard_error(make_results: Make) -> None:
    assert estimate([make_results(tgiven_final=90)], tgiven_final) == Estimate(90.0, None, 1)


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_is_no_number_does_not_count(make_results: Make, value: Any) -> None:
    runs = [make_results(tgiven_final=value), make_results(seed=1, tgiven_final=80.0)]
    assert estimate(runs, tgiven_final) == Estimate(80.0, None, 1)
    assert estimate(runs[:1], tgiven_final) is None


def test_criteria_keep_the_papers_order_and_drop_what_does_not_apply(make_results: Make) -> None:
    assert criteria_of([make_results()]) == ["ent", "conf", "agree", "ku"]
    assert criteria_of([make_results("pr-dirac")]) == ["ent", "conf"]
    shared = make_results(
        "exp-replay",
        tinfer_final={"softmax": 90.0, "ent": 80.0, "own": 70.0},
        task_inference_accuracy=None,
        batch_wise=None,
    )
    assert criteria_of([shared]) == ["ent", "softmax", "own"]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "percent", "—"),
        (Estimate(99.7, None, 1), "percent", "99.70"),
        (Estimate(99.7, 0.023, 3), "percent", "99.70 ± 0.02"),
        (Estimate(-0.001, None, 1), "percent", "0.00"),
        (Estimate(0.0031234, 0.0002, 3), "mse", "0.00312 ± 0.00020"),
        (Estimate(0.0424, 2.5e-6, 3), "mse", "0.0424 ± 0.0000"),
        (Estimate(11.04, 10.9, 3), "mse", "11.0 ± 10.9"),
        (Estimate(0.0, 0.0, 3), "mse", "0 ± 0"),
        (Estimate(2.5e-7, 1.2e-7, 3), "mse", "2.5e-07 ± 1.2e-07"),
        (Estimate(12.34, None, 1), "seconds", "12.3"),
    ],
)
def test_how_numbers_are_shown(value: Estimate | None, kind: Any, text: str) -> None:
    assert show(value, kind) == text


@pytest.mark.parametrize(("seconds", "text"), [(12.34, "12.3 s"), (600, "10 min"), (3725, "1 h 2 min")])
def test_how_durations_are_shown(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


def test_summary_mirrors_results_with_estimates(make_results: Make) -> None:
    runs = [make_results(seed=2, tgiven_final=90.0), make_results(seed=0, tgiven_final=94.0)]
    summary = summarise(runs)
    assert summary["seeds"] == [0, 2]
    assert summary["benchmark"] == "split-digits"
    assert summary["tgiven_final"] == {"mean": 92.0, "standard_error": pytest.approx(2.0), "n": 2}
    assert summary["seconds"]["train"]["mean"] == pytest.approx(13.3)
    assert set(summary["tinfer_final"]) == {"ent", "conf", "agree", "ku"}
    assert summary["mse"] is None
    assert summary["parameters"] == runs[0].parameters.model_dump()
    assert "tgiven_matrix" not in summary
    assert "task_confusion" not in summary
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_summary_of_one_seed_and_of_figures_that_do_not_apply(
    make_results: Make, make_regression_results: Make
) -> None:
    summary = summarise([make_results("pr-dirac")])
    assert summary["tgiven_final"]["standard_error"] is None
    assert summary["tinfer_final"]["agree"] is None
    regression = summarise([make_regression_results(seed=0), make_regression_results(seed=1)])
    assert regression["mse"]["tinfer_final"]["n"] == 2
    assert regression["tgiven_final"] is None
    assert regression["tinfer_final"] is None


def test_summary_refuses_what_has_no_common_mean(make_results: Make) -> None:
    with pytest.raises(DataError, match="different method"):
        summarise([make_results("pr-bbb"), make_results("vcl")])
    with pytest.raises(DataError, match="nothing to summarise"):
        summarise([])


def test_run_table_shows_every_figure_within_80_columns(make_results: Make) -> None:
    results = make_results()
    text = text_of(run_table(results))
    assert max(map(len, text.splitlines())) <= 80
    for value in (results.tgiven_during, results.tgiven_final, results.forgetting, *results.tinfer_final.values()):
        assert f"{value:.2f}" in text
    for by_criterion in (results.batch_wise, results.task_inference_accuracy):
        assert f"{by_criterion['ku']:.2f}" in text
    assert "Batches of 100" in text
    words = " ".join(text.split())
    assert (
        "24,960 parameters trained; 0.70 times the posterior of one task (35,620); 1.40 times the main network (17,810)"
        in words
    )
    assert "…" not in text


def test_run_table_of_regression_shows_errors(make_regression_results: Make) -> None:
    results = make_regression_results(mse={"tgiven_during": 0.00123, "tgiven_final": 0.00456, "tinfer_final": None})
    text = text_of(run_table(results))
    assert "0.0351" in text  # roots of the squared errors
    assert "0.0675" in text
    assert "98.00" in text
    assert "—" in text
    assert "Forgetting" not in text


def test_deterministic_methods_have_no_rows_for_weight_samples(make_results: Make) -> None:
    text = text_of(run_table(make_results("pr-dirac")))
    assert "conf" in text
    assert "agree" not in text


def test_seeds_table_shows_mean_and_error_within_80_columns(make_results: Make) -> None:
    text = text_of(seeds_table([make_results(seed=seed, tgiven_final=90.0 + seed) for seed in range(3)]))
    assert "91.00 ± 0.58" in text
    assert "3 seeds" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert text_of(seeds_table([make_results()])).count("±") == 0


def test_comparison_table_has_a_row_per_method_within_80_columns(make_results: Make) -> None:
    names = ("pr-bbb", "pr-dirac", "ewc-multihead")
    text = text_of(comparison_table({name: [make_results(name, seed) for seed in range(3)] for name in names}))
    assert all(name in text for name in names)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "±" in text


def test_mean_matrix_pads_and_averages() -> None:
    matrix = mean_matrix([[[90.0], [80.0, 70.0]], None, [[100.0], [90.0, None]]], 2)
    assert matrix is not None
    assert matrix[0, 0] == 95.0
    assert matrix[1, 0] == 85.0
    assert math.isnan(matrix[0, 1])
    assert math.isnan(matrix[1, 1])
    assert mean_matrix([None, []], 2) is None
    with pytest.raises(DataError, match="larger than the 1 tasks"):
        mean_matrix([[[1.0], [1.0, 2.0]]], 1)


@pytest.fixture
def make_with_statistics(make_results: Make, add_statistics: Callable[..., dict[str, Any]]) -> Make:
    return lambda *given, **changes: Results.model_validate(add_statistics(make_results(*given).content()) | changes)


def test_the_default_comes_first_then_the_papers_then_the_rest(make_with_statistics: Make) -> None:
    text = text_of(run_table(make_with_statistics()))
    after = text[text.index("Task inferred (TInfer-Final)") :].splitlines()[1:]
    names = ["stats", "ent", "conf", "agree", "ku", "mahalanobis", "relative", "pairs", "pca", "energy", "margin"]
    rows = [line.split() for line in after if line.strip()]
    assert [row[0] for row in rows[: len(names)]] == names
    assert rows[0][1] == "(default)"
    assert text.count("(default)") == 1
    assert rows[names.index("pca")][1:3] == ["(no", "network)"]
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    line = "calibration error of task probabilities 1.25 %; false rejections 6.00 %; AUROC against noise 0.999, "
    assert f"{line}mixed rows 0.875" in " ".join(text.split())


def test_nothing_is_marked_where_no_default_was_stored(make_results: Make) -> None:
    text = text_of(run_table(make_results()))
    assert "(default)" not in text
    assert "false rejections" not in text


def test_figures_for_batches_are_left_out_where_tests_are_smaller(make_with_statistics: Make) -> None:
    runs = [make_with_statistics("pr-bbb", seed) for seed in (0, 1)]
    for table in (run_table(runs[0], batches=False), seeds_table(runs, batches=False)):
        text = text_of(table)
        assert "Batches" not in text
        assert "Right task" in text
    assert "Batches of 100" in text_of(seeds_table(runs))


def test_columns_without_a_figure_are_left_out(make_results: Make) -> None:
    alone = make_results(tinfer_final={"softmax": 90.0}, task_inference_accuracy=None, batch_wise=None)
    text = text_of(run_table(alone))
    assert "Each input" in text
    assert "Batches" not in text
    assert "Right task" not in text


def test_where_tasks_share_labels_the_first_column_is_what_predict_answers(make_results: Make) -> None:
    figures = {"tinfer_final": {"ent": 60.0}, "task_inference_accuracy": {"ent": 40.0}, "batch_wise": None}
    text = text_of(run_table(make_results(**figures, label_accuracy={"ent": 65.0})))
    assert "Each input" not in text
    [head] = [line.split("%") for line in text.splitlines() if "Right label" in line]
    assert [words.strip() for words in head] == ["Right label", "TInfer Final", "Right task", ""]
    [row] = [line.split() for line in text.splitlines() if line.split()[:1] == ["ent"]]
    assert row[-3:] == ["65.00", "60.00", "40.00"]
    assert "Task inferred (TInfer-Final)" not in text


def test_regression_has_an_error_by_criterion(
    make_regression_results: Make, add_statistics: Callable[..., dict[str, Any]]
) -> None:
    results = Results.model_validate(add_statistics(make_regression_results().content()))
    text = text_of(run_table(results))
    after = text[text.index("Task inferred (TInfer-Final)") :].splitlines()[1:]
    rows = {line.split()[0]: line.split() for line in after if line.strip()}
    assert rows["stats"][1:3] == ["(default)", "0.0745"]  # the root of 0.00555
    assert rows["variance"][1] == f"{results.mse.tinfer_by_criterion['variance'] ** 0.5:.3g}"
    assert list(rows)[:2] == ["stats", "variance"]
    earlier = make_regression_results(mse={"tinfer_final": 0.25})
    assert "0.5" in text_of(run_table(earlier))  # by variance, which earlier versions did not say


def test_the_headline_is_the_default_or_the_first_of_the_paper(
    make_results: Make, make_with_statistics: Make, make_regression_results: Make
) -> None:
    softmax = make_results(tinfer_final={"softmax": 90.0, "ent": None}, task_inference_accuracy=None, batch_wise=None)
    assert headline_criterion([make_with_statistics()]) == "stats"
    assert headline_criterion([make_with_statistics(default_criterion="conf")]) == "conf"
    assert headline_criterion([make_with_statistics(tinfer_final={"ent": 50.0})]) == "ent"  # no figure by the default
    assert headline_criterion([make_results(), make_with_statistics(seed=1)]) == "stats"
    assert headline_criterion([make_results()]) == "ent"
    assert headline_criterion([softmax]) == "softmax"
    assert headline_criterion([make_regression_results()]) == "variance"
    assert headline_criterion([make_results(tinfer_final=None, task_inference_accuracy=None, batch_wise=None)]) is None


def test_methods_are_compared_by_the_default_and_exceptions_are_named(
    make_results: Make, make_with_statistics: Make
) -> None:
    softmax = {"tinfer_final": {"softmax": 93.21}, "task_inference_accuracy": None, "batch_wise": None}
    groups = {
        "pr-bbb": [make_with_statistics("pr-bbb", seed) for seed in range(2)],
        "vcl": [make_results("vcl", seed) for seed in range(2)],
        "exp-replay": [make_results("exp-replay", **softmax)],
    }
    text = text_of(comparison_table(groups))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    blocks = text[text.index(" pr-bbb") :]
    vcl, replay = blocks[blocks.index("vcl") : blocks.index("exp-replay")], blocks[blocks.index("exp-replay") :]
    assert "ent" in vcl
    assert "93.21" in replay
    assert "softmax" in replay
    assert "softmax" not in blocks[: blocks.index("vcl")]


def test_the_summary_has_what_can_be_averaged_at_any_depth(
    make_with_statistics: Make, make_regression_results: Make, add_statistics: Callable[..., dict[str, Any]]
) -> None:
    summary = summarise([make_with_statistics("pr-bbb", seed) for seed in (0, 1)])
    assert summary["default_criterion"] == "stats"
    assert summary["unknown"] == {
        "auroc": {
            "noise": {"mean": 0.999, "standard_error": 0.0, "n": 2},
            "mixed rows": {"mean": 0.875, "standard_error": 0.0, "n": 2},
        }
    }
    assert summary["task_probabilities"]["calibration_error"]["mean"] == 1.25
    assert "statistics" not in summary  # lists by task
    errors = summarise([Results.model_validate(add_statistics(make_regression_results().content()))])["mse"]
    assert errors["tinfer_by_criterion"]["stats"]["mean"] == 0.00555


@pytest.mark.parametrize(("size", "text"), [(2048, "2 KiB"), (95616, "93 KiB"), (3 * 2**20, "3.0 MiB")])
def test_how_sizes_are_shown(size: int, text: str) -> None:
    assert show_bytes(size) == text
