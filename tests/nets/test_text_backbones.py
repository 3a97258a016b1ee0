"""Encoders of texts: from a list, a column or a CSV file to a model that lives, and every refusal."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from metareplay import ContinualClassifier
from metareplay.errors import ConfigError, DataError
from metareplay.nets.backbones import find_backbone
from metareplay.written_text import as_bytes, as_texts

PRAISE, BLAME = ("good", "fine", "lovely"), ("bad", "poor", "awful")
SETTINGS = {"training.iterations": 60, "inference.samples": 5}


def reviews(count: int, subject: str) -> tuple[list[str], list[str]]:
    rng = np.random.default_rng(0)
    labels = ["yes" if index % 2 else "no" for index in range(count)]
    return [f"the {subject} was very {rng.choice(PRAISE if label == 'yes' else BLAME)}" for label in labels], labels


def test_texts_are_bytes_and_back() -> None:
    texts = ["good film", "", "café ☃", "x" * 30]
    x = as_bytes(texts, 12)
    assert x.shape == (4, 12)
    assert as_texts(torch.from_numpy(x)) == ["good film", "", "café ☃", "x" * 12]
    assert as_texts(torch.from_numpy(as_bytes(["caf☃"], 5))) == ["caf"]  # no half character


@pytest.mark.parametrize("x", [torch.full((1, 3), 0.5), torch.full((1, 3), 300.0), torch.zeros(1, 3, 4)])
def test_other_numbers_are_no_texts(x: torch.Tensor) -> None:
    with pytest.raises(DataError, match="are not texts"):
        as_texts(x)


def test_padding_changes_nothing(text_encoder: Path) -> None:
    backbone = find_backbone(f"features:{text_encoder}")
    short, long = "good film", "the very very very bad meal"
    together = backbone.features(torch.from_numpy(as_bytes([short, long])))
    alone = backbone.features(torch.from_numpy(as_bytes([short], 20)))
    torch.testing.assert_close(together[:1], alone, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(together[0], together[1])


def test_another_tokenizer_is_another_backbone(text_encoder: Path, tmp_path: Path) -> None:
    for file in text_encoder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["good"], vocabulary["bad"] = vocabulary["bad"], vocabulary["good"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert find_backbone(f"features:{text_encoder}").checksum != find_backbone(f"features:{tmp_path}").checksum
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"its tokenizer cannot be loaded|needs its tokenizer"):
        find_backbone(f"features:{tmp_path}")


def test_a_model_learns_texts_and_lives(text_encoder: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    model = ContinualClassifier("pr-bbb", f"features:{text_encoder}+mlp-10", seed=0, settings=SETTINGS)
    texts, labels = reviews(60, "film")
    model.learn_task(texts, labels, name="films")
    more, other = reviews(60, "meal")
    model.learn_task(pandas.Series(more), other, name="meals")
    assert model.score(texts, labels) > 0.9
    model.save(tmp_path / "model")
    again = ContinualClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(more), model.predict(more))


def test_texts_need_a_network_that_reads_them() -> None:
    with pytest.raises(ConfigError, match=r"holds texts, which network=.* cannot read"):
        ContinualClassifier(settings=SETTINGS).learn_task(*reviews(8, "film"))
