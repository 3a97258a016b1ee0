"""Read finished runs from their folders and group the seeds of each method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file

from metareplay.errors import DataError
from metareplay.experiments.result_sizes import TrainingLine
from metareplay.experiments.results import FILE, Results, first_problem, read_results
from metareplay.files import real_path, refuse_waiting
from metareplay.texts import read_json, read_yaml

_NOT_A_RUN = {"model", "checkpoint"}
_NO_VARIANT = {"seed", "seeds", "out", "data_dir", "jobs", "references"}  # keys in which runs of one method may differ

Tensors = dict[str, NDArray[np.floating]]
Setting = tuple[tuple[str, str], ...]
"""A configuration as dotted keys and values, sorted."""


@dataclass(frozen=True)
class FinishedRun:
    """One finished run, read from its folder; the model is never loaded."""

    folder: Path
    results: Results
    config_text: str | None
    config: dict[str, str]
    history: list[dict[str, Any]]
    computed: Tensors | None = None
    """Replaces ``predictive.safetensors``, if it was recomputed."""

    def predictive(self) -> Tensors | None:
        """The arrays for the figure of a toy problem, if the run stored them."""
        if self.computed is not None:
            return self.computed
        return read_arrays(self.folder / "predictive.safetensors")

    def uncertainty(self) -> Tensors | None:
        """Binned uncertainties and confidences, if the run stored them."""
        return read_arrays(self.folder / "uncertainty.safetensors")

    def has_whole_batches(self) -> bool:
        """Whether every task has enough test inputs for one batch of batch-wise task inference; True if unknown."""
        bins, size = (self.uncertainty() or {}).get("reliability"), self.results.batch_wise_size
        return bins is None or size is None or bool((bins[:, 0].sum(axis=1) >= size).all())  # (T, 3, bins) -> (T,)


@dataclass(frozen=True)
class Group:
    """The runs of one method that differ only in the seed."""

    label: str
    runs: tuple[FinishedRun, ...]

    @property
    def results(self) -> list[Results]:
        return [run.results for run in self.runs]

    @property
    def first(self) -> Results:
        return self.runs[0].results

    @property
    def regression(self) -> bool:
        return self.first.regression

    @property
    def keeps_rows(self) -> bool:
        """Whether the method keeps examples of old tasks that its results, of an earlier version, do not count."""
        counts = self.first.parameters
        uncounted = counts is None or counts.kept is None
        return uncounted and all("strategy.coreset_size" in run.config for run in self.runs)

    @property
    def batch_wise(self) -> bool:
        """Whether figures for batches of inputs mean what they say."""
        return not self.regression and all(run.has_whole_batches() for run in self.runs)


class FoundRuns(NamedTuple):
    """The finished runs in some folders, and the folders of runs that have not finished."""

    runs: list[FinishedRun]
    unfinished: list[Path]


def read_run(folder: Path) -> FinishedRun:
    """Read one run's folder; only results.json is required."""
    config_text = _read_text(folder / "config.yaml")
    return FinishedRun(
        folder,
        results_in(folder),
        config_text,
        _read_config(folder, config_text),
        _read_history(folder / "metrics.jsonl"),
    )


def results_in(folder: Path) -> Results:
    """The results of a finished run."""
    if not folder.exists():
        raise DataError(f"there is no folder {folder}; give a folder that metareplay run has written")
    if not (folder / FILE).is_file():
        raise DataError(
            f"{folder} is not a finished run: {FILE} is missing; "
            "give a folder that metareplay run has written, or finish the run with metareplay run --resume"
        )
    return read_results(folder / FILE)


def find_runs(folders: Sequence[Path]) -> FoundRuns:
    """All runs in the folders: a folder is a run itself, or holds runs (``seed-0/``, ``pr-bbb/seed-0/``, ...)."""
    runs: dict[Path, FinishedRun] = {}
    unfinished: list[Path] = []
    for folder in map(Path, folders):
        finished = [folder] if (folder / "results.json").exists() else _folders_with(folder, "results.json")
        if not finished:
            results_in(folder)  # raises the error that says what is missing
        for path in finished:
            runs.setdefault(real_path(path), read_run(path))
        if folder not in finished:
            unfinished += [path for path in _folders_with(folder, "config.yaml") if path not in finished]
    return FoundRuns(list(runs.values()), unfinished)


