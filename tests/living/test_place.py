"""What says of a folder that it is a new model: read with care, since anyone may have written it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metareplay.errors import CheckpointError
from metareplay.living.place import NEW, WORK, NewModel, Work, begin_new, read_new


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


@pytest.mark.parametrize("plant", [os.mkfifo, Path.touch, lambda path: path.symlink_to(path.with_name("elsewhere"))])
def test_whatever_was_planted_where_work_is_kept_is_removed(plant: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "operation.json").write_text("{}")
    plant(tmp_path / WORK)
    assert Work(tmp_path).pending(1) is None
    assert not os.path.lexists(tmp_path / WORK)
    assert (tmp_path / "elsewhere" / "operation.json").is_file()
