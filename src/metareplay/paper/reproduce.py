"""Reproduce a table of the paper: which runs it needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metareplay.benchmarks.registry import benchmark_named
from metareplay.errors import ConfigError
from metareplay.experiments.plan import Plan, threads_for
from metareplay.learner.config import RunConfig, build_config
from metareplay.learner.recipe_book import default_settings
from metareplay.paper.tables import PaperRow, PaperTable

FIXED = {
    "method": "the row determines the method, choose rows with --rows",
    "benchmark": "the table determines the benchmark",
    "network": "the table determines the network",
    "seed": "seeds are chosen with --seed and --seeds",
}
"""Settings that are fixed by the table."""


@dataclass(frozen=True)
class PlannedRun:
    """One seed of one method, and the folder it goes to."""

    method: str
    plan: Plan
    budget: float | None = 1.0
    """Its length as a fraction of the recipe's; None if they are given in different units."""

    @property
    def config(self) -> RunConfig:
        return self.plan.config

    @property
    def folder(self) -> Path:
        return self.plan.folder


def chosen_rows(table: PaperTable, names: Sequence[str]) -> tuple[PaperRow, ...]:
    """The requested rows, by our names or the paper's; if none is named, all that can be run."""
    if not names:
        return table.own_rows
    known = {name.lower() for row in table.own_rows for name in (row.paper, str(row.method))}
    if unknown := [name for name in names if name.lower() not in known]:
        methods = dict.fromkeys(str(row.method) for row in table.own_rows)
        raise ConfigError(f"table {table.name} has no row {unknown[0]!r}; its rows are {', '.join(methods)}")
    wanted = {name.lower() for name in names}
    return tuple(row for row in table.own_rows if row.paper.lower() in wanted or row.method in wanted)


def planned_runs(
    table: PaperTable,
    rows: Sequence[PaperRow],
    seeds: range,
    out: Path,
    *,
    budget: float = 1.0,
    given: dict[str, Any] | None = None,
    threads: int = 1,
) -> list[PlannedRun]:
    """Every run that the rows need, seed by seed, so that an interrupted table has all rows; rows may share runs.

    ``threads`` are those of runs on large inputs, unless they are given or a run was begun with others.
    """
    if fixed := [key for key in FIXED if key in (given or {})]:
        raise ConfigError(
            f"--set {fixed[0]} is not allowed here: {FIXED[fixed[0]]}; use metareplay run for your own runs"
        )
    methods = {str(row.method): row.network or table.network for row in rows}
    planned: list[PlannedRun] = []
    needs_data = benchmark_named(table.benchmark).needs_data
    for seed in seeds:
        for method, network in methods.items():
            defaults, source = default_settings(table.benchmark, method, network, published=True)
            defaults = {**defaults, **table.settings}  # those that have no effect with a method are ignored
            folder = out / method / f"seed-{seed}"
            defaults["threads"] = threads_for(folder, threads, needs_data=needs_data)
            config = shortened(build_config(defaults, {**(given or {}), "seed": seed}, "--set"), budget)
            share = _length_share(config, build_config(defaults, {}, ""))
            plan = (
                planned[0].plan.variant(config, folder, source) if planned else Plan.of(config, folder, source=source)
            )
            planned.append(PlannedRun(method, plan, share))
    return planned


def _length_share(config: RunConfig, recipe: RunConfig) -> float | None:
    """Training length as a fraction of the recipe's; None if one counts iterations and the other epochs."""
    for key in ("iterations", "epochs"):
        length, full = getattr(config.training, key), getattr(recipe.training, key)
        if length is not None and full is not None:
            return float(length / full)
    return None


def shortened(config: RunConfig, budget: float) -> RunConfig:
    """The configuration with a fraction of its training steps, at least one."""
    if not 0 < budget <= 1:
        raise ConfigError(f"--budget {budget} must be above 0 and at most 1; it scales the number of training steps")
    if budget == 1:
        return config
    training, strategy = config.training, config.strategy
    lengths = {key: _share(getattr(training, key), budget) for key in ("iterations", "epochs")}
    stages = [key for key in ("finetune_iterations", "finetune_epochs") if hasattr(strategy, key)]
    after = {key: _share(getattr(strategy, key), budget) for key in stages}
    return config.model_copy(
        update={"training": training.model_copy(update=lengths), "strategy": strategy.model_copy(update=after)}
    )


def _share(length: int | None, budget: float) -> int | None:
    return None if length is None else max(1, round(length * budget))
