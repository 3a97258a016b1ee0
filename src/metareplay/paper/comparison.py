"""Our results next to the paper's: a table for the terminal, and as Markdown and JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from metareplay.evaluation.boundaries import Thresholds, over_runs
from metareplay.experiments.results import FILE, Results, Seconds, read_results
from metareplay.files import write_atomically
from metareplay.paper.reproduce import PlannedRun
from metareplay.paper.tables import PaperRow, PaperTable
from metareplay.report.base import (
    MISSING,
    MSE,
    TASK_GIVEN,
    Estimate,
    Kind,
    Number,
    batch_wise,
    estimate,
    right_task,
    show,
    show_duration,
    tinfer,
    training_seconds,
)

FIGURES: dict[str, tuple[str, Kind]] = {
    "tgiven_during": ("TGiven-During", "percent"),
    "tgiven_final": ("TGiven-Final", "percent"),
    "tinfer_final": ("TInfer-Final", "percent"),
    "ent": ("TInfer-Final ent", "percent"),
    "conf": ("TInfer-Final conf", "percent"),
    "agree": ("TInfer-Final agree", "percent"),
    "ku": ("TInfer-Final ku", "percent"),
    "softmax": ("TInfer-Final softmax", "percent"),
    "task-net": ("TInfer-Final task-net", "percent"),
    "right_task": ("right task", "percent"),
    "boundary_uncertainty": ("viable thresholds, uncertainty", "percent"),
    "boundary_loss": ("viable thresholds, loss", "percent"),
    "seconds": ("training", "seconds"),
    "memory": ("peak memory, MiB", "seconds"),
}
BOUNDARY = "boundary_"
"""The prefix of figures about thresholds that detect task boundaries; the signal's name follows."""
SLACK_ERRORS, SLACK_POINTS = 2.0, 0.5
"""A figure falls short if it is worse than the paper's by more than this many standard errors plus points."""
PAPER_SEEDS = 10
"""The paper's figures are means over as many seeds, so one of its seeds spreads by the root of ten standard errors."""
WIDE = 128
"""The width in characters that the whole table needs."""
HEADER = ("Row", "Figure", "Ours", "Paper", "Standard errors", "Seeds", "Time a seed", "Budget")


@dataclass(frozen=True)
class Comparison:
    """One figure of one row: ours over some seeds, the paper's, and the difference."""

    row: str
    method: str
    figure: str
    ours: float | None
    error: float | None
    """Standard error over the seeds; None for one seed."""
    seeds: int
    paper: float
    paper_error: float | None
    lower_is_better: bool
    seconds: float | None
    """Mean time of training and testing a seed, in seconds."""
    budget: float | None
    """Training length as a fraction of the recipe's; None if that is unknown."""

    @property
    def spread(self) -> float:
        """The standard error of the difference; ours is at least what the paper's own spread over seeds gives it."""
        paper = self.paper_error or 0.0
        ours = max(self.error or 0.0, paper * sqrt(PAPER_SEEDS / max(self.seeds, 1)))
        return sqrt(ours**2 + paper**2)

    @property
    def standard_errors(self) -> float | None:
        """The difference, ours minus the paper's, divided by its standard error."""
        return None if self.ours is None or self.spread == 0 else (self.ours - self.paper) / self.spread

    @property
    def falls_short(self) -> bool:
        """Worse than the paper by more than chance and some slack; for errors a tenth of the paper's."""
        if self.ours is None:
            return False
        points = 0.1 * self.paper if self.lower_is_better else SLACK_POINTS
        worse = self.ours - self.paper if self.lower_is_better else self.paper - self.ours
        return worse > SLACK_ERRORS * self.spread + points


def finished(runs: Sequence[PlannedRun]) -> dict[str, list[Results]]:
    """The results of the finished runs, by method."""
    by_method: dict[str, list[Results]] = {}
    for run in runs:
        if (run.folder / FILE).is_file():
            by_method.setdefault(run.method, []).append(read_results(run.folder / FILE))
    return by_method


def compare(
    table: PaperTable,
    rows: Sequence[PaperRow],
    results: Mapping[str, Sequence[Results]],
    budgets: Mapping[str, float | None] | None = None,
) -> list[Comparison]:
    """Every figure of the rows next to the paper's; ``budgets``: each method's training length, 1 by default."""
    comparisons = []
    for row in rows:
        runs = results.get(str(row.method), [])
        times = [run.seconds or Seconds() for run in runs]
        seconds = [(time.train or 0.0) + (time.evaluate or 0.0) for time in times]
        spent = sum(seconds) / len(seconds) if seconds else None
        for figure, (paper, paper_error) in row.figures.items():
            ours = _estimate(table, row, figure, runs)
            lower = figure in ("seconds", "memory") or (table.regression and figure != "right_task")
            mean, error, seeds = (None, None, 0) if ours is None else ours
            budget = (budgets or {}).get(str(row.method), 1.0)
            comparisons.append(
                Comparison(
                    row.paper, str(row.method), figure, mean, error, seeds, paper, paper_error, lower, spent, budget
                )
            )
    return comparisons


def _estimate(table: PaperTable, row: PaperRow, figure: str, runs: Sequence[Results]) -> Estimate | None:
    """One figure over the runs; thresholds that detect task boundaries have to suit all runs, as in the paper."""
    if not figure.startswith(BOUNDARY):
        return estimate(runs, number_of(table, row, figure))
    signal = figure.removeprefix(BOUNDARY)
    known = [run.task_boundaries[signal] for run in runs if run.task_boundaries]
    if not known:
        return None
    joint = over_runs([Thresholds(run.at_boundaries, run.elsewhere, run.lowest, run.highest) for run in known])
    return Estimate(joint.viable_share, None, len(known))


