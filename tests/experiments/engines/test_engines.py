"""Engines: the same jobs as processes, as elements of a Slurm array, as Ray tasks."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metareplay.errors import ConfigError, MetaReplayError
from metareplay.experiments.engines.base import PARENT, Job, Resources, parse_resources, seconds_of
from metareplay.experiments.engines.choice import engine_named
from metareplay.experiments.engines.local import Local
from metareplay.experiments.engines.on_ray import OnRay, refuse_what_no_node_has
from metareplay.experiments.engines.slurm import LOGS, SCRIPT, Slurm
from metareplay.experiments.plan import Plan
from metareplay.experiments.seeds import commands_for, run_side_by_side
from metareplay.learner.config import RunConfig


def writing(out: Path, index: int) -> Job:
    """Writes what it sees of its environment to a file of its own."""
    line = f'echo "$OMP_NUM_THREADS ${PARENT}" > "{out}/{index}.txt"'
    return Job(f"job {index}", ("bash", "-c", line), out, threads=index + 1)


def nothing(*_: object) -> None:
    pass


def never() -> bool:
    return False


def test_local_jobs_belong_to_this_process_and_failures_are_told(tmp_path: Path) -> None:
    bad = Job("bad", ("bash", "-c", "echo one >&2; echo two >&2; exit 3"), tmp_path)
    failures = Local().run([writing(tmp_path, 0), bad], at_once=2, out=tmp_path, report=nothing, should_stop=never)
    killed = Job("killed", ("bash", "-c", "echo a warning >&2; kill -9 $$"), tmp_path)
    assert failures == {1: "two"}
    failures = Local().run([killed], at_once=1, out=tmp_path, report=nothing, should_stop=never)
    assert failures == {0: "its process was killed (signal 9)"}
    assert (tmp_path / "0.txt").read_text().split() == ["1", str(os.getpid())]


def test_an_array_script_runs_each_job_alone_and_says_what_it_may_use(tmp_path: Path) -> None:
    engine = Slurm(parse_resources("cpus=2,gpus=1,memory=4G,time=2:00:00"))
    jobs = [writing(tmp_path, index) for index in range(3)]
    assert engine.run(jobs, at_once=2, out=tmp_path, report=nothing, should_stop=never) == {}
    text = (tmp_path / SCRIPT).read_text()
    for words in ("--array=0-2%2", "--cpus-per-task=2", "--gpus-per-task=1", "--mem=4096M", "--time=2:00:00"):
        assert f"#SBATCH {words}\n" in text
    for index in range(3):  # a shell stands in for sbatch
        environment = {"SLURM_ARRAY_TASK_ID": str(index), "PATH": os.environ["PATH"]}
        subprocess.run(["bash", tmp_path / SCRIPT], env=environment, check=True)
        assert (tmp_path / f"{index}.txt").read_text().split() == [str(index + 1)]  # nobody's child
    none = {"SLURM_ARRAY_TASK_ID": "3", "PATH": os.environ["PATH"]}
    assert subprocess.run(["bash", tmp_path / SCRIPT], env=none, check=False).returncode == 1


def test_engines_have_names_and_refuse_what_they_cannot_give() -> None:
    assert isinstance(engine_named("local"), Local)
    assert engine_named("slurm", "cpus=2").resources == Resources(cpus=2.0)  # type: ignore[attr-defined]
    ray = engine_named("ray=auto", "cpus=0.5,memory=300")
    assert isinstance(ray, OnRay)
    assert (ray.address, ray.resources) == ("auto", Resources(cpus=0.5, memory=300))
    for name, resources, words in (
        ("ray=", None, "is unknown"),
        ("local", "cpus=2", "no effect with --on local"),
        ("slurm", "cpus=0.5", "whole processors"),
        ("ray", "time=3", "Ray has no time limits"),
        ("slurm", "cpu=1", "is not understood"),
        ("slurm", "memory=much", "give megabytes"),
        ("slurm", "cpus=0", "a run needs a processor"),
        ("ray", "cpus=0", "a run needs a processor"),
        ("slurm", "memory=0G", "a run needs memory"),
        ("ray=somewhere", None, "is not an address; write ray=HOST:PORT"),
        ("ray=ray://somewhere", None, "is not an address"),
        ("slurm", "time=soon", "give minutes"),
        ("slurm", "time=2:00", "minutes and seconds; write hours:minutes:seconds, such as time=2:00:00"),
        ("slurm", "time=2", "is too short"),
        ("slurm", "time=0:01:30", "is too short"),
        ("ray=http://127.0.0.1:8265", None, "is the address of a dashboard"),
    ):
        with pytest.raises(ConfigError, match=words):
            engine_named(name, resources)


def test_a_request_that_no_machine_of_a_cluster_can_meet_is_refused() -> None:
    small = {"Alive": True, "Resources": {"CPU": 2.0, "memory": 4.0 * 2**30}}
    large = {"Alive": True, "Resources": {"CPU": 16.0, "memory": 1.0 * 2**30}}
    lost = {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}}
    refuse_what_no_node_has([small, large, lost], Resources())
    refuse_what_no_node_has([small, large, lost], Resources(cpus=16, memory=1024))
    for resources, words in (
        (Resources(cpus=17), r"--resources cpus=17: no machine of the Ray cluster has that, the largest has 16"),
        (Resources(gpus=1), r"gpus=1: .* the largest has 0"),
        (Resources(memory=5000), r"memory=5000M: .* the largest has 4096M"),
        (Resources(cpus=16, memory=4096), "has all of this at once"),
    ):
        with pytest.raises(MetaReplayError, match=words):
            refuse_what_no_node_has([small, large, lost], resources)


def test_runs_have_as_many_threads_as_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert engine_named("local").threads(8) == 8
    assert engine_named("slurm").threads(1) == 1  # not the 64 of the machine where the script is written
    assert engine_named("slurm", "cpus=4").threads(1) == 4
    assert engine_named("ray", "cpus=0.5").threads(8) == 1
    assert [engine_named(name).queues for name in ("local", "slurm", "ray", "ray=auto")] == [False, True, False, True]


def test_times_are_read_as_slurm_reads_them() -> None:
    for text, seconds in (("90", 5400), ("1:30:05", 5405), ("2-3", 183600), ("1-2:30", 95400), ("0-0:10:01", 601)):
        assert seconds_of(text) == seconds


class Refusing:
    """An engine that cannot be reached."""

    waits, queues = True, False

    def threads(self, jobs: int) -> int:
        return 1

    def run(self, jobs: Any, **_: Any) -> dict[int, str]:
        assert all((job.folder / "request.json").is_file() for job in jobs)
        raise MetaReplayError("nobody is there")


def test_jobs_that_an_engine_refuses_leave_nothing(tiny_config: Callable[..., RunConfig], tmp_path: Path) -> None:
    plans = table(tiny_config, tmp_path)
    with pytest.raises(MetaReplayError, match="nobody is there"):
        run_side_by_side(plans, jobs=1, resume=False, engine=Refusing())
    assert not any(plan.folder.exists() for plan in plans)


def table(config: Callable[..., RunConfig], out: Path) -> list[Plan]:
    """Two rows of a table, long enough to be interrupted."""
    settings = {"training.iterations": 300, "training.checkpoint_every": 25}
    return [Plan.of(config(method, settings), out / method / "seed-0") for method in ("pr-dirac", "pr-bbb")]


def worker_of(folder: Path) -> int | None:
    """The process whose child runs in a folder."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if str(folder.resolve()).encode() in words and b"metareplay.experiments.seeds" in words:
                return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    return None