def group_runs(runs: Sequence[FinishedRun]) -> list[Group]:
    """Group runs that differ only in the seed; if a method has runs with different settings, the labels show them."""
    variants: dict[tuple[str, ...], dict[Setting, list[FinishedRun]]] = {}
    for run in runs:
        results = run.results
        identity = tuple(
            map(str, (results.benchmark, results.method, results.network, results.scenario, results.num_tasks))
        )
        setting = tuple(
            sorted((key, value) for key, value in run.config.items() if key.split(".")[-1] not in _NO_VARIANT)
        )
        variants.setdefault(identity, {}).setdefault(setting, []).append(run)
    groups = []
    for identity, by_setting in variants.items():
        for remark, members in zip(_remarks(list(by_setting)), by_setting.values(), strict=True):
            label = f"{identity[1]} ({remark})" if remark else identity[1]
            groups.append(Group(label, tuple(sorted(members, key=lambda run: run.results.seed))))
    return groups


def _remarks(settings: Sequence[Setting]) -> list[str]:
    """By what settings runs of one method differ: those that all of them have, if this tells them apart."""
    common = set.intersection(*(set(setting) for setting in settings))
    shared = set.intersection(*({key for key, _ in setting} for setting in settings))
    differing = [[pair for pair in setting if pair not in common] for setting in settings]
    by_all = [[pair for pair in pairs if pair[0] in shared] for pairs in differing]
    chosen = by_all if len(set(map(tuple, by_all))) == len(settings) else differing
    return [", ".join(f"{key.split('.')[-1]}={value}" for key, value in pairs) for pairs in chosen]


def _folders_with(folder: Path, name: str) -> list[Path]:
    parents = (path.parent for path in folder.rglob(name)) if folder.is_dir() else iter(())
    return sorted(path for path in parents if not _NOT_A_RUN.intersection(path.relative_to(folder).parts))


def _read_text(path: Path) -> str | None:
    try:
        refuse_waiting(path)
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}); repeat the run to write it again") from error


def read_arrays(path: Path) -> Tensors | None:
    if not path.exists():
        return None
    try:
        refuse_waiting(path)
        return {name: np.asarray(array, dtype=np.float64) for name, array in load_file(path).items()}
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} cannot be read ({error}); delete it to make the report without its figure") from error


def _read_config(folder: Path, text: str | None) -> dict[str, str]:
    """The configuration as dotted keys and values as text."""
    try:
        content = read_yaml(text or "")
    except ValueError as error:
        path = folder / "config.yaml"
        raise DataError(f"{path} is not valid YAML: {error}; repeat the run to write it again") from error
    return _flatten(content) if isinstance(content, Mapping) else {}


def _flatten(content: Mapping[Any, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = str(value)
    return flat


def _read_history(path: Path) -> list[dict[str, Any]]:
    """The training records, in order; if a resumed run wrote a record twice, the later one counts."""
    lines: dict[tuple[int, int], dict[str, Any]] = {}
    for number, text in enumerate((_read_text(path) or "").splitlines(), start=1):
        if not text.strip():
            continue
        try:
            content = read_json(text)
            if isinstance(content, dict) and "event" not in content:
                line = TrainingLine.model_validate(content)
                lines[line.task, line.iteration] = line.model_dump()
        except ValidationError as error:
            words = f"{path}, line {number} is not a training record: {first_problem(error)}"
            raise DataError(f"{words}; delete the line or repeat the run") from error
        except ValueError as error:
            raise DataError(
                f"{path}, line {number} is not a training record ({error}); delete the line or repeat the run"
            ) from error
    return [lines[key] for key in sorted(lines)]
