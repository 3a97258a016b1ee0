"""What ``metareplay tune`` shows: what is searched, the trials so far with the best, and the outcome."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from metareplay.errors import MetaReplayError
from metareplay.interrupts import Interrupted
from metareplay.terminal import shown

if TYPE_CHECKING:
    from metareplay.experiments.tuning.study import Study

EVERY = 1.0
"""Seconds between two looks at the journal."""


def introduce_study(console: Console, study: "Study") -> None:
    """Show what is searched, and by which protocol."""
    definition = study.definition
    config = definition.config()
    console.print(
        f"[bold]tune {shown(config.method)}[/] on [bold]{shown(definition.subject)}[/], {shown(config.network)}",
        highlight=False,
    )
    lines = (
        f"compared: {definition.figure}",
        f"protocol: {definition.protocol}",
        f"searched: {', '.join(definition.space)} ({definition.space_source}; {definition.sampler})",
        f"from: {definition.source}; folder: {study.folder}",
    )
    for line in lines:
        console.print(shown(line), highlight=False, soft_wrap=True)


class StudyProgress:
    """A bar of trials, with the best so far."""

    def __init__(self, console: Console, study: "Study", trials: int, *, quiet: bool) -> None:
        columns = (TextColumn("trials"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[state]}"))
        self.bars = Progress(*columns, TimeElapsedColumn(), console=console, disable=quiet or not console.is_terminal)
        self.study, self.last = study, 0.0
        self.row = self.bars.add_task("trials", total=study.limit(trials), state="")

    def __enter__(self) -> "StudyProgress":
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.last = 0.0
        self.show()
        self.bars.stop()

    def show(self) -> None:
        """Look at the journal."""
        if self.bars.disable or time.monotonic() - self.last < EVERY:
            return
        self.last = time.monotonic()
        records, best = self.study.records(), self.study.best()
        ended = sum(record.state in ("finished", "pruned", "failed") for record in records)
        pruned = sum(record.state == "pruned" for record in records)
        words = "" if best is None else f"best {best.value:.4g} (trial {best.number})"
        self.bars.update(self.row, completed=ended, state=shown(f"{words}{f', {pruned} pruned' if pruned else ''}"))


def show_best(console: Console, study: "Study", page: Path) -> None:
    """Show the best trial, what the recipe reached, and where the page is."""
    from metareplay.experiments.tuning.study import shown_settings

    records, best = study.records(), study.best()
    counts = {state: sum(record.state == state for record in records) for state in ("finished", "pruned", "failed")}
    what = ", ".join(f"{count} {state}" for state, count in counts.items() if count or state == "finished")
    console.print(f"trials: {what}", highlight=False)
    failed = next((record for record in records if record.problem), None)
    if failed is not None:
        console.print(shown(f"trial {failed.number} failed: {failed.problem}"), highlight=False, soft_wrap=True)
    if best is not None:
        words = f"best: {best.value:.4g}, trial {best.number}: {shown_settings(best.settings)}"
        console.print(f"[bold]{shown(words)}[/]", highlight=False, soft_wrap=True)
    start = next((record for record in records if record.recipe and record.value is not None), None)
    if start is not None and best is not None and start.number != best.number:
        console.print(f"the settings it started from reached {start.value:.4g}", highlight=False)
    console.print(f"report: {shown(page)}", highlight=False)


def tell_of_workers(console: Console, words: str, *, all_done: bool) -> None:
    """A worker stopped: an error, unless the others took up what it had begun."""
    if not all_done:
        raise MetaReplayError(f"a worker stopped: {words}. The trials are kept; repeat the command")
    console.print(f"note: a worker stopped: {words}; all trials are done", highlight=False)


def tell_of_the_rest(console: Console, study: "Study", trials: int, *, asked: bool, recipe: Path | None) -> None:
    """Why there are fewer trials than wanted, or no best one."""
    so_far = f"{study.ended()} of {study.limit(trials)} trials have ended in {study.folder}"
    missing = "" if recipe is None or study.best() is not None else f", and {recipe} was not written"
    if study.remaining(trials) and (asked or missing):
        raise Interrupted(f"stopped; {so_far}{missing}; repeat the command to continue")
    if study.remaining(trials):
        console.print(f"not finished: {so_far}; repeat the command to continue", highlight=False, soft_wrap=True)
    elif study.best() is None:
        raise MetaReplayError(
            f"no trial has finished{missing}: all that were begun in {study.folder} have failed; the report says why. "
            "Change --space or --set, and choose another --out"
        )
