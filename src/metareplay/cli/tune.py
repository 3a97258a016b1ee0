"""``metareplay tune``: settings chosen by a search on held-out training data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from metareplay.cli.engine_options import ListCommands, On, Resources
from metareplay.cli.trust import TrustNetwork
from metareplay.errors import ConfigError
from metareplay.files import real_path

if TYPE_CHECKING:
    from rich.console import Console

    from metareplay.experiments.engines.base import Engine
    from metareplay.experiments.plan import Plan
    from metareplay.experiments.tuning.space import Range, Values
    from metareplay.experiments.tuning.study import Study

OWN, PROTOCOL = "Your own data", "Protocol"
HELP = """Search for the best settings of a method (extra tune, with Optuna).

Every trial is a run. By default a fifth of each task's training examples is held out and tested, and the test set is
never used. If it is killed, the same command continues the study; more workers on other machines can join in.

[bold]Examples[/]

  metareplay tune --trials 20 --write-recipe mine.yaml       pr-bbb on the embedded split-digits

  metareplay run --config mine.yaml                          the first figures on the test set

  metareplay tune split-mnist --method pr-dirac --hours 8 --jobs 4 --data-dir ~/data/mnist

  metareplay tune --data sales.csv --label product --tasks-by season --first-tasks 2

  metareplay tune --space space.yaml                         training.learning_rate: {low: 1e-4, high: 1e-2, log: true}

  metareplay tune --space grid.yaml --sampler grid           training.learning_rate: [1e-4, 1e-3, 1e-2]
