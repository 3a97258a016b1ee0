"""``metareplay run``: train and test a method on a benchmark."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metareplay.cli import own_data
from metareplay.cli.run_folder import read_settings, remove_run, stored_config
from metareplay.errors import ConfigError, MetaReplayError

if TYPE_CHECKING:
    from rich.console import Console

    from metareplay.benchmarks.registry import BenchmarkInfo
    from metareplay.learner.config import RunConfig

OWN = "Your own data"
HELP = """Train a method on a benchmark, task after task, and test it.

[bold]Examples[/]

  metareplay run                                         pr-bbb on the embedded split-digits

  metareplay run split-mnist --method pr-dirac --data-dir ~/data/mnist

  metareplay run modes-2d --seeds 10 --jobs 2            ten seeds, two at a time

  metareplay run --set training.iterations=500 --set strategy.strength=0.1

  metareplay run --out runs/mine --resume                continue what was interrupted

Your own data: a CSV or parquet table, arrays (.npz), a folder of images (folder/class/image.png or folder/task/class/image.png), IDX files,
CIFAR's binary archive, or hf:owner/name of the Hugging Face hub.

  metareplay run --data sales.csv --label product --tasks-by season --ignore id

  metareplay run --data photos/ --tasks-by classes:2     two classes per task; classes:2,3,4 for tasks of different sizes

  metareplay run --data prices.parquet --label price --tasks-by year --test-data prices-test.parquet

