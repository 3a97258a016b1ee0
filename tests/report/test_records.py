"""Measured figures as files: what they hold, and that one measurement never replaces another."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metareplay.errors import DataError
from metareplay.report.records import (
    Figure,
    Record,
    Row,
    place_of,
    read_record,
    read_records,
    record_runs,
    write_record,
)

LABELS = {"benchmark": "split-mnist", "method": "pr-bbb"}


def record(value: float, seeds: list[int], **more: Any) -> Record:
    rows = [Row(figures={"ent": Figure(value=value, unit="%", inputs=100)})]
    return Record(**{"what": "w", "command": "c", "labels": LABELS, "seeds": seeds, "rows": rows, **more})


def values(folder: Path, name: str) -> dict[tuple[int, ...], float]:
    return {tuple(row.seeds): row.figures["ent"].value for row in read_record(folder / f"{name}.json").measured(name)}


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = record(71.5, [0], budget=0.5, revision="abc", note="n", remark="r", machine="m", date="2026-01-02")
    write_record(tmp_path, "a/b", written)
    assert read_records(tmp_path) == {"a/b": written}


def test_a_repeat_replaces_its_own_seed_and_keeps_the_others(tmp_path: Path) -> None:
    for value, seeds, revision in ((1.0, [0], "one"), (2.0, [1], "two"), (3.0, [0], "three")):
        write_record(tmp_path, "a", record(value, seeds, revision=revision))
    assert values(tmp_path, "a") == {(0,): 3.0, (1,): 2.0}
    both = {tuple(row.seeds): row.revision for row in read_record(tmp_path / "a.json").measured("a")}
    assert both == {(0,): "three", (1,): "two"}
    assert read_record(tmp_path / "a.json").seeds == [0, 1]


def test_one_seed_replaces_a_mean_that_it_is_part_of(tmp_path: Path) -> None:
    write_record(tmp_path, "a", record(1.0, [0, 1, 2]))
    write_record(tmp_path, "a", record(2.0, [1]))
    assert values(tmp_path, "a") == {(1,): 2.0}


def test_another_measurement_in_the_same_place_is_refused(tmp_path: Path) -> None:
    write_record(tmp_path, "a", record(1.0, [0]))
    with pytest.raises(DataError, match="is about benchmark=split-mnist, method=pr-bbb, not about method=vcl"):
        write_record(tmp_path, "a", record(2.0, [0], labels={"method": "vcl"}))
    assert values(tmp_path, "a") == {(0,): 1.0}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a record of measured figures with schema 1"),
        ('{"schema": 2}', "not a record of measured figures with schema 1"),
        (
            '{"schema": 1, "what": "w", "command": "c", "rows": [{"figures": {"a": {"value": "high"}}}]}',
            "rows.0.figures",
        ),
        ('{"schema": 1, "what": "w", "command": "c", "rows": [], "figure": 1}', "figure: "),
    ],
)
def test_what_is_not_a_record_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataError, match=words):
        read_records(tmp_path)


def test_names_are_plain_and_of_bounded_length() -> None:
    assert place_of("split-mnist", "pr-bbb", "lenet", "", "heads=single") == "split-mnist/pr-bbb-lenet-heads-single"
    assert place_of("x", "../..", "features:a b") == "x/features-a-b"
    long, other = place_of("x", "a" * 300), place_of("x", "a" * 301)
    assert len(long) <= 102
    assert long != other


def test_runs_are_recorded_by_what_their_settings_change(
    make_run: Callable[..., Path], make_results: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    changed = {"threads": 3, "data_dir": "/private", "training": {}, "strategy": {"strength": 7}}
    runs = [make_run(f"run-{seed}", make_results(seed=seed), changed) for seed in (0, 1)]
    paths = record_runs(tmp_path / "records", runs)
    assert [path.name for path in paths] == ["pr-bbb-mlp-100-100-published-strategy.strength-7.json"]
    (recorded,) = read_records(tmp_path / "records").values()
    assert recorded.labels["settings"] == "strategy.strength=7"
    assert "--set strategy.strength=7 --set threads=3" in recorded.command
    assert [tuple(row.seeds) for row in recorded.measured("")] == [(0,), (1,)]
    assert recorded.rows[0].figures["tgiven_final"] == Figure(value=make_results()["tgiven_final"], unit="%")
    assert "/private" not in recorded.text()
    assert str(tmp_path) not in recorded.text()
