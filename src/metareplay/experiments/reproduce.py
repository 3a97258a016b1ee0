"""Reproduce a table of the paper: which runs it takes, and what their results say beside the paper's."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from metareplay.errors import ConfigError
from metareplay.experiments.config import RunConfig, build_config
from metareplay.experiments.paper_tables import PaperRow, PaperTable, result_path
from metareplay.experiments.recipe_book import default_settings

SLACK_ERRORS, SLACK_POINTS = 3.0, 2.0
"""A figure falls short if it is worse than the paper's by more than so many standard errors plus so many points."""


@dataclass(frozen=True)
class PlannedRun:
    """One seed of one method, and the folder it goes to."""

    method: str
    config: RunConfig
    folder: Path
    source: str
    """Where its settings come from."""


@dataclass(frozen=True)
class Comparison:
    """One figure of one row: ours over some seeds, the paper's, and how far they are apart."""

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
    """Mean seconds of training and testing a seed."""
    budget: float

    @property
    def standard_errors(self) -> float | None:
        """The difference, ours minus the paper's, over the standard error of a difference."""
        spread = sqrt((self.error or 0.0) ** 2 + (self.paper_error or 0.0) ** 2)
        return None if self.ours is None or spread == 0 else (self.ours - self.paper) / spread

    @property
    def falls_short(self) -> bool:
        """Worse than the paper by more than chance and a little slack; for errors a tenth of the paper's stands for the points."""
        if self.ours is None:
            return False
        spread = sqrt((self.error or 0.0) ** 2 + (self.paper_error or 0.0) ** 2)
        points = 0.1 * self.paper if self.lower_is_better else SLACK_POINTS
        worse = self.ours - self.paper if self.lower_is_better else self.paper - self.ours
        return worse > SLACK_ERRORS * spread + points


def chosen_rows(table: PaperTable, names: Sequence[str]) -> tuple[PaperRow, ...]:
    """The rows asked for, by our names or the paper's; all that can be run if none is named."""
    if not names:
        return table.own_rows
    known = {name.lower() for row in table.own_rows for name in (row.paper, str(row.method))}
    if unknown := [name for name in names if name.lower() not in known]:
        methods = dict.fromkeys(str(row.method) for row in table.own_rows)
        raise ConfigError(f"table {table.name} has no row {unknown[0]!r}; its rows are {', '.join(methods)}")
    wanted = {name.lower() for name in names}
    return tuple(row for row in table.own_rows if row.paper.lower() in wanted or row.method in wanted)


def planned_runs(
    table: PaperTable, rows: Sequence[PaperRow], seeds: range, out: Path, *, budget: float = 1.0, given: dict[str, Any] | None = None
) -> list[PlannedRun]:
    """Every run that the rows need, seed by seed, so that an interrupted table has all rows first; rows may share runs."""
    methods = dict.fromkeys(str(row.method) for row in rows)
    found = []
    for seed in seeds:
        for method in methods:
            defaults, source = default_settings(table.benchmark, method, table.network)
            config = shortened(build_config(defaults, {**(given or {}), "seed": seed}, "settings"), budget)
            found.append(PlannedRun(method, config, out / method / f"seed-{seed}", source))
    return found


def shortened(config: RunConfig, budget: float) -> RunConfig:
    """The configuration with a share of its training steps, at least one."""
    if not 0 < budget <= 1:
        raise ConfigError(f"--budget {budget} must lie above 0 and not above 1; it scales the number of training steps")
    if budget == 1:
        return config
    training, strategy = config.training, config.strategy
    lengths = {key: _share(getattr(training, key), budget) for key in ("iterations", "epochs")}
    after = {key: _share(getattr(strategy, key), budget) for key in ("finetune_iterations", "finetune_epochs")}
    return config.model_copy(update={"training": training.model_copy(update=lengths), "strategy": strategy.model_copy(update=after)})


def _share(length: int | None, budget: float) -> int | None:
    return None if length is None else max(1, round(length * budget))


def finished(runs: Sequence[PlannedRun]) -> dict[str, list[dict[str, Any]]]:
    """The results of the runs that have ended, by method."""
    found: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        path = run.folder / "results.json"
        if path.is_file():
            found.setdefault(run.method, []).append(json.loads(path.read_text()))
    return found


def compare(table: PaperTable, rows: Sequence[PaperRow], results: dict[str, list[dict[str, Any]]], budget: float = 1.0) -> list[Comparison]:
    """Every figure of the rows beside the paper's."""
    found = []
    for row in rows:
        runs = results.get(str(row.method), [])
        seconds = [sum(run["seconds"].values()) for run in runs]
        for figure, (paper, paper_error) in row.figures.items():
            values = [value for run in runs if (value := _lookup(run, result_path(table, row, figure))) is not None]
            ours = mean(values) if values else None
            error = stdev(values) / sqrt(len(values)) if len(values) > 1 else None
            lower = figure in ("seconds", "memory") or (table.benchmark == "regression-1d" and figure != "right_task")
            spent = mean(seconds) if seconds else None
            entry = Comparison(row.paper, str(row.method), figure, ours, error, len(values), paper, paper_error, lower, spent, budget)
            found.append(entry)
    return found


def _lookup(results: dict[str, Any], path: Sequence[str]) -> float | None:
    value: Any = results
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, int | float) else None
