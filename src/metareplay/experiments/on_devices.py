"""One run on several devices through Lightning Fabric: a process for each, which see parts of the same batches."""

import logging
import os
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from metareplay.errors import ConfigError, MetaReplayError, listed

SHARED = ("checkpoint", "metrics.jsonl", "config.yaml")
"""What every process needs to continue a run."""
WATCHED = 0.5
"""Seconds between two looks at whether the first process is still there."""
STRATEGIES = ("ddp", "auto")
"""Those of Fabric that start the same command once for each device. Gradients are averaged here, so that strategies
which divide a model among devices, or wrap it, would change nothing."""


@final
class Devices:
    """The processes of a run, joined by Fabric; the first one alone writes to the run's folder."""

    def __init__(self, fabric: Any, asked: Callable[[], bool]) -> None:
        self.fabric, self.asked, self.stopped = fabric, asked, False
        self.rank, self.count = int(fabric.global_rank), int(fabric.world_size)

    def mean(self, tensor: Tensor) -> Tensor:
        """The mean over all processes; with it goes whether any of them was asked to stop, so that all stop at once."""
        flag = torch.tensor([float(self.asked())], dtype=tensor.dtype, device=tensor.device)
        try:
            both: Tensor = self.fabric.all_reduce(torch.cat([tensor, flag]), reduce_op="mean")  # (P,) -> (P + 1,)
        except RuntimeError as error:
            raise MetaReplayError(
                f"another process of the run was lost ({str(error).splitlines()[0]}); continue with --resume"
            ) from error
        self.stopped = self.stopped or float(both[-1]) > 0
        return both[:-1]

    def should_stop(self) -> bool:
        """Whether all processes are to stop after this step."""
        return self.stopped

    @contextmanager
    def folder(self, out: Path, *, resume: bool) -> Iterator[Path]:
        """The run's folder for the first process; for the others a copy of what they need, which is removed."""
        if self.rank == 0:
            self.fabric.barrier()  # the others have their copies
            yield out
            return
        with tempfile.TemporaryDirectory(prefix="metareplay-") as scratch:
            if resume:
                _copy(out, Path(scratch))
            self.fabric.barrier()
            yield Path(scratch)


def launched(devices: int, strategy: str, device: str | None, asked: Callable[[], bool]) -> Devices:
    """Start the other processes, which execute the same command, and join them; each returns from here."""
    if strategy not in STRATEGIES:
        raise ConfigError(f"--strategy {strategy!r} is not supported; choose {listed(STRATEGIES)}")
    if device not in (None, "cpu", "cuda"):
        raise ConfigError(f"--devices needs --device cpu or cuda, not {device}; each process uses its own device")
    try:
        from lightning_fabric import Fabric
    except ImportError as error:
        raise ConfigError('--devices needs the package lightning-fabric: pip install "metareplay[fabric]"') from error
    accelerator = device or "cpu"
    if accelerator == "cuda" and torch.cuda.device_count() < devices:
        raise ConfigError(f"--devices {devices}: this machine has {torch.cuda.device_count()} CUDA devices")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message="The `srun` command is available", module="lightning_fabric")
    try:
        fabric = Fabric(accelerator=accelerator, devices=devices, strategy=strategy)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"--strategy {strategy!r} is not one of Fabric's: {str(error).splitlines()[0]}") from error
    with _no_interrupts():
        fabric.launch()
    if fabric.global_rank > 0:
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    return Devices(fabric, asked)


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Ctrl-C waits until all processes have joined: one that it ended while it starts would make Fabric kill this one
    without a word. The processes that are started inherit this, and let it go when they have joined."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _end_with(parent: int) -> None:
    """Ask this process to stop when the one that started it is gone: outside of training nothing else tells it."""
    while os.getppid() == parent:
        time.sleep(WATCHED)
    os.kill(os.getpid(), signal.SIGTERM)


def _copy(source: Path, target: Path) -> None:
    for name in SHARED:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name)
        elif (source / name).is_file():
            shutil.copy(source / name, target / name)
