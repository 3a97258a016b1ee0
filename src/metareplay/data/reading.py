"""A user's own data in any supported format: find out what a path holds, and read it."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch

from metareplay.data.base import Examples, Place, encode_labels
from metareplay.data.cells import DETECTED, TextFormat
from metareplay.data.columns import Table, joined
from metareplay.data.example_cache import through_cache
from metareplay.data.inside import refuse_outside
from metareplay.data.readers.arrays import read_arrays
from metareplay.data.readers.arrow import read_parquet_table
from metareplay.data.readers.cifar import Version, cifar_files, read_cifar, refuse_pickled
from metareplay.data.readers.csv_pieces import read_csv_in_pieces
from metareplay.data.readers.csv_tables import CSV_SUFFIXES, read_csv
from metareplay.data.readers.folders import image_files, read_folder
from metareplay.data.readers.hub import PREFIX, read_hub, read_saved
from metareplay.data.readers.idx import idx_files, read_pair
from metareplay.data.readers.images import IMAGE_SUFFIXES
from metareplay.data.settings import BY_CLASSES, DataSettings
from metareplay.data.sources import DATA_VARIABLE
from metareplay.data.tables import TASK_NAME, examples_of
from metareplay.errors import ConfigError, DataError
from metareplay.files import real_path

KINDS = (
    "a CSV or parquet table, arrays (.npz), a folder of images by class (or by task and class), a folder of IDX files, "
    "CIFAR's binary archive, a data set saved by the Hugging Face library, or hf:owner/name"
)
LARGE = 16_000_000
"""Bytes from which a CSV file is read in pieces."""
TABLE_SUFFIXES = (*CSV_SUFFIXES, ".parquet")


NOTHING: Mapping[str, Any] = MappingProxyType({})


class Source(NamedTuple):
    """Data files, and what reads them."""

    files: Sequence[Path]
    read: Callable[[], Examples]


def read_examples(settings: DataSettings, known: Mapping[str, Any] = NOTHING) -> Examples:
    """The examples that the settings specify; ``known`` is how a model's earlier data became inputs, to be kept."""
    if settings.path is None:
        raise DataError(f"no data given; pass --data {KINDS}")
    if settings.path.startswith(PREFIX):
        return examples_of(read_hub(settings.path), settings, known)
    source = _source(located(settings.path), settings, known)
    what = settings.model_dump(
        mode="json",
        include={
            "label",
            "tasks_by",
            "split_by",
            "ignore",
            "missing",
            "image_size",
            "text",
            "text_bytes",
            "encoding",
            "decimal",
            "dates",
        },
    )
    if settings.tasks_by is not None and settings.tasks_by.startswith(BY_CLASSES):
        what["tasks_by"] = None  # the same examples, however they are split
    return through_cache(f"{what}{json.dumps(known) if known else ''}", source.files, source.read)


def located(name: str) -> Path:
    """A path as given, else relative to the folder in METAREPLAY_DATA."""
    path = Path(name).expanduser()
    shared = os.environ.get(DATA_VARIABLE)
    if not path.exists() and shared and not path.is_absolute() and (Path(shared).expanduser() / path).exists():
        return Path(shared).expanduser() / path
    if not path.exists():
        hint = (
            f"; for a data set on the Hugging Face hub, write {PREFIX}{name}"
            if name.count("/") == 1 and "." not in name
            else ""
        )
        raise DataError(f"{path} does not exist; give {KINDS}{hint}")
    if not (path.is_file() or path.is_dir()):
        raise DataError(f"{path} is a pipe or a device; give {KINDS}")
    return path


def absolute(name: str) -> str:
    """A path that means the same from every folder; the hub's names stay as they are."""
    return name if name.startswith(PREFIX) else str(real_path(located(name)))


def _source(path: Path, settings: DataSettings, known: Mapping[str, Any]) -> Source:
    test = None if settings.test_path is None else located(settings.test_path)
    refuse_pickled(path)
    if (cifar := cifar_files(path)) is not None:
        _no_test_path(path, test)
        _no_columns(path, settings)
        return Source(cifar[1], partial(_cifar, *cifar))
    if path.is_file():
        return _file(path, test, settings, known)
    if pairs := idx_files(path):
        _no_test_path(path, test)
        _no_columns(path, settings)
        refuse_outside(path, pairs.values())
        return Source(list(pairs.values()), partial(_idx, path, pairs))
    if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        _no_test_path(path, test)
        files = sorted(file for file in path.rglob("*") if file.is_file())
        refuse_outside(path, files)
        return Source(files, lambda: examples_of(read_saved(path), settings, known))
    tables = sorted(
        file for pattern in ("*", "*/*") for file in path.glob(pattern) if file.suffix.lower() in TABLE_SUFFIXES
    )
    if tables and not image_files(path):
        _no_test_path(path, test)
        refuse_outside(path, tables)
        return Source(tables, lambda: examples_of(_tables(path, tables, settings.text_format), settings, known))
    _no_columns(path, settings)
    files = [*image_files(path), *(image_files(test) if test is not None and test.is_dir() else [])]
    return Source(files, lambda: read_folder(path, test, settings.image_size))


