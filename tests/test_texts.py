"""YAML and JSON from anyone: what they hold, or one sentence."""

import json
import os
from pathlib import Path

import pytest

from metareplay.texts import TextError, read_json, read_json_file, read_yaml, read_yaml_file

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
BAD_YAML = {
    "cycle": ("a: &a [*a]", "contains itself"),
    "cyclic mapping": ("&a {b: *a}", "contains itself"),
    "deep": ("[" * 600 + "]" * 600, "nested too deeply"),
    "rather deep": ("[" * 150 + "]" * 150, "METAREPLAY_MAX_NESTING"),
    "aliases": (BOMB, "METAREPLAY_MAX_VALUES"),
    "digits": (f"seed: {'1' * 5000}", "digits"),
    "digits in another base": (f"seed: 0x{'f' * 5000}", "too many digits"),
    "twice": ("a: 1\na: 2", "the key 'a' is given twice"),
    "date": ("a: 2024-99-99", "month"),
    "boolean": ("a: !!bool maybe", "cannot be read"),
    "integer": ("a: !!int ''", "cannot be read"),
    "object": ("a: !!python/object:os.system x", "could not determine a constructor"),
    "large": ("a" * 300_000, "METAREPLAY_MAX_YAML_MB"),
    "two": ("a: 1\n---\nb: 2", "another document"),
    "control": ("a: \x01", "not allowed"),
}
BAD_JSON = {
    "deep": ("[" * 100_000, "METAREPLAY_MAX_NESTING"),
    "rather deep": ("[" * 150 + "]" * 150, "METAREPLAY_MAX_NESTING"),
    "digits": ("1" * 5000, "digits"),
    "twice": ('{"a": 1, "a": 2}', "the key 'a' is given twice"),
    "cut": ('{"a": ', "Expecting value"),
    "not a number": ('{"a": NaN}', "NaN is not a number"),
}


@pytest.mark.parametrize("name", BAD_YAML)
def test_bad_yaml_is_one_sentence(name: str) -> None:
    text, words = BAD_YAML[name]
    with pytest.raises(TextError) as caught:
        read_yaml(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", BAD_JSON)
def test_bad_json_is_one_sentence(name: str) -> None:
    text, words = BAD_JSON[name]
    with pytest.raises(TextError) as caught:
        read_json(text, nan=False)
    assert words in str(caught.value)


def test_good_texts_are_read_as_they_are() -> None:
    assert read_yaml("a: &x [1, 2]\nb: *x\nc: {d: 0.5, e: null}") == {
        "a": [1, 2],
        "b": [1, 2],
        "c": {"d": 0.5, "e": None},
    }
    assert read_yaml("") is None
    many = {"names": ["[[[[", '"]'] * 200, "rows": [[1, 2]] * 500}  # brackets in strings are no nesting
    assert read_json(json.dumps(many)) == many
    assert read_json(b'"\xc3\xa9"') == "é"


def test_limits_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAREPLAY_MAX_NESTING", "2")
    with pytest.raises(TextError, match="the limit of 2"):
        read_json('[[[1], "a"], {"b": {}}]')
    monkeypatch.setenv("METAREPLAY_MAX_NESTING", "200")
    assert read_json("[" * 150 + "]" * 150)


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"a: \xff")
    with pytest.raises(TextError, match="byte 3 is not UTF-8"):
        read_yaml_file(tmp_path / "bytes")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(TextError, match="a FIFO, not a file"):  # and does not wait for a writer
        read_json_file(tmp_path / "fifo")
    with pytest.raises(OSError, match="No such file"):
        read_json_file(tmp_path / "none")
