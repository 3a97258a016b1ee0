"""The front door: learn tasks one after another, predict, save, load; every mistake has its own clear error."""

import json
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from metareplay import ContinualClassifier, ContinualRegressor
from metareplay.benchmarks.registry import build_benchmark
from metareplay.errors import CheckpointError, ConfigError, DataError, MetaReplayError, NotTrainedError
from metareplay.experiments.plan import Plan
from metareplay.experiments.run import Run
from metareplay.inference.criteria import CRITERIA, Evidence, criteria_for
from metareplay.learner.config import build_config
from metareplay.learner.methods import METHODS
from metareplay.learner.recipe_book import default_settings

Array = npt.NDArray[Any]
NEEDS_OLD_DATA = ("joint",)
QUICK: dict[str, Any] = {"training.iterations": 6, "inference.samples": 4}


def blobs(classes: int = 2, *, task: int = 0, rows: int = 60, features: int = 3) -> tuple[Array, Array]:
    """Clouds far apart from each other and from those of other tasks; labels count on from task to task."""
    random = np.random.default_rng(task)
    y = np.arange(rows) % classes
    centres = np.random.default_rng(100 + task).normal(size=(classes, features)) * 3
    centres[:, 0] += 12 * task
    return (centres[y] + 0.3 * random.normal(size=(rows, features))).astype(np.float32), y + 10 * task


def classifier(method: str = "pr-bbb", **settings: Any) -> ContinualClassifier:
    given = {**QUICK, **{key.replace("__", "."): value for key, value in settings.items()}}
    if METHODS[method].outputs == "shared":
        given["total_outputs"] = 12
    return ContinualClassifier(method, "mlp-8", seed=1, settings=given)


def two_tasks(method: str = "pr-bbb", **settings: Any) -> ContinualClassifier:
    model = classifier(method, **settings)
    for task, name in enumerate(("spring", "summer")):
        model.learn_task(*blobs(task=task), name=name)
    return model


def regressor(method: str = "pr-bbb", tasks: int = 2, **settings: Any) -> ContinualRegressor:
    given = {**QUICK, **{key.replace("__", "."): value for key, value in settings.items()}}
    model = ContinualRegressor(method, "mlp-8", seed=1, settings=given)
    for task in range(tasks):
        model.learn_task(*sine(task), name=f"piece-{task}")
    return model


def sine(task: int, rows: int = 80) -> tuple[Array, Array]:
    """One of three neighbouring pieces of a sine curve, each at its own height."""
    x = np.linspace(-3 + 2.5 * task, -1 + 2.5 * task, rows, dtype=np.float32).reshape(-1, 1)
    return x, 0.5 * task + np.sin(3 * x[:, 0])


@pytest.fixture(scope="module")
def trained() -> ContinualClassifier:
    return two_tasks()


class Pairs(Dataset[Any]):
    """A user's own dataset."""

    def __init__(self, x: Array, y: Array) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Array, Any]:
        return self.x[index], self.y[index]


