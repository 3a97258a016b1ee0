"""One run on two devices, two CPU processes that exchange gradients with gloo: as one process, up to rounding."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from metareplay.experiments import on_devices
from metareplay.interrupts import stop_on_signal
from metareplay.learner.store import load_model

OPTIONS = (
    "training.iterations=60",
    "training.checkpoint_every=10",
    "training.log_every=1",
    "training.batch_size=7",  # parts of different sizes
    "posterior.local_reparametrisation=false",
    "inference.samples=3",
    "report.references=false",
    "threads=1",
)


def command(out: Path, *more: str) -> list[str]:
    settings = [word for option in OPTIONS for word in ("--set", option)]
    return [sys.executable, "-m", "metareplay", "run", "modes-2d", "--quiet", "--out", str(out), *settings, *more]


def losses(out: Path) -> list[float]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


@pytest.mark.slow
def test_two_processes_learn_as_one_and_continue_after_a_kill(
    tmp_path: Path, assert_same_run: Callable[[Path, Path], None]
) -> None:
    pytest.importorskip("lightning_fabric")
    alone, together, killed = (tmp_path / name for name in ("alone", "together", "killed"))
    two = ("--devices", "2", "--strategy", "ddp")
    subprocess.run(command(alone), check=True, stdout=subprocess.DEVNULL)
    subprocess.run(command(together, *two), check=True, stdout=subprocess.DEVNULL)
    torch.testing.assert_close(torch.tensor(losses(together)), torch.tensor(losses(alone)), rtol=1e-3, atol=1e-3)
    weights: list[Any] = [load_model(folder).learner.model.tensors() for folder in (alone, together)]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, rtol=1e-3, atol=1e-3)
    victim = subprocess.Popen(command(killed, *two), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not any((killed / "checkpoint").glob("*.safetensors")):
        assert victim.poll() is None
        time.sleep(0.05)
    os.kill(victim.pid, signal.SIGTERM)  # only the first process is asked; both stop after the same step
    assert victim.wait(timeout=120) == 2
    assert not (killed / "results.json").exists()
    subprocess.run(command(killed, *two, "--resume"), check=True, stdout=subprocess.DEVNULL)
    assert_same_run(together, killed)


def test_a_process_asks_itself_to_stop_when_the_first_one_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    parents, sent = iter([7, 7, 1]), list[tuple[int, int]]()
    monkeypatch.setattr(on_devices, "WATCHED", 0.0)
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(os, "kill", lambda *given: sent.append(given))
    on_devices._end_with(7)
    assert sent == [(os.getpid(), signal.SIGTERM)]


def test_ctrl_c_waits_until_the_processes_have_joined() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        asked = stop_on_signal()
        with on_devices._no_interrupts():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # another thread would take it
            child = subprocess.run(
                [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGINT)"], check=False
            )
            assert child.returncode == 0  # inherited
            assert not asked()
        assert asked()
    finally:
        stop_on_signal()  # forgets what has come
        for number, handler in before.items():
            signal.signal(number, handler)
