"""What is fuzzed: the folders of a case, the files in it that are damaged, and the commands that meet them."""

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from torture import trees
from torture.material import FIRST_FORMAT, Material, run_words

LABEL = ("--label", "product")
ADD = ("add-task", "new", "--name", "first", "--quiet")


class Command(NamedTuple):
    """Words of a command line; whether its answer must be that of undamaged files; and what is its answer."""

    words: Sequence[str]
    same: bool = False
    answer: str = ""
    """A file with the answer; else it is what is printed."""
    stdin: str = ""


class Subject(NamedTuple):
    """One kind of input."""

    name: str
    share: float
    """Of all cases."""
    sources: Callable[[Material], dict[str, Path]]
    """Folders and files of the case by their names; the first is damaged."""
    commands: Sequence[Command]
    other: Callable[[Material], Path] | None = None
    """A folder of the same kind with other content."""
    planted: Callable[[Path, random.Random], str] | None = None
    """Damage of a class that has a name; it must be refused."""
    patterns: Sequence[str] = ("**/*",)


def _data(name: str, *more: str) -> Callable[[Material], dict[str, Path]]:
    def sources(material: Material) -> dict[str, Path]:
        return {name: material.folder / "data" / name, "new": material.new_model(), **_named(material, *more)}

    return sources


def _named(material: Material, *names: str) -> dict[str, Path]:
    made = {"model": material.model, "run": material.run, "seen": material.image_model}
    return {name: made[name]() for name in names}


def _model(material: Material) -> dict[str, Path]:
    return {"model": material.model(), "table.csv": material.folder / "data" / "table.csv"}


def _first_format(material: Material) -> dict[str, Path]:
    return {"model": FIRST_FORMAT, "rows.csv": _rows(material)}


def _rows(material: Material) -> Path:
    """Numbers in the shape of the model of version 0.1."""
    path = material.folder / "data" / "rows.csv"
    if not path.exists():
        path.write_text("".join(f"{0.1 * row - 1:.2f},{0.2 * row - 2:.2f}\n" for row in range(20)))
    return path


def _run(material: Material) -> dict[str, Path]:
    return {"run": material.run(), "table.csv": material.folder / "data" / "table.csv"}


def _config(material: Material) -> dict[str, Path]:
    return {"config.yaml": material.run() / "config.yaml"}


PREDICT = Command(("predict", "model", "table.csv"), same=True)
MODEL_COMMANDS = (
    PREDICT, PREDICT, PREDICT,
    Command(("tasks", "model", "--json")), Command(("history", "model")), Command(("audit", "model")),
    Command(("undo", "model")), Command(("compact", "model")), Command(("rename-task", "model", "jan", "june")),
    Command(("add-task", "model", "table.csv", "--name", "more", *LABEL, "--quiet")),
    Command(("export", "model", "--out", "exported")),
)  # fmt: skip
RESUME = Command(("run", "--out", "interrupted", "--resume", "--quiet"), True, "interrupted/results.json")
CONFIG = Command(("run", "--config", "config.yaml", "--out", "made", "--quiet"))


def _table(name: str) -> tuple[Command, ...]:
    return (
        Command((*ADD[:2], name, *ADD[2:], *LABEL)),
        Command((*ADD[:2], name, *ADD[2:4], *LABEL, "--quiet", "--set", "data.missing=fill")),
        Command(("predict", "model", name, "--score")), Command(("tasks", "model", "--data", name, *LABEL)),
    )  # fmt: skip


def _plain(name: str) -> tuple[Command, ...]:
    return (Command((*ADD[:2], name, *ADD[2:])),)


