"""A study in a folder: Optuna's journal, which any number of processes share, and the trials' runs next to it."""

import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from metareplay.errors import ConfigError
from metareplay.experiments.tuning.definition import FILE, Definition
from metareplay.experiments.tuning.pruning import pruner_for
from metareplay.experiments.tuning.samplers import sampler_for
from metareplay.experiments.tuning.space import Range, Values, points
from metareplay.locks import only_writer
from metareplay.settings import flatten

if TYPE_CHECKING:
    import optuna

JOURNAL, NAME = "journal.log", "metareplay"
WAIT = 120.0
"""Seconds that a worker waits while others choose their trials."""
DECISIVE = (
    *("base.method", "base.benchmark", "base.network", "base.data.path", "base.data.fingerprint"),
    *("objective", "base.tasks.first", "base.tasks.validation", "space_source", "sampler", "seed"),
)
"""What is named first if two studies differ."""
LONGEST = 60
"""Characters of a value in a message."""


class TrialRecord(NamedTuple):
    """A trial as the page shows it."""

    number: int
    state: str
    """finished, pruned, failed, running or waiting."""
    value: float | None
    settings: dict[str, Any]
    after_tasks: dict[int, float]
    """Mean score with the task given after each task."""
    seconds: float | None
    problem: str | None
    recipe: bool
    """Whether these are the settings that the study started from."""


class Study:
    """Chooses trials, and knows what became of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.definition = folder, Definition.read(folder)
        self.optuna = load_optuna()
        self.study = _opened(self.optuna, folder, self.definition)

    @classmethod
    def make(cls, folder: Path, definition: Definition) -> "Study":
        """Begin a study, or continue one that is defined in the same way."""
        with only_writer(folder, wait=WAIT):
            if (folder / FILE).is_file():
                _refuse_another(Definition.read(folder), definition, folder)
                return cls(folder)
            refuse_foreign(folder)
            load_optuna()
            definition.write(folder)
            study = cls(folder)
            study._begin_with_recipe()
            return study

    def place(self, number: int) -> Path:
        """A trial's folder."""
        return self.folder / "trials" / f"{number:04d}"

    @contextmanager
    def claimed(self, trials: int) -> Iterator["optuna.trial.Trial | None"]:
        """A trial that no other worker has: one that was left behind, or the next; None if there are enough."""
        with ExitStack() as held:
            with only_writer(self.folder, wait=WAIT):
                trial = self._left_behind(held)
                if trial is None and self.begun() < self.limit(trials):
                    self.study.sampler = sampler_for(self.optuna, self.definition, self.next_number())
                    trial = self.study.ask()
                    held.enter_context(only_writer(self.place(trial.number)))
                if trial is not None:
                    self.values(trial)
            yield trial

    def _left_behind(self, held: ExitStack) -> "optuna.trial.Trial | None":
        """A trial that is marked as running, but whose worker no longer holds the lock of its folder."""
        running = self.optuna.trial.TrialState.RUNNING
        for frozen in self.study.get_trials(deepcopy=False, states=(running,)):
            try:
                held.enter_context(only_writer(self.place(frozen.number)))
            except ConfigError:
                continue  # somebody is at work
            self.study.sampler = sampler_for(self.optuna, self.definition, frozen.number)
            return self.optuna.trial.Trial(self.study, frozen._trial_id)
        return None

    def values(self, trial: "optuna.trial.Trial") -> dict[str, Any]:
        """The settings of a trial; chosen when first asked."""
        return {key: _chosen(trial, key, entry) for key, entry in self.definition.space.items()}

    def earlier(self, trial: "optuna.trial.Trial") -> TrialRecord | None:
        """A finished trial with the same settings: since all have the same seed, it would come to the same figures."""
        wanted = self.values(trial)
        same = (record for record in self.records() if record.state == "finished" and record.settings == wanted)
        return next((record for record in same if record.number != trial.number), None)

    def begun(self) -> int:
        """Trials that were begun, whatever became of them."""
        waiting = self.optuna.trial.TrialState.WAITING
        return sum(trial.state is not waiting for trial in self.study.get_trials(deepcopy=False))

    def next_number(self) -> int:
        """That of the next trial."""
        states = self.optuna.trial.TrialState
        waiting = self.study.get_trials(deepcopy=False, states=(states.WAITING,))
        return waiting[0].number if waiting else len(self.study.get_trials(deepcopy=False))

    def limit(self, trials: int) -> int:
        """A grid has a limited number of points."""
        return min(trials, points(self.definition.space)) if self.definition.sampler == "grid" else trials

    def ended(self) -> int:
        """Trials that have finished, were pruned, or failed."""
        states = self.optuna.trial.TrialState
        return len(self.study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED, states.FAIL)))

    def remaining(self, trials: int) -> int:
        """Trials that have to be begun or finished."""
        return max(0, self.limit(trials) - self.ended())

    def records(self) -> list[TrialRecord]:
        """All trials so far."""
        return [self._record(trial) for trial in self.study.get_trials(deepcopy=False)]

    def best(self) -> TrialRecord | None:
        """The best of the finished trials."""
        finished = [record for record in self.records() if record.value is not None and record.state == "finished"]
        sign = -1.0 if self.definition.lower_is_better else 1.0
        return max(finished, key=lambda record: (sign * float(record.value or 0), -record.number), default=None)

    def importances(self) -> dict[str, float]:
        """How much of the differences between trials each setting explains; empty while there are too few."""
        states = self.optuna.trial.TrialState
        complete = self.study.get_trials(deepcopy=False, states=(states.COMPLETE,))
        if len(complete) < 8 or len({trial.value for trial in complete}) < 2:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = self.optuna.importance.FanovaImportanceEvaluator(seed=self.definition.seed)
            found = self.optuna.importance.get_param_importances(self.study, evaluator=evaluator)
        return {key: float(value) for key, value in found.items()}

    def _begin_with_recipe(self) -> None:
        """The settings that the study starts from are the first trial, if the space contains them."""
        base, space = flatten(self.definition.base), self.definition.space
        if self.definition.sampler == "tpe" and all(
            key in base and _contains(entry, base[key]) for key, entry in space.items()
        ):
            labels = {key: _label(entry, base[key]) for key, entry in space.items()}
            self.study.enqueue_trial(labels)

    def _record(self, trial: "optuna.trial.FrozenTrial") -> TrialRecord:
        states = self.optuna.trial.TrialState
        words = {states.COMPLETE: "finished", states.PRUNED: "pruned", states.FAIL: "failed"}
        words |= {states.RUNNING: "running", states.WAITING: "waiting"}
        space, kept = self.definition.space, trial.user_attrs
        settings = {key: _meant(space[key], value) for key, value in trial.params.items() if key in space}
        finished = trial.state is states.COMPLETE
        return TrialRecord(
            trial.number,
            words[trial.state],
            float(trial.values[0]) if finished and trial.values else None,
            settings,
            dict(trial.intermediate_values),
            kept.get("seconds"),
            kept.get("problem"),
            bool(settings) and all(flatten(self.definition.base).get(key) == settings[key] for key in settings),
        )