def _file(path: Path, test: Path | None, settings: DataSettings, known: Mapping[str, Any]) -> Source:
    files = [path] if test is None else [path, test]
    if path.suffix.lower() in (".npz", ".npy"):
        _no_columns(path, settings)
        return Source(files, lambda: read_arrays(path, test))
    if path.suffix.lower() in TABLE_SUFFIXES:
        return Source(files, lambda: examples_of(_table(path, test, settings, known), settings, known))
    if path.suffix.lower() in IMAGE_SUFFIXES:
        raise DataError(f"{path} is one image; give the folder that contains the class folders")
    raise DataError(f"{path} is not in a known format; give {KINDS}")


def _table(path: Path, test: Path | None, settings: DataSettings, known: Mapping[str, Any]) -> Table:
    form = settings.text_format
    if test is None and path.suffix.lower() in CSV_SUFFIXES and path.stat().st_size >= LARGE:
        used = {settings.label, settings.tasks_by, settings.split_by, known.get("label")}
        return read_csv_in_pieces(path, form, ignore=[name for name in settings.ignore if name not in used])
    train = read_table(path, form)
    return train if test is None else joined(train, read_table(test, form))


def read_table(path: Path, form: TextFormat = DETECTED, keep: Sequence[str] = ()) -> Table:
    """The table in one file; columns to keep are also copied as they are there."""
    if path.suffix.lower() not in TABLE_SUFFIXES:
        raise DataError(f"{path} is not a table; give {', '.join(TABLE_SUFFIXES)}")
    return read_parquet_table([path], keep) if path.suffix.lower() == ".parquet" else read_csv(path, form, keep)


def _tables(folder: Path, files: Sequence[Path], form: TextFormat) -> Table:
    """The tables in a folder; file names that start with train or test say which split they are."""
    if len({file.suffix.lower() for file in files}) > 1:
        raise DataError(
            f"{folder} holds tables in different formats ({files[0].name}, {files[-1].name}); name one with --data"
        )
    named = {split: [file for file in files if file.stem.lower().startswith(split)] for split in ("train", "test")}
    train, test = named["train"], named["test"]
    if not train:
        train, test = [file for file in files if file not in test], test
    if not train or any(file.suffix.lower() != ".parquet" and len(part) > 1 for part in (train, test) for file in part):
        raise DataError(
            f"{folder} holds {len(files)} tables ({files[0].name}, ...); "
            "name one with --data, and its test set with --test-data"
        )
    parts = [
        read_parquet_table(part) if part[0].suffix.lower() == ".parquet" else read_csv(part[0], form)
        for part in (train, test)
        if part
    ]
    return parts[0] if len(parts) == 1 else joined(*parts)


def _idx(folder: Path, pairs: dict[tuple[str, str], Path]) -> Examples:
    splits, places = [], []
    for split in ("train", "test"):
        if (split, "images") in pairs and (split, "labels") in pairs:
            splits.append(read_pair(pairs[split, "images"], pairs[split, "labels"]))
            places.append(Place(f"{pairs[split, 'images']}, image ", range(len(splits[-1][0]))))
        elif (split, "images") in pairs or (split, "labels") in pairs or split == "train":
            raise DataError(
                f"{folder}: the {split} set needs both images and labels; "
                f"found {', '.join(file.name for file in pairs.values())}"
            )
    return _pixels(splits, tuple(places), ())


def _cifar(version: Version, files: list[Path]) -> Examples:
    train, test, names = read_cifar(version, files)
    places = tuple(
        Place(f"{files[0]}, {split} image ", range(len(part[0]))) for split, part in (("train", train), ("test", test))
    )
    return _pixels([train, test], places, names)


def _pixels(
    parts: Sequence[tuple[np.ndarray, np.ndarray]], places: tuple[Place, ...], names: Sequence[str]
) -> Examples:
    if len({x.shape[1:] for x, _ in parts}) > 1:
        raise DataError(
            f"{places[0].text}0 has shape {parts[0][0].shape[1:]}, {places[1].text}0 {parts[1][0].shape[1:]}; "
            "they must match"
        )
    x, labels = np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
    y, known = encode_labels(
        np.array([names[label] for label in labels], dtype=object) if names else labels, "label", places
    )
    test = torch.arange(len(x)) >= len(parts[0][0]) if len(parts) == 2 else None
    inputs = {"kind": "images", "mode": "L" if x.shape[1] == 1 else "RGB", "size": list(x.shape[2:]), "resize": False}
    return Examples(torch.from_numpy(x), y, known, places, test=test, inputs=inputs)


def _no_columns(path: Path, settings: DataSettings) -> None:
    """Refuse column names where there are no columns: labels and tasks then come from the files or folders."""
    by_column = (
        settings.tasks_by is not None
        and not settings.tasks_by.startswith(BY_CLASSES)
        and settings.tasks_by != TASK_NAME
    )
    named = {"--label": settings.label, "--ignore": settings.ignore, "--split-by": settings.split_by}
    options = [option for option, value in named.items() if value] + (["--tasks-by"] if by_column else [])
    if options:
        hint = "; to split it into tasks by class, write --tasks-by classes:2" if by_column else ""
        raise ConfigError(f"{options[0]} names a column, but {path} is not a table and has no columns; remove it{hint}")


def _no_test_path(path: Path, test: Path | None) -> None:
    if test is not None:
        raise DataError(f"{path} comes with its own test set, or is a folder of tables; remove --test-data")
