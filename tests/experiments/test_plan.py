"""Plans: made once, and data are read once, however many runs there are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metareplay.benchmarks import own
from metareplay.benchmarks.base import Benchmark
from metareplay.benchmarks.stored import store_benchmark
from metareplay.errors import ConfigError, DataError
from metareplay.experiments import plan as planning
from metareplay.experiments import seeds
from metareplay.experiments.plan import Plan, make_plan
from metareplay.experiments.run import Run
from metareplay.experiments.seeds import run_seeds, seed_plans
from metareplay.learner.config import RunConfig

TINY = {"training.iterations": 3, "inference.samples": 2}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = [
        f"{x + kind},{x * kind},{'ab'[kind]},{season}"
        for season in ("spring", "summer")
        for kind in (0, 1)
        for x in range(8)
    ]
    path = tmp_path / "plants.csv"
    path.write_text("\n".join(["height,width,label,season", *rows]) + "\n")
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The data that were read, in order."""
    read, paths = own.read_examples, list[str]()

    def counted(settings: Any) -> Any:
        paths.append(settings.path)
        return read(settings)

    monkeypatch.setattr(own, "read_examples", counted)
    return paths


def options(table: Path) -> dict[str, Any]:
    return {"data.path": str(table), "data.tasks_by": "season", "network": "mlp-4", "method": "sp-dirac"}


def test_a_run_reads_its_data_once(table: Path, reads: list[str], tmp_path: Path) -> None:
    plan = make_plan(options(table), TINY, out=tmp_path / "run")
    plan.check()
    Run(plan).execute()
    assert reads == [str(table)]


def test_seeds_share_what_was_read(
    table: Path,
    reads: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    assert_same_run: Callable[[Path, Path], None],
) -> None:
    """The table is gone once the tasks are stored: a process that wanted to read it would fail."""
    plan = make_plan(options(table), TINY, out=tmp_path / "many")
    Run(plan.with_seed(1, tmp_path / "alone")).execute()

    def store_and_remove(path: Path, benchmark: Benchmark) -> Path:
        table.unlink()
        return store_benchmark(path, benchmark)

    monkeypatch.setattr(seeds, "store_benchmark", store_and_remove)
    results = run_seeds(seed_plans(plan, range(2)), jobs=2, resume=False)
    assert [result.seed for result in results] == [0, 1]
    assert reads == [str(table)]
    assert_same_run(tmp_path / "alone", tmp_path / "many" / "seed-1")
    names = {path.name for path in (tmp_path / "many").iterdir()}
    assert names == {"seeds.json", "seed-0", "seed-1"}
    (tmp_path / "many" / f".tasks-{plan.config.data.fingerprint}.tmp").touch()  # killed when all seeds had ended
    run_seeds(seed_plans(plan, range(2)), jobs=2, resume=True)
    assert {path.name for path in (tmp_path / "many").iterdir()} == names


def test_the_stored_tasks_are_removed_whatever_happens(table: Path, tmp_path: Path) -> None:
    plan = make_plan(options(table), TINY, out=tmp_path / "many")

    def broken(statuses: object) -> None:
        assert list((tmp_path / "many").glob(".tasks-*"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_seeds(seed_plans(plan, range(1)), jobs=1, resume=False, report=broken)
    assert not list((tmp_path / "many").glob(".tasks-*"))


def test_making_a_plan_changes_none_of_its_arguments(table: Path, tmp_path: Path) -> None:
    given, overrides = options(table), dict(TINY)
    plan = make_plan(given, overrides, out=tmp_path)
    assert (given, overrides) == (options(table), TINY)
    assert (plan.config.benchmark, plan.config.data.fingerprint) == ("custom", plan.benchmark.fingerprint)


def test_a_known_data_set_is_read_when_it_is_needed_and_then_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_config: Callable[..., RunConfig]
) -> None:
    read, names = planning.build_benchmark, list[str]()

    def counted(name: str, **given: Any) -> Benchmark:
        names.append(name)
        return read(name, **given)

    monkeypatch.setattr(planning, "build_benchmark", counted)
    plan = Plan.of(tiny_config("sp-dirac", {"training.iterations": 1}), tmp_path / "run")
    others = [plan.with_seed(1, tmp_path / "b"), plan.variant(tiny_config("sp-bbb"), tmp_path / "c", "here")]
    assert names == []
    Run(plan).execute()
    assert all(other.benchmark is plan.benchmark for other in others)
    assert names == ["modes-2d"]
    assert plan.variant(tiny_config(settings={"data_seed": 3}), tmp_path / "d", "here").benchmark is not plan.benchmark


def test_data_that_changed_since_the_configuration_are_refused(table: Path, tmp_path: Path) -> None:
    plan = make_plan(options(table), TINY, out=tmp_path / "run")
    table.write_text(table.read_text().replace("7,7,b,summer", "7,8,b,summer").replace("8,7,b,summer", "8,8,b,summer"))
    with pytest.raises(DataError, match="changed since the run started"):
        Plan.of(plan.config, tmp_path / "run")


@pytest.mark.parametrize("content", ["{", "[]", json.dumps({"first": 1})])
def test_a_damaged_list_of_seeds_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "seeds.json").write_text(content)
    with pytest.raises(ConfigError, match=r"seeds\.json is damaged; give --seeds again"):
        seeds.earlier_seeds(tmp_path)


def test_settings_from_a_file_are_said_to_come_from_it(tmp_path: Path) -> None:
    whole, some = tmp_path / "whole.yaml", tmp_path / "some.yaml"
    recipe = make_plan({"benchmark": "modes-2d"}, out=tmp_path / "run")
    whole.write_text(recipe.config.to_yaml())
    some.write_text("benchmark: modes-2d\ntraining: {iterations: 7}\n")
    assert make_plan({}, file=whole, out=tmp_path / "run").source == f"from {whole}"
    assert make_plan({}, file=some, out=tmp_path / "run").source == f"from {some}, the rest {recipe.source}"
