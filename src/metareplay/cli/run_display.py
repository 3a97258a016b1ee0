"""What ``metareplay run`` and ``reproduce`` show: what will be run, its progress, and where the report is."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from metareplay.errors import MetaReplayError
from metareplay.terminal import shown

if TYPE_CHECKING:
    from metareplay.benchmarks.base import Benchmark
    from metareplay.experiments.plan import Plan
    from metareplay.experiments.results import Results
    from metareplay.experiments.seeds import SeedStatus

MOST_TASKS = 20
"""At most this many tasks of a user's own data are named."""


def introduce(console: Console, plan: "Plan") -> None:
    """Show what will be run."""
    config, info, own = plan.config, plan.info, plan.config.data.path is not None
    name = plan.benchmark.name if own else info.name
    what = f"(scenario {info.scenario.value}, {info.num_tasks} tasks), {config.network}"
    console.print(f"[bold]{shown(config.method)}[/] on [bold]{shown(name)}[/] {shown(what)}", highlight=False)
    if own:
        _introduce_data(console, str(config.data.path), plan.benchmark)
    console.print(shown(f"settings: {plan.source}; folder: {plan.folder}"), highlight=False)


def _introduce_data(console: Console, path: str, benchmark: "Benchmark") -> None:
    """Show what the user's data contain."""
    tasks = list(benchmark)
    train, test = sum(len(task.train.x) for task in tasks), sum(len(task.test.x) for task in tasks)
    shape = " x ".join(map(str, benchmark.input_shape))
    what = f"{shape} pixels" if len(benchmark.input_shape) == 3 else f"{shape} inputs"
    lines = [
        f"data: {path}: {train:,} training and {test:,} test examples of {what}",
        *(f"  {note}" for note in benchmark.notes),
    ]
    for task in tasks[:MOST_TASKS]:
        names = f"{', '.join(map(str, task.classes[:10]))}{', ...' if len(task.classes) > 10 else ''}"
        classes = f"class{'es' if len(task.classes) > 1 else ''} {names}; " if task.classes else ""
        lines.append(f"  task {task.name}: {classes}{len(task.train.x):,} + {len(task.test.x):,} examples")
    if len(tasks) > MOST_TASKS:
        lines.append(f"  and {len(tasks) - MOST_TASKS} more tasks")
    for line in lines:
        console.print(shown(line), highlight=False, soft_wrap=True)


class SeedBars:
    """One progress bar per run."""

    def __init__(self, console: Console, names: Sequence[str], *, title: str = "", quiet: bool = False) -> None:
        name = TextColumn(f"{title} {{task.description}}".strip())
        columns = (name, BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[state]}"), TimeRemainingColumn())
        self.bars = Progress(*columns, console=console, disable=quiet or not console.is_terminal)
        self.rows = [self.bars.add_task(shown(name), total=1.0, state="waiting") for name in names]

    def __enter__(self) -> "SeedBars":
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def show(self, statuses: "Sequence[SeedStatus]") -> None:
        """Show the progress of each run."""
        for row, status in zip(self.rows, statuses, strict=True):
            self.bars.update(row, completed=status.share, state=status.state)


def print_table(console: Console, folder: Path, results: "Results | Sequence[Results]") -> None:
    """Show the figures of a run or of several seeds; those for batches only if the tests hold whole batches."""
    from metareplay.experiments.results import Results
    from metareplay.report import run_table, seeds_table
    from metareplay.report.runs import find_runs

    batches = all(run.has_whole_batches() for run in find_runs([folder]).runs)
    if isinstance(results, Results):
        console.print(run_table(results, batches=batches))
    else:
        console.print(seeds_table(results, batches=batches))


def print_warnings(console: Console, results: "Sequence[Results]") -> None:
    """Show what went wrong in runs that had no terminal of their own."""
    for run in results:
        for warning in run.warnings:
            text = f"seed {run.seed}: warning: task {warning.task!r}: {warning.text}"
            console.print(shown(text), highlight=False, soft_wrap=True)


def write_page(console: Console, folder: Path) -> None:
    """Write the report and print its path."""
    from metareplay.report import write_report

    try:
        page = write_report([folder], folder / "report.html")
    except MetaReplayError as problem:  # the results are safe: warn instead of failing
        console.print(f"[yellow]the report could not be written:[/] {shown(problem)}", highlight=False)
        return
    console.print(f"report: {shown(page)}", highlight=False)
