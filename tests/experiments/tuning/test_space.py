"""Search spaces: the paper's grid, the small one, and a user's file with what can be wrong in it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from metareplay.errors import ConfigError
from metareplay.experiments.tuning.space import Range, Values, points, read_space, space_for
from metareplay.learner.config import RunConfig, build_config
from metareplay.learner.recipe_book import default_settings


def recipe(benchmark: str, method: str, network: str) -> RunConfig:
    return build_config(default_settings(benchmark, method, network)[0], {}, "")


def test_the_papers_grid_is_the_default_where_there_is_one() -> None:
    space, source = space_for(recipe("split-mnist", "pr-bbb", "mlp-100-100"))
    assert "paper" in source
    assert space["training.learning_rate"] == Values(values=(1e-5, 1e-4, 1e-3, 1e-2))
    assert space["training.iterations"] == Values(values=(2000, 5000))
    assert space["strategy.strength"] == Values(values=(1e-3, 1e-2, 0.1, 1, 10, 100, 1000))
    assert space["strategy.penalty"] == Values(values=("mse", "fkl", "rkl", "w2"))
    assert space["hypernet.hidden"].examples == ([], [10, 10], [50, 50], [100, 100])
    assert not [key for key in space if "avb" in key or "ssge" in key or "replay" in key]
    ewc, _ = space_for(recipe("split-mnist", "ewc-growing", "mlp-100-100"))
    assert ewc["strategy.strength"].examples[0] == 1e-4
    low, _ = space_for(recipe("modes-2d", "pr-bbb", "mlp-10-10"))
    assert low["posterior.prior_scale"] == Values(values=(1.0,))


@pytest.mark.parametrize("method", ["pr-bbb", "pr-dirac", "sp-dirac", "exp-replay", "slda", "der++"])
def test_every_kind_of_method_has_a_small_space(method: str) -> None:
    space, source = space_for(recipe("split-digits", method, "mlp" if method == "slda" else "mlp-100-100"))
    assert "small" in source
    assert space
    assert ("posterior.prior_scale" in space) == (method == "pr-bbb")


def test_a_file_may_group_settings_and_write_numbers_as_people_do(
    tmp_path: Path, tiny_config: Callable[..., RunConfig]
) -> None:
    file = tmp_path / "space.yaml"
    file.write_text("training: {learning_rate: {low: 1e-4, high: 1e-2, log: true}}\ntraining.batch_size: [8, 16]\n")
    space = read_space(file, tiny_config("sp-dirac"))
    assert space == {
        "training.learning_rate": Range(low=1e-4, high=1e-2, log=True),
        "training.batch_size": Values(values=(8, 16)),
    }
    with pytest.raises(ConfigError, match=r"grid sampler needs lists .* training.learning_rate has a range"):
        points(space)


def test_a_range_between_integers_has_fractions_where_the_setting_takes_them(
    tmp_path: Path, tiny_config: Callable[..., RunConfig]
) -> None:
    file = tmp_path / "space.yaml"
    file.write_text("strategy.strength: {low: 1, high: 1000, log: true}\ntraining.batch_size: {low: 8, high: 64}\n")
    space = read_space(file, tiny_config("pr-dirac"))
    strength, size = space["strategy.strength"], space["training.batch_size"]
    assert isinstance(strength, Range)
    assert isinstance(size, Range)
    assert not strength.integer
    assert size.integer


WRONG = [
    ("training.learning_rat: [1]", "did you mean training.learning_rate"),
    ("strategy.strength: [1, 2]", "strategy.strength"),
    ("training.learning_rate: [-1]", "training.learning_rate"),
    ("training.learning_rate: 0.1", "One value is fixed with --set"),
    ("training.learning_rate: {low: 0.1, high: 0.01}", "low must be below high"),
    ("training.learning_rate: {low: 0, high: 0.01, log: true}", "low must be above 0"),
    ("training.learning_rate: {low: 0.1}", "training.learning_rate: high is missing; give a list"),
    ("training.learning_rate: {low: a, high: 1}", "low is 'a', which is not a finite number"),
    ("training.learning_rate: {low: 0.1, high: .inf}", "high is inf, which is not a finite number"),
    ("training.learning_rate: {low: true, high: 2}", "low is True, which is not a finite number"),
    ("training.learning_rate: {low: {a: 1}, high: 2}", "which is not a finite number"),
    ("training.learning_rate: {low: 0.1, high: 1, log: maybe}", "log is 'maybe', which is neither true nor false"),
    ("training.learning_rate: {low: 0.1, high: 1, step: 3}", "training.learning_rate: 'step' is not understood"),
    ("training.learning_rate: {lo: 0.1, hi: 1}", "training.learning_rate: 'lo' is not understood"),
    ("training: {learning_rate: {lo: 0.1, hi: 1}}", "training.learning_rate: 'lo' is not understood"),
    ("training.batch_size: [8, 8.0]", "a value twice"),
    ("training.batch_size: [8, 8]", "a value twice"),
    ("training.batch_size: []", "no values"),
    ("training.fill_batches: {low: 0, high: 1}", "is true or false, which has no range; list both"),
    ("[1, 2]", "must name settings"),
    ("a: [", "not valid YAML"),
]


UNSEARCHABLE = [
    ("tasks.validation: [0.0, 0.2]", "decided by --held-out"),
    ("tasks: {first: [1, 2]}", "decided by --first-tasks"),
    ("tasks.class_order: [ascending, seeded]", "decided by --set tasks.class_order=VALUE"),
    ("seed: {low: 0, high: 9}", "decided by --seed"),
    ("data_seed: [1, 2]", "decided by --set data_seed=VALUE"),
    ("data.label: [a, b]", "decided by --label"),
    ("data: {test_share: [0.1, 0.2]}", "decided by --test-share"),
    ("data.missing: [drop, fill]", "decided by --set data.missing=VALUE"),
    ("benchmark: [modes-2d, regression-1d]", "decided by the argument BENCHMARK, or --data"),
    ("method: [pr-bbb, pr-dirac]", "decided by --method"),
    ("data_dir: [a, b]", "decided by --data-dir"),
    ("threads: [1, 2]", "decided by --set threads=VALUE"),
    ("device: [cpu, cuda]", "decided by --device"),
    ("report.references: [true, false]", "decided by --set report.references=VALUE"),
    ("inference.test_inputs: [10, 20]", "decided by --set inference.test_inputs=VALUE"),
    ("network: [mlp-10, mlp-20]", "network is already given with --network"),
]


@pytest.mark.parametrize(("text", "words"), UNSEARCHABLE)
def test_a_space_cannot_change_what_is_learned_or_tested(
    tmp_path: Path, tiny_config: Callable[..., RunConfig], text: str, words: str
) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(f"training.batch_size: [8, 16]\n{text}\n")
    with pytest.raises(ConfigError, match=words):
        read_space(file, tiny_config("sp-dirac"), {"network": "--network"})


def test_networks_are_searched_unless_an_option_names_one(
    tmp_path: Path, tiny_config: Callable[..., RunConfig]
) -> None:
    file = tmp_path / "space.yaml"
    file.write_text("network: [mlp-10, mlp-20]\n")
    assert read_space(file, tiny_config("sp-dirac")) == {"network": Values(values=("mlp-10", "mlp-20"))}


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_what_is_wrong_in_a_file_is_said(
    tmp_path: Path, tiny_config: Callable[..., RunConfig], text: str, words: str
) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words.replace("[", r"\[")) as caught:
        read_space(file, tiny_config("sp-dirac"))
    assert "--space" in str(caught.value)
