"""MLflow: logged to a local store, loaded in a clean process, and scored; nothing is pickled."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from metareplay import ContinualClassifier, ContinualRegressor

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own
RANDOM = np.random.default_rng(0)
FRAME = pandas.DataFrame({"width": RANDOM.normal(size=60), "height": RANDOM.normal(size=60), "kind": ["a", "b"] * 30})
LABELS = np.where(FRAME["width"] > 0, "wide", "narrow")
SCORE = """
import json, sys
import mlflow.pyfunc, pandas
model = mlflow.pyfunc.load_model(sys.argv[1])
rows = pandas.read_json(sys.argv[2])
answer = model.predict(rows[["kind", "height", "width"]])
given = model.predict(rows, params={"task": "april"})
outputs = [column.name for column in model.metadata.signature.outputs]
print(json.dumps({"answer": answer.to_dict("list"), "given": given["task"].tolist(), "outputs": outputs}))
"""


def trained() -> ContinualClassifier:
    settings = {"training.iterations": 150, "training.learning_rate": 0.02, "inference.samples": 3}
    model = ContinualClassifier("pr-bbb", "mlp-6", seed=0, settings=settings)
    model.learn_task(FRAME, LABELS, name="march")
    moved = FRAME.assign(height=FRAME["height"] + 20)
    return model.learn_task(moved, LABELS, name="april")


@pytest.fixture(scope="module")
def model() -> ContinualClassifier:
    return trained()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder: the store that needs no database."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    import mlflow

    before, uri = mlflow.get_tracking_uri(), (tmp_path / "mlruns").as_uri()
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("months")
    yield uri
    mlflow.set_tracking_uri(before)


def test_a_logged_model_is_scored_in_a_clean_process(model: ContinualClassifier, store: str, tmp_path: Path) -> None:
    import mlflow

    from metareplay.integrations.mlflow import load_model, log_model

    with mlflow.start_run():
        info = log_model(model, "months")
    FRAME.to_json(tmp_path / "rows.json")
    command = [sys.executable, "-W", "ignore", "-c", SCORE, info.model_uri, str(tmp_path / "rows.json")]
    environment = {**os.environ, "MLFLOW_TRACKING_URI": store, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    expected = model.predict_full(FRAME)
    assert result["answer"]["label"] == expected.labels.tolist()
    assert result["answer"]["task"] == expected.task
    np.testing.assert_allclose(result["answer"]["epistemic"], expected.epistemic, rtol=1e-9, atol=1e-12)
    assert list(result["answer"]) == result["outputs"]
    assert set(result["given"]) == {"april"}
    again = load_model(info.model_uri)
    assert isinstance(again, ContinualClassifier)
    assert np.array_equal(again.predict_proba(FRAME), model.predict_proba(FRAME))


def test_nothing_is_pickled_and_columns_are_named(model: ContinualClassifier, tmp_path: Path) -> None:
    import mlflow

    from metareplay.integrations.mlflow import save_model

    save_model(model, tmp_path / "saved")
    files = [file for file in (tmp_path / "saved").rglob("*") if file.is_file()]
    assert {file.suffix for file in files} <= {".safetensors", ".json", ".md", ".yaml", ".txt", ""}
    others = [file for file in files if file.suffix != ".safetensors"]  # those begin with a length, which may be any
    assert not any(file.read_bytes().startswith(b"\x80") for file in others)  # how pickles begin
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    assert [column.name for column in loaded.metadata.signature.inputs] == ["width", "height", "kind"]
    with pytest.raises(mlflow.MlflowException, match="height"):
        loaded.predict(FRAME.drop(columns="height"))


@pytest.mark.parametrize("targets", [1, 2])
def test_arrays_and_numbers(targets: int, tmp_path: Path) -> None:
    import mlflow

    from metareplay.integrations.mlflow import save_model

    x = RANDOM.normal(size=(40, 3)).astype(np.float32)
    y: Any = x[:, 0] if targets == 1 else x[:, :2]
    settings = {"training.iterations": 20, "inference.samples": 2}
    model = ContinualRegressor("sp-bbb", "mlp-4", seed=0, settings=settings).learn_task(x, y)
    save_model(model, tmp_path / "saved")
    answer = mlflow.pyfunc.load_model(str(tmp_path / "saved")).predict(x)
    name = "mean" if targets == 1 else "mean_1"
    np.testing.assert_allclose(answer[name], model.predict(x).reshape(40, -1)[:, -1])
