"""Savers, readers and overwriters at the same time, each a process, on one model and on one run."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from torture.judge import problem_of, refused
from torture.material import Material, run_words
from torture.outcomes import Outcome
from torture.processes import Ended, Limits, command, draw_nothing, forked

CHUNK = 50
"""Rounds of one case."""
ROUNDS_FOR_A_RUN = 50
"""A round with whole runs for so many with models."""
LIMITS = Limits(seconds=600)


class Company:
    """Several processes at once."""

    def __init__(self, material: Material, folder: Path) -> None:
        self.material, self.folder = material, folder

    def cases(self, rounds: int, seed: int) -> Iterator[tuple[str, str, Callable[[], Outcome]]]:
        """Rounds with a model in chunks, and a few with a run."""
        for begin in range(0, rounds, CHUNK):
            name = f"together:model:{min(CHUNK, rounds - begin)}"
            yield "saves beside readers", name, lambda name=name: self.case(name)  # type: ignore[misc]
        for number in range(rounds // ROUNDS_FOR_A_RUN):
            name = f"together:run:{seed + number}"
            yield "runs in one folder", name, lambda name=name: self.case(name)  # type: ignore[misc]

    def case(self, name: str) -> Outcome:
        """One case by its name."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        _, kind, number = name.split(":")
        return self._models(int(number)) if kind == "model" else self._runs(int(number))

    def _models(self, rounds: int) -> Outcome:
        """Two savers of different models and one who tidies up; two readers, who see one of the models or the other."""
        place, stop = self.folder / "model", self.folder / "stop"
        models = [self.material.model(), self.material.other_model()]
        shutil.copytree(models[0], place)
        ready = [self.folder / f"ready-{number}" for number in (0, 1)]
        savers = [_saver(models[number], place, rounds // 2 + rounds % 2 * number, ready) for number in (0, 1)]
        others = [*(_reader(models, place, stop, mark) for mark in ready), _tidier(place, stop)]
        ended = self._side_by_side([*savers, *others], wait_for=2, stop=stop)
        wrong = [each.err for each in ended if each.code != 0]
        loads = sum(int(each.out.strip() or 0) for each in ended[2:4] if each.code == 0)
        left = [path.name for path in place.iterdir() if path.name.endswith(".tmp") or path.name == ".lock"]
        if wrong or left or not loads:
            return Outcome("a save or a load failed", True, "\n".join([*wrong, *left]) or "nothing was loaded", rounds)
        return Outcome("every load gave one of the models", cases=rounds)

    def _runs(self, seed: int) -> Outcome:
        """Two runs that replace each other, one that continues, one report: at the end there is one whole run."""
        (self.folder / "data").symlink_to(self.material.folder / "data")
        lines = [
            run_words("data/table.csv", "--out", "run", "--overwrite", "--seed", str(seed + 1)),
            run_words("data/table.csv", "--out", "run", "--overwrite", "--seed", str(seed + 2)),
            ["run", "--out", "run", "--resume", "--quiet"],
            ["report", "run"],
        ]
        shutil.copytree(self.material.run(), self.folder / "run")
        ended = self._side_by_side([_quick(command(words, self.folder)) for words in lines])
        for words, each in zip(lines, ended, strict=True):
            if (problem := problem_of(each)) is not None or not (each.code == 0 or refused(each)):
                return Outcome(problem or f"ended with code {each.code}", True, f"{words}\n{each.err}")
        again = forked(_quick(command(["run", "--out", "run", "--resume", "--quiet"], self.folder)), self.folder)
        run = self.folder / "run"
        seeds = {
            "config.yaml": yaml.safe_load((run / "config.yaml").read_text())["seed"],
            "results.json": json.loads((run / "results.json").read_text())["seed"],
            "model": json.loads((run / "model" / "config.json").read_text())["config"]["seed"],
        }
        if again.code != 0 or len(set(seeds.values())) > 1:
            return Outcome("files of different runs", True, f"{seeds}\n{again.err}")
        return Outcome("one whole run at the end")

    def _side_by_side(
        self, works: list[Callable[[], None]], wait_for: int | None = None, stop: Path | None = None
    ) -> list[Ended]:
        """Do all at once; when the first ``wait_for`` have ended, the others are told to stop."""
        processes = []
        for number, work in enumerate(works):
            scratch = self.folder / f"process-{number}"
            scratch.mkdir()
            process = os.fork()
            if process == 0:
                _alone(work, scratch)
            processes.append(process)
        for number, process in enumerate(processes):
            os.waitpid(process, 0)
            if stop is not None and number + 1 == wait_for:
                stop.touch()
        return [
            Ended(**json.loads((self.folder / f"process-{number}" / "ended").read_text()))
            for number in range(len(works))
        ]


def _alone(work: Callable[[], None], scratch: Path) -> None:
    """In a forked process: wait for another one that does the work, and note how it ended."""
    try:
        (scratch / "ended").write_text(json.dumps(forked(work, scratch, LIMITS)._asdict()))
    finally:
        os._exit(0)


def _quick(work: Callable[[], None]) -> Callable[[], None]:
    def drawn() -> None:
        draw_nothing()
        work()

    return drawn


def _saver(source: Path, place: Path, rounds: int, ready: list[Path]) -> Callable[[], None]:
    def work() -> None:
        from metareplay import ContinualClassifier

        model = ContinualClassifier.load(source)
        while not all(mark.exists() for mark in ready):
            time.sleep(0.01)
        for _ in range(rounds):
            model.save(place)

    return work


def _reader(models: list[Path], place: Path, stop: Path, ready: Path) -> Callable[[], None]:
    def work() -> None:
        import numpy as np

        from metareplay import ContinualClassifier

        x = np.random.default_rng(0).normal(size=(6, 2))
        known = {ContinualClassifier.load(model).predict_proba(x).tobytes() for model in models}
        assert len(known) == 2, "the models can be told apart"
        loads = 0
        while not stop.exists():
            assert ContinualClassifier.load(place).predict_proba(x).tobytes() in known, "a mixed model"
            loads += 1
            ready.touch()
        print(loads)

    return work


def _tidier(place: Path, stop: Path) -> Callable[[], None]:
    def work() -> None:
        from metareplay.learner.store import compact

        while not stop.exists():
            compact(place)
            time.sleep(0.05)

    return work
