"""Tasks of a stored model are added and updated: whole or not at all, and the same after every interruption."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from metareplay import interrupts
from metareplay.data.settings import DataSettings
from metareplay.errors import ConfigError, DataError
from metareplay.interrupts import Interrupted
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.store import load_model, read_history
from metareplay.living.changes import new_model, remove_task, undo
from metareplay.living.learning import GateClosed, Terms, add_tasks, update_task

Reader = Callable[[str], DataSettings]
MONTHS = ("january", "february", "march")


def model_bytes(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def stops_after(checks: int) -> Terms:
    """As if Ctrl-C were pressed after so many steps."""
    left = iter(range(checks))
    return Terms(should_stop=lambda: next(left, None) is None)


def test_tasks_added_one_by_one_are_the_same_model_as_tasks_added_together(
    tmp_path: Path, data: Reader, tiny: dict[str, Any]
) -> None:
    one, many = tmp_path / "one", tmp_path / "many"
    for folder in (one, many):
        new_model(folder, network="mlp-4", settings=tiny)
    for month in MONTHS:
        add_tasks(one, data(month), name=month)  # each reads the model again, as a process of its own would
    done = add_tasks(many, data("year"))
    assert [each.entry.tasks for each in done if each.entry is not None] == [(month,) for month in MONTHS]
    assert model_bytes(one) == model_bytes(many)
    assert not (one / "new.json").exists()
    assert not (one / ".work").exists()


def test_a_column_that_was_constant_gets_its_scale_when_it_begins_to_vary(tmp_path: Path, tiny: dict[str, Any]) -> None:
    for month, fees in (("january", (0, 0)), ("february", (100, 300))):
        rows = [f"{index % 5},{fees[index % 2]},{'pen' if index % 5 < 2 else 'cup'}" for index in range(30)]
        (tmp_path / f"{month}.csv").write_text("\n".join(["price,fee,product", *rows]) + "\n")
    folder = tmp_path / "model"
    new_model(folder, network="mlp-4", settings=tiny)
    scales = []
    for month in ("january", "february"):
        add_tasks(folder, DataSettings(path=str(tmp_path / f"{month}.csv"), label="product"), name=month)
        scales.append(load_model(folder).scaling["x_scale"])
    assert scales[1][0] == scales[0][0]
    assert 100 < float(scales[1][1]) < 400


@pytest.mark.parametrize("count", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_tasks_added_by_as_many_processes_are_the_same_model(
    count: int, tmp_path: Path, tables: Path, tiny: dict[str, Any]
) -> None:
    header, *rows = (tables / "january.csv").read_text().splitlines()
    everything = [header]
    for number in range(count):
        shifted = [f"{float(row.split(',')[0]) + 9 * number},{row.split(',', 1)[1]}" for row in rows]
        table = [line.replace("january", f"task-{number}") for line in shifted]
        (tmp_path / f"{number}.csv").write_text("\n".join([header, *table]) + "\n")
        everything += table
    (tmp_path / "all.csv").write_text("\n".join(everything) + "\n")
    one, many = tmp_path / "one", tmp_path / "many"
    for folder in (one, many):
        new_model(folder, network="mlp-4", settings=tiny)
    processes = get_context("forkserver")  # each task in a process of its own, which imports nothing twice
    processes.set_forkserver_preload(["metareplay.living.learning"])
    for number in range(count):
        data = DataSettings(path=str(tmp_path / f"{number}.csv"), label="product")
        process = processes.Process(target=add_tasks, args=(one, data), kwargs={"name": f"task-{number}"})
        process.start()
        process.join()
        assert process.exitcode == 0
    add_tasks(many, DataSettings(path=str(tmp_path / "all.csv"), label="product"))
    assert model_bytes(one) == model_bytes(many)
    assert len(load_model(one).tasks) == count


def test_a_second_writer_is_refused_in_one_sentence_and_changes_nothing(
    shop: Path, data: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metareplay.learner.generations.PATIENCE", 0.1)
    before = model_bytes(shop)
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print(1, flush=True); input()"
    command = [sys.executable, "-c", hold, str(shop / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        for change in (lambda: add_tasks(shop, data("march"), name="march"), lambda: remove_task(shop, "january")):
            with pytest.raises(ConfigError, match=r"^another process is writing to [^.]*; wait for it"):
                change()
        assert model_bytes(shop) == before
        other.communicate(b"\n")
    remove_task(shop, "january")


@pytest.mark.slow
def test_commands_that_change_a_model_at_the_same_time_lose_nothing(shop: Path, tables: Path) -> None:
    verbs = {
        "march": ("add-task", shop, tables / "march.csv", "--name", "march", "--quiet"),
        "april": ("add-task", shop, tables / "mugs.csv", "--name", "april", "--quiet"),
        "winter": ("rename-task", shop, "january", "winter"),
    }
    processes = {name: started(*arguments) for name, arguments in verbs.items()}
    ended = {name: (*process.communicate(timeout=300), process.returncode) for name, process in processes.items()}
    done = {name for name, (_, _, code) in ended.items() if code == 0}
    for name, (_, err, code) in ended.items():
        assert code == 0 or b"another process is writing" in err, (name, err)
        assert b"Traceback" not in err
    names = {task.name for task in load_model(shop).tasks}
    assert done
    assert {name for name in verbs if name in names} == done
    assert len(read_history(shop)) == 2 + len(done)


def test_a_stopped_task_continues_and_ends_with_the_same_bytes(
    two_months: Path, shop: Path, data: Reader, tiny: dict[str, Any]
) -> None:
    before = model_bytes(shop)
    for checks in (7, 9):
        with pytest.raises(Interrupted, match="The same command continues"):
            add_tasks(shop, data("march"), name="march", terms=stops_after(checks))
        assert model_bytes(shop) == before
        assert (shop / ".work" / "operation.json").is_file()
    with pytest.raises(ConfigError, match=r"add-task of task 'march' is unfinished .* metareplay undo"):
        update_task(shop, data("late"), name="january")
    with pytest.raises(ConfigError, match="is unfinished"):
        remove_task(shop, "january")
    notes: list[str] = []
    add_tasks(shop, data("march"), name="march", terms=Terms(notes=notes.append))
    assert "continued at step 18 of 30" in notes
    whole = shop.parent / "whole"
    new_model(whole, network="mlp-4", settings=tiny)
    for month in MONTHS:
        add_tasks(whole, data(month), name=month)
    assert model_bytes(shop) == model_bytes(whole)
    assert model_bytes(two_months) == before  # the fixture is untouched


def test_a_stopped_update_continues_or_is_discarded(shop: Path, data: Reader) -> None:
    before = model_bytes(shop)
    with pytest.raises(Interrupted):
        update_task(shop, data("mugs"), name="january", terms=stops_after(12))
    assert "discarded" in undo(shop).text
    assert model_bytes(shop) == before
    update_task(shop, data("mugs"), name="january")
    whole = model_bytes(shop)
    undo(shop)
    with pytest.raises(Interrupted):
        update_task(shop, data("mugs"), name="january", terms=stops_after(12))
    update_task(shop, data("mugs"), name="january")
    stored = load_model(shop)
    assert stored.tasks[0].classes == ("cup", "pen", "mug")
    assert stored.learner.predictor.keeper.stored()[0]["examples"] == 60
    assert stored.generation > 3
    assert _without_generation(model_bytes(shop)) == _without_generation(whole)


@pytest.mark.parametrize("phase", ["begin_task", "finish_task"])
def test_a_signal_outside_the_steps_ends_the_command(
    phase: str, shop: Path, data: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, handlers = model_bytes(shop), {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr(interrupts, "_signals", interrupts._Signals())

    def interrupted(*_: Any, **__: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it goes on")

    with monkeypatch.context() as patched:
        patched.setattr(ContinualLearner, phase, interrupted)
        with pytest.raises(Interrupted, match="The same command continues"):
            add_tasks(shop, data("march"), name="march", terms=Terms(should_stop=interrupts.stop_on_signal()))
    for number, handler in handlers.items():
        signal.signal(number, handler)
    assert model_bytes(shop) == before
    monkeypatch.setattr(interrupts, "_signals", interrupts._Signals())
    add_tasks(shop, data("march"), name="march")


def _without_generation(content: bytes) -> bytes:
    """The tensors alone: the header counts how often the model was stored."""
    return content[8 + int.from_bytes(content[:8], "little") :]


def started(*arguments: object) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "metareplay", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def killed_at(process: "subprocess.Popen[bytes]", shop: Path, step: int) -> None:
    """Kill a process once a checkpoint of this step is there, or when it has ended."""
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if any(int(path.stem[5:]) >= step for path in (shop / ".work").glob("step-*.safetensors")):
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.001)
    process.communicate(timeout=120)


@pytest.mark.parametrize(
    "steps", [(5,), *(pytest.param((a, b), marks=pytest.mark.slow) for a, b in ((5, 10), (15, 20), (10, 30)))]
)
def test_a_killed_command_continues_with_the_same_bytes(
    shop: Path, tables: Path, data: Reader, steps: tuple[int, ...]
) -> None:
    before = model_bytes(shop)
    for step in steps:
        killed_at(started("add-task", shop, tables / "march.csv", "--name", "march", "--quiet"), shop, step)
        if "march" in [task.name for task in load_model(shop).tasks]:
            break  # it was faster
        assert model_bytes(shop) == before
    add_tasks(shop, data("march"), name="march")  # the same again
    interrupted = model_bytes(shop)
    undo(shop)
    add_tasks(shop, data("march"), name="march")
    assert _without_generation(model_bytes(shop)) == _without_generation(interrupted)


def test_the_gate_leaves_the_model_as_it_was(shop: Path, data: Reader) -> None:
    before, entries = model_bytes(shop), read_history(shop)
    with pytest.raises(GateClosed, match="the model is unchanged"):
        add_tasks(shop, data("march"), name="march", terms=Terms(max_change=0.0))
    assert model_bytes(shop) == before
    assert read_history(shop) == entries
    assert not (shop / ".work").exists()
    done = add_tasks(shop, data("march"), name="march", terms=Terms(max_change=1.0))
    assert len(done[0].audit) == 3


def test_what_is_refused_leaves_the_model_as_it_was(shop: Path, data: Reader, tmp_path: Path) -> None:
    before = model_bytes(shop)
    (tmp_path / "gaps.csv").write_text("price,weight,product\n1,2,pen\n3,,cup\n")
    (tmp_path / "columns.csv").write_text("price,product\n1,pen\n3,cup\n")
    wrong = {
        "missing a value; .*this model does not fill them in": DataSettings(path=str(tmp_path / "gaps.csv")),
        "no column 'weight'": DataSettings(path=str(tmp_path / "columns.csv")),
        "does not exist": DataSettings(path=str(tmp_path / "nowhere.csv")),
    }
    for words, settings in wrong.items():
        with pytest.raises(DataError, match=words):
            add_tasks(shop, settings, name="april")
        with pytest.raises(DataError, match=words):
            update_task(shop, settings, name="january")
    with pytest.raises(DataError, match="no task 'april'"):
        update_task(shop, data("late"), name="april")
    with pytest.raises(ConfigError, match="from other data"):
        add_tasks(shop, data("march"), name="january")
    (tmp_path / "nameless.csv").write_text("price,weight,product\n1,2,pen\n3,4,cup\n")
    with pytest.raises(ConfigError, match="give the task a name"):
        add_tasks(shop, DataSettings(path=str(tmp_path / "nameless.csv")))
    assert model_bytes(shop) == before
    assert not (shop / ".work").exists()


def test_the_same_data_count_once(shop: Path, data: Reader) -> None:
    before = model_bytes(shop)
    assert "nothing to do" in add_tasks(shop, data("january"), name="january")[0].text
    with pytest.raises(ConfigError, match="counts their evidence twice"):
        update_task(shop, data("january"), name="january")
    assert model_bytes(shop) == before
    assert update_task(shop, data("late"), name="january").entry is not None
    assert "nothing to do" in update_task(shop, data("late"), name="january").text
    undo(shop)
    assert update_task(shop, data("late"), name="january").entry is not None  # it was undone, so it is new again
    assert update_task(shop, data("late"), name="january", again=True).entry is not None


def test_a_regression_model_gets_its_next_task(tmp_path: Path) -> None:
    for number, sign in enumerate((1, -1)):
        lines = [f"{x / 10},{sign * x / 10 + 0.05}" for x in range(30)]
        (tmp_path / f"{number}.csv").write_text("\n".join(["x,y", *lines]))
    folder = tmp_path / "model"
    new_model(folder, method="sp-bbb", network="mlp-4", settings={"training.iterations": 20, "inference.samples": 3})
    for number in range(2):
        done = add_tasks(folder, DataSettings(path=str(tmp_path / f"{number}.csv")), name=f"part-{number}")
    assert done[0].audit[0].change == 0  # separate tasks do not touch each other
    assert load_model(folder).learner.problem == "regression"
