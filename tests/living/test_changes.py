"""Verbs without data: new, remove, rename, undo, compact; and what the model then says about itself."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from metareplay.data.settings import DataSettings
from metareplay.errors import ConfigError, DataError
from metareplay.learner.store import load_model, read_history
from metareplay.living.changes import compact_model, new_model, remove_task, rename_task, undo
from metareplay.living.learning import add_tasks, update_task
from metareplay.living.overview import audit_model, tasks_of
from metareplay.living.place import open_model

Reader = Callable[[str], DataSettings]


def names(folder: Path) -> list[str]:
    return [task.name for task in load_model(folder).tasks]


def test_a_new_model_refuses_what_it_could_never_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown"):
        new_model(tmp_path / "a", method="pr-bb")
    with pytest.raises(ConfigError, match=r"training\.iterations"):
        new_model(tmp_path / "a", settings={"training.iterations": 0})
    assert not (tmp_path / "a").exists()
    new_model(tmp_path / "a")
    with pytest.raises(ConfigError, match="not empty"):
        new_model(tmp_path / "a")
    with pytest.raises(ConfigError, match="without tasks"):
        open_model(tmp_path / "a")
    with pytest.raises(ConfigError, match="without tasks"):
        remove_task(tmp_path / "a", "january")


def test_changes_are_undone_one_by_one(shop: Path, data: Reader) -> None:
    update_task(shop, data("late"), name="january")
    rename_task(shop, "january", "winter")
    remove_task(shop, "february")
    assert names(shop) == ["winter"]
    assert "remove-task of february" in undo(shop).text
    assert names(shop) == ["winter", "february"]
    assert "rename-task" in undo(shop).text
    assert "update-task of january" in undo(shop).text
    assert load_model(shop).learner.predictor.keeper.stored()[0]["examples"] == 30
    rename_task(shop, "january", "first")
    undo(shop)
    assert "add-task of february" in undo(shop).text  # what was done and undone since does not count
    with pytest.raises(ConfigError, match="nothing to undo"):
        undo(shop)
    assert names(shop) == ["january"]
    assert [entry.verb for entry in read_history(shop)].count("undo") == 5


def test_a_removed_task_is_gone_after_compact(shop: Path) -> None:
    remains = remove_task(shop, "january")
    assert "shared hypernetwork" in remains.text
    assert list((shop / "versions").glob("*.safetensors"))
    compact_model(shop)
    assert not (shop / "versions").exists()
    with pytest.raises(ConfigError, match="compact has removed it"):
        undo(shop)
    tensors = load_model(shop).learner.tensors(training=False)
    assert sum("task_embeddings" in name for name in tensors) == 1
    assert {name.split(".")[2] for name in tensors if name.startswith("criteria.")} == {"0"}


def test_wrong_names_are_refused(shop: Path) -> None:
    for name in ("", "  ", "a\nb", "x" * 201):
        with pytest.raises(ConfigError, match="1 to 200 printable characters"):
            rename_task(shop, "january", name)
    with pytest.raises(DataError, match="its tasks are 'january', 'february'"):
        remove_task(shop, "april")
    with pytest.raises(ConfigError, match="already exists"):
        rename_task(shop, "january", "february")
    remove_task(shop, "january")
    with pytest.raises(ConfigError, match="only task"):
        remove_task(shop, "february")
    assert names(shop) == ["february"]


def test_tasks_are_listed_with_figures(shop: Path, data: Reader) -> None:
    rename_task(shop, "january", "winter")
    first, second = tasks_of(shop, data("february"), name="february")
    assert (first.name, first.classes, first.examples) == ("winter", ("cup", "pen"), 30)
    assert first.date.startswith("20")
    assert second.score is not None
    assert 0 <= second.score <= 1
    assert first.score is None
    assert 500 < first.bytes < 100_000
    update_task(shop, data("late"), name="winter")
    assert [task.examples for task in tasks_of(shop)] == [60, 30]


def test_held_out_examples_count_among_those_of_a_task(tmp_path: Path) -> None:
    lines = [f"{row % 7},{row % 2},{'xy'[row % 2]}" for row in range(200)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,label", *lines]) + "\n")
    new_model(tmp_path / "shop", method="sp-bbb", network="mlp-4", settings={"training.checkpoint_every": 1000})
    done = add_tasks(tmp_path / "shop", DataSettings(path=str(tmp_path / "rows.csv")), name="first")
    assert "from 200 examples; accuracy on" in done[0].text
    assert [task.examples for task in tasks_of(tmp_path / "shop")] == [200]


def test_the_audit_needs_no_data_and_sees_damage(shop: Path, data: Reader) -> None:
    honest = {entry.task: entry for entry in audit_model(shop)}
    assert honest["february"].change == 0
    assert honest["january"].change is not None
    scored = audit_model(shop, data("january"), name="january")
    assert scored[0].score_examples == 30
    assert scored[1].score is None
    stored = load_model(shop)
    with torch.no_grad():
        stored.learner.model.task_map.task_embeddings[0].mul_(-4)  # type: ignore[union-attr, operator, index]
    damaged = stored.learner.change_of(0)
    assert damaged is not None
    assert damaged.posterior is not None
    assert honest["january"].divergence is not None
    assert damaged.posterior.total > 5 * honest["january"].divergence["total"] + 1


def test_a_run_becomes_a_living_model(tmp_path: Path, tables: Path, data: Reader) -> None:
    from metareplay.experiments.plan import make_plan
    from metareplay.experiments.run import Run

    options = {"data.path": str(tables / "year.csv"), "data.label": "product", "network": "mlp-4", "method": "sp-dirac"}
    Run(make_plan(options, {"training.iterations": 5, "inference.samples": 3}, out=tmp_path / "run")).execute()
    add_tasks(tmp_path / "run", data("late"), name="april")
    assert names(tmp_path / "run") == ["january", "february", "march", "april"]
    undo(tmp_path / "run")
    assert names(tmp_path / "run") == ["january", "february", "march"]
