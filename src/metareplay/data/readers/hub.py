"""Data sets of the Hugging Face hub, and those its library saved to disk, as tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metareplay.data.base import Place
from metareplay.data.columns import Table, joined
from metareplay.data.inside import refuse_paths_of_saved
from metareplay.data.offline import go_offline, is_offline
from metareplay.data.readers.arrow import class_names, from_arrow
from metareplay.data.readers.parquet import INSTALL_HINT, quiet
from metareplay.errors import DataError
from metareplay.files import refuse_waiting

PREFIX = "hf:"


def read_hub(name: str) -> Table:
    """``hf:owner/name`` or ``hf:owner/name:configuration``: training rows, and test rows if there are any."""
    offline = is_offline()
    if offline:
        go_offline()  # before the library is imported
    try:
        import datasets
    except ImportError as error:
        raise DataError(INSTALL_HINT) from error
    repository, _, configuration = name.removeprefix(PREFIX).partition(":")
    try:
        with quiet():
            dataset = datasets.load_dataset(repository, configuration or None)
    except Exception as error:  # the client also lets its HTTP library's own errors through
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if offline:
            raise DataError(
                f"{repository} is not on this machine, and offline mode is on; load it once with a network, "
                f"or copy its files to a folder and give that with --data ({reason})"
            ) from error
        raise DataError(
            f"cannot load {repository} from the Hugging Face hub ({reason}); check the name and the network"
        ) from error
    return _table(dataset, name, Path(datasets.config.HF_CACHE_HOME))


def read_saved(folder: Path) -> Table:
    """A folder that the library's ``save_to_disk`` wrote."""
    try:
        import datasets
    except ImportError as error:
        raise DataError(INSTALL_HINT) from error
    refuse_paths_of_saved(folder)
    try:
        for path in folder.rglob("*"):
            refuse_waiting(path)
        verify_arrow(sorted(folder.rglob("*.arrow")))
        with quiet():
            dataset = datasets.load_from_disk(str(folder))
    except (DataError, MemoryError):
        raise
    except Exception as error:  # damaged files make the libraries raise almost anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"cannot read the data set in {folder} ({reason}); the files are truncated or corrupt: copy them again"
        ) from error
    return _table(dataset, str(folder), folder)


def verify_arrow(files: Sequence[Path]) -> None:
    """Read Arrow streams to their ends: a file that is mapped into memory and too short would end the process."""
    import pyarrow

    for file in files:
        try:
            with pyarrow.OSFile(str(file)) as source, pyarrow.ipc.open_stream(source) as stream:
                for batch in stream:
                    batch.validate(full=True)
        except (OSError, ValueError, TypeError, pyarrow.ArrowException) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataError(f"{file} is truncated or corrupt ({reason}); copy it again") from error


def _table(dataset: Any, name: str, root: Path) -> Table:
    parts = dict(dataset) if hasattr(dataset, "keys") else {"train": dataset}
    train = parts.get("train") or next(iter(parts.values()))
    test = parts.get("test") or parts.get("validation")
    if test is None or test is train:
        return _part(train, f"{name}, row ", root)
    return joined(_part(train, f"{name}, row ", root), _part(test, f"{name}, test row ", root))


def _part(dataset: Any, text: str, root: Path) -> Table:
    table = dataset.with_format("arrow")[:]
    names = class_names(table.schema.metadata or {})
    names |= {
        name: feature.names for name, feature in dataset.features.items() if type(feature).__name__ == "ClassLabel"
    }
    return from_arrow(table, (Place(text, range(table.num_rows)),), names, root=root)
