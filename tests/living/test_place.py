"""What says of a folder that it is a new model: read with care, since anyone may have written it."""

import json
from pathlib import Path
from typing import Any

import pytest

from metareplay.errors import CheckpointError
from metareplay.living.place import NEW, NewModel, begin_new, read_new


def test_a_new_model_is_read_as_it_was_written(tmp_path: Path) -> None:
    begin_new(tmp_path, NewModel("pr-bbb", None, {"seed": 1}))
    assert read_new(tmp_path) == NewModel("pr-bbb", None, {"seed": 1})


@pytest.mark.parametrize(("key", "value"), [("method", 0.5), ("network", []), ("settings", "x"), ("format", None)])
def test_wrong_types_are_refused(key: str, value: Any, tmp_path: Path) -> None:
    begin_new(tmp_path, NewModel("pr-bbb", None, {}))
    content = json.loads((tmp_path / NEW).read_text())
    (tmp_path / NEW).write_text(json.dumps({**content, key: value}))
    with pytest.raises(CheckpointError, match="is damaged"):
        read_new(tmp_path)
