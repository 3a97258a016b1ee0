"""The command in a process of its own, killed at different moments and resumed: the end is the same, bit for bit."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from metareplay.experiments.plan import make_plan
from metareplay.experiments.run import Run
from metareplay.learner.config import parse_setting

PATIENCE = 120.0  # seconds until a process that does nothing is given up
SETTINGS = [
    "training.iterations=70",
    "training.checkpoint_every=7",
    "training.log_every=1",
    "inference.samples=5",
    "report.references=false",
]

Moment = Callable[[Path], bool]


def checkpoint(number: int) -> Moment:
    """Checkpoint ``number`` or a later one is there."""
    return lambda folder: any(
        int(path.stem[5:]) >= number for path in (folder / "checkpoint").glob("step-*.safetensors")
    )


def metrics(lines: int) -> Moment:
    """So many lines have been logged."""
    return lambda folder: (
        (folder / "metrics.jsonl").is_file() and (folder / "metrics.jsonl").read_bytes().count(b"\n") >= lines
    )


def task_change(task: int) -> Moment:
    """A task was tested: its checkpoint is being written, or the next task begins."""
    return lambda folder: (
        (folder / "metrics.jsonl").is_file()
        and f'"event": "task", "task": {task}'.encode() in (folder / "metrics.jsonl").read_bytes()
    )


def start(arguments: Sequence[str]) -> "subprocess.Popen[str]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "metareplay", "run", *arguments, "--quiet"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def interrupt(
    process: "subprocess.Popen[str]", folder: Path, moment: Moment, number: signal.Signals
) -> tuple[int, str]:
    """Wait for the moment, send the signal; returns the exit code and the output."""
    deadline = time.monotonic() + PATIENCE
    while not moment(folder):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "the moment never came"
        time.sleep(0.001)
    process.send_signal(number)
    output = process.communicate(timeout=PATIENCE)
    return process.returncode, "".join(output)


def uninterrupted(method: str, folder: Path) -> None:
    settings = dict(parse_setting(pair) for pair in SETTINGS)
    Run(make_plan({"benchmark": "modes-2d", "method": method}, settings, out=folder)).execute()


def kill_at(moments: Sequence[Moment], method: str, folder: Path) -> None:
    """Start a run, and kill it again and again."""
    new = ["modes-2d", "--method", method, *(word for setting in SETTINGS for word in ("--set", setting))]
    for number, moment in enumerate(moments):
        process = start([*([] if number else new), "--out", str(folder), *(["--resume"] if number else [])])
        code, _ = interrupt(process, folder, moment, signal.SIGKILL)
        assert code == -signal.SIGKILL
        assert not (folder / "results.json").exists()


def resume_here(folder: Path) -> None:
    """Finish a run in this process, which has everything imported already."""
    Run(make_plan({}, out=folder, resume=True)).execute(resume=True)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param([task_change(1)], id="once", marks=SLOW),
        pytest.param([metrics(30), task_change(1)], id="twice", marks=SLOW),
    ],
)
def test_the_command_resumes_a_run_that_was_killed(
    moments: Sequence[Moment], tmp_path: Path, assert_same_run: Callable[[Path, Path], None]
) -> None:
    folder = tmp_path / "killed"
    kill_at(moments, "pr-bbb", folder)
    process = start(["--out", str(folder), "--resume"])
    output, problems = process.communicate(timeout=PATIENCE)
    assert (process.returncode, problems) == (0, "")
    assert "TGiven-Final" in output
    uninterrupted("pr-bbb", tmp_path / "whole")
    assert_same_run(tmp_path / "whole", folder)


KILLS = [
    pytest.param("pr-dirac-sr", task_change(0), id="pr-dirac-sr in a task change", marks=SLOW),
    pytest.param("pr-dirac-sr", checkpoint(25), id="pr-dirac-sr near the end", marks=SLOW),
    pytest.param("pr-bbb", checkpoint(1), id="pr-bbb at the first checkpoint", marks=SLOW),
    pytest.param("pr-bbb", task_change(0), id="pr-bbb in a task change"),
    pytest.param("joint", checkpoint(14), id="joint in the second task", marks=SLOW),
    pytest.param("exp-replay", checkpoint(14), id="exp-replay in the second task", marks=SLOW),
    pytest.param("sp-tc-dirac", metrics(100), id="sp-tc-dirac in the second task", marks=SLOW),
]


@pytest.mark.usefixtures("small_maps")
@pytest.mark.parametrize(("method", "moment"), KILLS)
def test_a_killed_run_resumes_exactly(
    method: str, moment: Moment, tmp_path: Path, assert_same_run: Callable[[Path, Path], None]
) -> None:
    kill_at([moment], method, tmp_path / "killed")
    resume_here(tmp_path / "killed")
    uninterrupted(method, tmp_path / "whole")
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


SIGNALS = [pytest.param(signal.SIGINT, id="ctrl-c"), pytest.param(signal.SIGTERM, id="polite kill", marks=SLOW)]


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_run_saves_and_says_how_to_go_on(
    number: signal.Signals, tmp_path: Path, assert_same_run: Callable[[Path, Path], None]
) -> None:
    folder = tmp_path / "stopped"
    arguments = [
        "modes-2d",
        "--method",
        "sp-bbb",
        *(word for setting in SETTINGS for word in ("--set", setting)),
        "--out",
        str(folder),
    ]
    code, output = interrupt(start(arguments), folder, checkpoint(12), number)
    assert code == 2
    assert "--resume" in output
    assert str(folder) in output
    assert "Traceback" not in output
    assert not (folder / "results.json").exists()
    resume_here(folder)
    uninterrupted("sp-bbb", tmp_path / "whole")
    assert_same_run(tmp_path / "whole", folder)
