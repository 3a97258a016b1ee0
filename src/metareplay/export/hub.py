"""Models in the Hugging Face hub, through ``huggingface_hub``'s mixin (extra ``hub``); nothing is pickled."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, Self

from metareplay.data.offline import is_offline
from metareplay.errors import CheckpointError, ConfigError, MetaReplayError
from metareplay.learner.generations import FILES

try:
    from huggingface_hub import ModelHubMixin, snapshot_download
except ImportError as error:
    raise ConfigError("the hub needs huggingface_hub; install it with pip install 'metareplay[hub]'") from error


class Saved(Protocol):
    """What can be saved as a folder."""

    def save(self, folder: str | Path) -> None: ...


class HubFolder(ModelHubMixin, library_name="metareplay", tags=["metareplay", "continual-learning"]):
    """A model as a folder that the hub understands; ``model`` is the estimator."""

    def __init__(self, model: Saved) -> None:
        self.model = model

    def _save_pretrained(self, save_directory: Path) -> None:
        self.model.save(save_directory)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        **model_kwargs: Any,
    ) -> Self:
        load: Callable[[Path], Saved] = model_kwargs["load"]
        if Path(model_id).is_dir():
            return cls(load(Path(model_id)))
        folder = snapshot_download(
            model_id,
            revision=revision,
            cache_dir=cache_dir,
            force_download=force_download,
            local_files_only=local_files_only,
            token=token,
            allow_patterns=list(FILES),  # whatever else a repository holds is left there
        )
        return cls(load(Path(folder)))


def fetch(name: str | Path, load: Callable[[Path], Saved], **options: Any) -> Saved:
    """The model in a folder or in a repository of the hub."""
    options.setdefault("local_files_only", is_offline())
    with _in_words(f"the model {name} cannot be fetched from the Hugging Face hub"):
        return HubFolder.from_pretrained(name, load=load, **options).model


def push(model: Saved, name: str, **options: Any) -> str:
    """Upload a model; returns the address of the commit."""
    with _in_words(f"the model cannot be pushed to {name}"):
        return str(HubFolder(model).push_to_hub(name, **options))


@contextmanager
def _in_words(what: str) -> Iterator[None]:
    try:
        yield
    except MetaReplayError:
        raise
    except Exception as error:  # the client also lets its HTTP library's own errors through
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        advice = "check its name (user/model, or an existing folder), the network and your token (hf auth login)"
        raise CheckpointError(f"{what} ({reason}); {advice}") from error
