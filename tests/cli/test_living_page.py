"""The commands of docs/living_model.md, one after another, as a reader would type them."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "living_model.md"


def test_the_months_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., Any]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], {})  # writes the tables
    lines = [line for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    assert len(lines) > 12
    for line in lines:
        result = command(*shlex.split(line)[1:])
        assert result.code == 0, f"{line}: {result.err}"
    answers = (tmp_path / "answers.csv").read_text().splitlines()
    assert len(answers) == 61
    told = command("history", "shop").out
    assert told.count("update-task") == 2
