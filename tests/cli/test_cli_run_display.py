"""What `metareplay run` prints at its end."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import save_file

from metareplay.cli.run_display import print_table
from metareplay.experiments.results import Results


def finished_run(folder: Path, seed: int, inputs: int) -> Results:
    """A run's folder whose second task has that many test inputs."""
    by_criterion = {"ent": 50.0, "stats": 97.5}
    results = Results(
        benchmark="own",
        method="pr-bbb",
        network="mlp-10",
        seed=seed,
        num_tasks=2,
        tinfer_final=by_criterion,
        batch_wise=by_criterion,
        batch_wise_size=100,
        default_criterion="stats",
    )
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps(results.content()))
    bins = np.zeros((2, 3, 15))
    bins[:, 0, 7], bins[:, 0, 14] = (50, inputs - 10), (200, 10)
    save_file({"reliability": bins}, folder / "uncertainty.safetensors")
    return results


@pytest.mark.parametrize(("inputs", "shown"), [(100, True), (99, False)])
def test_batches_are_shown_where_every_task_has_a_whole_one(inputs: int, shown: bool, tmp_path: Path) -> None:
    runs = [finished_run(tmp_path / f"seed-{seed}", seed, size) for seed, size in enumerate((inputs, 300))]
    for folder, results in ((tmp_path / "seed-0", runs[0]), (tmp_path, runs)):
        console = Console(file=io.StringIO(), width=80)
        print_table(console, folder, results)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert ("Batches of 100 %" in text) == shown
        assert "Task inferred (TInfer-Final)" in text
        assert " stats (default)" in text


def test_a_folder_without_arrays_shows_all_figures(tmp_path: Path) -> None:
    results = finished_run(tmp_path / "run", 0, 10)
    (tmp_path / "run" / "uncertainty.safetensors").unlink()
    console = Console(file=io.StringIO(), width=80)
    print_table(console, tmp_path / "run", results)
    assert "Batches of 100 %" in console.file.getvalue()  # type: ignore[attr-defined]