"""


def tune(
    benchmark: Annotated[
        str | None, typer.Argument(help="Benchmark (metareplay list benchmarks). Default: split-digits.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Method (metareplay list methods). Default: pr-bbb.")] = None,
    network: Annotated[str | None, typer.Option(help="Main network, as for metareplay run.")] = None,
    trials: Annotated[
        int, typer.Option(min=1, help="Total number of trials in the study, including earlier ones.")
    ] = 30,
    hours: Annotated[
        float | None, typer.Option(min=0.0, help="Stop after this many hours; repeat the command to continue.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Trials in parallel.")] = 1,
    sampler: Annotated[Literal["tpe", "grid"], typer.Option(help="How settings are proposed.")] = "tpe",
    space: Annotated[
        str | None, typer.Option(help="paper, small, or a YAML file. Default: the paper's grid if there is one.")
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune/--no-prune", help="End trials that are among the worst quarter after a task.")
    ] = True,
    objective: Annotated[
        Literal["given", "inferred", "both"] | None,
        typer.Option(
            help="Accuracy with the task given or inferred. Default: inferred, unless it is known or the only one.",
            rich_help_panel=PROTOCOL,
        ),
    ] = None,
    first_tasks: Annotated[
        int | None,
        typer.Option(
            min=1, help="Use only the first tasks, which a learner could see in advance.", rich_help_panel=PROTOCOL
        ),
    ] = None,
    held_out: Annotated[
        float,
        typer.Option(
            min=0,
            max=0.9,
            help="Share of training examples to test on. 0: the test set, which is then no longer a test.",
            rich_help_panel=PROTOCOL,
        ),
    ] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search and of every trial.")] = 0,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of all trials, key=value; repeat it.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Settings to start from, from a YAML file.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data set.")] = None,
    data: Annotated[
        str | None, typer.Option(help="Your own data: table, arrays, folder, or hf:owner/name.", rich_help_panel=OWN)
    ] = None,
    tasks_by: Annotated[
        str | None, typer.Option(help="Column that names the task, or classes:2.", rich_help_panel=OWN)
    ] = None,
    label: Annotated[str | None, typer.Option(help="Column to predict.", rich_help_panel=OWN)] = None,
    ignore: Annotated[str | None, typer.Option(help="Columns that are not inputs.", rich_help_panel=OWN)] = None,
    text: Annotated[str | None, typer.Option(help="Column of texts.", rich_help_panel=OWN)] = None,
    task_order: Annotated[
        str | None, typer.Option(help="Tasks (or classes) in learning order, comma-separated.", rich_help_panel=OWN)
    ] = None,
    test_share: Annotated[
        float | None, typer.Option(help="Share that is kept for testing and not used here.", rich_help_panel=OWN)
    ] = None,
    test_data: Annotated[
        str | None, typer.Option(help="File or folder of the test set, which is not used here.", rich_help_panel=OWN)
    ] = None,
    split_by: Annotated[
        str | None, typer.Option(help="Column that says train or test; test rows are not used.", rich_help_panel=OWN)
    ] = None,
    problem: Annotated[str | None, typer.Option(help="classification or regression.", rich_help_panel=OWN)] = None,
    device: Annotated[str | None, typer.Option(help="Where tensors live: cpu, cuda, cuda:N or mps.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the study. Default: runs/tune/...")] = None,
    write_recipe: Annotated[
        Path | None, typer.Option(help="Write the best settings to this file, for metareplay run --config.")
    ] = None,
    on: On = "local",
    resources: Resources = None,
    list_: ListCommands = False,
    offline: Annotated[bool, typer.Option("--offline", help="Do not access the internet.")] = False,
    trust_network: TrustNetwork = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")] = False,
) -> None:
    """Search, then show what was found."""
    from rich.console import Console

    from metareplay.cli.engine_options import chosen_engine, threads_of_each
    from metareplay.experiments.plan import default_folder, make_plan
    from metareplay.experiments.tuning.worker import worker_jobs
    from metareplay.learner.config import parse_setting

    if offline:
        from metareplay.data.offline import go_offline

        go_offline()
    overrides = dict(parse_setting(pair) for pair in set_ or [])
    if taken := [key for key in ("tasks.validation", "tasks.first", "seed") if key in overrides]:
        option = {"tasks.validation": "--held-out", "tasks.first": "--first-tasks", "seed": "--seed"}[taken[0]]
        raise ConfigError(f"--set {taken[0]} is not allowed here; use {option}")
    _refuse_places(out, write_recipe)
    options: dict[str, Any] = {
        "benchmark": benchmark,
        "method": method,
        "network": network,
        "data.path": data,
        "data.tasks_by": tasks_by,
        "data.label": label,
        "data.ignore": ignore,
        "data.text": text,
        "data.task_order": task_order,
        "data.test_share": test_share,
        "data.test_path": test_data,
        "data.split_by": split_by,
        "data.problem": problem,
        "device": device,
        "data_dir": None if data_dir is None else str(real_path(data_dir.expanduser())),
        "tasks.first": first_tasks,
    }
    options = {key: value for key, value in options.items() if value is not None}
    options |= {"tasks.validation": held_out, "report.references": False, "seed": seed}
    folder = out or Path("runs") / "tune" / _name(default_folder(options).name, first_tasks, held_out)
    engine = chosen_engine(on, resources)
    threads = threads_of_each(jobs, engine, listed=list_)
    plan = make_plan(options, overrides, file=config, out=folder, threads=threads)
    decided = {**dict.fromkeys(overrides, "--set"), **({} if network is None else {"network": "--network"})}
    study = _study(plan, decided, space, sampler, objective, prune=prune)
    if list_:
        for job in worker_jobs(folder, trials, hours, jobs, study.definition.config().threads):
            print(job.line())
        return
    _search(Console(), study, (trials, hours, jobs), engine, write_recipe, quiet=quiet)


def _name(name: str, first: int | None, held_out: float) -> str:
    parts = (name, f"first-{first}" if first else "", "test-set" if held_out == 0 else "")
    return "-".join(filter(None, parts))


def _refuse_places(out: Path | None, recipe: Path | None) -> None:
    """Refuse a file in the place of the study's folder, or a folder in that of the recipe, before anything is run."""
    if out is not None and out.exists() and not out.is_dir():
        raise ConfigError(
            f"--out {out} is a file; name the folder of the study, which is created if necessary (a recipe is written "
            "with --write-recipe FILE)"
        )
    if recipe is not None and recipe.is_dir():
        raise ConfigError(f"--write-recipe {recipe} is a folder; name a file, such as {recipe / 'recipe.yaml'}")


