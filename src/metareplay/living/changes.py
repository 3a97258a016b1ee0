"""Verbs that need no data: a new model, a task removed or renamed, a change undone, earlier versions deleted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metareplay.errors import CheckpointError, ConfigError
from metareplay.learner.store import HistoryEntry, compact, restore_generation, writing
from metareplay.living.learning import Done
from metareplay.living.opened import OpenModel, new_config
from metareplay.living.past import REMOVE, RENAME, UNDO, past_of
from metareplay.living.place import NewModel, begin_new, checked_name, model_folder


def new_model(
    folder: Path, *, method: str = "pr-bbb", network: str | None = None, settings: Mapping[str, Any] | None = None
) -> Done:
    """Make a model without tasks; whatever its settings cannot do is refused now."""
    new = NewModel(method, network, dict(settings or {}))
    config = new_config(new, new.settings.get("data.problem") or "classification")
    begin_new(folder, new)
    about = f"{config.method} on {config.network if network else 'the default network'}, seed {config.seed}"
    return Done(f"{folder} is a new model ({about}); add its first task with: metareplay add-task {folder} DATA")


def _opened(folder: Path) -> OpenModel:
    model = OpenModel.of(folder)
    if model.learner is None:
        raise ConfigError(f"{folder} is a new model without tasks; add one with: metareplay add-task {folder} DATA")
    model.work.refuse_unfinished(model.generation)
    return model


def remove_task(folder: Path, name: str) -> Done:
    """Remove a task and all that is stored for it alone."""
    with writing(model_folder(folder)):
        model = _opened(folder)
        index = model.index(name)
        assert model.learner is not None
        model.learner.remove_task(index)
        del model.tasks[index]
        shared = not model.learner.config.kind().task_map_part.separate
        facts = {"remains": "what it taught the hypernetwork that all tasks share"} if shared else {}
        entry = HistoryEntry(verb=REMOVE, tasks=(name,), facts=facts)
        model.save(entry)
    rest = "what it taught the shared hypernetwork remains there, but not the embedding that gives access to it; "
    return Done(
        f"task {name!r} removed; {rest if shared else ''}earlier versions still hold it until: "
        f"metareplay compact {folder}",
        entry,
    )


def rename_task(folder: Path, name: str, new: str) -> Done:
    """Give a task another name."""
    with writing(model_folder(folder)):
        model = _opened(folder)
        index, new = model.index(name), checked_name(new)
        if new in model.names:
            raise ConfigError(f"a task named {new!r} already exists; choose another name")
        model.tasks[index] = model.tasks[index]._replace(name=new)
        entry = HistoryEntry(verb=RENAME, tasks=(name, new))
        model.save(entry)
    return Done(f"task {name!r} is now called {new!r}", entry)


def undo(folder: Path) -> Done:
    """Discard what is unfinished, otherwise revert the last change; called again, the one before."""
    with writing(model_folder(folder)):
        model = OpenModel.of(folder)
        if (pending := model.work.pending(model.generation)) is not None:
            model.work.clear()
            return Done(f"the unfinished {pending} is discarded; the model is unchanged")
        undone = next(reversed(past_of(model.folder, model.generation)), None)
        if undone is None or not undone.facts.get("previous"):
            raise ConfigError(f"nothing to undo in {folder}: its history has no change that can be reverted")
        target = int(undone.facts["previous"])
        entry = HistoryEntry(verb=UNDO, tasks=undone.tasks, facts={"restored": target, "undone": undone.verb})
        try:
            restore_generation(model.folder, target, entry)
        except CheckpointError as error:
            raise ConfigError(
                f"{folder} no longer keeps the version before the {undone.verb} of {', '.join(undone.tasks)}: "
                "compact has removed it"
            ) from error
        model.work.clear()
    return Done(f"undone: {undone.verb} of {', '.join(undone.tasks)} ({undone.date})", entry)


def compact_model(folder: Path) -> Done:
    """Remove all earlier versions; afterwards nothing can be undone."""
    with writing(model_folder(folder)):
        model = OpenModel.of(folder)
        model.work.refuse_unfinished(model.generation)
        freed = compact(model.folder)
    return Done(f"earlier versions removed, {freed / 2**20:.1f} MiB freed; earlier changes can no longer be undone")
