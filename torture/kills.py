"""Commands that are killed, or whose disk is full, at every file-system boundary; then they are repeated."""

import json
import os
import random
import shutil
import signal
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from torture.compare import contents, differences, model_checksum, models_in
from torture.faults import COUNT, FULL, KILL, TAKES_SPACE, TORN, VARIABLE, Fault, install
from torture.judge import problem_of, refused
from torture.material import Material
from torture.outcomes import Outcome
from torture.plays import PLAYS, Play
from torture.processes import Ended, Limits, draw_nothing, forked

LIMITS = Limits(seconds=300)
SHORT = ("save", "add-task", "rename-task")
INJECTED = Path(__file__).with_name("injected")


class Undisturbed(NamedTuple):
    """A command as it should end."""

    boundaries: list[tuple[str, str]]
    """What is done to the file system, and to which path."""
    contents: dict[str, str]
    models: set[str]
    """The checksum of every model that was there at any time."""
    last: set[str]
    """Of the models at the end."""


class Theatre:
    """Plays commands with a fault, and compares."""

    def __init__(self, material: Material, folder: Path) -> None:
        self.material, self.folder = material, folder
        self.known: dict[str, Undisturbed] = {}

    def cases(
        self, kills: int, full: int, seed: int, *, short: bool = False
    ) -> Iterator[tuple[str, str, Callable[[], Outcome]]]:
        """Part, name and work of so many kills and full disks, spread over all commands, or over the short ones."""
        generator = random.Random(seed)
        plays = [play for play in PLAYS if not short or play.name in SHORT]
        for part, action, wanted in (("kills", KILL, kills), ("full disks", FULL, full)):
            for play, at, kind in _spread(self, plays, action, wanted, generator):
                name = f"{kind}:{play.name}:{at}"
                yield part, name, lambda play=play, at=at, kind=kind: self.play(play, at, kind)  # type: ignore[misc]

    def case(self, name: str) -> Outcome:
        """One case by its name."""
        kind, play, at = name.split(":")
        return self.play(next(known for known in PLAYS if known.name == play), int(at), kind)

    def undisturbed(self, play: Play) -> Undisturbed:
        """The command without a fault; carried out once."""
        if play.name not in self.known:
            place, log = self._set(play), self.folder / "log"
            log.unlink(missing_ok=True)
            before = {model_checksum(model) for model in models_in(place)}
            ended = self._do(play, play.work, Fault(str(place), 0, COUNT, str(log)))
            if ended.code != 0:
                raise RuntimeError(f"{play.name} fails without any fault: {ended.err[-2000:]}")
            lines = [json.loads(line) for line in log.read_text().splitlines()]
            last = {model_checksum(model) for model in models_in(place)}
            models = before | last | {line[2] for line in lines if line[2]}
            boundaries = [(line[0], os.path.relpath(line[1], place)) for line in lines]
            self.known[play.name] = Undisturbed(boundaries, contents(place), models, last)
        return self.known[play.name]

    def _set(self, play: Play) -> Path:
        """The stage; only ``place`` is compared, and boundaries only count there."""
        stage = self.folder / "stage"
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir(parents=True)
        (stage / "data").symlink_to(self.material.folder / "data")
        play.begin(self.material, stage)
        return stage / "place"

    def _do(self, play: Play, work: Callable[[Path], Callable[[], None]], fault: Fault | None = None) -> Ended:
        stage = self.folder / "stage"

        def acted() -> None:
            draw_nothing()
            if fault is not None and play.child:
                os.environ[VARIABLE] = fault._replace(only=play.child).text()
                os.environ["PYTHONPATH"] = os.pathsep.join([str(INJECTED), os.environ.get("PYTHONPATH", "")])
            elif fault is not None:
                install(fault)
            work(stage)()

        return forked(acted, self.folder, LIMITS)

    def play(self, play: Play, at: int, kind: str) -> Outcome:
        """One command with one fault."""
        right = self.undisturbed(play)
        place = self._set(play)
        ended = self._do(play, play.work, Fault(str(place), at, kind))
        if (problem := _wrong_end(ended, kind, in_child=bool(play.child))) is not None:
            return problem
        loaded, between = self._load_all(place, right, complete=play.share == 1)
        if between is not None:
            return between
        if not play.repeatable and loaded and loaded == right.last:
            return Outcome("complete already, the model is the new one")
        if not play.repeatable and play.name == "new" and any(place.glob("*")):
            return Outcome("complete already, the model is the new one")
        again = self._do(play, play.again or play.work)
        if (words := problem_of(again)) is not None or again.code != 0:
            return Outcome("cannot be repeated", True, f"{words or ''}\n{again.out[-500:]}\n{again.err[-2000:]}")
        if wrong := differences(right.contents, contents(place)):
            return Outcome("other files than without the fault", True, "\n".join(wrong))
        return Outcome("repeated, with the same bytes as without the fault")

    def _load_all(self, place: Path, right: Undisturbed, *, complete: bool) -> tuple[set[str], Outcome | None]:
        """Every model in the folder loads, and is an old or a new one, if all that ever existed are known."""
        found = models_in(place)
        checksums = {model_checksum(model) for model in found}
        known = right.models if complete else checksums
        if strangers := checksums - known:
            return checksums, Outcome("a model that is neither old nor new", True, str(strangers))

        def load() -> None:
            from metareplay.learner.store import load_model, read_history

            for model in found:
                load_model(model)
                read_history(model)

        ended = forked(load, self.folder, LIMITS)
        if ended.code != 0:
            return checksums, Outcome("a model that does not load", True, ended.err)
        return checksums, None


def _wrong_end(ended: Ended, kind: str, *, in_child: bool) -> Outcome | None:
    if ended.hung:
        return Outcome("hung", True, ended.err)
    if kind in (KILL, TORN) and not in_child:
        if ended.code == -signal.SIGKILL:
            return None
        return Outcome("was not killed: fewer boundaries than before", True, ended.err)
    if (words := problem_of(ended)) is not None:
        return Outcome(words, True, ended.err)
    if ended.code != 0 and not refused(ended):
        return Outcome("ended without a sentence", True, f"code {ended.code}\n{ended.err}")
    return None


def _spread(
    theatre: Theatre, plays: Sequence[Play], action: str, wanted: int, generator: random.Random
) -> Iterator[tuple[Play, int, str]]:
    """Every boundary of every command, and every write half-way; evenly chosen ones if not so many are wanted."""
    if not wanted:
        return
    every: list[tuple[Play, int, str]] = []
    for play in plays:
        for at, (event, _) in enumerate(theatre.undisturbed(play).boundaries, 1):
            if action == KILL or event in TAKES_SPACE:
                every.append((play, at, action))
            if action == KILL and event == "write":
                every.append((play, at, TORN))
    ends = list(accumulate(play.share for play, _, _ in every))
    number = min(wanted, round(ends[-1]))
    offset = generator.random()
    for index in range(number):
        yield every[min(bisect_right(ends, (index + offset) * ends[-1] / number), len(every) - 1)]