def _searched(
    plan: "Plan", decided: dict[str, str], space: str | None, sampler: str
) -> "tuple[dict[str, Values | Range], str]":
    """What is searched, and where the space comes from; ``decided`` names the options that give a setting's value."""
    from metareplay.experiments.tuning.space import IN_PACKAGE, points, read_space, space_for

    if space is None or space in IN_PACKAGE:
        searched, source = space_for(plan.config, space)
        searched = {key: entry for key, entry in searched.items() if key not in decided}
    else:
        searched, source = read_space(Path(space), plan.config, decided), f"{Path(space).name}, your own space"
    if not searched:
        raise ConfigError(f"{plan.config.method} has nothing to search here; name settings in a --space file")
    if sampler == "grid":
        points(searched)
    return searched, source


def _objective(plan: "Plan", wanted: Any) -> Any:
    """What is compared: with the task inferred by default, unless it is known or the only one."""
    from metareplay.benchmarks.base import Scenario

    alone = plan.info.num_tasks == 1
    if alone and wanted in ("inferred", "both"):
        why = " with --first-tasks 1" if plan.config.tasks.first == 1 else ""
        raise ConfigError(
            f"--objective {wanted} needs at least two tasks to choose from, but there is only one{why}; choose "
            "--objective given, or more tasks"
        )
    return wanted or ("given" if alone or plan.info.scenario is Scenario.TASK else "inferred")


def _study(
    plan: "Plan", decided: dict[str, str], space: str | None, sampler: Any, objective: Any, *, prune: bool
) -> "Study":
    """The study in the plan's folder, created if necessary."""
    from metareplay.benchmarks.stored import store_benchmark
    from metareplay.experiments.tuning.definition import TASKS, Definition
    from metareplay.experiments.tuning.study import Study, load_optuna, refuse_foreign

    load_optuna()
    searched, source = _searched(plan, decided, space, sampler)
    own = plan.config.data.path is not None
    definition = Definition(
        base=plan.config.dump(),
        source=plan.source,
        space_source=source,
        space=searched,
        problem=plan.info.problem,
        tasks=plan.info.num_tasks,
        objective=_objective(plan, objective),
        sampler=sampler,
        prune=prune,
        seed=plan.config.seed,
        stored_tasks=own,
    )
    refuse_foreign(plan.folder)
    if own and not (plan.folder / TASKS).is_file():
        store_benchmark(plan.folder / TASKS, plan.benchmark)
    return Study.make(plan.folder, definition)


def _search(
    console: "Console",
    study: "Study",
    amount: tuple[int, float | None, int],
    engine: "Engine",
    recipe: Path | None,
    *,
    quiet: bool,
) -> None:
    from metareplay.cli.engine_options import say_how_to_submit
    from metareplay.cli.tune_display import StudyProgress, introduce_study, show_best, tell_of_the_rest, tell_of_workers
    from metareplay.experiments.tuning.summary import write_recipe, write_summary
    from metareplay.experiments.tuning.worker import worker_jobs
    from metareplay.interrupts import stop_on_signal
    from metareplay.report.tuning import write_study_page

    trials, hours, jobs = amount
    if not quiet:
        introduce_study(console, study)
    left, failures, asked = study.remaining(trials), dict[int, str](), _never
    if left:
        workers = worker_jobs(study.folder, trials, hours, min(jobs, left), study.definition.config().threads)
        asked = stop_on_signal()
        with StudyProgress(console, study, trials, quiet=quiet or not engine.waits) as progress:
            failures = engine.run(
                workers,
                at_once=jobs,
                out=study.folder,
                report=lambda running, failed: progress.show(),
                should_stop=asked,
            )
        if not engine.waits:
            say_how_to_submit(console, study.folder, len(workers), "workers")
    page = write_study_page(write_summary(study), study.folder / "report.html")
    show_best(console, study, page)
    if recipe is not None and study.best() is not None:
        console.print(f"recipe: {write_recipe(study, recipe)}", highlight=False)
    if failures:
        tell_of_workers(console, next(iter(failures.values())), all_done=not study.remaining(trials))
    if engine.waits:
        tell_of_the_rest(console, study, trials, asked=asked(), recipe=recipe)


def _never() -> bool:
    """Nobody has asked to stop."""
    return False