@pytest.mark.slow
def test_on_ray_a_lost_worker_changes_no_bit(
    tmp_path: Path, tiny_config: Callable[..., RunConfig], assert_same_run: Callable[[Path, Path], None]
) -> None:
    pytest.importorskip("ray")
    here, there = table(tiny_config, tmp_path / "local"), table(tiny_config, tmp_path / "ray")
    assert run_side_by_side(here, jobs=2, resume=True) == {}
    killed: list[int] = []

    def kill_one(statuses: object) -> None:
        checkpoints = there[1].folder / "checkpoint"
        if not killed and checkpoints.is_dir() and any(checkpoints.glob("*.safetensors")):
            worker = worker_of(there[1].folder)
            if worker is not None:
                killed.append(worker)
                os.kill(worker, signal.SIGKILL)

    engine = engine_named("ray", "cpus=1")
    assert run_side_by_side(there, jobs=2, resume=True, report=kill_one, engine=engine) == {}
    assert killed, "the run was over before its worker could be killed"
    assert "resumed from checkpoint" in (there[1].folder / "log.txt").read_text()
    for one, two in zip(here, there, strict=True):
        assert_same_run(one.folder, two.folder)
        assert not (two.folder / "request.json").exists()


@pytest.mark.slow
def test_on_a_real_slurm_a_cancelled_element_is_continued_by_the_same_script(
    tmp_path: Path,
    tiny_config: Callable[..., RunConfig],
    assert_same_run: Callable[[Path, Path], None],
    slurm: dict[str, str],
) -> None:
    out, engine = tmp_path / "on 100 % 'slurm'", Slurm(parse_resources("cpus=1,time=30"))
    here, there = table(tiny_config, tmp_path / "local"), table(tiny_config, out)
    assert run_side_by_side(here, jobs=2, resume=True) == {}
    assert run_side_by_side(there, jobs=2, resume=True, engine=engine, out=out) == {}
    submit = ["sbatch", "--parsable", str(out / SCRIPT)]
    number = subprocess.run(submit, env=slurm, capture_output=True, text=True, check=True).stdout.strip()
    checkpoints = there[1].folder / "checkpoint"
    while not (checkpoints.is_dir() and any(checkpoints.glob("*.safetensors"))):
        time.sleep(0.1)
    subprocess.run(["scancel", f"{number}_1"], env=slurm, check=True)
    while subprocess.run(["squeue", "-h"], env=slurm, capture_output=True, check=True).stdout.strip():
        time.sleep(0.5)
    assert (there[0].folder / "results.json").is_file()
    assert not (there[1].folder / "results.json").exists()
    subprocess.run(["sbatch", "--wait", str(out / SCRIPT)], env=slurm, check=True)  # what has finished does nothing
    assert "resumed from checkpoint" in (there[1].folder / "log.txt").read_text()
    assert len(list((out / LOGS).iterdir())) == 4  # two elements, twice
    for one, two in zip(here, there, strict=True):
        assert_same_run(one.folder, two.folder)


@pytest.mark.slow
def test_listed_commands_run_anywhere_and_can_be_repeated(
    tmp_path: Path, tiny_config: Callable[..., RunConfig]
) -> None:
    plans = [Plan.of(tiny_config("sp-dirac", {"training.iterations": 2}), tmp_path / "run")]
    (line,) = commands_for(plans, resume=False)
    for _ in range(2):
        subprocess.run(["bash", "-c", line], cwd="/", check=True)
    assert (tmp_path / "run" / "results.json").is_file()
    assert commands_for(plans, resume=True) == []
