"""``metareplay reproduce``: a table of the paper, with our results next to the paper's."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metareplay.cli.engine_options import Jobs, ListCommands, On, Resources
from metareplay.cli.recording import RecordTo, record_finished, refuse_file
from metareplay.errors import ConfigError, DataError, MetaReplayError
from metareplay.files import real_path
from metareplay.terminal import shown

if TYPE_CHECKING:
    from rich.console import Console

    from metareplay.experiments.engines.base import Engine
    from metareplay.paper.reproduce import PlannedRun
    from metareplay.paper.tables import PaperTable

HELP = """Run the rows of one of the paper's tables and print our results next to the paper's.

Finished runs are never repeated, and interrupted ones continue when you repeat the command with the same options.

[bold]Examples[/]

  metareplay reproduce gmm --seeds 5 --jobs 2

  metareplay reproduce split-mnist --rows pr-dirac,pr-bbb --data-dir ~/data/mnist

  metareplay reproduce split-mnist --budget 0.05         a twentieth of the training steps, to try it out

  metareplay reproduce split-mnist --seeds 10 --on slurm --resources cpus=2,memory=4G,time=12:00:00

  metareplay reproduce regression --dry-run              what would be run, and roughly how long it takes
"""


def reproduce(
    table: Annotated[
        str, typer.Argument(help="Table, by its name or its label in the paper (metareplay list tables).")
    ],
    rows: Annotated[str | None, typer.Option(help="Rows, separated by commas. Default: all that can be run.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds per row.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    jobs: Jobs = None,
    budget: Annotated[
        float, typer.Option(help="Fraction of the training steps, above 0 and up to 1; shown in the table.")
    ] = 1.0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting for all runs, key=value; repeat it.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the data set. Default: METAREPLAY_DATA, then the hub.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs. Default: runs/reproduce/TABLE.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the runs, with an estimate of their time.")
    ] = False,
    on: On = "local",
    resources: Resources = None,
    list_: ListCommands = False,
    record: RecordTo = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the table.")] = False,
) -> None:
    """Run what is missing, then print and write the table."""
    from rich.console import Console

    from metareplay.cli.engine_options import at_once, chosen_engine, threads_of_each
    from metareplay.experiments.seeds import commands_for
    from metareplay.learner.config import parse_setting
    from metareplay.paper.comparison import WIDE
    from metareplay.paper.reproduce import chosen_rows, planned_runs
    from metareplay.paper.tables import paper_table

    refuse_file(record)
    chosen = paper_table(table)
    names = [name.strip() for name in (rows or "").split(",") if name.strip()]
    if rows is not None and not names:
        raise ConfigError(f"--rows {rows!r} names no row; omit it for all rows of {chosen.name}")
    wanted = chosen_rows(chosen, names)
    settings: dict[str, Any] = dict(parse_setting(pair) for pair in set_ or [])
    if data_dir is not None:
        settings["data_dir"] = str(real_path(data_dir.expanduser()))
    folder = out or Path("runs") / "reproduce" / (chosen.name if budget == 1 else f"{chosen.name}-budget-{budget:g}")
    engine = chosen_engine(on, resources)
    threads = threads_of_each(jobs, engine, listed=list_)
    wanted_seeds = range(seed, seed + seeds)
    runs = planned_runs(chosen, wanted, wanted_seeds, folder, budget=budget, given=settings, threads=threads)
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)  # a file or a pipe has room
    if dry_run:
        _list(console, chosen, runs)
        return
    if list_:
        for line in commands_for([run.plan for run in runs], resume=True):
            print(line)
        return
    failures = _run(console, runs, at_once(jobs, engine), engine, folder, quiet=quiet)
    _show(console, chosen, wanted, runs, folder)
    if record is not None:
        _record(record, runs, chosen, [*(set_ or []), *([] if budget == 1 else [f"--budget={budget:g}"])])
    if failures:
        raise MetaReplayError("; ".join(failures) + ". The other runs are kept; repeat the command to try the rest")


def _run(
    console: "Console", runs: "list[PlannedRun]", jobs: int, engine: "Engine", out: Path, *, quiet: bool
) -> list[str]:
    """Run what has not finished; returns one error message per failed run."""
    from metareplay.cli.engine_options import say_how_to_submit
    from metareplay.cli.run_display import SeedBars
    from metareplay.experiments.seeds import run_side_by_side
    from metareplay.interrupts import stop_on_signal

    names = [f"{run.method} seed {run.config.seed}" for run in runs]
    with SeedBars(console, names, quiet=quiet or not engine.waits) as bars:
        plans, asked = [run.plan for run in runs], stop_on_signal()
        failures = run_side_by_side(
            plans, jobs=jobs, resume=True, report=bars.show, should_stop=asked, engine=engine, out=out
        )
    problems = [f"{names[index]} stopped: {words}" for index, words in failures.items()]
    left = sum(not (run.folder / "results.json").is_file() for run in runs) - len(failures)
    if not engine.waits:
        say_how_to_submit(console, out, left, "runs")
        return problems
    return problems + ([f"{left} of {len(runs)} runs have not finished"] if left > 0 else [])


def _show(console: "Console", table: "PaperTable", rows: Any, runs: "list[PlannedRun]", folder: Path) -> None:
    from metareplay.cli.run_display import write_page
    from metareplay.paper.comparison import compare, finished, paper_comparison_table, write_comparison

    results = finished(runs)
    if not results:
        return
    entries = compare(table, rows, results, {run.method: run.budget for run in runs})
    console.print(paper_comparison_table(table, entries, console.width))
    markdown, data = write_comparison(folder, table, entries)
    console.print(f"table: {shown(markdown)}, {shown(data)}", highlight=False)
    write_page(console, folder)


def _record(folder: Path, runs: "list[PlannedRun]", table: "PaperTable", options: list[str]) -> None:
    """Record the runs that have finished, with the command that repeats each."""
    from metareplay.benchmarks.registry import benchmark_named

    words = [word if word.startswith("--") else f"--set {word}" for word in options if not word.startswith("data_dir")]
    words += ["--data-dir FOLDER"] if benchmark_named(table.benchmark).needs_data else []
    for run in runs:
        if (run.folder / "results.json").is_file():
            command = " ".join(["metareplay reproduce", table.name, "--rows", run.method, *words, "--seed SEED"])
            record_finished(folder, [run.folder], command)


def _list(console: "Console", table: "PaperTable", runs: "list[PlannedRun]") -> None:
    """Show what would be run, and roughly how long it takes: a few steps of each method are timed."""
    from rich.table import Table

    from metareplay.report.base import show_duration

    listing = Table(
        title=f"{table.title} ({table.label})", box=None, pad_edge=False, header_style="bold", title_style="bold"
    )
    for column in ("run", "steps a task", "time", "settings"):
        listing.add_column(column, justify="right" if column in ("steps a task", "time") else "left", overflow="fold")
    guesses: dict[str, float | None] = {}
    total, unknown = 0.0, 0
    for run in runs:
        done = (run.folder / "results.json").is_file()
        if run.method not in guesses and not done:
            guesses[run.method] = _guess(console, run)
        guess = 0.0 if done else guesses[run.method]
        total += guess or 0.0
        unknown += guess is None
        length = run.config.training.iterations or f"{run.config.training.epochs} epochs"
        time = "finished" if done else "unknown" if guess is None else show_duration(guess)
        listing.add_row(f"{run.method} seed {run.config.seed}", str(length), time, shown(run.plan.source))
    console.print(listing, highlight=False)
    if unknown:
        console.print(f"the time of {unknown} of {len(runs)} runs cannot be estimated", highlight=False)
    if unknown < len(runs):
        words = "one after another on this machine, tests not counted"
        console.print(f"about {show_duration(total)} of training {words}", highlight=False)


def _guess(console: "Console", run: "PlannedRun") -> float | None:
    """Training time in seconds; None if the data are not available, with one message per method."""
    from metareplay.experiments.estimate import seconds_of_run

    try:
        return seconds_of_run(run.plan)
    except DataError as problem:
        console.print(f"[yellow]{run.method} cannot be timed:[/] {shown(problem)}", highlight=False)
        return None
