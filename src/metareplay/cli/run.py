"""``metareplay run``: train and test a method on a benchmark."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metareplay.cli.engine_options import WHERE, How, Jobs, ListCommands, On, Resources
from metareplay.cli.recording import RecordTo, has_finished, record_finished, refuse_file
from metareplay.cli.trust import TrustNetwork
from metareplay.errors import ConfigError
from metareplay.files import real_path

if TYPE_CHECKING:
    from rich.console import Console

    from metareplay.experiments.plan import Plan

OWN = "Your own data"
HELP = """Train a method on a benchmark, task after task, and test it.

[bold]Examples[/]

  metareplay run                                         pr-bbb on the embedded split-digits

  metareplay run split-mnist --method pr-dirac --data-dir ~/data/mnist

  metareplay run modes-2d --seeds 10 --jobs 2            ten seeds, two at a time

  metareplay run --set training.iterations=500 --set strategy.strength=0.1

  metareplay run --out runs/mine --resume                continue what was interrupted

  metareplay run --seeds 10 --on slurm                   write an array script; --on ray: a Ray cluster

Your own data: a CSV or parquet table, arrays (.npz), a folder of images (folder/class/image.png or
folder/task/class/image.png), IDX files, CIFAR's binary archive, or hf:owner/name on the Hugging Face hub.

  metareplay run --data sales.csv --label product --tasks-by season --ignore id

  metareplay run --data photos/ --tasks-by classes:2     two classes per task; classes:2,3,4: tasks of different sizes

  metareplay run --data prices.parquet --label price --tasks-by year --test-data prices-test.parquet

