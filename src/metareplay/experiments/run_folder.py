"""A run's folder: what it contains, and how an earlier run is read or removed."""

import json
import re
import shutil
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from metareplay.errors import CheckpointError, ConfigError, DataError
from metareplay.experiments.results import FILE as RESULTS
from metareplay.experiments.results import Results, read_results
from metareplay.files import refuse_special, write_atomically
from metareplay.learner.config import RunConfig, build_config
from metareplay.locks import LOCK, only_writer, remove_abandoned_lock
from metareplay.settings import Settings, flatten
from metareplay.texts import read_yaml_file

REQUEST = "request.json"
"""What the process of a run is asked to do, until it has begun."""
RUN_ENTRIES = frozenset(
    "config.yaml results.json metrics.jsonl checkpoint model log.txt report.html predictive.safetensors "
    "uncertainty.safetensors figures signals replayed tensorboard seeds.json summary.json progress.json slurm.sh "
    f"slurm-logs {REQUEST} {LOCK}".split()
)
"""Everything that a run writes, except the folders of its seeds."""
OURS = ("config.yaml", "seeds.json")
"""By which a run is known; removed last."""
GROUPS = frozenset(name for name, field in RunConfig.model_fields.items() if isinstance(field.default, Settings))
"""Groups of settings, which may be empty."""


