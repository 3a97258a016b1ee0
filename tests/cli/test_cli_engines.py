"""``--on`` and ``--list`` of run and reproduce: what is written and printed when somebody else starts the runs."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