The folder --out holds config.yaml, results.json, metrics.jsonl, checkpoint/, model/, log.txt and report.html.
"""


def run(
    benchmark: Annotated[
        str | None, typer.Argument(help="Benchmark (metareplay list benchmarks). Default: split-digits.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Method (metareplay list methods). Default: pr-bbb.")] = None,
    network: Annotated[
        str | None,
        typer.Option(help="Main network: a name (metareplay list networks), or module:function for your own."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run, or the first of --seeds. Default: 0.")] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Run this many seeds and report mean and standard error.")
    ] = None,
    jobs: Jobs = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, key=value; repeat it (metareplay list settings).")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings from a YAML file, e.g. another run's config.yaml.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the data set. Default: METAREPLAY_DATA, then the hub.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Your own data: table, arrays, folder, or hf:owner/name.", rich_help_panel=OWN)
    ] = None,
    tasks_by: Annotated[
        str | None,
        typer.Option(help="Column that names the task, or classes:2, or classes:2,3,4.", rich_help_panel=OWN),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Column to predict. Default: label, target, class or y.", rich_help_panel=OWN)
    ] = None,
    ignore: Annotated[
        str | None, typer.Option(help="Columns that are not inputs, comma-separated: id,name.", rich_help_panel=OWN)
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(help="Column of texts, for a network with a backbone that reads them.", rich_help_panel=OWN),
    ] = None,
    task_order: Annotated[
        str | None, typer.Option(help="Tasks (or classes) in learning order, comma-separated.", rich_help_panel=OWN)
    ] = None,
    test_share: Annotated[
        float | None, typer.Option(help="Share of each task and class for testing. Default: 0.2.", rich_help_panel=OWN)
    ] = None,
    test_data: Annotated[str | None, typer.Option(help="File or folder of the test set.", rich_help_panel=OWN)] = None,
    split_by: Annotated[str | None, typer.Option(help="Column that says train or test.", rich_help_panel=OWN)] = None,
    problem: Annotated[
        str | None,
        typer.Option(help="classification or regression. Default: inferred from the labels.", rich_help_panel=OWN),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not access the internet (also: METAREPLAY_OFFLINE=1).")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="Where tensors live: cpu, cuda, cuda:N or mps. Default: cpu.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. Default: runs/BENCHMARK-METHOD-NETWORK.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run in --out; a finished one is not repeated.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run in --out.")] = False,
    batch_wise: Annotated[
        int | None, typer.Option(min=1, help="Inputs per batch in batch-wise task inference. Default: 100.")
    ] = None,
    predictive: Annotated[
        str | None,
        typer.Option(help="samples, or moments: fast tests of Gaussian posteriors on MLPs. Default: samples."),
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard files to OUT/tensorboard.")
    ] = False,
    published: Annotated[
        bool,
        typer.Option(
            "--published",
            help="The paper's settings, even where this project has cheaper ones (marked in: list recipes).",
        ),
    ] = False,
    devices: Annotated[
        int, typer.Option(min=1, help="Processes that train one run together, one device each.", rich_help_panel=WHERE)
    ] = 1,
    strategy: Annotated[
        str | None,
        typer.Option(help="How --devices exchange gradients: ddp, or auto (Fabric's choice).", rich_help_panel=WHERE),
    ] = None,
    on: On = "local",
    resources: Resources = None,
    list_: ListCommands = False,
    trust_network: TrustNetwork = None,
    record: RecordTo = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the table.")] = False,
) -> None:
    """Train and test."""
    from rich.console import Console

    from metareplay.cli.engine_options import at_once, chosen_engine, threads_of_each
    from metareplay.cli.run_devices import learn_together, refuse_what_needs_whole_batches, team_of
    from metareplay.cli.run_display import introduce
    from metareplay.experiments.plan import make_plan
    from metareplay.experiments.run_folder import remove_run
    from metareplay.learner.config import parse_setting

    if offline:
        _go_offline()
    refuse_file(record)
    engine = chosen_engine(on, resources)
    team = team_of(devices, strategy, device, alone=seeds is None and on == "local" and not list_)
    options: dict[str, Any] = {
        "benchmark": benchmark,
        "method": method,
        "network": network,
        "seed": seed,
        "device": device,
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
        "data_dir": None if data_dir is None else str(real_path(data_dir.expanduser())),
        "inference.batch_wise": batch_wise,
        "inference.predictive": predictive,
    }
    options = {key: value for key, value in options.items() if value is not None}
    overrides = dict(parse_setting(pair) for pair in set_ or [])
    threads = threads_of_each(jobs, engine, listed=list_)
    plan = make_plan(options, overrides, file=config, out=out, threads=threads, resume=resume, published=published)
    if team is not None:
        refuse_what_needs_whole_batches(plan)
    wanted = _wanted_seeds(plan, seeds, overwrite=overwrite, resume=resume)
    if overwrite and not resume and (team is None or team.rank == 0):
        plan.check()
        remove_run(plan.folder)
    if list_:
        _list(plan, wanted, resume=resume)
        return
    console, how = Console(), How(at_once(jobs, engine), resume, tensorboard, quiet, engine)
    if not quiet:
        introduce(console, plan)
    if team is not None:
        learn_together(console, plan, how, team)
    elif wanted is not None:
        _several(console, plan, wanted, how)
    elif on == "local":
        _one(console, plan, how)
    else:
        _elsewhere(console, plan, how)
    if record is not None and (team is None or team.rank == 0) and has_finished(plan.folder):
        record_finished(record, [plan.folder])


def _wanted_seeds(plan: "Plan", seeds: int | None, *, overwrite: bool, resume: bool) -> range | None:
    """The seeds to run, also those of an earlier call that is continued; None for one run."""
    from metareplay.experiments.seeds import earlier_seeds

    if plan.folder.exists() and not plan.folder.is_dir():
        raise ConfigError(f"--out {plan.folder} is a file; name the folder of the run, which is created if necessary")
    wanted = None if seeds is None else range(plan.config.seed, plan.config.seed + seeds)
    if seeds is None and not overwrite and (wanted := earlier_seeds(plan.folder)) is not None and not resume:
        raise ConfigError(
            f"{plan.folder} holds runs of several seeds; continue them with --resume, replace them with --overwrite"
        )
    return wanted


def _go_offline() -> None:
    """From here on, neither this process nor those it starts accesses the internet."""
    from metareplay.data.offline import go_offline

    go_offline()


def _list(plan: "Plan", seeds: range | None, *, resume: bool) -> None:
    """Print the commands of the runs that have not finished."""
    from metareplay.experiments.run_folder import RunFolder
    from metareplay.experiments.seeds import commands_for, seed_plans

    if not resume:
        RunFolder(plan.folder).refuse_if_used()
    for line in commands_for([plan] if seeds is None else seed_plans(plan, seeds), resume=resume):
        print(line)


def _elsewhere(console: "Console", plan: "Plan", how: How) -> None:
    """One run as a job of an engine."""
    from metareplay.cli.engine_options import say_how_to_submit
    from metareplay.cli.run_display import SeedBars, print_table, write_page
    from metareplay.experiments.seeds import run_seeds
    from metareplay.interrupts import stop_on_signal

    with SeedBars(console, [plan.config.method], quiet=how.quiet or not how.engine.waits) as bars:
        results = run_seeds([plan], report=bars.show, should_stop=stop_on_signal(), out=plan.folder, **how.for_runs())
    if results:
        print_table(console, plan.folder, results[0])
        write_page(console, plan.folder)
    else:
        say_how_to_submit(console, plan.folder, 1, "runs", resume=True)


def _one(console: "Console", plan: "Plan", how: How) -> None:
    from metareplay.cli.run_display import print_table, write_page
    from metareplay.experiments.observers import ObserverList, TensorBoard
    from metareplay.experiments.run import Run
    from metareplay.experiments.run_folder import finished_results
    from metareplay.interrupts import stop_on_signal
    from metareplay.training.progress import LiveProgress, Observer

    results = finished_results(plan.folder, plan.config) if how.resume else None
    if results is None:
        unit = "squared error" if plan.info.problem == "regression" else "accuracy %"
        observers: list[Observer] = [] if how.quiet else [LiveProgress(console, unit=unit)]
        if how.tensorboard:
            observers.append(TensorBoard(plan.folder / "tensorboard", plan.config.training.log_every))
        results = Run(plan, observer=ObserverList(observers), should_stop=stop_on_signal()).execute(resume=how.resume)
    print_table(console, plan.folder, results)
    write_page(console, plan.folder)


def _several(console: "Console", plan: "Plan", seeds: range, how: How) -> None:
    from metareplay.cli.engine_options import say_how_to_submit
    from metareplay.cli.run_display import SeedBars, print_table, print_warnings, write_page
    from metareplay.experiments.run_folder import RunFolder
    from metareplay.experiments.seeds import forget_unstarted, run_seeds, seed_plans
    from metareplay.files import write_atomically
    from metareplay.interrupts import stop_on_signal
    from metareplay.locks import only_writer
    from metareplay.report import summarise

    if not how.resume:
        RunFolder(plan.folder).refuse_if_used()
    bars = SeedBars(console, [str(seed) for seed in seeds], title="seed", quiet=how.quiet or not how.engine.waits)
    with only_writer(plan.folder), bars:
        plans = seed_plans(plan, seeds)
        try:
            asked = stop_on_signal()
            results = run_seeds(plans, report=bars.show, should_stop=asked, out=plan.folder, **how.for_runs())
        finally:
            forget_unstarted(plan.folder)
    if not how.engine.waits:
        say_how_to_submit(console, plan.folder, len(plans) - len(results), "runs", resume=True)
        if not results:
            return
    write_atomically(plan.folder / "summary.json", json.dumps(summarise(results), indent=1))
    print_table(console, plan.folder, results)
    print_warnings(console, results)
    write_page(console, plan.folder)
