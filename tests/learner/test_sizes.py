"""Sizes by rule: what is chosen for a user's own data, that given settings win, and the noise of a regression."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from metareplay import ContinualClassifier, ContinualRegressor
from metareplay.benchmarks.base import TaskData
from metareplay.errors import ConfigError
from metareplay.experiments.plan import make_plan
from metareplay.learner.methods import METHODS
from metareplay.learner.noise import noise_level
from metareplay.learner.recipe_book import default_settings
from metareplay.learner.sizes import Facts, network_for, own_settings, sizes_for
from metareplay.settings import flatten


def test_more_rows_take_more_steps_at_a_lower_rate() -> None:
    small, large = (sizes_for(Facts(rows, (16,), 3), "pr-bbb") for rows in (100, 20_000))
    assert small["training.iterations"] == 350
    assert small["training.iterations"] < large["training.iterations"] <= 3000
    assert small["training.learning_rate"] > large["training.learning_rate"]
    assert sizes_for(Facts(10**9, (16,), 3), "pr-bbb")["training.iterations"] == 3000


@pytest.mark.parametrize(("network", "clipped"), [("lenet", 600.0), ("resnet-32", 600.0), ("mlp-160-160", None)])
def test_gradients_of_convolutions_are_clipped_to_one_for_each_example(network: str, clipped: float | None) -> None:
    assert sizes_for(Facts(600, (3, 32, 32), 2), "pr-bbb", network).get("training.clip_norm") == clipped
    assert "training.clip_norm" not in sizes_for(Facts(600, (16,), 2), "pr-bbb", "mlp-64-64")


@pytest.mark.parametrize(
    ("method", "network", "rate", "std"),
    [
        ("pr-bbb", "lenet", 0.0003, 0.01),
        ("pr-dirac", "lenet", 0.0003, 0.01),
        ("pr-bbb", "mlp-160-160", 0.0003, 0.01),
        ("pr-bbb", "resnet-32", 0.001, None),  # normalisation undoes noise and large steps
        ("sp-bbb", "lenet", 0.001, 0.01),  # Adam moves its weights by the learning rate
    ],
)
def test_weights_generated_for_images_take_small_steps_with_little_noise(
    method: str, network: str, rate: float, std: float | None
) -> None:
    chosen = sizes_for(Facts(600, (3, 32, 32), 2), method, network)
    assert (chosen["training.learning_rate"], chosen.get("posterior.initial_std")) == (rate, std)
    of_table = sizes_for(Facts(600, (16,), 2), "pr-bbb", "mlp-64-64")
    assert (of_table["training.learning_rate"], of_table.get("posterior.initial_std")) == (0.005, None)


def test_a_convolutional_network_does_not_start_as_noise() -> None:
    """The answers of two networks of the first posterior are alike; a constant answer has nothing to gain."""
    random = np.random.default_rng(0)
    x, y = 255 * random.random((60, 3, 32, 32)).astype(np.float32), np.arange(60) % 2
    short = {"training.iterations": 1, "statistics.collect": False, "inference.calibrate": False}
    apart = {}
    for settings in ({}, {"posterior.initial_std": None}):
        model = ContinualClassifier(network="lenet", settings={**short, **settings})
        model.learn_task(x, y, name="0")
        learned = model.learner.model
        generator, posterior = torch.Generator().manual_seed(0), learned.posterior(0)
        with torch.no_grad():
            inputs = torch.from_numpy((x - x.mean()) / x.std())
            outputs = learned.run(posterior, inputs, 8, 0, generator=generator)  # (8, 60, 2)
        apart[not settings] = float(outputs.std(0).mean())
    assert apart[True] < 0.5 < 1.0 < apart[False]


def test_the_network_follows_columns_and_classes() -> None:
    assert network_for(Facts(100, (4,), 3)) == "mlp-64-64"
    assert network_for(Facts(100, (64,), 10)) == "mlp-64-64"
    assert network_for(Facts(100, (600,), 3)) == "mlp-160-160"  # too wide to be generated at once
    assert network_for(Facts(100, (1, 28, 28), 3)) == "mlp-160-160"
    assert network_for(Facts(100, (4,), 0, 0.3)) == "mlp-20-20"


@pytest.mark.parametrize(
    ("shape", "method", "network", "length"),
    [
        ((64,), "pr-bbb", "mlp-64-64", 32),
        ((64,), "pr-bbb-cs", "mlp-100-100", 28),
        ((300,), "pr-bbb", "mlp-64-64", 20),
        ((600,), "pr-dirac", "mlp-64-64", 22),  # half as many numbers as a Gaussian
        ((600,), "pr-bbb", "mlp-64-64", None),
        ((8,), "pr-bbb", "mlp", 32),
        ((64,), "pr-bbb", "mlp-400-400", None),
        ((1, 8, 8), "pr-bbb", "mlp-64-64", None),
        ((64,), "sp-tc-bbb", "mlp-64-64", None),
        ((64,), "exp-replay", "mlp-64-64", None),
        ((64,), "pr-bbb", "features:some/backbone", None),
    ],
)
def test_weights_for_tables_are_generated_at_once_unless_they_are_many(
    shape: tuple[int, ...], method: str, network: str, length: int | None
) -> None:
    settings = sizes_for(Facts(100, shape, 3), method, network)
    assert settings.get("hypernet.task_embedding_size") == length
    assert settings.get("hypernet.kind") == (None if length is None else "plain")


def test_a_hypernetwork_of_ones_own_stays_as_it_is() -> None:
    for given in ({"hypernet.hidden": [6]}, {"hypernet.chunk_size": 50}, {"hypernet.smaller_than_posterior": True}):
        config = ContinualClassifier(settings=given).config
        assert flatten(config.dump())["hypernet.kind"] == "chunked"
    values = flatten(ContinualClassifier(settings={"hypernet.task_embedding_size": 5}).config.dump())
    assert (values["hypernet.kind"], values["hypernet.task_embedding_size"]) == ("plain", 5)


def test_a_later_task_is_learned_as_well_as_the_first() -> None:
    """In chunks, the weights of two tasks differ by the same numbers in every chunk: too few for a task like this."""
    random, short = np.random.default_rng(0), {"training.iterations": 150, "inference.samples": 10}
    model = ContinualClassifier(settings={**short, "statistics.collect": False, "inference.calibrate": False})
    for task in range(2):
        centres, y = random.normal(size=(12, 16)), np.tile(np.arange(12), 15)
        x = centres[y] + random.normal(size=(180, 16))
        model.learn_task(x, y, name=str(task))
        assert np.mean(model.predict(x, task=str(task)) == y) > 0.95  # in chunks half as many in the second task


def test_a_linear_layer_on_features_has_a_prior_of_its_own() -> None:
    """Also where the rule chooses the length of training."""
    facts, name = Facts(80, (3, 16, 16), 2), "features:efficientnet-lite0"
    linear, deep = (own_settings(facts, "classification", "pr-bbb", net, {})[0] for net in (name, f"{name}+mlp-20"))
    assert linear["training.iterations"] == deep["training.iterations"] == 325
    assert (linear["posterior.prior_scale"], deep["posterior.prior_scale"]) == (1.0, 0.03)
    assert linear["posterior.prior_variance"] < 0.1
    assert not {"posterior.prior_variance", "statistics.outputs"} & set(deep)


@pytest.mark.parametrize("method", ["pr-ssge", "pr-flow", "ewc-multihead"])
def test_other_posteriors_keep_the_fixed_defaults(method: str) -> None:
    settings, source = own_settings(Facts(100, (4,), 3), "classification", method, "mlp-20", {})
    assert settings == default_settings("custom", method, "mlp-20")[0]
    assert "rule" not in source


@pytest.mark.parametrize(
    ("given", "kept", "dropped"),
    [
        ({"training.iterations": 50}, "training.learning_rate", "training.early_stopping"),
        ({"training.epochs": 3}, "training.cosine", "training.reference_rows"),
        ({"training.rate_steps": [[2, 0.1]]}, "training.early_stopping", "training.cosine"),
    ],
)
def test_what_is_given_wins(given: dict[str, Any], kept: str, dropped: str) -> None:
    settings, _ = own_settings(Facts(100, (4,), 3), "classification", "pr-bbb", None, given)
    assert kept in settings
    assert dropped not in settings
    model = ContinualClassifier(settings=given)
    assert all(flatten(model.config.model_dump(mode="json"))[key] == value for key, value in given.items())


def test_an_estimator_is_sized_by_its_first_task(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    model = ContinualClassifier(settings={"inference.samples": 5, "training.learning_rate": 0.01})
    model.learn_task(x, x[:, 0] > 0)
    assert model.config.network == "mlp-64-64"
    assert model.config.training.reference_rows == 60
    assert model.config.training.learning_rate == 0.01
    model.save(tmp_path)
    assert ContinualClassifier.load(tmp_path).config == model.config
    assert model.score(x, x[:, 0] > 0) > 0.8


def targets(noise: float, *, bent: bool) -> TaskData:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 3, generator=generator)
    y = torch.sin(2 * x[:, :1]) if bent else x[:, :1]
    return TaskData(x, y + noise * torch.randn(200, 1, generator=generator))


@pytest.mark.parametrize("bent", [True, False])
@pytest.mark.parametrize("noise", [0.2, 0.6])
def test_the_noise_of_targets_is_estimated(noise: float, bent: bool) -> None:
    assert 0.9 * noise < noise_level(targets(noise, bent=bent)) < 1.7 * noise


def test_noise_of_degenerate_targets_is_positive() -> None:
    assert noise_level(TaskData(torch.zeros(5, 2), torch.ones(5, 1))) > 0
    assert noise_level(TaskData(torch.zeros(1, 2), torch.ones(1, 1))) > 0
    assert noise_level(TaskData(torch.zeros(20, 2), torch.randn(20, 1))) > 0


def test_a_regressor_is_as_good_as_ridge_on_noisy_targets() -> None:
    data = targets(0.8, bent=False)
    model = ContinualRegressor(settings={"inference.samples": 10}).learn_task(data.x[:100], data.y[:100])
    assert model.config.posterior.model_dump()["likelihood_scale"] == pytest.approx(0.8 / 1.28, rel=0.3)
    x, y = data.x[100:], data.y[100:]
    solution = torch.linalg.lstsq(data.x[:100], data.y[:100]).solution
    ridge = 1 - (x @ solution - y).square().mean() / y.var(correction=0)
    assert model.score(x, y) > float(ridge) - 0.05


def test_a_run_says_what_was_chosen_and_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{x},{-x},{'ab'[x % 2]},{month}" for month in ("may", "june") for x in range(20)]
    (tmp_path / "rows.csv").write_text("\n".join(["p,q,kind,month", *rows]))
    options = {"data.path": "rows.csv", "data.label": "kind", "data.tasks_by": "month"}
    plan = make_plan(options)
    assert plan.source.startswith("by rule for 16 rows, 2 columns, 2 classes (first task): mlp-64-64, steps 300,")
    (tmp_path / "config.yaml").write_text(plan.config.to_yaml())
    assert yaml.safe_load(plan.config.to_yaml())["training"]["reference_rows"] == 16
    assert make_plan({}, file=tmp_path / "config.yaml").config == plan.config
    assert make_plan(options, {"training.iterations": 7}).config.training.reference_rows is None
    assert "rule" not in make_plan(options, published=True).source
    with pytest.raises(ConfigError, match="learning_rate"):
        make_plan(options, {"training.learning_rate": "fast"})


def test_every_method_can_be_sized() -> None:
    for method in METHODS:
        settings = {"total_outputs": 9} if METHODS[method].outputs == "shared" else {}
        assert ContinualClassifier(method, settings=settings).config.method == method
