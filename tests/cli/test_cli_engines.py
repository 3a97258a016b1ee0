"""``--on`` and ``--list`` of run and reproduce: what is written and printed when somebody else starts the runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

TINY = ("--set", "training.iterations=2", "--set", "inference.samples=3", "--quiet")


def test_an_array_of_seeds_is_written_and_shown_how_to_submit(command: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "seeds"
    call = ("run", "modes-2d", "--seeds", 3, "--on", "slurm", "--jobs", 2, "--out", out, *TINY)
    answer = command(*call, "--resources", "cpus=2,time=30")
    assert answer.code == 0, answer.err
    assert "runs: 3 in an array" in answer.out
    assert f"sbatch {out / 'slurm.sh'}" in answer.out
    assert "with --resume" in answer.out
    script = (out / "slurm.sh").read_text()
    assert "#SBATCH --array=0-2%2\n" in script
    assert all(f"metareplay.experiments.seeds {out}/seed-{seed}" in script for seed in range(3))
    assert all((out / f"seed-{seed}" / "request.json").is_file() for seed in range(3))
    again = command(*call)
    assert again.code == 2
    assert "--resume" in again.err
    assert command(*call, "--resume").code == 0
    assert command("run", "modes-2d", "--seeds", 3, "--out", out, "--overwrite", "--list", *TINY).code == 0
    assert not (out / "slurm.sh").exists()


def test_the_runs_of_a_table_are_listed(command: Callable[..., Any], tmp_path: Path) -> None:
    answer = command(
        "reproduce", "gmm", "--rows", "pr-dirac,sp-dirac", "--seeds", 2, "--list", "--out", tmp_path / "gmm"
    )
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    assert [line.rpartition("/gmm/")[2] for line in lines] == [
        *("pr-dirac/seed-0", "sp-dirac/seed-0", "pr-dirac/seed-1", "sp-dirac/seed-1"),
    ]
    assert all(line.startswith("OMP_NUM_THREADS=1 ") for line in lines)


def test_devices_are_for_one_run_here(command: Callable[..., Any], tmp_path: Path) -> None:
    for more in (("--seeds", 2), ("--on", "slurm"), ("--list",)):
        answer = command("run", "modes-2d", "--devices", 2, "--out", tmp_path / "run", *more)
        assert answer.code == 2
        assert "--devices is for one run on this machine" in answer.err
    answer = command("run", "modes-2d", "--devices", 2, "--device", "mps", "--out", tmp_path / "run")
    assert answer.code == 2
    assert "--device cpu or cuda" in answer.err
