"""MLflow: a pyfunc model that is the model's folder, with a signature (extra ``mlflow``); nothing is pickled."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from metareplay.errors import ConfigError
from metareplay.estimators.classifier import ClassPrediction, ContinualClassifier
from metareplay.estimators.loading import AnyEstimator, load_estimator
from metareplay.version import __version__

try:
    import mlflow.artifacts
    import mlflow.pyfunc
    import pandas
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec
except ImportError as error:
    raise ConfigError(
        f"this needs the package {error.name}; install it with pip install 'metareplay[mlflow]'"
    ) from error

LOADER = "metareplay.integrations.mlflow"
"""The module whose ``_load_pyfunc`` MLflow calls."""
FOLDER = "model"
REQUIREMENTS = [f"metareplay=={__version__}"]
QUESTIONS = ("task", "criterion")
"""What may be asked besides the inputs."""


def save_model(estimator: AnyEstimator, path: str | Path, **options: Any) -> None:
    """Write a model in MLflow's layout; ``options`` are those of ``mlflow.pyfunc.save_model``."""
    with _as_pyfunc(estimator, options) as arguments:
        mlflow.pyfunc.save_model(str(path), **arguments)


def log_model(estimator: AnyEstimator, name: str = FOLDER, **options: Any) -> Any:
    """Log a model to the active run; returns MLflow's ``ModelInfo``. ``options`` are those of its ``log_model``."""
    with _as_pyfunc(estimator, options) as arguments:
        return mlflow.pyfunc.log_model(name=name, **arguments)


def load_model(uri: str | Path) -> AnyEstimator:
    """The estimator itself, from what ``save_model`` or ``log_model`` wrote; it can learn further tasks.

    To score alone, ``mlflow.pyfunc.load_model`` does.
    """
    folder = Path(str(uri))
    place = folder if folder.is_dir() else Path(mlflow.artifacts.download_artifacts(str(uri)))
    return load_estimator(place / "data" / FOLDER)


@contextmanager
def _as_pyfunc(estimator: AnyEstimator, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What MLflow's own functions are called with."""
    with TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*input example was not provided")  # no example leaves with a model
        folder = Path(scratch) / FOLDER
        estimator.save(folder)
        defaults = {"signature": signature_of(estimator), "pip_requirements": REQUIREMENTS}
        yield {**defaults, **options, "loader_module": LOADER, "data_path": str(folder)}


class PyfuncModel:
    """What MLflow scores with: rows in, a data frame of answers out."""

    def __init__(self, estimator: AnyEstimator) -> None:
        self.estimator = estimator

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> pandas.DataFrame:
        """One row per input; ``params`` may name the task and the criterion."""
        asked = {name: value or None for name, value in (params or {}).items() if name in QUESTIONS}
        return pandas.DataFrame(_columns(self.estimator.predict_full(model_input, **asked)))


def _load_pyfunc(path: str) -> PyfuncModel:
    """Called by MLflow."""
    return PyfuncModel(load_estimator(path))


def _columns(answer: Any) -> dict[str, Any]:
    """The columns of an answer, named as ``metareplay predict`` names them."""
    if isinstance(answer, ClassPrediction):
        names = ("total", "aleatoric", "epistemic")
        first = {"label": answer.labels, "task": answer.task, "probability": answer.probabilities.max(1)}
        columns = {**first, **{name: getattr(answer, name) for name in names}}
    else:
        parts = {name: getattr(answer, name) for name in ("mean", "std", "lower", "upper")}
        columns = {name: values for name, values in parts.items() if values is not None}
        if answer.mean.ndim > 1:
            columns = {f"{name}_{i}": column for name, values in columns.items() for i, column in enumerate(values.T)}
        columns["task"] = answer.task
    if answer.task_probabilities is not None:
        columns["task_probability"] = answer.task_probabilities.max(1)
    if answer.known is not None:
        columns["known"] = answer.known
    return columns


def signature_of(estimator: AnyEstimator) -> ModelSignature:
    """Columns by name where the model has them, else one tensor; the columns of an answer; task and criterion."""
    if estimator.inputs.get("kind") == "table":
        columns = estimator.inputs["columns"]
        inputs = Schema([ColSpec(_input_type(column), str(column["name"])) for column in columns])
    else:
        inputs = Schema([TensorSpec(np.dtype(np.float32), (-1, *estimator.input_shape))])
    example = np.zeros((1, *estimator.input_shape), dtype=np.float32)
    answer = _columns(estimator.predict_full(example))
    outputs = Schema([ColSpec(_output_type(estimator, name), name) for name in answer])
    params = ParamSchema([ParamSpec(name, DataType.string, "") for name in QUESTIONS])
    return ModelSignature(inputs, outputs, params)


def _input_type(column: Mapping[str, Any]) -> DataType:
    if "date" in column:
        return DataType.datetime
    return DataType.string if column.keys() & {"values", "unit"} else DataType.double


def _output_type(estimator: AnyEstimator, name: str) -> DataType:
    if name in ("known", "task"):
        return DataType.boolean if name == "known" else DataType.string
    if name == "label" and isinstance(estimator, ContinualClassifier):
        kinds = {"b": DataType.boolean, "i": DataType.long, "f": DataType.double}
        return kinds.get(estimator.classes_.dtype.kind, DataType.string)
    return DataType.double
