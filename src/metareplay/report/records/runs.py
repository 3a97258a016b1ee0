"""Records of finished runs: their figures, and the command that repeats them, from the folder of each."""

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from metareplay.benchmarks.registry import BENCHMARKS
from metareplay.experiments.results import FILE, Environment, Results
from metareplay.learner.config import RunConfig, build_config
from metareplay.learner.recipe_book import default_settings
from metareplay.report.records.base import UNKNOWN, Record, Row
from metareplay.report.records.run_figures import figures_of
from metareplay.report.records.store import place_of, write_record
from metareplay.report.runs import FinishedRun, find_runs

NAMED = {"benchmark", "method", "network", "seed", "data_dir", "device"}
"""Settings that a command names by options of their own, or that are the reader's own business."""
ASIDE = {
    "threads",
    "inference.test_inputs",
    "inference.batch_wise",
    "statistics.collect",
    "training.log_every",
    "training.record_signals",
}
"""Settings that the command states and that do not make another measurement: how much is tested, and how fast."""


def record_runs(folder: Path, runs: Sequence[Path], command: str | None = None) -> list[Path]:
    """Record the finished runs in some folders; returns the files, each once."""
    written: dict[Path, None] = {}
    for run in find_runs(runs).runs:
        name, record = record_of(run, command)
        written[write_record(folder, name, record)] = None
    return list(written)


def record_of(run: FinishedRun, command: str | None = None) -> tuple[str, Record]:
    """The name and the record of one run; ``command``: what it was run by, if that is known."""
    results, own = run.results, run.config.get("data.path", "None") != "None"
    group = f"own-{Path(run.config['data.path']).stem}" if own else results.benchmark
    recipe, changed = ("own", _of_own_data(run.config)) if own else _nearest_recipe(run)
    lasting = {key: value for key, value in changed.items() if key not in ASIDE and not key.startswith("report.")}
    words = ",".join(f"{key}={value}" for key, value in sorted(lasting.items()))
    labels = {"benchmark": group, "method": results.method, "network": results.network, "recipe": recipe}
    labels |= {"settings": words} if words else {}
    stated = command or _command(run, recipe, changed)
    environment = results.environment or Environment()
    row = Row(seeds=[results.seed], figures=figures_of(run))
    record = Record(
        what=f"{results.method} on {group} with {results.network}" + (f", {words}" if words else ""),
        command=stated,
        labels=labels,
        budget=None if own else _budget(run, published=recipe == "published"),
        seeds=[results.seed],
        revision=environment.revision or UNKNOWN,
        date=datetime.fromtimestamp((run.folder / FILE).stat().st_mtime, UTC).strftime("%Y-%m-%d"),
        machine=_machine(environment),
        rows=[row],
    )
    return place_of(group, results.method, results.network, "" if recipe == "default" else recipe, words), record


def _nearest_recipe(run: FinishedRun) -> tuple[str, dict[str, str]]:
    """``published`` or ``default``, whichever a run's settings are closer to, and what it changed."""
    recipes = {kind: _changed(run, published=kind == "published") for kind in ("published", "default")}
    best = min(recipes, key=lambda kind: len(recipes[kind]))
    return best, recipes[best]


def _recipe(results: Results, *, published: bool) -> RunConfig:
    settings, _ = default_settings(results.benchmark, results.method, results.network, published=published)
    return build_config(settings, {}, "recipe")


def _changed(run: FinishedRun, *, published: bool) -> dict[str, str]:
    """The settings in which a run differs from a recipe; what an earlier version did not write counts as the same."""
    config = _recipe(run.results, published=published)
    inert = set(config.without_any_effect())
    if not BENCHMARKS[run.results.benchmark].uses_seed(config.tasks):
        inert.add("data_seed")
    standard = _as_text(config.model_dump(mode="json"))
    return {
        key: value
        for key, value in run.config.items()
        if key in standard and key not in NAMED and key not in inert and value != standard[key]
    }


def _as_text(content: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in content.items():
        flat |= _as_text(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": str(value)}
    return flat


def _of_own_data(config: Mapping[str, str]) -> dict[str, str]:
    """How a user's own data were read."""
    told = {"data.label", "data.tasks_by", "data.task_order", "data.problem", "data.split_by"}
    return {key: value for key, value in config.items() if key in told and value not in ("None", "()", "[]")}


def _command(run: FinishedRun, recipe: str, changed: Mapping[str, str]) -> str:
    """The command that repeats a run, in terms of its recipe; SEED stands for the seeds of the rows."""
    results = run.results
    words = ["metareplay", "run"]
    words += [results.benchmark] if recipe != "own" else ["--data", Path(run.config["data.path"]).name]
    words += ["--method", results.method, "--network", results.network]
    if recipe == "published" and _changed(run, published=False) != changed:
        words.append("--published")
    for key, value in sorted(changed.items()):
        words += ["--set", f"{key}={'null' if value == 'None' else value}"]
    info = BENCHMARKS.get(results.benchmark)
    if recipe != "own" and info is not None and info.needs_data:
        words += ["--data-dir", "FOLDER"]
    return f"{shlex.join(words)} --seed SEED"


def _budget(run: FinishedRun, *, published: bool) -> float | None:
    """The length of training as a share of the recipe's; None if they are in different units."""
    training = _recipe(run.results, published=published).training
    for key in ("iterations", "epochs"):
        length, full = run.config.get(f"training.{key}", "None"), getattr(training, key)
        if length != "None" and full is not None:
            return round(float(length) / float(full), 6)
    return None


def _machine(environment: Environment) -> str:
    """Where it was measured, without the name of the machine."""
    system = (environment.platform or UNKNOWN).split("-")[0]
    parts = [f"{system} {environment.processor or ''}".strip()]
    parts += [f"{environment.threads} thread{'s' if environment.threads != 1 else ''}"] if environment.threads else []
    parts += [f"torch {environment.torch}"] if environment.torch else []
    return ", ".join(parts)
