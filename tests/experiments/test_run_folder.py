"""A run's folder: what it holds, what results.json says, and which folders are refused."""

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from metareplay.errors import ConfigError, MetaReplayError
from metareplay.estimators import ContinualClassifier
from metareplay.experiments.plan import Plan
from metareplay.experiments.run import Run
from metareplay.inference.criteria import criteria_for
from metareplay.learner.config import RunConfig, build_config
from metareplay.settings import flatten
from metareplay.training.checkpoint import CheckpointFolder
from metareplay.training.progress import NullObserver, Stage

SCHEMA = {
    "schema",
    "benchmark",
    "method",
    "network",
    "scenario",
    "seed",
    "num_tasks",
    "tgiven_during",
    "tgiven_final",
    "tinfer_final",
    "task_inference_accuracy",
    "batch_wise",
    "tgiven_matrix",
    "mse",
    "parameters",
    "seconds",
}


def read_results(folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return results


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.fixture(scope="module")
def classified(tmp_path_factory: pytest.TempPathFactory, tiny_config: Callable[..., RunConfig]) -> Path:
    folder = tmp_path_factory.mktemp("classified") / "run"
    Run(Plan.of(tiny_config("pr-bbb", {"training.iterations": 30}), folder)).execute()
    return folder


@pytest.fixture(scope="module")
def regressed(tmp_path_factory: pytest.TempPathFactory, tiny_config: Callable[..., RunConfig]) -> Path:
    folder = tmp_path_factory.mktemp("regressed") / "run"
    Run(Plan.of(tiny_config("pr-bbb", benchmark="regression-1d"), folder)).execute()
    return folder


def test_the_folder_holds_what_the_design_says(classified: Path) -> None:
    names = {path.name for path in classified.iterdir()}
    tensors = {"predictive.safetensors", "uncertainty.safetensors"}
    assert names == {"config.yaml", "results.json", "metrics.jsonl", "checkpoint", "model", "log.txt", *tensors}
    model = {"model.safetensors", "config.json", "README.md", "history.json"}
    assert {path.name for path in (classified / "model").iterdir()} == model
    assert len(list((classified / "checkpoint").iterdir())) == 2


def test_the_results_of_a_classification(classified: Path) -> None:
    result = read_results(classified)
    assert result.keys() >= SCHEMA
    assert (result["schema"], result["benchmark"], result["method"], result["network"]) == (
        1,
        "modes-2d",
        "pr-bbb",
        "mlp-10-10",
    )
    assert (result["scenario"], result["seed"], result["num_tasks"], result["mse"]) == ("class", 0, 3, None)
    matrix = result["tgiven_matrix"]
    assert [len(row) for row in matrix] == [1, 2, 3]
    assert all(0 <= value <= 100 for row in matrix for value in row)
    assert result["tgiven_during"] == pytest.approx(mean([row[-1] for row in matrix]))
    assert result["tgiven_final"] == pytest.approx(mean(matrix[-1]))
    assert result["forgetting"] == pytest.approx(result["tgiven_during"] - result["tgiven_final"])
    for figure in ("tinfer_final", "task_inference_accuracy", "batch_wise"):
        assert list(result[figure]) == [criterion.name for criterion in criteria_for("classification")]
        assert all(0 <= value <= 100 for value in result[figure].values())
    assert all(
        result["tinfer_final"][name] <= result["task_inference_accuracy"][name] + 1e-9
        for name in result["tinfer_final"]
    )
    assert set(result["parameters"]) >= {"main_network", "trained", "per_task"}
    assert set(result["seconds"]) == {"train", "evaluate", "by_task"}


def test_the_confusion_of_tasks_fits_the_accuracy(classified: Path) -> None:
    result = read_results(classified)
    for name, rows in result["task_confusion"].items():
        assert all(sum(row) == pytest.approx(100) for row in rows)
        assert result["task_inference_accuracy"][name] == pytest.approx(mean([rows[task][task] for task in range(3)]))


def test_the_results_of_a_regression(regressed: Path) -> None:
    result = read_results(regressed)
    assert result.keys() >= SCHEMA
    assert result["problem"] == "regression"
    errors = dict(result["mse"])
    by_criterion = errors.pop("tinfer_by_criterion")
    assert set(errors) == {"tgiven_during", "tgiven_final", "tinfer_final"}
    assert all(value > 0 for value in (*errors.values(), *by_criterion.values()))
    assert errors["tinfer_final"] == by_criterion[result["default_criterion"]]
    assert "variance" in by_criterion
    assert result["mse"]["tgiven_final"] == pytest.approx(mean(result["tgiven_matrix"][-1]))
    assert [result[name] for name in ("tgiven_during", "tgiven_final", "tinfer_final", "batch_wise", "forgetting")] == [
        None
    ] * 5
    assert 0 <= result["task_inference_accuracy"]["variance"] <= 100


@pytest.mark.parametrize("method", ["pr-dirac", "fine-tuning", "joint", "exp-replay"])
def test_figures_that_do_not_apply_are_null(method: str, tmp_path: Path, tiny_config: Callable[..., RunConfig]) -> None:
    result = Run(Plan.of(tiny_config(method), tmp_path / "run")).execute()
    assert result.content() == read_results(tmp_path / "run")
    assert result.tinfer_final["agree"] is None
    assert result.tinfer_final["ku"] is None
    assert (result.tinfer_final["ent"] is None) == (method in ("joint", "exp-replay"))
    assert ("softmax" in result.tinfer_final) == (method in ("joint", "exp-replay"))


def test_a_deterministic_regression_without_statistics_infers_nothing(
    tmp_path: Path, tiny_config: Callable[..., RunConfig]
) -> None:
    config = tiny_config("pr-dirac", {"statistics.collect": False}, benchmark="regression-1d")
    result = Run(Plan.of(config, tmp_path / "run")).execute()
    assert result.mse.tinfer_final is None
    assert result.task_inference_accuracy == {}


def test_metrics_are_one_line_a_step_and_one_a_task(classified: Path) -> None:
    lines = [json.loads(line) for line in (classified / "metrics.jsonl").read_text().splitlines()]
    steps, events = [line for line in lines if "event" not in line], [line for line in lines if "event" in line]
    assert [(line["task"], line["iteration"]) for line in steps] == [
        (task, step) for task in range(3) for step in range(1, 31)
    ]
    for line in steps:
        assert line["loss"] == pytest.approx(line["data"] + line["prior"] + line["replay"])
    assert [line["tgiven"] for line in events] == read_results(classified)["tgiven_matrix"]


def test_metrics_follow_log_every(tmp_path: Path, tiny_config: Callable[..., RunConfig]) -> None:
    Run(Plan.of(tiny_config(settings={"training.log_every": 5}), tmp_path / "run")).execute()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines if line["task"] == 1 and "iteration" in line] == [1, 5, 8]


