"""The fuzzer: damaged copies of real files, each with a command in a process with limits of time and memory."""

import json
import random
import re
import shutil
from pathlib import Path

from torture import command_lines, trees
from torture.compare import timeless
from torture.judge import problem_of, refused
from torture.material import Material
from torture.outcomes import Outcome
from torture.processes import Ended, Limits, command, draw_nothing, forked
from torture.subjects import SUBJECTS, Command, Subject

LIMITS = Limits(seconds=30, memory=4 * 2**30)
PATIENT = LIMITS._replace(ask_after=6.0)
"""For commands that train: a setting may well ask for hours."""
TRAINING = ("run", "add-task", "update-task", "stream", "reproduce")
DRAWN = 0.1
"""Of the reports, figures are drawn in so many."""
COMMAND_LINES = "command line"
NAMES = (*(subject.name for subject in SUBJECTS), COMMAND_LINES)
SHARES = (*(subject.share for subject in SUBJECTS), 12.0)


class Fuzzer:
    """Makes cases from their names, and judges what comes of them."""

    def __init__(self, material: Material, folder: Path) -> None:
        self.material, self.folder = material, folder
        self.answers: dict[tuple[str, Command], str] = {}
        self.last = ""
        """What the last case did, in words."""
        folder.mkdir(parents=True, exist_ok=True)

    def name(self, seed: int, number: int, only: str = "") -> str:
        """The n-th case."""
        names = [name for name in NAMES if only in name]
        shares = [share for name, share in zip(NAMES, SHARES, strict=True) if only in name]
        return f"{random.Random(f'{seed}/{number}').choices(names, shares)[0]}:{seed}:{number}"

    def case(self, name: str) -> Outcome:
        """One case by its name."""
        what, seed, number = name.rsplit(":", 2)
        generator = random.Random(f"{what}/{seed}/{number}")
        if what == COMMAND_LINES:
            return self._command_line(generator)
        return self._input(next(subject for subject in SUBJECTS if subject.name == what), generator)

    def _input(self, subject: Subject, generator: random.Random) -> Outcome:
        chosen = generator.choice(subject.commands)
        if chosen.same and (subject.name, chosen) not in self.answers:
            ended = self._do(self._set(subject), chosen, draw=False)
            if ended.code != 0:
                raise RuntimeError(f"{subject.name} fails without any damage: {ended.err}")
            self.answers[subject.name, chosen] = self._answer(chosen, ended)
        place = self._set(subject)
        words = self._damage(subject, place, generator)
        self.last = f"{words}; metareplay {' '.join(chosen.words)}"
        ended = self._do(place, chosen, draw=generator.random() < DRAWN)
        return self._judged(subject, chosen, ended)

    def _set(self, subject: Subject) -> Path:
        """A fresh copy of the case's folders; returns the one to be damaged."""
        stage = self.folder / "stage"
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir()
        sources = subject.sources(self.material)
        for name, source in sources.items():
            shutil.copytree(source, stage / name) if source.is_dir() else shutil.copyfile(source, stage / name)
        for name in ("table.csv", "more.csv"):
            if not (stage / name).exists():
                shutil.copyfile(self.material.folder / "data" / name, stage / name)
        return stage / next(iter(sources))

    def _damage(self, subject: Subject, place: Path, generator: random.Random) -> str:
        if subject.planted is not None:
            return subject.planted(place, generator)
        if place.is_file():
            other = None if subject.other is None else subject.other(self.material)
            return trees.damage(place.parent, [place], other, generator)
        pattern = generator.choice(subject.patterns)
        files = sorted(path for path in place.glob(pattern) if path.is_file() and path.name != "report.html")
        return trees.damage(place, files, None if subject.other is None else subject.other(self.material), generator)

    def _do(self, place: Path, chosen: Command, *, draw: bool) -> Ended:
        stage = self.folder / "stage"

        def work() -> None:
            if not draw:
                draw_nothing()
            command(chosen.words, stage, {"METAREPLAY_CACHE": str(self.folder / "cache")})()

        limits = PATIENT if chosen.words[0] in TRAINING else LIMITS
        stdin = stage / chosen.stdin if chosen.stdin and (stage / chosen.stdin).is_file() else None
        return forked(work, self.folder, limits, stdin=stdin)

    def _answer(self, chosen: Command, ended: Ended) -> str:
        if not chosen.answer:
            return ended.out
        path = self.folder / "stage" / chosen.answer
        return json.dumps(timeless(json.loads(path.read_text())), sort_keys=True) if path.is_file() else ended.out

    def _judged(self, subject: Subject | None, chosen: Command, ended: Ended) -> Outcome:
        if ended.asked and ended.code in (-15, 2) and not ended.hung:
            return Outcome("accepted: still training when asked to stop")
        if (problem := problem_of(ended)) is not None:
            return Outcome(problem, True, f"{self.last}\n{ended.err[-3000:]}\n{fault_told(ended.err)}")
        if refused(ended) and "not enough memory" in ended.err:
            return Outcome("refused: not enough memory")
        if refused(ended):
            return Outcome("refused in one sentence")
        if subject is not None and subject.planted is not None:
            return Outcome("wrong answer accepted", True, f"{self.last}\n{ended.out[-300:]}")
        if subject is None or not chosen.same:
            return Outcome("accepted")
        if self._answer(chosen, ended) == self.answers[subject.name, chosen]:
            return Outcome("accepted: the same answer as undamaged")
        return Outcome("wrong answer accepted", True, f"{self.last}\n{ended.out[-300:]}")

    def _command_line(self, generator: random.Random) -> Outcome:
        stage = self.folder / "stage"
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir()
        command_lines.furnish(self.material, stage)
        chosen = Command(command_lines.mutated(generator))
        self.last = f"metareplay {' '.join(map(repr, chosen.words))}"
        return self._judged(None, chosen, self._do(stage, chosen, draw=False))


def fault_told(text: str) -> str:
    """The traceback of which the last line of defence says where it lies."""
    match = re.search(r"the traceback in (\S+\.txt)", text)
    path = Path(match[1]) if match else None
    return path.read_text() if path is not None and path.is_file() else ""
