"""Two folders are the same but for times; anything else is noticed."""

import json
from pathlib import Path

from torture.compare import contents, differences, timeless


def test_times_do_not_count_and_values_do() -> None:
    facts = {"score": 1, "seconds": 2.0, "by": [{"task_seconds": [1], "date": "x", "name": "a"}]}
    assert timeless(facts) == {"score": 1, "by": [{"name": "a"}]}


def test_what_differs_is_named(tmp_path: Path) -> None:
    for name, score in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(json.dumps({"score": score, "seconds": score}))
        (tmp_path / name / "log.txt").write_text(name)
        (tmp_path / name / f"only-{name}").touch()
    wanted, found = contents(tmp_path / "a"), contents(tmp_path / "b")
    assert differences(wanted, found) == ["only-a is missing", "only-b is left over", "results.json is different"]
    assert differences(wanted, wanted) == []