class RunFolder:
    """Writes the files of a run; each is written completely or not at all."""

    def __init__(self, path: Path) -> None:
        self.path, self.metrics = path, path / "metrics.jsonl"

    def refuse_if_used(self) -> None:
        """A new run needs a folder that is empty or does not exist."""
        if self.path.exists() and any(entry.name not in (LOCK, REQUEST) for entry in self.path.iterdir()):
            raise ConfigError(
                f"{self.path} already exists; continue it with --resume, replace it with --overwrite, "
                "or choose another --out"
            )

    def begin(self, config: RunConfig) -> None:
        """Write the configuration; remove temporary files left by a process that was killed."""
        for path in (self.metrics, self.path / "log.txt"):
            refuse_special(path)  # it would be appended to
        for left_over in (*self.path.glob(".*.tmp"), *self.path.glob("checkpoint/.*.tmp")):
            left_over.unlink(missing_ok=True)
        write_atomically(self.path / "config.yaml", config.to_yaml())

    def keep_metrics(self, size: int) -> None:
        """Cut off what was logged after a checkpoint, since it will be logged again."""
        write_atomically(self.metrics, self.metrics.read_bytes()[:size] if self.metrics.exists() else b"")

    def add_metrics(self, line: Mapping[str, Any]) -> None:
        """Add one record."""
        with self.metrics.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def log(self, text: str) -> None:
        """Add a line with the time to log.txt; the folder exists, since config.yaml was written first."""
        with (self.path / "log.txt").open("a") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")

    def write_tensors(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Write a file of tensors, if there are any."""
        if tensors:
            write_atomically(self.path / name, save({key: value.contiguous() for key, value in tensors.items()}))

    def write_results(self, results: Results) -> None:
        """Write the last file: the run has finished."""
        write_atomically(self.path / RESULTS, json.dumps(results.content(), indent=1))

    def stored_settings(self) -> dict[str, Any] | None:
        """The settings in ``config.yaml``, as dotted keys; None if there is none."""
        path = self.path / "config.yaml"
        return read_settings(path, "") if path.is_file() else None

    def refuse_changed_data(self, config: RunConfig) -> None:
        """Refuse data that differ from those the run in this folder started with."""
        before, now = (self.stored_settings() or {}).get("data.fingerprint"), config.data.fingerprint
        if before is not None and now is not None and before != now:
            raise DataError(
                f"the data changed since the run in {self.path} started (fingerprint {now}, before {before}), "
                "or are now read differently; restore them, or start a new run in another --out"
            )


def finished_results(folder: Path, config: RunConfig) -> Results | None:
    """The results of a finished run; None if there are none, an error if its configuration was different."""
    if not (folder / RESULTS).is_file():
        return None
    run = RunFolder(folder)
    try:
        stored, results = run.stored_settings(), read_results(folder / RESULTS)
        if stored is None:
            raise DataError("config.yaml is missing")
    except (OSError, ValueError, ConfigError, DataError) as error:
        advice = "choose another --out, or remove the folder"
        raise CheckpointError(f"the finished run in {folder} is damaged ({error}); {advice}") from error
    run.refuse_changed_data(config)
    if build_config({}, stored, str(folder / "config.yaml"), stored=True).fingerprint() != config.fingerprint():
        raise ConfigError(
            f"{folder} holds a finished run with another configuration; choose another --out, or remove the folder"
        )
    remove_abandoned_lock(folder)  # of a process that was killed when all was done
    with suppress(OSError):
        (folder / "progress.json").unlink(missing_ok=True)
    return results


def stored_config(out: Path) -> Path | None:
    """The configuration of an interrupted run, of one seed or of several."""
    return next(
        (path for path in (out / "config.yaml", *sorted(out.glob("seed-*/config.yaml"))) if path.is_file()), None
    )


def read_settings(path: Path, option: str = "--config ") -> dict[str, Any]:
    """Settings of a YAML file, as dotted keys."""
    try:
        content = read_yaml_file(path)
    except OSError as error:
        raise ConfigError(f"{option}{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{option}{path} is not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{option}{path} must hold settings like 'training: {{iterations: 500}}'")
    _refuse_empty(content, f"{option}{path}")
    return flatten(content)


def _refuse_empty(content: Mapping[Any, Any], source: str, prefix: str = "") -> None:
    """Refuse a setting without a value, ``{}``, which would be taken for nothing at all."""
    for key, value in content.items():
        if not isinstance(key, str):
            raise ConfigError(f"{source}: the key {prefix}{key!r} is not text; names of settings are text")
        if isinstance(value, Mapping) and not value and (prefix or key not in GROUPS):
            raise ConfigError(f"{source}: {prefix}{key} is empty ({{}}); give it a value, or remove it")
        if isinstance(value, Mapping):
            _refuse_empty(value, source, f"{prefix}{key}.")


def remove_run(folder: Path) -> None:
    """Remove what an earlier run wrote, unless it is at work; a folder that holds anything else is left alone."""
    if not folder.exists() or not any(folder.iterdir()):
        return
    _plan_removal(folder)  # what must not be removed is not locked either
    with ExitStack() as locks:
        locks.enter_context(only_writer(folder))
        seeds = _plan_removal(folder)
        for seed in seeds:
            locks.enter_context(only_writer(seed))
        try:
            for part in (*seeds, folder):
                entries = [entry for entry in part.iterdir() if entry.name != LOCK and entry not in seeds]
                for entry in sorted(entries, key=lambda entry: entry.name in OURS):  # if killed, it is still a run's
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        except OSError as error:
            raise ConfigError(f"--overwrite: {folder} cannot be removed: {error.strerror or error}") from error
    with suppress(OSError):  # another run may have begun there
        for seed in seeds:
            seed.rmdir()


def _is_bare(folder: Path) -> bool:
    """Whether a folder holds nothing but a request, and what a process leaves that was killed at once."""
    own = (LOCK, REQUEST)
    return folder.is_dir() and all(entry.name in own or entry.name.endswith(".tmp") for entry in folder.iterdir())


def _plan_removal(folder: Path, *, inner: bool = False) -> list[Path]:
    """The folders of seeds in a run's folder; refuses a folder that holds anything but runs."""
    entries = list(folder.iterdir())
    named = [entry for entry in entries if re.fullmatch(r"seed-\d+", entry.name) and not entry.is_symlink()]
    seeds = [] if inner else [entry for entry in named if (entry / "config.yaml").is_file() or _is_bare(entry)]
    foreign = [
        entry.name
        for entry in entries
        if entry not in seeds and entry.name not in RUN_ENTRIES and not entry.name.endswith(".tmp")
    ]
    ours = (folder / "seeds.json").is_file() or (
        (folder / "config.yaml").is_file() and "method" in read_settings(folder / "config.yaml")
    )
    if foreign or not (ours or seeds or _is_bare(folder)):
        why = f"it holds {', '.join(sorted(foreign)[:3])}" if foreign else "it has no config.yaml of a run"
        advice = "remove it yourself if you really want to, or choose another --out"
        raise ConfigError(f"--overwrite: {folder} contains more than a run ({why}); {advice}")
    for seed in seeds:
        _plan_removal(seed, inner=True)
    return seeds
