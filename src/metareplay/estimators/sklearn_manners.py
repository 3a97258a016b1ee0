"""scikit-learn's conventions: parameters, ``clone``, ``fit`` and ``partial_fit``, tags, and the errors its tools
expect.

Estimators do not inherit from scikit-learn's ``BaseEstimator``: importing it would make every command start later.
What its tools ask for is a protocol, and nothing of scikit-learn is imported before one of them asks.
"""

import inspect
import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import numpy.typing as npt

from metareplay.arrays import Inputs, Targets
from metareplay.benchmarks.base import Problem
from metareplay.errors import ConfigError, DataError, NotTrainedError
from metareplay.learner.config import RunConfig

if TYPE_CHECKING:
    from metareplay.estimators.task_verbs import TaskVerbs

TaskName = str | int


class InvalidParameter(ConfigError, ValueError):  # noqa: N818 (a kind of ConfigError)
    """A parameter that ``set_params`` refuses; scikit-learn expects a ValueError."""


class InvalidData(DataError, ValueError):  # noqa: N818 (a kind of DataError)
    """Data that ``fit``, ``predict`` or ``score`` refuses; scikit-learn expects a ValueError."""


class SklearnManners:
    """What scikit-learn's tools expect of an estimator, besides learning and predicting."""

    problem: Problem
    config: RunConfig
    inputs: Mapping[str, Any]
    settings: Mapping[str, Any] | None

    # What the estimator has.

    @abstractmethod
    def learn_task(
        self, X: Inputs, y: Targets | None = None, *, name: str | None = None, progress: bool = False
    ) -> Self: ...

    @abstractmethod
    def _checked_config(self) -> RunConfig: ...

    @abstractmethod
    def _start_anew(self) -> None: ...

    @property
    @abstractmethod
    def task_names(self) -> list[str]: ...

    @property
    @abstractmethod
    def input_shape(self) -> tuple[int, ...]: ...

    # Parameters.

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments that the estimator was made with, by name."""
        return {name: getattr(self, name) for name in _parameters(type(self))}

    def set_params(self, **params: Any) -> Self:
        """Change arguments; a name with a dot is a setting, e.g. ``set_params(**{"training.epochs": 5})``.

        They are checked at once. A model that has learned tasks keeps learning as it began, until ``fit`` starts over.
        """
        known, before = _parameters(type(self)), self.get_params()
        settings = {name: value for name, value in params.items() if "." in name}
        if wrong := [name for name in params if name not in known and name not in settings]:
            raise InvalidParameter(
                f"{type(self).__name__} has no parameter {wrong[0]!r}; it has {', '.join(known)}, "
                "and settings with a dot such as training.iterations (metareplay list settings)"
            )
        changed = {name: value for name, value in params.items() if name in known}
        if settings:
            changed["settings"] = {**(changed.get("settings", self.settings) or {}), **settings}
        try:
            vars(self).update(changed)
            config = self._checked_config()
        except (ConfigError, TypeError, ValueError, AttributeError) as error:
            vars(self).update(before)
            raise InvalidParameter(str(error)) from error
        if not self.task_names:
            self.config = config
        return self

    # Learning.

    def fit(self, X: Inputs, y: Targets | None = None, *, name: str | None = None, progress: bool = False) -> Self:
        """Forget all tasks, and learn this one as the first; if anything goes wrong, the model is left unchanged."""
        before = dict(vars(self))
        try:
            self.config = self._checked_config()
            self._start_anew()
            with value_errors():
                return self.learn_task(X, y, name=name, progress=progress)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    def partial_fit(
        self,
        X: Inputs,
        y: Targets | None = None,
        *,
        task: TaskName | None = None,
        classes: Any = None,
        progress: bool = False,
    ) -> Self:
        """Learn a new task, or more examples of a known one; without ``task``, of the task learned last.

        ``classes`` is there for scikit-learn's callers and need not be given: later examples may bring new classes.
        """
        names = self.task_names
        name = (names[-1] if names else None) if task is None else str(task)
        with value_errors():
            if names:
                self._refuse_other_features(X)
            if name is None or name not in names:
                return self.learn_task(X, y, name=name, progress=progress)
            return cast("TaskVerbs", self).update_task(name, X, y, progress=progress)  # type: ignore[return-value]

    # What was learned.

    @property
    def n_features_in_(self) -> int:
        """The number of features of an input; for data frames the number of columns."""
        columns = self._columns()
        return prod(self._fitted_shape("n_features_in_")) if columns is None else len(columns)

    @property
    def feature_names_in_(self) -> npt.NDArray[np.object_]:
        """The names of the columns, if the model learned from data frames or tables."""
        if (columns := self._columns()) is None:
            raise AttributeError("feature_names_in_ exists once a task has been learned from a data frame or table")
        return np.array(columns, dtype=object)

    def _columns(self) -> list[str] | None:
        table = self.inputs.get("kind") == "table"
        return [str(column["name"]) for column in self.inputs["columns"]] if table else None

    def _fitted_shape(self, name: str) -> tuple[int, ...]:
        if not self.task_names:
            raise AttributeError(f"{name} exists once a task has been learned")
        return self.input_shape

    def _refuse_other_features(self, x: Any) -> None:
        """Name the numbers of features as scikit-learn does, if those of a table differ."""
        own = self.input_shape
        if isinstance(x, np.ndarray) and x.ndim == 2 and len(own) == 1 and x.shape[1:] != own:
            raise InvalidData(
                f"X has {x.shape[1]} features, but {type(self).__name__} is expecting {own[0]} features as input: "
                f"inputs have shape {x.shape[1:]} per example, but this model was trained on inputs of shape {own}"
            )

    # Tags.

    @property
    def _estimator_type(self) -> str:
        return "classifier" if self.problem == "classification" else "regressor"  # for scikit-learn before 1.6

    def __sklearn_is_fitted__(self) -> bool:
        return bool(self.task_names)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        classifies = self.problem == "classification"
        return Tags(
            estimator_type="classifier" if classifies else "regressor",
            target_tags=TargetTags(required=True, multi_output=not classifies),
            classifier_tags=ClassifierTags() if classifies else None,
            regressor_tags=None if classifies else RegressorTags(),
            input_tags=InputTags(three_d_array=True, string=True, categorical=True),
        )


def _parameters(estimator: type) -> tuple[str, ...]:
    """The names of the arguments of a class."""
    return tuple(inspect.signature(estimator).parameters)


@contextmanager
def value_errors() -> Iterator[None]:
    """Errors about data as scikit-learn's callers expect them: ValueErrors too."""
    try:
        yield
    except InvalidData:
        raise
    except DataError as error:
        raise InvalidData(str(error)) from error


def not_fitted(message: str) -> NotTrainedError:
    """The error of a model without tasks; for a caller who has scikit-learn imported, its NotFittedError too."""
    return _not_fitted_class()(message) if "sklearn" in sys.modules else NotTrainedError(message)


@cache
def _not_fitted_class() -> type[NotTrainedError]:
    from sklearn.exceptions import NotFittedError

    return type("NotFittedError", (NotTrainedError, NotFittedError), {"__module__": __name__})
