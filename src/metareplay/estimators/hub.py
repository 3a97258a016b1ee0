"""Estimators in the Hugging Face hub."""

from pathlib import Path
from typing import Any, Self, cast

from metareplay.learner.learner import ContinualLearner


class HubMethods:
    """``save_pretrained``, ``from_pretrained`` and ``push_to_hub``, as ``huggingface_hub`` names them."""

    def _trained(self) -> ContinualLearner:
        raise NotImplementedError

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder."""
        raise NotImplementedError

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load a model from a folder."""
        raise NotImplementedError

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model to a folder in the hub's layout: the same as ``save``."""
        self.save(folder)

    @classmethod
    def from_pretrained(cls, name: str | Path, **options: Any) -> Self:
        """Load a model from a folder, or from a repository of the hub such as ``user/model`` (extra ``hub``).

        ``options`` are those of ``huggingface_hub``: revision, token, cache_dir, force_download, local_files_only.
        """
        from metareplay.export.hub import fetch

        return cast(Self, fetch(name, cls.load, **options))

    def push_to_hub(self, name: str, **options: Any) -> str:
        """Upload the model to a repository of the hub; returns the address of the commit (extra ``hub``).

        ``options`` are those of ``huggingface_hub``: private, token, branch, commit_message, create_pr.
        """
        from metareplay.export.hub import push

        self._trained()
        return push(self, name, **options)
