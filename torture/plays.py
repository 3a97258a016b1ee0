"""The commands that write: what each begins with, and how it is repeated after a fault."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from torture.material import QUICK, TINY, Material, run_words, settings
from torture.processes import command

TABLE = "data/table.csv"
SLOW = 0.06
"""Of the boundaries of commands that start processes."""


class Play(NamedTuple):
    """One writing command, in a folder of its own."""

    name: str
    begin: Callable[[Material, Path], None]
    """Puts what the command needs into the folder ``place`` beside the data."""
    work: Callable[[Path], Callable[[], None]]
    again: Callable[[Path], Callable[[], None]] | None = None
    """How it is repeated; None: as before."""
    repeatable: bool = True
    """Whether it may be repeated once its model is in place."""
    child: str = ""
    """A process that the command starts, by a word among its arguments: boundaries are counted there."""
    share: float = 1.0
    """Of its boundaries at which it is killed, if there is not time for all."""


def words(*parts: str) -> Callable[[Path], Callable[[], None]]:
    """A command line."""
    return lambda folder: command(parts, folder)


def _copied(what: Callable[[Material], Path]) -> Callable[[Material, Path], None]:
    return lambda material, folder: _copy(what(material), folder / "place")


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True)


def _nothing(material: Material, folder: Path) -> None:
    pass


def _save(folder: Path) -> Callable[[], None]:
    """``save()`` of a model in Python, over another one."""

    def work() -> None:
        from metareplay import ContinualClassifier
        from metareplay.errors import MetaReplayError

        os.chdir(folder)
        try:
            ContinualClassifier.load("other").save("place")
        except MetaReplayError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)

    return work


def _two_models(material: Material, folder: Path) -> None:
    _copy(material.model(), folder / "place")
    _copy(material.other_model(), folder / "other")


def _undoable(material: Material, folder: Path) -> None:
    _copy(material.model(), folder / "place")


RUN = run_words(TABLE, "--out", "place")
SEEDS = run_words(TABLE, "--seeds", "2", "--out", "place")
PAPER = [
    "reproduce", "gmm", "--rows", "pr-dirac", "--quiet", "--out", "place", *settings(QUICK)
]  # fmt: skip
ADD = ["add-task", "place", "data/more.csv", "--name", "more", "--quiet"]
UPDATE = ["update-task", "place", "data/more.csv", "--name", "jan", "--quiet"]
ANSWERS = ["predict", "place", TABLE, "--out", "place/answers.csv"]

PLAYS = (
    Play("run", _nothing, words(*RUN), words(*RUN, "--resume")),
    Play("run --overwrite", _copied(Material.run), words(*RUN, "--overwrite")),
    Play("save", _two_models, _save),
    Play("new", _nothing, words("new", "place", "--network", "mlp-4", *settings(TINY)), repeatable=False),
    Play("add-task", _copied(Material.model), words(*ADD)),
    Play("add-task to a new model", _copied(Material.new_model), words(*ADD, "--label", "product")),
    Play("update-task", _copied(Material.model), words(*UPDATE)),
    Play("remove-task", _undoable, words("remove-task", "place", "jan"), repeatable=False),
    Play("rename-task", _undoable, words("rename-task", "place", "jan", "june"), repeatable=False),
    Play("undo", _undoable, words("undo", "place"), repeatable=False),
    Play("compact", _undoable, words("compact", "place")),
    Play("predict --out", _undoable, words(*ANSWERS)),
    Play("report", _copied(Material.run), words("report", "place")),
    Play("run --seeds", _nothing, words(*SEEDS), words(*SEEDS, "--resume"), share=SLOW),
    Play(
        "run --seeds, in a seed", _nothing, words(*SEEDS), words(*SEEDS, "--resume"), child="place/seed-1", share=SLOW
    ),
    Play("reproduce", _nothing, words(*PAPER), share=SLOW),
    Play("reproduce, in a run", _nothing, words(*PAPER), child="place/pr-dirac", share=SLOW),
)  # fmt: skip
