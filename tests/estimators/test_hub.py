"""Models in the Hugging Face hub: a local folder, and the hub's client replaced by one that keeps files here."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metareplay import ContinualClassifier, ContinualRegressor
from metareplay.errors import CheckpointError, NotTrainedError

X = np.random.default_rng(0).normal(size=(40, 3))
FILES = ["README.md", "config.json", "model.safetensors"]


@pytest.fixture(scope="module")
def model() -> ContinualClassifier:
    made = ContinualClassifier("sp-dirac", "mlp-6", seed=0, settings={"training.iterations": 60})
    return made.learn_task(X, np.where(X[:, 0] > 0, "yes", "no"), name="march")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the hub."""
    import huggingface_hub.hub_mixin as mixin

    from metareplay.export import hub as ours

    place = tmp_path / "hub"

    class Api:
        def __init__(self, token: str | None = None) -> None: ...

        def create_repo(self, repo_id: str, **_: Any) -> Any:
            (place / repo_id).mkdir(parents=True, exist_ok=True)
            return type("Url", (), {"repo_id": repo_id})()

        def upload_folder(self, *, repo_id: str, folder_path: Path, **_: Any) -> str:
            shutil.copytree(folder_path, place / repo_id, dirs_exist_ok=True)
            return f"commit of {repo_id}"

    def snapshot(name: str, *, allow_patterns: list[str], **_: Any) -> str:
        if not (place / name).is_dir():
            raise OSError(f"no repository {name}\nand more lines")
        copy = tmp_path / "cache" / name
        copy.mkdir(parents=True, exist_ok=True)
        for pattern in allow_patterns:
            for file in (place / name).glob(pattern):
                shutil.copy(file, copy)
        return str(copy)

    monkeypatch.setattr(mixin, "HfApi", Api)
    monkeypatch.setattr(mixin, "hf_hub_download", lambda **options: str(place / options["repo_id"] / "config.json"))
    monkeypatch.setattr(ours, "snapshot_download", snapshot)
    return place


def test_a_folder_is_saved_and_loaded(model: ContinualClassifier, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "model")
    assert sorted(file.name for file in (tmp_path / "model").iterdir()) == FILES
    again = ContinualClassifier.from_pretrained(tmp_path / "model")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    again.save_pretrained(tmp_path / "model")
    assert sorted(file.name for file in (tmp_path / "model").iterdir()) == FILES


def test_a_model_is_pushed_and_fetched(model: ContinualClassifier, hub: Path) -> None:
    assert model.push_to_hub("someone/sales", private=True) == "commit of someone/sales"
    pushed = hub / "someone" / "sales"
    assert sorted(file.name for file in pushed.iterdir()) == FILES
    assert "march" in (pushed / "README.md").read_text()  # the card made from facts, not a template
    (pushed / "code.pkl").write_bytes(b"never fetched")
    again = ContinualClassifier.from_pretrained("someone/sales", revision="main")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert not list(hub.parent.glob("cache/**/code.pkl"))
    again.push_to_hub("someone/copy")
    assert (hub / "someone" / "copy" / "config.json").read_bytes() == (pushed / "config.json").read_bytes()


@pytest.mark.usefixtures("hub")
def test_what_cannot_be_fetched_or_pushed_is_said_in_words(model: ContinualClassifier, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"someone/other cannot be fetched .*\(.*\); check its name"):
        ContinualClassifier.from_pretrained("someone/other")
    with pytest.raises(NotTrainedError):
        ContinualClassifier().push_to_hub("someone/empty")
    model.save_pretrained(tmp_path / "model")
    with pytest.raises(CheckpointError, match="holds a classification model; load it with ContinualClassifier"):
        ContinualRegressor.from_pretrained(tmp_path / "model")
