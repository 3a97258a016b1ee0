"""The fuzzer's damage: repeatable, real, and of many kinds."""

import json
import random

import pytest
import yaml

from torture.mutations import BY_SUFFIX, NASTY, edited, json_edit, mutate, safetensors_edit, yaml_edit

JSON = json.dumps({"a": [1, 2, {"b": "c"}], "d": None, "e": 0.5}).encode()
FILES = {
    "x.json": JSON,
    "x.jsonl": JSON + b"\n" + JSON + b"\n",
    "x.yaml": b"a: 1\nb: {c: [1, 2]}\n",
    "x.csv": b"a,b\n1,2\n3,4\n",
    "x.safetensors": len(JSON).to_bytes(8, "little") + JSON + bytes(16),
    "train-images-idx3-ubyte": bytes(range(40)),
    "x.png": b"\x89PNG\r\n\x1a\n" + bytes(40),
    "x.parquet": bytes(range(200)),
}


@pytest.mark.parametrize("name", FILES)
def test_the_same_seed_is_the_same_damage(name: str) -> None:
    first, second = ([mutate(name, FILES[name], random.Random(seed)) for seed in range(60)] for _ in range(2))
    assert first == second
    assert sum(content != FILES[name] for content, _ in first) > 40  # nearly all are different
    wanted = {kind.__name__ for end, kinds in BY_SUFFIX.items() if name.endswith(end) for kind in kinds}
    assert wanted <= {kind for _, kind in first}


def test_an_edit_changes_one_place() -> None:
    value = json.loads(JSON)
    edits = [edited(value, random.Random(seed)) for seed in range(200)]
    assert value == json.loads(JSON)
    assert sum(isinstance(edit, dict) and len(edit) == 2 for edit in edits) > 3  # a key is missing
    assert sum(edit != value for edit in edits) > 180


def test_edited_json_and_yaml_are_mostly_still_such() -> None:
    readable = 0
    for seed in range(60):
        with_json, with_yaml = (
            json_edit(JSON, random.Random(seed)), yaml_edit(FILES["x.yaml"], random.Random(seed))
        )  # fmt: skip
        for read, text in ((json.loads, with_json), (yaml.safe_load, with_yaml)):
            if len(text) < 5000:
                try:
                    read(text)
                    readable += 1
                except (ValueError, yaml.YAMLError):
                    pass
    assert readable > 60


def test_the_header_of_tensors_has_the_right_length_again() -> None:
    right = 0
    for seed in range(40):
        content = safetensors_edit(FILES["x.safetensors"], random.Random(seed))
        right += 8 + int.from_bytes(content[:8], "little") + 16 == len(content)
    assert right > 25


def test_nasty_values_are_of_every_type() -> None:
    assert {type(value) for value in NASTY} == {type(None), bool, int, float, str, list, dict}
