"""``--on`` and ``--list`` of run and reproduce: what is written and printed when somebody else starts the runs."""

import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metareplay.benchmarks.registry import BENCHMARKS

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


def test_an_array_has_no_limit_by_default_and_its_folder_any_name(command: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "100 % mine"
    answer = command("run", "modes-2d", "--seeds", 3, "--on", "slurm", "--out", out, *TINY)
    assert answer.code == 0, answer.err
    assert f"sbatch '{out / 'slurm.sh'}'" in answer.out
    script = (out / "slurm.sh").read_text()
    assert "#SBATCH --array=0-2\n" in script
    assert f'#SBATCH --output="{str(out).replace("%", "%%")}/slurm-logs/%A_%a.txt"\n' in script


def test_seeds_that_an_engine_refuses_leave_nothing(command: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / 'a "name"'
    for _ in range(2):  # the second call meets no run of the first
        answer = command("run", "modes-2d", "--seeds", 2, "--on", "slurm", "--out", out, *TINY)
        assert answer.code == 2
        assert "a quotation mark, a backslash or a line break" in answer.err
    assert not any(out.iterdir())


def test_the_table_so_far_is_shown_whatever_ran_at_once_before(
    command: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_report: None,
) -> None:
    """On two processors a run that is alone has two threads, and one of two has one; a table in between keeps them."""
    known = BENCHMARKS["modes-2d"]
    monkeypatch.setitem(BENCHMARKS, "modes-2d", replace(known, needs_data=True))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    call = ("reproduce", "gmm", "--rows", "sp-dirac", "--budget", 0.0001, "--out", tmp_path / "gmm", "--quiet")
    first = command(*call, "--jobs", 2)
    assert first.code == 0, first.err
    for more in ((), ("--list",), ("--on", "slurm", "--resources", "cpus=8")):
        again = command(*call, *more)
        assert again.code == 0, again.err
    listed = command(*call, "--seeds", 2, "--on", "slurm", "--resources", "cpus=8")
    assert listed.code == 0, listed.err
    script = (tmp_path / "gmm" / "slurm.sh").read_text()
    assert script.count("exec env OMP_NUM_THREADS=8 ") == 1  # of the second seed, which is new


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


def test_a_strategy_needs_devices_and_has_to_be_known(command: Callable[..., Any], tmp_path: Path) -> None:
    alone = command("run", "modes-2d", "--strategy", "ddp", "--out", tmp_path / "run", *TINY)
    assert alone.code == 2
    assert "--strategy ddp has no effect on one device; add --devices 2" in alone.err
    unknown = command("run", "modes-2d", "--devices", 2, "--strategy", "foo", "--out", tmp_path / "run", *TINY)
    assert unknown.code == 2
    assert "--strategy 'foo' is not supported; choose ddp or auto" in unknown.err
    assert not (tmp_path / "run").exists()


class Two:
    """The first of two processes, without the second."""

    rank, count = 0, 2


def test_what_devices_cannot_learn_is_refused_before_anything_is_written_or_removed(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metareplay.cli.run_devices.team_of", lambda *_, **__: Two())
    local = ("run", "modes-2d", *TINY, "--set", "posterior.local_reparametrisation=true", "--out", tmp_path / "run")
    refused = command(*local)
    assert refused.code == 2
    assert "set posterior.local_reparametrisation=false" in refused.err
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "seeds.json").write_text("{}")
    assert command(*local, "--overwrite").code == 2
    assert (tmp_path / "run" / "seeds.json").is_file()


def test_an_address_where_nothing_listens_is_refused_at_once(command: Callable[..., Any], tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # without listening
        port = held.getsockname()[1]
        for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
            answer = command("run", "modes-2d", "--seeds", 2, "--on", f"ray={address}", "--out", tmp_path / "r", *TINY)
            assert answer.code == 2
            assert answer.err.startswith(f"error: --on ray={address}: nothing can be reached there")
            assert len(answer.err.splitlines()) == 1
    assert not (tmp_path / "r").exists()