SUBJECTS = (
    Subject("config", 8, _config, (CONFIG,)),
    Subject("config: key twice", 0.3, _config, (CONFIG,), planted=trees.doubled_key),
    Subject("config: no value", 0.3, _config, (CONFIG,), planted=trees.empty_value),
    Subject("model", 16, _model, MODEL_COMMANDS, Material.other_model),
    Subject("model: not finite", 0.6, _model, (PREDICT,), planted=trees.nan_weights),
    Subject("model: lost task", 0.6, _model, (PREDICT,), planted=trees.lost_task),
    Subject("model: lost class", 0.6, _model, (PREDICT,), planted=trees.lost_class),
    Subject("model: shown otherwise", 0.4, _model, (PREDICT,), planted=trees.shown_otherwise),
    Subject(
        "model of one file", 5, lambda material: {"model": bare(material), **_model_data(material)}, (PREDICT,),
    ),
    Subject("model of version 0.1", 3, _first_format, (Command(("predict", "model", "rows.csv")),)),
    Subject(
        "model under way", 5, lambda material: {"model": material.pending(), **_model_data(material)},
        (
            PREDICT, Command(("add-task", "model", "more.csv", "--name", "more", "--quiet")),
            Command(("undo", "model")), Command(("tasks", "model")),
        ),
    ),
    Subject("new model", 3, _data("new"), (Command((*ADD[:2], "table.csv", *ADD[2:], *LABEL)),)),
    Subject(
        "run", 12, _run,
        (
            Command(("report", "run")), Command(("report", "run")), Command(("report", "run", "run")),
            Command(("figure", "list")), Command(("predict", "run", "table.csv"), same=True),
            Command(("run", "--out", "run", "--resume", "--quiet")), Command(("tasks", "run")),
            Command(("figure", "matrix", "run", "--out", "figure.svg")),
            Command(run_words("table.csv", "--out", "run", "--overwrite")),
        ),
    ),
    Subject("seeds", 4, lambda material: {"several": material.seeds()}, (Command(("report", "several")),)),
    Subject(
        "checkpoint", 8, lambda material: {"interrupted": material.interrupted(), **_model_data(material)}, (RESUME,),
        patterns=("checkpoint/*", "checkpoint/*", "checkpoint/*", "*.jsonl", "model/*"),
    ),
    Subject(
        "interrupted run", 3, lambda material: {"interrupted": material.interrupted()}, (RESUME._replace(same=False),),
    ),
    Subject("csv", 10, _data("table.csv", "model"), _table("table.csv")),
    Subject("csv: huge labels", 0.3, _data("table.csv"), _table("table.csv")[:1], planted=trees.huge_labels),
    Subject(
        "csv on standard input", 3, _data("table.csv", "model"),
        (
            Command(("predict", "model", "-"), stdin="table.csv"),
            Command(("stream", "model", "-", *LABEL), stdin="table.csv"),
        ),
    ),
    Subject("parquet", 6, _data("table.parquet", "model"), _table("table.parquet")),
    Subject("parquet folder", 3, _data("tables"), (Command((*ADD[:2], "tables", *ADD[2:], *LABEL)),)),
    Subject(
        "npz", 6, _data("arrays.npz", "model"),
        (*_plain("arrays.npz"), Command(("predict", "model", "arrays.npz"))),
    ),
    Subject("npz: complex", 0.3, _data("arrays.npz"), _plain("arrays.npz"), planted=trees.complex_array),
    Subject("npz, compressed", 3, _data("packed.npz"), _plain("packed.npz")),
    Subject("npy", 3, _data("inputs.npy", "model"), (Command(("predict", "model", "inputs.npy")),)),
    Subject("idx", 4, _data("idx"), _plain("idx")),
    Subject("idx, compressed", 4, _data("idx-gz"), _plain("idx-gz")),
    Subject("images", 6, _data("images", "seen"), (*_plain("images"), Command(("predict", "seen", "images")))),
    Subject("saved data set", 6, _data("saved"), (Command((*ADD[:2], "saved", *ADD[2:], *LABEL)),)),
)  # fmt: skip


def _model_data(material: Material) -> dict[str, Path]:
    data = material.folder / "data"
    return {"table.csv": data / "table.csv", "more.csv": data / "more.csv"}


def bare(material: Material) -> Path:
    """A model without anything but its one file."""
    place = material.folder / "bare"
    if not place.is_dir():
        place.mkdir()
        shutil.copy(material.model() / "model.safetensors", place)
    return place
