"""Checkpoints: one safetensors file each, written atomically and verified on reading; the latest ones are kept."""

import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from metareplay.errors import CheckpointError
from metareplay.files import refuse_waiting, write_atomically
from metareplay.texts import read_json

FORMAT = "metareplay-checkpoint-1"
KEPT = 2


class Checkpoint(NamedTuple):
    """Tensors and facts (anything JSON can hold) of a run at one moment."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """One safetensors file that also holds JSON facts and a checksum over everything."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(facts, sort_keys=True)
    header = {"format": FORMAT, "facts": text, "checksum": str(zlib.crc32(text.encode(), tensors_checksum(plain)))}
    write_atomically(path, save(plain, metadata=header))


def read_tensors(path: Path) -> Checkpoint:
    """Read what ``write_tensors`` wrote; a truncated, damaged or foreign file is refused."""
    try:
        refuse_waiting(path)
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            # copies are aligned in memory as new tensors are: vectorised sums depend on it, to the last bit
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is truncated or not a checkpoint ({error})") from error
    if header.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} was not written by this version of metareplay (format {header.get('format')!r}, not {FORMAT!r})"
        )
    text = header.get("facts", "")
    if header.get("checksum") != str(zlib.crc32(text.encode(), tensors_checksum(tensors))):
        raise CheckpointError(f"{path} is damaged: its checksum does not match")
    try:
        facts = read_json(text)
        if not isinstance(facts, dict):
            raise ValueError("they are not an object")
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: its metadata cannot be read ({error})") from error
    return Checkpoint(tensors, facts)


def tensors_checksum(tensors: Mapping[str, Tensor]) -> int:
    """CRC-32 over names, types, shapes and contents."""
    total = 0
    for name in sorted(tensors):
        tensor = tensors[name].detach().contiguous().cpu()
        total = zlib.crc32(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode(), total)
        total = zlib.crc32(tensor.numpy().tobytes(), total)
    return total


class CheckpointFolder:
    """A run's checkpoints, numbered; the last two are kept, in case one is damaged."""

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.folder, self.fingerprint = folder, fingerprint
        self.problems: list[str] = []
        """Why newer checkpoints were skipped when the last good one was read."""

    def _files(self) -> list[Path]:
        names = [path for path in self.folder.glob("step-*.safetensors") if re.fullmatch(r"step-\d{9}", path.stem)]
        return sorted(names)

    def write(self, number: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Add a checkpoint and drop those that are no longer needed."""
        write_tensors(
            self.folder / f"step-{number:09d}.safetensors", tensors, {**facts, "fingerprint": self.fingerprint}
        )
        self.drop_old()

    def drop_old(self) -> None:
        """Remove checkpoints that are no longer needed; a process that was killed may have left one."""
        for old in self._files()[:-KEPT]:
            old.unlink(missing_ok=True)

    def last_good(self) -> Checkpoint | None:
        """The newest checkpoint that can be read and belongs to this run; None if there is no file at all."""
        self.problems = []
        files = self._files()
        for path in reversed(files):
            try:
                checkpoint = read_tensors(path)
                if checkpoint.facts.get("fingerprint") != self.fingerprint:
                    raise CheckpointError(f"{path} belongs to a run with another configuration")
                return checkpoint
            except CheckpointError as error:
                self.problems.append(str(error))
        if files:
            raise CheckpointError(
                f"no usable checkpoint: {'; '.join(self.problems)}. Resume a run with its original settings, "
                "or start again in another folder with --out"
            )
        return None