SOURCES: dict[str, Callable[[Array, Array], tuple[Any, ...]]] = {
    "lists": lambda x, y: (x.tolist(), y.tolist()),
    "float64 arrays": lambda x, y: (x.astype(np.float64), y.astype(np.int32)),
    "tensors": lambda x, y: (torch.tensor(x), torch.tensor(y)),
    "tensor dataset": lambda x, y: (TensorDataset(torch.tensor(x), torch.tensor(y)),),
    "own dataset": lambda x, y: (Pairs(x, y),),
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_kind_of_data_teaches_the_same(source: str) -> None:
    x, y = blobs()
    expected = classifier().learn_task(x, y).predict_proba(x)
    assert np.array_equal(classifier().learn_task(*SOURCES[source](x, y)).predict_proba(x), expected)


LABELS: dict[str, list[Hashable]] = {
    "str": ["no", "yes"],
    "int": [-3, 7],
    "bool": [False, True],
    "tuple": [("a", 1), ("b", 2)],
    "float": [0.5, 1.5],
    "mixed": ["a", 3],
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_labels_of_every_kind(labels: list[Hashable], tmp_path: Path) -> None:
    x, y = blobs()
    given = [labels[index] for index in y]
    model = classifier("sp-dirac", training__iterations=100, training__learning_rate=0.05).learn_task(x, given)
    assert set(model.classes_) == set(labels)
    actual = model.predict(x)
    assert actual.shape == (60,)
    assert actual.tolist() == given
    assert model.score(x, given) == 1.0
    model.save(tmp_path)
    again = ContinualClassifier.load(tmp_path)
    assert again.classes_.tolist() == model.classes_.tolist()
    assert [type(label) for label in again.classes_] == [type(label) for label in model.classes_]
    assert again.predict(x).tolist() == given


@pytest.mark.parametrize("method", ["pr-bbb", "fine-tuning", "joint", "exp-replay"])
def test_tasks_that_share_labels(method: str) -> None:
    model = classifier(method)
    model.learn_task(blobs(task=0)[0], ["cat", "dog"] * 30).learn_task(blobs(task=1)[0], ["dog", "emu"] * 30)
    assert model.classes_.tolist() == ["cat", "dog", "emu"]
    answer = model.predict_full(blobs(task=1)[0])
    assert answer.probabilities.shape == (60, 3)
    np.testing.assert_allclose(answer.probabilities.sum(1), 1.0, rtol=1e-9)
    assert set(model.predict(blobs(task=1)[0], task=1).tolist()) <= {"dog", "emu"}


def test_a_task_is_named_or_numbered(trained: ContinualClassifier) -> None:
    x, _ = blobs()
    assert trained.task_names == ["spring", "summer"]
    for name, number in (("spring", 0), ("summer", 1), ("summer", -1)):
        assert trained.predict(x, task=name).tolist() == trained.predict(x, task=number).tolist()
    assert set(trained.predict(x, task="summer").tolist()) <= {10, 11}
    assert classifier().learn_task(x, blobs()[1]).task_names == ["task-0"]


@pytest.mark.parametrize("task", [None, "summer"])
def test_everything_a_prediction_says(trained: ContinualClassifier, task: str | None) -> None:
    x = np.concatenate([blobs(task=0)[0], blobs(task=1)[0]])
    answer = trained.predict_full(x, task)
    assert answer.labels.shape == answer.total.shape == answer.aleatoric.shape == answer.epistemic.shape == (120,)
    assert answer.probabilities.shape == (120, 4)
    assert answer.probabilities.dtype == np.float64
    assert answer.probabilities.min() >= 0
    np.testing.assert_allclose(answer.probabilities.sum(1), 1.0, rtol=1e-12)
    assert answer.labels.tolist() == [trained.classes_[column] for column in answer.probabilities.argmax(1)]
    positive = np.where(answer.probabilities > 0, answer.probabilities, 1.0)
    np.testing.assert_allclose(answer.total, -(positive * np.log(positive)).sum(1), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(answer.total, answer.aleatoric + answer.epistemic, rtol=1e-9, atol=1e-12)
    assert answer.aleatoric.min() >= 0
    assert answer.epistemic.min() >= 0
    assert answer.epistemic.max() > 0
    assert len(answer.task) == 120
    assert set(answer.task) <= ({"spring", "summer"} if task is None else {task})
    assert np.array_equal(trained.predict_proba(x, task), answer.probabilities)
    assert trained.predict(x, task).tolist() == answer.labels.tolist()
    assert trained.predict_task(x) == trained.predict_full(x).task


@pytest.mark.parametrize(
    "criterion", [each.name for each in criteria_for("classification") if not each.reads_statistics]
)
def test_the_criterion_chooses_the_task(trained: ContinualClassifier, criterion: str) -> None:
    x = np.concatenate([blobs(task=0)[0], blobs(task=1)[0]])
    outputs = [trained.learner.predictor.outputs(trained._inputs(x), task) for task in range(2)]  # type: ignore[union-attr]
    task_scores = [CRITERIA[criterion].score(values.double().log_softmax(-1)) for values in outputs]
    scores = CRITERIA[criterion].compare(Evidence(task_scores, trained.learner.model.heads, trained.config.inference))  # type: ignore[union-attr]
    names = [trained.task_names[index] for index in scores.argmin(0).tolist()]
    assert trained.predict_task(x, criterion=criterion) == names
    halves = [trained.task_names[int(scores[:, part].mean(1).argmin())] for part in (slice(0, 60), slice(60, 120))]
    assert trained.predict_task(x, criterion=criterion, batch_wise=60) == [halves[0]] * 60 + [halves[1]] * 60


def test_a_point_estimate_knows_no_epistemic_uncertainty() -> None:
    answer = two_tasks("pr-dirac").predict_full(blobs()[0], "spring")
    assert answer.known is not None
    assert answer.strangeness is not None
    assert np.array_equal(answer.known, answer.strangeness <= 1)
    assert answer.known.sum() > 20
    assert answer.epistemic[answer.known].max() == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(answer.total, answer.aleatoric + answer.epistemic, atol=1e-12)


def test_the_score_is_the_share_of_right_labels(trained: ContinualClassifier) -> None:
    x, y = blobs()
    for task in (None, "spring"):
        assert trained.score(x, y, task) == pytest.approx(np.mean(trained.predict(x, task) == y))
    assert trained.score(TensorDataset(torch.tensor(x), torch.tensor(y)), task="spring") == trained.score(
        x, y, "spring"
    )


def test_joint_training_needs_the_old_data(tmp_path: Path) -> None:
    two_tasks("joint").save(tmp_path)
    again = ContinualClassifier.load(tmp_path)
    with pytest.raises(ConfigError, match=r"needs the data of all 2 earlier tasks"):
        again.learn_task(*blobs(task=2))
    assert again.task_names == ["spring", "summer"]


def test_saving_again_replaces_the_model(tmp_path: Path) -> None:
    model = classifier().learn_task(*blobs())
    model.save(tmp_path)
    model.learn_task(*blobs(task=1)).save(tmp_path)
    assert ContinualClassifier.load(tmp_path).task_names == ["task-0", "task-1"]
    assert {path.name for path in tmp_path.iterdir()} == {"model.safetensors", "config.json", "README.md"}


def test_without_standardisation_inputs_are_taken_as_they_are(tmp_path: Path) -> None:
    x, y = blobs()
    raw = ContinualClassifier("sp-dirac", "mlp-8", standardise=False, settings=QUICK).learn_task(x, y)
    scaled = ContinualClassifier("sp-dirac", "mlp-8", settings=QUICK).learn_task(x, y)
    assert not np.array_equal(raw.predict_proba(x), scaled.predict_proba(x))
    raw.save(tmp_path)
    assert np.array_equal(ContinualClassifier.load(tmp_path).predict_proba(x), raw.predict_proba(x))


@pytest.mark.usefixtures("small_maps")
@pytest.mark.parametrize("method", ["pr-bbb", "sp-dirac", "joint", "exp-replay"])
def test_a_run_is_loaded_as_a_model_that_reaches_its_figures(method: str, tmp_path: Path) -> None:
    defaults, _ = default_settings("modes-2d", method, "mlp-10-10")
    given = {"training.iterations": 40, "inference.samples": 5, "inference.batch_wise": 50, "report.references": False}
    given["inference.calibrate"] = False  # the figures are of uncalibrated answers: calibration can turn near ties
    plan = Plan.of(build_config(defaults, given, "test"), tmp_path / "run")
    results = Run(plan).execute()
    model, tests = ContinualClassifier.load(tmp_path / "run"), [task.test for task in plan.benchmark]
    given_task = [100 * model.score(test.x, test.y + 2 * task, task) for task, test in enumerate(tests)]
    assert given_task == pytest.approx(results.tgiven_matrix[-1])
    for criterion in (name for name, value in results.tinfer_final.items() if value is not None):
        name = "ent" if criterion == "softmax" else criterion
        inferred = [100 * model.score(test.x, test.y + 2 * task, criterion=name) for task, test in enumerate(tests)]
        assert np.mean(inferred) == pytest.approx(results.tinfer_final[criterion])


def test_blobs_are_told_apart_with_default_settings() -> None:
    model = ContinualClassifier("pr-bbb", settings={"training.iterations": 120})  # a user's default is more
    tasks = [scattered(task) for task in range(3)]
    for x, y in tasks:
        model.learn_task(x, y)
    assert min(model.score(x, y, task) for task, (x, y) in enumerate(tasks)) > 0.95
    right = np.mean([name == f"task-{task}" for task, (x, _) in enumerate(tasks) for name in model.predict_task(x)])
    assert right > 0.55  # chance is 1/3
    assert np.mean([model.score(x, y) for x, y in tasks]) > 0.5  # chance is 1/6


def scattered(task: int) -> tuple[Array, Array]:
    """Two clouds at random places in eight dimensions."""
    y = np.arange(100) % 2
    centres = 2 * np.random.default_rng(50 + task).normal(size=(2, 8))
    return centres[y] + 0.3 * np.random.default_rng(task).normal(size=(100, 8)), y + 2 * task


MISTAKES: list[tuple[str, Callable[[ContinualClassifier], object], type[MetaReplayError], str]] = [
    (
        "too few features",
        lambda m: m.learn_task(np.zeros((4, 2)), [0, 1, 0, 1]),
        DataError,
        r"trained on inputs of shape \(3,\)",
    ),
    ("flat", lambda m: m.learn_task(np.zeros(4), [0, 1, 0, 1]), DataError, r"reshape\(-1, 1\)"),
    ("missing values", lambda m: m.learn_task([[0, 1, float("nan")]] * 2, [0, 1]), DataError, "NaN or infinite"),
    ("nothing", lambda m: m.learn_task(np.zeros((0, 3)), []), DataError, "no inputs"),
    (
        "measurements",
        lambda m: m.learn_task(np.zeros((30, 3)), np.arange(30) / 7),
        DataError,
        "the labels are 30 different numbers such as .*: are they measurements or classes[?] .*use ContinualRegressor",
    ),
    ("huge", lambda m: m.predict([[0, 1e300, 1]]), DataError, r"the value 1e\+300 \(row 0, column 1\), .* too large"),
    ("labels missing", lambda m: m.learn_task(np.zeros((3, 3)), [0, 1]), DataError, "3 inputs but 2 labels"),
    ("no labels", lambda m: m.learn_task(np.zeros((3, 3))), DataError, "targets are missing"),
    (
        "name taken",
        lambda m: m.learn_task(*blobs(), name="spring"),
        ConfigError,
        "a task named 'spring' has already been learned",
    ),
    ("unhashable", lambda m: m.learn_task(np.zeros((2, 3)), [["a"], ["b"]]), DataError, "not hashable"),
    (
        "unknown name",
        lambda m: m.predict(blobs()[0], task="autumn"),
        DataError,
        "'autumn' is unknown; the model has learned 'spring'",
    ),
    ("unknown number", lambda m: m.predict(blobs()[0], task=2), DataError, "task 2 is unknown"),
    ("features at test", lambda m: m.predict(np.zeros((2, 5))), DataError, r"shape \(5,\) per example"),
    ("NaN at test", lambda m: m.predict([[0, 1, float("inf")]]), DataError, "NaN or infinite"),
    (
        "unknown criterion",
        lambda m: m.predict(blobs()[0], criterion="luck"),
        ConfigError,
        "Choose one of ent, conf, agree, ku",
    ),
    (
        "unknown label",
        lambda m: m.score(blobs()[0], ["a"] * 60),
        DataError,
        "the label 'a' was never learned; known labels are 0",
    ),
    (
        "label of another task",
        lambda m: m.score(*blobs(), task="summer"),
        DataError,
        "the label 0 was never learned; known labels are 10, 11",
    ),
    ("rows of the score", lambda m: m.score(blobs()[0], [0]), DataError, "60 inputs but 1 labels"),
]


@pytest.mark.parametrize(
    ("call", "error", "message"), [mistake[1:] for mistake in MISTAKES], ids=[mistake[0] for mistake in MISTAKES]
)
def test_mistakes_have_clear_errors_and_change_nothing(
    call: Callable[[ContinualClassifier], object],
    error: type[MetaReplayError],
    message: str,
    trained: ContinualClassifier,
) -> None:
    before = trained.predict_proba(blobs()[0])
    with pytest.raises(error, match=message):
        call(trained)
    assert trained.task_names == ["spring", "summer"]
    assert np.array_equal(trained.predict_proba(blobs()[0]), before)


@pytest.mark.parametrize("name", ["predict", "predict_proba", "predict_task", "predict_full"])
def test_an_untrained_model_says_so(name: str) -> None:
    with pytest.raises(NotTrainedError, match="no task has been learned yet"):
        getattr(classifier(), name)(blobs()[0])


@pytest.mark.parametrize("method", ["pr-bbb", "sp-dirac", "pr-ensemble", "fine-tuning", "vcl"])
def test_a_class_alone_is_told_from_other_tasks_by_its_statistics(method: str, tmp_path: Path) -> None:
    model = classifier(method, training__iterations=60, training__learning_rate=0.01)
    x, _ = blobs(task=1)
    model.learn_task(*blobs(), name="spring")
    model.learn_task(x, ["new"] * len(x), name="late")
    answer = model.predict_full(x)
    assert np.mean(answer.labels.astype(str) == "new") > 0.9
    assert np.allclose(answer.probabilities.sum(1), 1)
    assert model.predict_proba(x, task="late")[:, 2].min() == 1.0  # given the task, the class is certain
    assert model.predict_task(blobs()[0]).count("spring") > 0.9 * len(x)
    assert answer.known is not None
    assert answer.known.mean() > 0.8
    model.save(tmp_path)
    assert np.array_equal(ContinualClassifier.load(tmp_path).predict_proba(x), model.predict_proba(x))


def test_a_class_alone_is_refused_where_nothing_could_tell_it_from_others() -> None:
    model = classifier("pr-bbb", statistics__collect=False)
    with pytest.raises(DataError, match="task 'late' has only the class 'a', and without task statistics pr-bbb"):
        model.learn_task(np.zeros((3, 3)), ["a"] * 3, name="late")


@pytest.mark.parametrize("method", ["exp-replay", "joint", "vcl-growing", "ewc-growing"])
def test_a_class_alone_competes_with_those_of_earlier_tasks(method: str, tmp_path: Path) -> None:
    model = classifier(method, training__iterations=200, training__learning_rate=0.01)
    x, _ = blobs(task=1)
    model.learn_task(*blobs(), name="spring")
    model.learn_task(x, ["new"] * len(x), name="late")
    assert model.classes_.tolist() == [0, 1, "new"]
    assert model.score(x, ["new"] * len(x)) > 0.9
    if method in ("exp-replay", "joint"):  # the others know no old inputs
        assert model.score(*blobs()) > 0.9
    model.save(tmp_path)
    assert np.array_equal(ContinualClassifier.load(tmp_path).predict_proba(x), model.predict_proba(x))


def test_numbers_with_few_values_are_classes_of_type_float() -> None:
    x, _ = blobs()
    assert len(classifier().learn_task(x, np.arange(60) % 15 + 0.5).classes_) == 15


def test_an_estimator_says_what_it_is(trained: ContinualClassifier) -> None:
    assert repr(trained) == (
        "ContinualClassifier(method='pr-bbb', network='mlp-8', seed=1, tasks=['spring', 'summer'])"
    )
    assert repr(ContinualRegressor()) == "ContinualRegressor(method='pr-bbb', network='mlp-20-20', seed=0)"


def test_an_untrained_model_is_neither_scored_nor_saved(tmp_path: Path) -> None:
    with pytest.raises(NotTrainedError):
        classifier().score(*blobs())
    with pytest.raises(NotTrainedError):
        classifier().save(tmp_path)


def test_wrong_settings_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"did you mean training\.iterations"):
        ContinualClassifier(settings={"training.iteration": 5})
    with pytest.raises(ConfigError, match="did you mean pr-bbb"):
        ContinualClassifier("pr-bb")
    with pytest.raises(
        ConfigError, match=r"hypernet.hidden belongs to a hypernetwork .*; sp-bbb stores theta in separate parameters"
    ):
        ContinualRegressor("sp-bbb", settings={"hypernet.hidden": [5]})


def test_a_failed_first_task_leaves_nothing() -> None:
    model = classifier(hypernet__smaller_than_posterior=True, hypernet__chunk_size=1000)
    with pytest.raises(ConfigError, match="not fewer than"):
        model.learn_task(*blobs())
    assert model.task_names == []
    with pytest.raises(NotTrainedError):
        model.predict(blobs()[0])


def test_a_label_that_cannot_be_stored_is_named(tmp_path: Path) -> None:
    model = classifier("sp-dirac").learn_task(blobs()[0], [b"a", b"b"] * 30)
    with pytest.raises(ConfigError, match="the class label b'a' of type bytes cannot be saved"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def damage(folder: Path, how: str) -> None:
    facts, weights = folder / "config.json", folder / "model.safetensors"
    if how == "half the facts":
        facts.write_text(facts.read_text()[:100])
    elif how == "other format":
        facts.write_text(json.dumps({**json.loads(facts.read_text()), "format": "other"}))
    elif how == "no weights":
        weights.unlink()
    elif how == "half the weights":
        weights.write_bytes(weights.read_bytes()[:-50])
    elif how == "one bit":
        weights.write_bytes(weights.read_bytes()[:-1] + bytes([weights.read_bytes()[-1] ^ 1]))
    else:  # the weights of another network
        stored = json.loads(facts.read_text())
        stored["config"]["network"] = "mlp-9"
        facts.write_text(json.dumps(stored))


@pytest.mark.parametrize(
    "how", ["half the facts", "other format", "no weights", "half the weights", "one bit", "other network"]
)
def test_a_damaged_model_is_refused(how: str, trained: ContinualClassifier, tmp_path: Path) -> None:
    trained.save(tmp_path)
    damage(tmp_path, how)
    with pytest.raises(CheckpointError):
        ContinualClassifier.load(tmp_path)


def test_a_model_is_loaded_by_its_own_class(trained: ContinualClassifier, tmp_path: Path) -> None:
    trained.save(tmp_path / "a")
    regressor().save(tmp_path / "b")
    with pytest.raises(CheckpointError, match="holds a classification model; load it with ContinualClassifier"):
        ContinualRegressor.load(tmp_path / "a")
    with pytest.raises(CheckpointError, match="holds a regression model; load it with ContinualRegressor"):
        ContinualClassifier.load(tmp_path / "b")
    with pytest.raises(CheckpointError, match="does not contain a model"):
        ContinualRegressor.load(tmp_path / "c")


def test_progress_goes_to_the_terminal_not_to_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = blobs()
    watched = classifier().learn_task(x, y, progress=True)
    assert capsys.readouterr().out == ""
    assert np.array_equal(watched.predict_proba(x), classifier().learn_task(x, y).predict_proba(x))


def test_sine_pieces_are_learned_and_told_apart() -> None:
    settings = {
        "training.iterations": 600,
        "training.learning_rate": 0.01,
        "training.batch_size": 64,
        "inference.samples": 20,
    }
    settings |= {
        "posterior.prior_scale": 0.001,
        "posterior.likelihood_scale": 0.1,
        "training.cosine": False,
        "posterior.local_reparametrisation": True,
        "posterior.keep_network_init": True,
    }
    model, pieces = (
        ContinualRegressor("sp-bbb", "mlp-20-20", seed=1, settings=settings),
        [sine(task) for task in range(3)],
    )
    for task, (x, y) in enumerate(pieces):
        model.learn_task(x, y, name=f"piece-{task}")
    assert min(model.score(x, y, task) for task, (x, y) in enumerate(pieces)) > 0.9
    right = np.mean([name == f"piece-{task}" for task, (x, _) in enumerate(pieces) for name in model.predict_task(x)])
    assert right > 0.6  # chance is 1/3


def test_everything_a_regression_says() -> None:
    model, x = regressor(), sine(0)[0]
    answer = model.predict_full(x, criterion="variance")
    assert answer.mean.shape == answer.std.shape == (80,)
    assert answer.std.min() > 0
    assert set(answer.task) <= {"piece-0", "piece-1"}
    assert np.array_equal(model.predict(x, "piece-1"), model.predict(x, 1))
    assert len(set(model.predict_task(x, batch_wise=80))) == 1
    predictor = model.learner.predictor  # type: ignore[union-attr]
    lowest = torch.stack([predictor.outputs(model._inputs(x), task)[..., 0].std(0) for task in (0, 1)]).argmin(0)
    assert answer.task == [f"piece-{index}" for index in lowest]


def test_the_score_of_a_regression_is_r_squared() -> None:
    model, (x, y) = regressor(), sine(1)
    residual = ((y - model.predict(x, 1)) ** 2).sum()
    assert model.score(x, y, 1) == pytest.approx(1 - residual / ((y - y.mean()) ** 2).sum(), rel=1e-5)


def test_several_targets() -> None:
    model = ContinualRegressor("pr-bbb", "mlp-8", settings=QUICK)
    x = blobs()[0]
    model.learn_task(x, x[:, :2]).learn_task(torch.tensor(x), torch.tensor(x[:, 1:]))
    assert model.predict(x).shape == (60, 2)
    for call in (model.learn_task, model.score):
        with pytest.raises(DataError, match="targets have 1 columns, but this model predicts 2"):
            call(x, x[:, 0])


@pytest.mark.representative  # classifiers of all methods: test_every_method.py
@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.for_regression is None])
def test_a_loaded_regressor_predicts_and_learns_on_the_same(method: str, tmp_path: Path) -> None:
    model, x = regressor(method, statistics__collect=method == "pr-bbb"), sine(0)[0]
    model.save(tmp_path)
    again = ContinualRegressor.load(tmp_path)
    assert np.array_equal(model.predict(x, 0), again.predict(x, 0))
    if method not in NEEDS_OLD_DATA:
        for each in (model, again):
            each.learn_task(*sine(2))
        assert np.array_equal(model.predict(x, 2), again.predict(x, 2))
        assert np.array_equal(model.predict(x, 0), again.predict(x, 0))


def test_a_regression_run_is_loaded(tmp_path: Path) -> None:
    defaults, _ = default_settings("regression-1d", "pr-bbb", "mlp-10-10")
    given = {**QUICK, "report.references": False}
    results = Run(Plan.of(build_config(defaults, given, "test"), tmp_path / "run")).execute()
    model = ContinualRegressor.load(tmp_path / "run")
    errors = [
        np.mean((model.predict(task.test.x, index) - task.test.y[:, 0].numpy()) ** 2)
        for index, task in enumerate(build_benchmark("regression-1d"))
    ]
    assert errors == pytest.approx(results.tgiven_matrix[-1], rel=1e-5)


def test_point_estimates_infer_the_task_of_a_regression_by_statistics_alone() -> None:
    model, x = regressor("pr-dirac"), sine(0)[0]
    assert model.predict_task(x).count("piece-0") > 70
    with pytest.raises(ConfigError, match="compares weight samples, but a point estimate has only one"):
        model.predict(x, criterion="variance")
    model = regressor("pr-dirac", **{"statistics.collect": False})
    with pytest.raises(ConfigError, match="the task of a regression input cannot be inferred"):
        model.predict(x)
    assert model.predict(x, task="piece-0").shape == (80,)


@pytest.mark.parametrize("method", ["joint", "fine-tuning", "vcl", "exp-replay"])
def test_one_network_for_all_tasks_needs_no_task(method: str) -> None:
    model, x = regressor(method), sine(0)[0]
    answer = model.predict_full(x)
    assert np.array_equal(answer.mean, model.predict(x, task="piece-1"))
    assert answer.task == ["piece-1"] * len(x)
    assert model.score(*sine(0)) == model.score(*sine(0), task="piece-1")
    with pytest.raises(ConfigError, match="the task of a regression input cannot be inferred"):
        model.predict_task(x)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a"] * 80, "not numbers"),
        ([1.0], "80 inputs but 1 targets"),
        ([float("nan")] * 80, "NaN or infinite"),
        (None, "missing"),
    ],
)
def test_mistakes_with_targets(y: Any, message: str) -> None:
    model, x = regressor(tasks=1), sine(0)[0]
    before = model.predict(x)
    with pytest.raises(DataError, match=message):
        model.learn_task(x, y)
    assert np.array_equal(model.predict(x), before)
