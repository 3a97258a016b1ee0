"""A FIFO in a file's place is refused at once: a command would wait for a writer that never comes."""

import os
from pathlib import Path

import pytest

from metareplay.data.inputs import read_inputs
from metareplay.data.inside import refuse_outside
from metareplay.data.readers.hub import read_saved
from metareplay.data.reading import located
from metareplay.errors import CheckpointError, DataError, MetaReplayError
from metareplay.evaluation.boundaries import read_signals
from metareplay.experiments.run_folder import RunFolder
from metareplay.learner.config import build_config
from metareplay.learner.model_file import read_model_file
from metareplay.report.runs import _read_text, read_arrays
from metareplay.training.checkpoint import read_tensors


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "signals" / "task-000.safetensors"
    path.parent.mkdir()
    os.mkfifo(path)
    return path


def test_data_are_not_read_from_a_fifo(fifo: Path) -> None:
    saved = fifo.parent.parent / "saved"
    saved.mkdir()
    (saved / "state.json").write_text("{}")
    os.mkfifo(saved / "data-00000-of-00001.arrow")
    with pytest.raises(DataError, match="FIFO or a device"):
        read_saved(saved)
    for read in (lambda: located(str(fifo)), lambda: read_inputs(fifo, {}, (2,)), lambda: refuse_outside(fifo, [fifo])):
        with pytest.raises(DataError, match=r"(pipe|FIFO) or a device"):
            read()


def test_a_run_is_not_read_from_a_fifo(fifo: Path) -> None:
    for load in (read_tensors, read_model_file):
        with pytest.raises(CheckpointError, match="FIFO"):
            load(fifo)
    for read in (_read_text, read_arrays):
        with pytest.raises(DataError, match="FIFO"):
            read(fifo)
    with pytest.raises(DataError, match="are damaged"):
        read_signals(fifo.parent.parent)


def test_a_run_does_not_log_to_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.txt")
    with pytest.raises(MetaReplayError, match="is not replaced"):
        RunFolder(tmp_path).begin(build_config({}, {}, "x"))