def refuse_foreign(folder: Path) -> None:
    """Refuse a folder that holds something else than a study."""
    if (folder / FILE).is_file() or not folder.exists():
        return
    if any(entry.name[0] != "." and not entry.name.startswith("tasks.") for entry in folder.iterdir()):
        raise ConfigError(f"{folder} already exists and holds no study; choose another --out")


def load_optuna() -> Any:
    """Optuna, silent."""
    try:
        import optuna
    except ImportError as error:
        raise ConfigError('metareplay tune needs the package optuna: pip install "metareplay[tune]"') from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _opened(optuna: Any, folder: Path, definition: Definition) -> Any:
    """The study in the journal, created if necessary."""
    backend = optuna.storages.journal.JournalFileBackend(str(folder / JOURNAL))
    return optuna.create_study(
        study_name=NAME,
        storage=optuna.storages.JournalStorage(backend),
        direction="minimize" if definition.lower_is_better else "maximize",
        pruner=pruner_for(optuna, definition),
        load_if_exists=True,
    )


def _refuse_another(stored: Definition, wanted: Definition, folder: Path) -> None:
    """A study keeps its definition."""
    first, second = (flatten(definition.model_dump(mode="json")) for definition in (stored, wanted))
    free = ("base.threads", "base.data_dir", "source")
    different = [key for key in first.keys() | second.keys() if first.get(key) != second.get(key) and key not in free]
    if different:
        # what a user decides comes first: the rest of a method's settings follow from it
        key = min(different, key=lambda key: (DECISIVE.index(key) if key in DECISIVE else len(DECISIVE), key))
        raise ConfigError(
            f"{folder} holds another study: its {key.removeprefix('base.')} is {_shown(first.get(key))}, not "
            f"{_shown(second.get(key))}; choose another --out, or give the same options"
        )


def _shown(value: Any) -> str:
    """A value of a definition, shortened."""
    text = "not set" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _chosen(trial: "optuna.trial.Trial", key: str, entry: Values | Range) -> Any:
    if isinstance(entry, Values):
        labels = entry.labels()
        return labels[trial.suggest_categorical(key, list(labels))]
    if entry.integer:
        return trial.suggest_int(key, int(entry.low), int(entry.high), log=entry.log)
    return trial.suggest_float(key, float(entry.low), float(entry.high), log=entry.log)


def _contains(entry: Values | Range, value: Any) -> bool:
    if isinstance(entry, Values):
        return _label(entry, value) in entry.labels()
    return isinstance(value, int | float) and not isinstance(value, bool) and entry.low <= value <= entry.high


def _label(entry: Values | Range, value: Any) -> Any:
    """What Optuna keeps for a value."""
    if isinstance(entry, Range):
        return value
    return next((label for label, known in entry.labels().items() if known == value), None)


def _meant(entry: Values | Range, kept: Any) -> Any:
    """The value that Optuna keeps."""
    return entry.labels().get(kept, kept) if isinstance(entry, Values) else kept


def deadline_after(hours: float | None) -> float:
    """The time of the monotonic clock at which work ends."""
    return float("inf") if hours is None else time.monotonic() + 3600 * hours


def shown_settings(settings: Mapping[str, Any]) -> str:
    """In one line."""
    return ", ".join(
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in settings.items()
    )