@pytest.mark.parametrize("method", ["pr-bbb", "ewc-shared"])  # every method: test_resume_in_process.py
def test_the_stored_configuration_repeats_the_run(
    method: str, tmp_path: Path, tiny_config: Callable[..., RunConfig], assert_same_run: Callable[[Path, Path], None]
) -> None:
    config = tiny_config(method, {"training.iterations": 3, "seed": 2})
    Run(Plan.of(config, tmp_path / "first")).execute()
    stored = flatten(yaml.safe_load((tmp_path / "first" / "config.yaml").read_text()))
    Run(Plan.of(build_config({}, stored, "stored"), tmp_path / "second")).execute()
    assert_same_run(tmp_path / "first", tmp_path / "second")


def test_settings_that_only_watch_change_no_figure(
    tmp_path: Path, tiny_config: Callable[..., RunConfig], classified: Path
) -> None:
    settings = {
        "training.iterations": 30,
        "training.log_every": 4,
        "training.checkpoint_every": 11,
        "inference.batch_size": 7,
    }
    result, expected = (
        Run(Plan.of(tiny_config("pr-bbb", settings), tmp_path / "run")).execute().content(),
        read_results(classified),
    )
    for key in ("tgiven_matrix", "tinfer_final", "task_inference_accuracy", "batch_wise"):
        assert result[key] == expected[key]


def test_a_picture_is_kept_for_the_toy_problems(classified: Path, regressed: Path) -> None:
    maps, lines = load_file(classified / "predictive.safetensors"), load_file(regressed / "predictive.safetensors")
    assert maps["entropy"].shape == maps["agree"].shape == (3, 181, 181)
    assert maps["probability"].shape == (3, 2, 181, 181)
    assert maps["sample_entropy"].shape == (3, 3, 181, 181)  # as many as there are samples
    assert maps["sample_probability"].shape == (3, 3, 2, 181, 181)
    p = maps["sample_probability"].double()
    # of the same samples, in half precision
    assert maps["sample_entropy"].double() == pytest.approx(torch.special.entr(p).sum(2), abs=1e-2)
    assert (classified / "predictive.safetensors").stat().st_size < 4_000_000
    assert maps["probability"].float().sum(1) == pytest.approx(torch.ones(3, 181, 181), abs=2e-3)
    assert lines["mean"].shape == lines["std"].shape == (3, 401)


