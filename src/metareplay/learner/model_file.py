"""One safetensors file that is a whole model: its tensors, and as JSON in its header all that they mean.

One key of the header holds all facts, since several would be written in any order: equal models are equal bytes.
"""

import json
import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import groupby
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

from metareplay.arrays import bytes_of
from metareplay.errors import CheckpointError
from metareplay.files import refuse_waiting
from metareplay.texts import read_json

FORMAT = "metareplay-model-2"
KEY, FACTS_CHECKSUM, METADATA = "metareplay", "metareplay.checksum", "__metadata__"
LONGEST_HEADER = 100_000_000
"""Bytes, as in the safetensors library."""
TYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
NAMES = {kind: name for name, kind in TYPES.items()}


class ModelFile(NamedTuple):
    """Facts (anything JSON can hold) and tensors of a model."""

    facts: dict[str, Any]
    tensors: dict[str, Tensor]


class Packed(NamedTuple):
    """Tensors as they will stand in the file."""

    entries: dict[str, Any]
    body: memoryview
    checksum: str

    def with_facts(self, facts: Mapping[str, Any]) -> tuple[bytes, memoryview]:
        """The content of the file."""
        told = json.dumps(facts, sort_keys=True)
        metadata = {KEY: told, FACTS_CHECKSUM: sha256(told.encode()).hexdigest()}
        text = json.dumps({METADATA: metadata, **self.entries}).encode()
        text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
        return len(text).to_bytes(8, "little") + text, self.body


def pack(tensors: Mapping[str, Tensor]) -> Packed:
    """Serialise tensors, whose checksum belongs to the facts."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    entries: dict[str, Any] = {}
    position, parts = 0, list[memoryview]()
    for name in sorted(plain, key=lambda name: (-plain[name].itemsize, NAMES[plain[name].dtype], name)):  # all aligned
        tensor, end = plain[name], position + plain[name].nbytes
        entries[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [position, end]}
        parts.append(bytes_of(tensor))
        position = end
    body = memoryview(b"".join(parts))
    return Packed(entries, body, _checksum(entries, body))


def read_facts(path: Path) -> dict[str, Any] | None:
    """The facts alone; None for a safetensors file of something else. A damaged file is refused."""
    with _opened(path) as file:
        return _facts(path, _header(path, file)[0])


def read_model_file(path: Path) -> ModelFile:
    """Read and verify; a truncated, damaged or foreign file is refused."""
    with _opened(path) as file:
        entries, begin = _header(path, file)
        facts = _facts(path, entries)
        if facts is None:
            raise CheckpointError(f"{path} is not a metareplay model; pass the folder that save() or a run wrote")
        if facts.get("format") != FORMAT:
            raise CheckpointError(
                f"{path} is not a model of this version of metareplay (its format is {facts.get('format')!r}, "
                f"not {FORMAT!r}); update metareplay"
            )
        if not isinstance(facts.get("generation"), int):
            raise CheckpointError(f"{path} is damaged: its metadata name no generation")
        body = bytearray(max(0, os.fstat(file.fileno()).st_size - begin))
        read = file.readinto(body)  # type: ignore[attr-defined]
    entries.pop(METADATA)
    if read != len(body) or facts.get("checksum") != _checksum(entries, memoryview(body)):
        raise CheckpointError(f"{path} is damaged: its checksum does not match")
    try:
        stretches = list(_stretches(entries, body))
        tensors = {name: tensor for stretch in stretches for name, tensor in stretch.tensors()}
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path} is damaged: {type(error).__name__} {error}") from error
    if not all(stretch.is_finite() for stretch in stretches):
        refuse_not_finite(tensors, str(path))
    return ModelFile(facts, tensors)


def _opened(path: Path) -> BinaryIO:
    try:
        refuse_waiting(path)
        return path.open("rb")
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error


def _header(path: Path, file: BinaryIO) -> tuple[dict[str, Any], int]:
    """The entries of a safetensors file, and where its tensors begin."""
    size = int.from_bytes(file.read(8), "little")
    try:
        if not 2 <= size <= LONGEST_HEADER:
            raise ValueError("its header has an impossible length")
        text = file.read(size)
        if len(text) < size:
            raise ValueError("its header is incomplete")
        entries = read_json(text)
        if not isinstance(entries, dict):
            raise ValueError("its header is not an object")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is truncated, damaged or not a safetensors file ({error})") from error
    return entries, 8 + size


def _facts(path: Path, entries: Mapping[str, Any]) -> dict[str, Any] | None:
    metadata = entries.get(METADATA)
    metadata = metadata if isinstance(metadata, dict) else {}
    text, checksum = metadata.get(KEY), metadata.get(FACTS_CHECKSUM)  # the first models of this format had none
    if text is None:
        return None
    unnamed = checksum is None and set(metadata) != {KEY}  # the name of the checksum is what was damaged
    if unnamed or (checksum is not None and checksum != sha256(str(text).encode(errors="replace")).hexdigest()):
        raise CheckpointError(f"{path} is damaged: the checksum of its metadata does not match")
    try:
        facts = read_json(text)
    except (AttributeError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: its metadata are not valid JSON ({error})") from error
    if not isinstance(facts, dict):
        raise CheckpointError(f"{path} is damaged: its metadata are not an object")
    return facts


def _checksum(entries: Mapping[str, Any], body: memoryview) -> str:
    """SHA-256 over names, types, shapes and contents."""
    digest = sha256(json.dumps(entries).encode())
    digest.update(body)
    return digest.hexdigest()


class _Stretch(NamedTuple):
    """Tensors of one type that follow each other in the file: treated together, since there may be very many."""

    names: list[str]
    shapes: list[list[int]]
    sizes: list[int]
    values: Tensor

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        # copies are aligned in memory as new tensors are: vectorised sums depend on it, to the last bit
        for name, shape, part in zip(self.names, self.shapes, self.values.split(self.sizes), strict=True):
            yield name, part.view(shape).clone()

    def is_finite(self) -> bool:
        return not self.values.is_floating_point() or bool(self.values.isfinite().all())


def _stretches(entries: Mapping[str, Any], body: bytearray) -> Iterator[_Stretch]:
    """Cut the body, which the tensors must fill without gaps."""
    position, flat = 0, torch.frombuffer(body, dtype=torch.uint8) if body else torch.empty(0, dtype=torch.uint8)
    ordered = sorted(entries.items(), key=lambda entry: entry[1]["data_offsets"])
    for name, members in groupby(ordered, key=lambda entry: entry[1]["dtype"]):
        kind, begin, stretch = TYPES[name], position, _Stretch([], [], [], flat)
        for key, entry in members:
            size = prod(entry["shape"])
            if entry["data_offsets"] != [position, position + size * kind.itemsize] or size < 0:
                raise ValueError("its tensors do not fill it")
            stretch.names.append(key)
            stretch.shapes.append(entry["shape"])
            stretch.sizes.append(size)
            position += size * kind.itemsize
        part = flat[begin:position]
        part = part if begin % kind.itemsize == 0 else part.clone()
        yield stretch._replace(values=part.view(kind))
    if position != len(body):
        raise ValueError("its tensors do not fill it")


def refuse_not_finite(tensors: Mapping[str, Tensor], source: str) -> None:
    """Refuse what answers are made of if it is NaN or infinite; what else is kept may be, where it is undefined."""
    for name, tensor in tensors.items():
        weight = name.startswith(("model.", "scaling.", "criteria.calibration."))
        if weight and tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CheckpointError(
                f"{source} has NaN or infinite numbers in {name!r}: its answers would be meaningless; "
                "learn the model again, or go back to an earlier version of it"
            )