The folder --out holds config.yaml, results.json, metrics.jsonl, checkpoint/, model/, log.txt and report.html.
"""


def run(
    benchmark: Annotated[str | None, typer.Argument(help="Benchmark (metareplay list benchmarks). Default: split-digits.")] = None,
    method: Annotated[str | None, typer.Option(help="Method (metareplay list methods). Default: pr-bbb.")] = None,
    network: Annotated[
        str | None,
        typer.Option(help="Main network: a name (metareplay list networks), or module:function for your own."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run, or the first of --seeds. Default: 0.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Run this many seeds and report mean and standard error.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many seeds run side by side.")] = 1,
    set_: Annotated[list[str] | None, typer.Option("--set", help="A setting, key=value; repeat it (metareplay list settings).")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings from a YAML file, e.g. another run's config.yaml.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data set. Default: METAREPLAY_DATA, then the hub.")] = None,
    data: Annotated[str | None, typer.Option(help="Your own data: table, arrays, folder, or hf:owner/name.", rich_help_panel=OWN)] = None,
    tasks_by: Annotated[
        str | None, typer.Option(help="Column that names the task, or classes:2, or classes:2,3,4.", rich_help_panel=OWN)
    ] = None,
    label: Annotated[str | None, typer.Option(help="Column to predict. Default: label, target, class or y.", rich_help_panel=OWN)] = None,
    ignore: Annotated[str | None, typer.Option(help="Columns that are no inputs, with commas: id,name.", rich_help_panel=OWN)] = None,
    task_order: Annotated[
        str | None, typer.Option(help="Tasks (or classes) in the order of learning, with commas.", rich_help_panel=OWN)
    ] = None,
    test_share: Annotated[
        float | None, typer.Option(help="Share of each task and class for testing. Default: 0.2.", rich_help_panel=OWN)
    ] = None,
    test_data: Annotated[str | None, typer.Option(help="File or folder of the test set.", rich_help_panel=OWN)] = None,
    split_by: Annotated[str | None, typer.Option(help="Column that says train or test.", rich_help_panel=OWN)] = None,
    problem: Annotated[
        str | None, typer.Option(help="classification or regression. Default: what the labels say.", rich_help_panel=OWN)
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Ask nothing of the network (also: METAREPLAY_OFFLINE=1).")] = False,
    device: Annotated[str | None, typer.Option(help="Where tensors live: cpu, cuda, cuda:N or mps. Default: cpu.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. Default: runs/BENCHMARK-METHOD-NETWORK.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run in --out; a finished one is not repeated.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run in --out.")] = False,
    batch_wise: Annotated[int | None, typer.Option(min=1, help="Inputs per batch in batch-wise task inference. Default: 100.")] = None,
    predictive: Annotated[
        str | None, typer.Option(help="samples, or moments: fast tests of Gaussian posteriors on MLPs. Default: samples.")
    ] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard files to OUT/tensorboard.")] = False,
    published: Annotated[
        bool, typer.Option("--published", help="The paper's settings, also where this project has cheaper ones (marked in: list recipes).")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the table.")] = False,
) -> None:
    """Train and test."""
    from rich.console import Console

    if offline:
        own_data.go_offline()
    given: dict[str, Any] = {"benchmark": benchmark, "method": method, "network": network, "seed": seed, "device": device}
    given |= {"data.path": data, "data.tasks_by": tasks_by, "data.label": label, "data.ignore": ignore, "data.task_order": task_order}
    given |= {"data.test_share": test_share, "data.test_path": test_data, "data.split_by": split_by, "data.problem": problem}
    given |= {"data_dir": None if data_dir is None else str(data_dir.expanduser().resolve()), "inference.batch_wise": batch_wise}
    given["inference.predictive"] = predictive
    chosen = {key: value for key, value in given.items() if value is not None}
    resolved, folder, source = resolve(chosen, config, set_ or [], out, jobs, resume=resume, published=published)
    if seeds is None and (folder / "seeds.json").is_file() and not overwrite:
        seeds, resolved = earlier_seeds(folder, resolved, resume=resume)
    console = Console()
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; choose another --out")
    if overwrite and not resume:
        check_parts(resolved)
        remove_run(folder)
    if not quiet:
        introduce(console, resolved, folder, source)
    if seeds is None:
        _one(console, resolved, folder, resume=resume, tensorboard=tensorboard, quiet=quiet)
    else:
        _several(console, resolved, seeds, folder, jobs=jobs, resume=resume, tensorboard=tensorboard, quiet=quiet)


def resolve(
    chosen: dict[str, Any], file: Path | None, pairs: list[str], out: Path | None, jobs: int, *, resume: bool, published: bool = False
) -> tuple["RunConfig", Path, str]:
    """The configuration (defaults, recipe, file, options, --set: the later wins), the run's folder, and where defaults came from."""
    from metareplay.learner.config import build_config, parse_setting
    from metareplay.learner.recipe_book import default_settings

    own_data.forget()
    ordinary = {"benchmark", "method", "network", "seed", "data_dir", "device", *own_data.PATHS}
    told = bool(published or set(chosen) - ordinary or pairs or file)
    settings = {**(read_settings(file) if file else {}), **chosen, **dict(parse_setting(pair) for pair in pairs)}
    folder, source = out or default_folder(settings), ""
    if resume and not told and (stored := stored_config(folder)) is not None:
        file, settings = stored, {**read_settings(stored), **chosen}
        source = f"as stored in {stored}"
    info = own_data.info_for(settings)
    method, network = str(settings.get("method", "pr-bbb")), str(settings.get("network", info.default_network))
    defaults, recipe = default_settings(info.name, method, network, published=published)
    cores = os.cpu_count() or 1
    defaults["threads"] = max(1, cores // jobs) if info.needs_data else 1
    source_name = str(file) if file else "settings"
    resolved = build_config(defaults, settings, source_name)
    check_benchmark_settings(resolved, info)
    return resolved, folder, source or recipe


def default_folder(settings: dict[str, Any]) -> Path:
    """Where a run goes unless --out says otherwise."""
    method = settings.get("method", "pr-bbb")
    if settings.get("data.path") is not None:
        return Path("runs") / "-".join(filter(None, (own_data.folder_name(settings), method, _as_part(settings.get("network")))))
    info = own_data.info_for(settings)
    return Path("runs") / f"{info.name}-{method}-{_as_part(settings.get('network', info.default_network))}"


def _as_part(network: Any) -> str:
    """A network's name as part of a folder's; a user's own is module:function."""
    return str(network or "").replace(":", ".")


def check_benchmark_settings(config: "RunConfig", info: "BenchmarkInfo") -> None:
    """Refuse what means nothing for this benchmark."""
    from metareplay.learner.config import RunConfig
    from metareplay.settings import flatten

    info.with_settings(config.tasks)
    settings, defaults = (flatten(each.model_dump()) for each in (config, RunConfig()))
    reasons = {
        "posterior.likelihood_scale": None if info.problem == "regression" else "classification has no Gaussian likelihood",
        "heads": None if info.problem == "classification" else "regression tasks share their outputs",
        "data_seed": None if info.uses_seed(config.tasks) else "its data are not generated",
    }
    for key, reason in reasons.items():
        if settings.get(key) is not None and reason is not None and settings[key] != defaults[key]:
            raise ConfigError(f"{key} means nothing for {info.name}: {reason}. Leave it out")


def earlier_seeds(folder: Path, config: "RunConfig", *, resume: bool) -> tuple[int, "RunConfig"]:
    """How many seeds an earlier call ran in this folder, and the configuration of the first."""
    if not resume:
        raise ConfigError(f"{folder} holds runs of several seeds; continue them with --resume, replace them with --overwrite")
    try:
        earlier = json.loads((folder / "seeds.json").read_text())
        return int(earlier["count"]), config.model_copy(update={"seed": int(earlier["first"])})
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder / 'seeds.json'} is damaged; give --seeds again to continue") from error