def test_uncertainties_are_kept_in_bins(classified: Path, regressed: Path) -> None:
    maps, lines = load_file(classified / "uncertainty.safetensors"), load_file(regressed / "uncertainty.safetensors")
    strange = {name for name in maps if name.startswith("strangeness.")}
    assert "strangeness.known" in strange
    score_names = {f"scores.{name}" for name in ("ent", "conf", "agree", "ku")}
    assert set(maps) == {"edges", "reliability"} | score_names | strange
    assert {name for name in lines if not name.startswith("strangeness.")} == {"edges", "scores.variance"}
    own, other = maps["scores.ent"].sum(-1)  # (2, T, bins) -> (T,), (T,)
    assert torch.equal(other, own.sum() - own)  # every posterior is asked about every input
    assert torch.equal(maps["reliability"][:, 0].sum(-1), own.double())  # and its own task's inputs make the diagram
    right = 100 * maps["reliability"][:, 2].sum(-1) / own
    scores = read_results(classified)["tgiven_matrix"][-1]
    assert right.tolist() == pytest.approx(scores, abs=2)  # calibrated answers may differ where classes nearly tie
    assert 0 <= read_results(classified)["calibration_error"] <= 100
    assert read_results(regressed)["calibration_error"] is None


def test_the_log_tells_the_story(classified: Path) -> None:
    text = (classified / "log.txt").read_text()
    assert [part in text for part in ("pr-bbb on modes-2d", "task 0 learned", "task 2 learned", "finished")] == [
        True
    ] * 4


def test_images_run_too(tmp_path: Path, tiny_config: Callable[..., RunConfig]) -> None:
    result = Run(
        Plan.of(tiny_config("pr-bbb", {"training.iterations": 20}, benchmark="split-digits"), tmp_path / "run")
    ).execute()
    assert result.num_tasks == 5
    assert result.parameters.trained < result.parameters.posterior == 2 * result.parameters.main_network
    assert not (tmp_path / "run" / "predictive.safetensors").exists()
    assert ContinualClassifier.load(tmp_path / "run").task_names == [
        f"classes-{2 * task}-{2 * task + 1}" for task in range(5)
    ]


def test_an_existing_folder_is_refused(tmp_path: Path, tiny_config: Callable[..., RunConfig]) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("precious")
    with pytest.raises(ConfigError, match=r"already exists; continue it with --resume, replace it with --overwrite"):
        Run(Plan.of(tiny_config(), tmp_path / "run")).execute()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_an_empty_folder_is_used(tmp_path: Path, tiny_config: Callable[..., RunConfig]) -> None:
    (tmp_path / "run").mkdir()
    Run(Plan.of(tiny_config(settings={"training.iterations": 1}), tmp_path / "run")).execute()
    assert (tmp_path / "run" / "results.json").is_file()


class FullDisk:
    """Every write after the first few fails."""

    def __init__(self, writes: int) -> None:
        self.left, self.fsync = writes, os.fsync

    def __call__(self, handle: int) -> None:
        self.left -= not stat.S_ISDIR(os.fstat(handle).st_mode)
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.fsync(handle)


@pytest.mark.parametrize(
    "writes", [0, 4, 12, *(pytest.param(writes, marks=pytest.mark.slow) for writes in (1, 2, 7, 11))]
)
def test_a_full_disk_is_one_clear_error_and_the_run_can_go_on(
    writes: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tiny_config: Callable[..., RunConfig],
    assert_same_run: Callable[[Path, Path], None],
) -> None:
    config, folder = tiny_config("pr-dirac"), tmp_path / "full"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", FullDisk(writes))
        with pytest.raises(
            MetaReplayError, match=r"cannot write .*: No space left on device; what was stored before is untouched"
        ):
            Run(Plan.of(config, folder)).execute()
    assert not (folder / "results.json").exists()
    left = CheckpointFolder(folder / "checkpoint", config.fingerprint()).last_good()
    assert (left is None) == (writes <= 2)  # config.yaml and metrics.jsonl come first
    Run(Plan.of(config, folder)).execute(resume=True)
    Run(Plan.of(config, tmp_path / "whole")).execute()
    assert_same_run(tmp_path / "whole", folder)


def test_the_observer_is_closed_whatever_happens(tmp_path: Path, tiny_config: Callable[..., RunConfig]) -> None:
    class Watcher(NullObserver):
        closed = 0

        def stage_ends(self, stage: Stage, scores: Any) -> None:
            raise RuntimeError("a bug in the observer")

        def close(self) -> None:
            self.closed += 1

    watcher = Watcher()
    with pytest.raises(RuntimeError, match="a bug in the observer"):
        Run(Plan.of(tiny_config(), tmp_path / "run"), observer=watcher).execute()
    assert watcher.closed == 1