def number_of(table: PaperTable, row: PaperRow, figure: str) -> Number:
    """The number in a run's results that corresponds to a figure of the paper."""
    plain: dict[str, Number] = {
        "right_task": right_task("variance"),
        "seconds": training_seconds,
        "memory": lambda results: results.peak_memory_mib,
    }
    given = MSE if table.regression else TASK_GIVEN
    plain |= {"tgiven_during": given[0].number, "tgiven_final": given[1].number}
    if table.regression:
        plain["tinfer_final"] = MSE[2].number
    return plain.get(figure) or (batch_wise(figure) if row.batch_wise else tinfer(figure))


def paper_comparison_table(table: PaperTable, entries: Sequence[Comparison], width: int = WIDE) -> RenderableType:
    """One line per figure; if there is no room for all columns, each row gets its own heading."""
    title = f"{table.title} ({table.label})"
    if width < WIDE:
        return Group(f"[bold]{title}[/]", _narrow(table, entries), f"[dim]{caption(entries)}[/]")
    shown = Table(title=title, box=box.SIMPLE_HEAD, header_style="bold", title_style="bold", pad_edge=False)
    for number, column in enumerate(HEADER):
        shown.add_column(column, justify="left" if number < 2 else "right", no_wrap=number < 4)
    last = None
    for entry, cells in zip(entries, comparison_cells(table, entries), strict=True):
        if last is not None and entry.row != last:
            shown.add_section()
        last = entry.row
        shown.add_row(*cells, style="bold red" if entry.falls_short else None)
    shown.caption, shown.caption_style = caption(entries), "dim"
    return shown


def _narrow(table: PaperTable, entries: Sequence[Comparison]) -> Table:
    """Four columns; name, seeds, time and budget of a row are above its figures."""
    shown = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for number, column in enumerate(HEADER[1:5]):
        shown.add_column(column, justify="right" if number else "left")
    for entry, cells in zip(entries, comparison_cells(table, entries), strict=True):
        if cells[0]:
            shown.add_section()
            shown.add_row(
                f"[bold]{cells[0]}[/]",
                f"{cells[5]} seed{'' if cells[5] == '1' else 's'}",
                f"{cells[6]} each",
                f"{cells[7]} budget",
            )
        shown.add_row(*cells[1:5], style="bold red" if entry.falls_short else None)
    return shown


def comparison_cells(table: PaperTable, entries: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """The cells of each line; a row's name, time and budget are in its first line only."""
    lines: list[tuple[str, ...]] = []
    last = None
    for entry in entries:
        label, kind = FIGURES[entry.figure]
        if table.regression and entry.figure != "right_task":
            label, kind = f"MSE {label}", "mse"
        ours = None if entry.ours is None else Estimate(entry.ours, entry.error, entry.seeds)
        paper = Estimate(entry.paper, entry.paper_error, 1)
        apart = entry.standard_errors
        first = entry.row != last
        last = entry.row
        name = entry.row if entry.method == entry.row.lower() else f"{entry.row} ({entry.method})"
        time = show_duration(entry.seconds) if entry.seconds is not None else MISSING
        budget = "other" if entry.budget is None else "full" if entry.budget == 1 else f"{100 * entry.budget:.3g} %"
        distance = (MISSING if apart is None else f"{apart:+.1f}") + (" short" if entry.falls_short else "")
        cells = (show(ours, kind), show(paper, kind), distance, str(entry.seeds or MISSING))
        lines.append((name if first else "", label, *cells, *((time, budget) if first else ("", ""))))
    return lines


def caption(entries: Sequence[Comparison]) -> str:
    """What the columns mean, and how many figures fall short."""
    known = [entry for entry in entries if entry.ours is not None]
    short = sum(entry.falls_short for entry in known)
    words = [
        "Standard errors: ours minus the paper's over the standard error of the difference "
        "(ours is at least the paper's own spread over seeds, so that a single seed has one too). "
        f"short: worse by more than {SLACK_ERRORS:g} of them plus {SLACK_POINTS:g} points "
        "(squared errors: a tenth of the paper's).",
        f"{len(known)} of {len(entries)} figures measured, {short} short.",
    ]
    if any(entry.budget != 1 for entry in entries):
        words.append(
            "Training was shorter or longer than in the recipe: the figures are not comparable to the paper's."
        )
    return " ".join(words)


def write_comparison(out: Path, table: PaperTable, entries: Sequence[Comparison]) -> tuple[Path, Path]:
    """Write table.md and table.json into a folder."""
    lines = [
        f"# {table.title} ({table.label})",
        "",
        "| " + " | ".join(HEADER) + " |",
        "|---|---|" + "---:|" * (len(HEADER) - 2),
    ]
    lines += ["| " + " | ".join(cells) + " |" for cells in comparison_cells(table, entries)]
    markdown, data = out / "table.md", out / "table.json"
    write_atomically(markdown, "\n".join([*lines, "", caption(entries), ""]))
    figures = [
        asdict(entry) | {"standard_errors": entry.standard_errors, "falls_short": entry.falls_short}
        for entry in entries
    ]
    content = {
        "schema": 1,
        "table": table.name,
        "label": table.label,
        "benchmark": table.benchmark,
        "network": table.network,
    }
    write_atomically(data, json.dumps(content | {"figures": figures}, indent=1))
    return markdown, data
