"""A run's folder as the command line sees it: its settings, and how to remove it."""

import re
import shutil
from pathlib import Path
from typing import Any

from metareplay.errors import ConfigError
from metareplay.files import LOCK


def stored_config(out: Path) -> Path | None:
    """The configuration an interrupted run left, of one seed or of several."""
    return next((path for path in (out / "config.yaml", *sorted(out.glob("seed-*/config.yaml"))) if path.is_file()), None)


def read_settings(path: Path) -> dict[str, Any]:
    """Settings of a YAML file, as dotted keys."""
    import yaml

    from metareplay.settings import flatten

    try:
        content = yaml.safe_load(path.read_text())
    except UnicodeDecodeError as error:
        raise ConfigError(f"--config {path} is no text file; give YAML") from error
    except OSError as error:
        raise ConfigError(f"--config {path} cannot be read: {error.strerror or error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"--config {path} is no valid YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"--config {path} must hold settings like 'training: {{iterations: 500}}'")
    return flatten(content)


RUN_ENTRIES = frozenset(
    "config.yaml results.json metrics.jsonl checkpoint model log.txt report.html predictive.safetensors uncertainty.safetensors figures "
    f"signals tensorboard seeds.json summary.json progress.json request.json {LOCK}".split()
)
"""Everything that a run writes, beside the folders of its seeds."""


def remove_run(folder: Path) -> None:
    """Remove what an earlier run wrote; a folder that holds anything else is left alone."""
    if not folder.exists() or not any(folder.iterdir()):
        return
    entries = list(folder.iterdir())
    seeds = [entry for entry in entries if re.fullmatch(r"seed-\d+", entry.name) and (entry / "config.yaml").is_file()]
    foreign = [entry.name for entry in entries if entry not in seeds and entry.name not in RUN_ENTRIES and not entry.name.endswith(".tmp")]
    ours = (folder / "seeds.json").is_file() or ((folder / "config.yaml").is_file() and "method" in read_settings(folder / "config.yaml"))
    if foreign or not (ours or seeds):
        why = f"it holds {', '.join(sorted(foreign)[:3])}" if foreign else "it has no config.yaml of a run"
        raise ConfigError(f"--overwrite: {folder} is not only a run ({why}); remove it yourself if you mean it, or choose another --out")
    try:
        for seed in seeds:
            remove_run(seed)
            seed.rmdir()
        for entry in (entry for entry in entries if entry not in seeds):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    except OSError as error:
        raise ConfigError(f"--overwrite: {folder} cannot be removed: {error.strerror or error}") from error