def check_parts(config: "RunConfig") -> None:
    """What can fail before a run begins should fail before an earlier one is removed."""
    from metareplay.experiments.own_data import benchmark_for
    from metareplay.nets.registry import network_factory

    benchmark = own_data.loaded(config) if config.data.path is not None else benchmark_for(config)
    network_factory(config.network, benchmark.input_shape, config.activation)


def introduce(console: "Console", config: "RunConfig", folder: Path, source: str) -> None:
    """Say what is going to happen."""
    info = own_data.info_of(config)
    what = f"(scenario {info.scenario.value}, {info.num_tasks} tasks), {config.network}"
    name = info.name if config.data.path is None else own_data.loaded(config).name
    console.print(f"[bold]{config.method}[/] on [bold]{name}[/] {what}", highlight=False)
    if config.data.path is not None:
        own_data.introduce_data(console, config)
    console.print(f"settings: {source}; folder: {folder}", highlight=False)


def _one(console: "Console", config: "RunConfig", folder: Path, *, resume: bool, tensorboard: bool, quiet: bool) -> None:
    from metareplay.experiments.observers import ObserverList, TensorBoard
    from metareplay.experiments.run import Run, finished_results
    from metareplay.experiments.seeds import stop_on_signal
    from metareplay.report import run_table
    from metareplay.training.progress import LiveProgress, Observer

    results = finished_results(folder, config) if resume else None
    if results is None:
        own = own_data.loaded(config) if config.data.path is not None else None
        unit = "squared error" if "regression" in config.benchmark else "accuracy %"
        watchers: list[Observer] = [] if quiet else [LiveProgress(console, unit=unit)]
        if tensorboard:
            watchers.append(TensorBoard(folder / "tensorboard", config.training.log_every))
        run = Run(config, folder, observer=ObserverList(watchers), should_stop=stop_on_signal(), benchmark=own)
        results = run.execute(resume=resume)
    console.print(run_table(results))
    _report(console, folder)


def _several(
    console: "Console", config: "RunConfig", seeds: int, folder: Path, *, jobs: int, resume: bool, tensorboard: bool, quiet: bool
) -> None:
    from metareplay.experiments.seeds import run_seeds, stop_on_signal
    from metareplay.files import write_atomically
    from metareplay.report import seeds_table, summarise

    if folder.exists() and any(folder.iterdir()) and not resume:
        raise ConfigError(f"{folder} already exists; continue it with --resume, replace it with --overwrite, or choose another --out")
    write_atomically(folder / "seeds.json", json.dumps({"first": config.seed, "count": seeds}))
    configs = [config.model_copy(update={"seed": config.seed + index}) for index in range(seeds)]
    with _SeedBars(console, quiet) as bars:
        results = run_seeds(
            configs, folder, jobs=jobs, resume=resume, tensorboard=tensorboard, report=bars.show, should_stop=stop_on_signal()
        )
    write_atomically(folder / "summary.json", json.dumps(summarise(results), indent=1))
    console.print(seeds_table(results))
    _report(console, folder)


class _SeedBars:
    """One progress bar per seed."""

    def __init__(self, console: "Console", quiet: bool) -> None:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("seed {task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[state]}"))
        self.bars = Progress(*columns, TimeRemainingColumn(), console=console, disable=quiet or not console.is_terminal)
        self.rows: dict[int, Any] = {}

    def __enter__(self) -> "_SeedBars":
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def show(self, statuses: Any) -> None:
        """Draw how far each seed is."""
        for status in statuses:
            if status.seed not in self.rows:
                self.rows[status.seed] = self.bars.add_task(str(status.seed), total=1.0, state="waiting")
            self.bars.update(self.rows[status.seed], completed=status.share, state=status.state)


def _report(console: "Console", folder: Path) -> None:
    from metareplay.report import write_report

    try:
        page = write_report([folder], folder / "report.html")
    except MetaReplayError as problem:  # the results are safe: say so instead of failing
        console.print(f"[yellow]the report could not be written:[/] {problem}", highlight=False)
        return
    console.print(f"report: {page}", highlight=False)
