"""Recipes: each resolves, none contradicts itself, and published hypernetworks are smaller than what they generate."""

from typing import Any

import pytest
import torch

from metareplay.benchmarks.base import TaskData
from metareplay.benchmarks.registry import BENCHMARKS
from metareplay.errors import ConfigError
from metareplay.learner.build import build_family, final_sizes
from metareplay.learner.config import RunConfig, build_config, setting_descriptions
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.methods import METHODS, default_network
from metareplay.learner.recipe_book import (
    CUSTOM,
    PUBLISHED_PENALTIES,
    PUBLISHED_SSGE,
    Recipe,
    all_recipes,
    default_settings,
    recipe_for,
)
from metareplay.nets.registry import network_factory
from metareplay.nets.weights import WeightSpec
from metareplay.paper.tables import paper_tables
from metareplay.strategies.ewc import EWCSettings
from metareplay.strategies.replay_settings import ReplaySettings
from metareplay.task_maps.generated import build_hypernetwork
from metareplay.task_maps.settings import HeadsSettings, HypernetSettings

RECIPES = all_recipes()
NAMES = [recipe.name for recipe in RECIPES]
IMAGES = [
    recipe
    for recipe in RECIPES
    if recipe.benchmark in BENCHMARKS and len(BENCHMARKS[recipe.benchmark].input_shape) == 3
]
IMAGE_SETS = ("split-mnist", "permuted-mnist-10", "permuted-mnist-100", "split-cifar-10", "split-cifar-100")
LARGER = ("permuted-mnist-10/pr-dirac/mlp-100-100", "permuted-mnist-10/pr-bbb/mlp-100-100")
"""Published hypernetworks that are not smaller than what they generate."""
GENERATED = [recipe for recipe in IMAGES if METHODS[recipe.method].task_map_part.generated]


def resolved(recipe: Recipe) -> RunConfig:
    """A recipe as if the user had given every line of it, so that settings without effect are refused."""
    given = {"benchmark": recipe.benchmark, "method": recipe.method, "network": recipe.network, **recipe.settings}
    return build_config({}, given, recipe.name)


def frozen(value: Any) -> Any:
    """Lists as settings hold them."""
    return tuple(frozen(each) for each in value) if isinstance(value, list) else value


def sizes(config: RunConfig) -> tuple[int, int, int]:
    """Parameters of the hypernetwork with all tasks' embeddings, of one task's posterior, and of the main network."""
    info = BENCHMARKS[config.benchmark].with_settings(config.tasks)
    heads = (config.find(HeadsSettings) or HeadsSettings()).heads
    outputs = (info.num_classes // info.num_tasks or 10) * (info.num_tasks if heads == "multi" else 1)
    with torch.device("meta"):  # shapes are enough
        network = network_factory(config.network, info.input_shape)(outputs)
    spec, generator = WeightSpec.of(network), torch.Generator().manual_seed(0)
    posterior = build_family(config).num_parameters(spec)
    hypernetwork = build_hypernetwork(config.get(HypernetSettings), posterior, generator)
    tasks = 1 if config.kind().task_map == "per-task-hypernetwork" else info.num_tasks
    return hypernetwork.num_parameters() + tasks * hypernetwork.per_task_parameters(), posterior, spec.numel


def with_all_tasks(config: RunConfig) -> ContinualLearner:
    """A learner with a place for every task of the benchmark, without its data."""
    info = BENCHMARKS[config.benchmark]
    learner = ContinualLearner(config, info.problem, info.scenario, info.input_shape)
    pair = TaskData(torch.zeros(2, *info.input_shape), torch.tensor([0, 1]))
    for _ in range(info.num_tasks):
        learner.begin_task(pair, 2, expected_tasks=info.num_tasks)  # checks the size
    return learner


def test_there_are_recipes() -> None:
    assert {"modes-2d/pr-bbb/mlp-10-10", "split-digits/pr-bbb/mlp-100-100", "split-mnist/pr-bbb/mlp-400-400"} <= set(
        NAMES
    )
    assert len(set(NAMES)) == len(NAMES)


def test_every_recipe_resolves() -> None:
    for recipe in RECIPES:
        assert recipe.benchmark in BENCHMARKS or recipe.benchmark.startswith(CUSTOM), recipe.name
        assert recipe.source, recipe.name
        config = resolved(recipe)
        for key, value in recipe.settings.items():
            group, _, name = key.rpartition(".")
            stored = getattr(getattr(config, group) if group else config, name)
            assert stored == frozen(value), f"{recipe.name}: {key}"


def test_a_recipe_is_what_the_defaults_are() -> None:
    for recipe in RECIPES:
        settings, source = default_settings(recipe.benchmark, recipe.method, recipe.network, published=not recipe.fast)
        assert source == recipe.source, recipe.name
        assert settings.pop("statistics.held_out", None) == (None if recipe.fast else 0.0), recipe.name
        assert settings.pop("inference.calibrate", None) is (None if recipe.fast else False), recipe.name
        info = BENCHMARKS.get(recipe.benchmark)
        seed = {} if info is None else {"data_seed": info.data_seed}
        extra = {} if info is None or recipe.fast else {**PUBLISHED_PENALTIES, **PUBLISHED_SSGE, **info.published}
        expected = {"benchmark": recipe.benchmark, "method": recipe.method, "network": recipe.network}
        expected |= recipe.settings | recipe.published | extra | seed
        assert build_config(settings, {}, recipe.name) == build_config(expected, {}, recipe.name), recipe.name


def test_what_only_imitates_the_published_runs_is_not_the_default() -> None:
    """The sound way is the default, the published one needs ``--published``."""
    given = ("split-mnist", "ewc-growing", "mlp-400-400")
    sound, published = (build_config(default_settings(*given, published=each)[0], {}, "") for each in (False, True))
    scaled = [config.get(EWCSettings).scaled_prior for config in (sound, published)]
    assert scaled == [False, True]
    borrowed = default_settings("split-mnist", "ewc-growing", "mlp-7", published=True)[0]
    assert borrowed["outputs_from_start"] is True
    for recipe in RECIPES:
        known = {"benchmark": recipe.benchmark, "method": recipe.method, "network": recipe.network}
        build_config({}, known | recipe.settings | recipe.published, recipe.name)  # each line has an effect


@pytest.mark.parametrize("recipe", [recipe for recipe in RECIPES if recipe.fast], ids=lambda recipe: recipe.name)
def test_a_fast_recipe_is_the_default_and_is_small(recipe: Recipe) -> None:
    given = (recipe.benchmark, recipe.method, recipe.network)
    assert default_settings(*given)[1] == recipe.source
    published, source = default_settings(*given, published=True)
    assert source.startswith("published with the paper")
    assert published != default_settings(*given)[0]
    assert resolved(recipe).get(HypernetSettings).smaller_than_network


def test_stochastic_recipes_and_no_others_say_so() -> None:
    strategies = {recipe.name: resolved(recipe).find(ReplaySettings) or ReplaySettings() for recipe in RECIPES}
    stochastic = {recipe.name for recipe in RECIPES if METHODS[recipe.method].strategy == "stochastic-posterior-replay"}
    assert {name for name, strategy in strategies.items() if strategy.old_tasks is not None} == stochastic
    assert {name for name, strategy in strategies.items() if strategy.targets == "recomputed"} == stochastic


@pytest.mark.parametrize("recipe", GENERATED, ids=[recipe.name for recipe in GENERATED])
def test_image_hypernetworks_are_smaller_than_the_posterior_or_the_network(recipe: Recipe) -> None:
    config = resolved(recipe)
    trained, posterior, network = sizes(config)
    wanted = [config.get(HypernetSettings).smaller_than_posterior, config.get(HypernetSettings).smaller_than_network]
    assert any(wanted) != (recipe.name in LARGER)
    assert all(trained < limit for limit, each in zip((posterior, network), wanted, strict=True) if each)


def test_the_published_hypernetwork_that_is_larger_is_so_by_the_tasks_chunk_embeddings() -> None:
    """The paper's figure leaves them out."""
    assert set(LARGER) <= set(NAMES)
    for name in LARGER:
        config = resolved(RECIPES[NAMES.index(name)])
        trained, posterior, _ = sizes(config)
        chunks = -(-posterior // (config.get(HypernetSettings).chunk_size or 1))
        own = 10 * (
            config.get(HypernetSettings).task_embedding_size
            + chunks * config.get(HypernetSettings).chunk_embedding_size
        )
        assert posterior < trained
        assert trained - own < posterior


def test_sizes_are_what_a_learner_counts() -> None:
    for method in ("pr-bbb", "pr-ssge", "sp-tc-bbb"):
        config = build_config(default_settings("split-mnist", method, "mlp-400-400")[0], {}, "test")
        counts = with_all_tasks(config).model.parameter_counts()
        trained = counts["per_task"] if method == "sp-tc-bbb" else counts["trained"]
        assert sizes(config) == (trained, counts["posterior"], counts["main_network"])


@pytest.mark.parametrize("method", ["pr-dirac", "pr-ensemble", "pr-bbb"])
def test_sizes_at_the_end_are_known_with_the_first_task(method: str) -> None:
    given = {"benchmark": "split-digits", "method": method, "heads": "multi", "hypernet.chunk_size": 500}
    given |= {"hypernet.kind": "chunked", "hypernet.chunk_embeddings_per_task": True}
    config = build_config({}, given, "test")
    info = BENCHMARKS["split-digits"]
    learner = ContinualLearner(config, info.problem, info.scenario, info.input_shape)
    learner.begin_task(TaskData(torch.zeros(2, *info.input_shape), torch.tensor([0, 1])), 2, expected_tasks=5)
    counts = with_all_tasks(config).model.parameter_counts()
    assert final_sizes(config, learner.model, 5) == (counts["trained"], counts["posterior"], counts["main_network"])
    assert counts["posterior"] > learner.model.parameter_counts()["posterior"]


IMAGE_ROWS = sorted(
    {
        f"{table.benchmark}/{row.method}/{row.network or table.network}"
        for table in paper_tables().values()
        for row in table.own_rows
        if table.benchmark in IMAGE_SETS
    }
)


POINT_ALONE = {"split-mnist/ewc-dirac/mlp-100-100": "split-mnist/ewc-multihead/mlp-100-100"}
"""The published run of ewc-multihead predicts with the point; its settings are those of the method's own recipe."""


def test_every_row_of_the_papers_tables_has_its_own_recipe() -> None:
    assert {POINT_ALONE.get(row, row) for row in IMAGE_ROWS} <= set(NAMES)
    assert {row.split("/")[0] for row in IMAGE_ROWS} == set(IMAGE_SETS)
    assert len(IMAGE_ROWS) > 60


@pytest.mark.parametrize("method", ["pr-bbb", "pr-dirac", "sp-tc-bbb", "sp-tc-dirac", "hnet-fine-tuning"])
def test_a_hypernetwork_that_is_too_large_is_refused(method: str) -> None:
    given = {
        "benchmark": "split-digits",
        "method": method,
        "hypernet.chunk_size": 20000,
        "hypernet.smaller_than_posterior": True,
    }
    with pytest.raises(
        ConfigError, match=r"hypernetwork has [\d,]+ parameters for 5 tasks, not fewer than .*hypernet\.chunk_size"
    ):
        with_all_tasks(build_config({}, given, "test"))


def test_too_large_is_allowed_where_nobody_asks() -> None:
    config = build_config({}, {"benchmark": "split-digits", "method": "pr-dirac", "hypernet.chunk_size": 20000}, "test")
    counts = with_all_tasks(config).model.parameter_counts()
    assert counts["trained"] > counts["posterior"]


def test_all_tasks_count_from_the_first_on() -> None:
    """The embeddings of tasks to come are part of the size that is compared."""
    given = {
        "benchmark": "split-digits",
        "method": "pr-dirac",
        "hypernet.smaller_than_posterior": True,
        "hypernet.hidden": [10],
    }
    given |= {"hypernet.chunk_size": 500, "hypernet.task_embedding_size": 2000, "network": "mlp-100-100"}
    config, info = build_config({}, given, "test"), BENCHMARKS["split-digits"]
    pair = TaskData(torch.zeros(2, 1, 8, 8), torch.tensor([0, 1]))
    learner = ContinualLearner(config, info.problem, info.scenario, info.input_shape)
    with pytest.raises(ConfigError, match="for 5 tasks"):
        learner.begin_task(pair, 2, expected_tasks=5)


GENERATING = [
    name for name, method in METHODS.items() if method.task_map_part.generated and not name.endswith(("-sr", "-cs"))
]
"""Methods of different sizes: random tasks and coresets do not change them."""


@pytest.mark.parametrize("method", GENERATING)
def test_a_chunk_size_is_chosen_so_that_it_fits(method: str) -> None:
    given = {
        "benchmark": "split-mnist",
        "method": method,
        "network": "mlp-100-100",
        "hypernet.smaller_than_posterior": True,
    }
    counts = with_all_tasks(build_config({}, given, "test")).model.parameter_counts()
    assert counts["posterior"] > 0  # no error was raised


def test_a_stochastic_method_borrows_from_its_base() -> None:
    base, actual = (
        recipe_for("split-mnist", "pr-dirac", "mlp-100-100"),
        recipe_for("split-mnist", "pr-dirac-sr", "mlp-100-100"),
    )
    assert base is not None
    assert actual is not None
    assert actual.settings["strategy.old_tasks"] == 1
    assert actual.settings["strategy.targets"] == "recomputed"
    assert actual.source.startswith("borrowed from split-mnist/pr-dirac")


def test_digits_without_a_stochastic_recipe_borrow_everything_else() -> None:
    base, actual = (
        recipe_for("split-digits", "pr-bbb", "mlp-100-100"),
        recipe_for("split-digits", "pr-bbb-sr", "mlp-100-100"),
    )
    assert base is not None
    assert actual is not None
    stochastic = {"strategy.old_tasks": 1, "strategy.targets": "recomputed"}
    assert actual.settings == {**base.settings, **stochastic}
    assert actual.source == "borrowed from split-digits/pr-bbb/mlp-100-100"


def test_another_network_borrows_without_the_chunk_size() -> None:
    actual = recipe_for("split-mnist", "pr-bbb", "mlp-50-50")
    assert actual is not None
    # a fast one has its chunk size, and is not lent
    assert actual.source == "borrowed from split-mnist/pr-bbb/mlp-100-100"
    assert "hypernet.chunk_size" not in actual.settings
    # there may be no such hypernetwork for a small network
    assert "hypernet.smaller_than_posterior" not in actual.settings
    exact, other = (
        recipe_for("split-digits", "pr-bbb", "mlp-100-100"),
        recipe_for("split-digits", "pr-bbb", "resnet-32"),
    )
    assert exact is not None
    assert other is not None
    left_out = ("hypernet.chunk_size", "hypernet.smaller_than_posterior", "hypernet.smaller_than_network")
    # for MLPs only
    assert exact.settings.keys() - other.settings.keys() == {
        *left_out,
        "posterior.local_reparametrisation",
    }
    assert {key: exact.settings[key] for key in other.settings} == other.settings
    assert actual.settings["strategy.strength"] > 0


@pytest.mark.parametrize("benchmark", [*BENCHMARKS, CUSTOM])
def test_defaults_exist_for_every_method(benchmark: str) -> None:
    network = BENCHMARKS[benchmark].default_network if benchmark in BENCHMARKS else "mlp-20"
    for method in METHODS:
        chosen = default_network(method, network)
        settings, source = default_settings(benchmark, method, chosen)
        assert source, method
        assert set(settings) <= set(setting_descriptions())
        config = build_config(settings, {}, f"{benchmark} {method}")
        assert (config.method, config.network) == (method, chosen)


def test_other_networks_borrow_without_the_local_reparametrisation() -> None:
    assert default_settings("custom", "pr-bbb", "mlp-100-100")[0]["posterior.local_reparametrisation"] is True
    assert "posterior.local_reparametrisation" not in default_settings("custom", "pr-bbb", "lenet")[0]


def test_outputs_per_task_are_not_for_tasks_of_the_same_classes() -> None:
    """A recipe's outputs per task give way to a user's scenario, but not a user's own."""
    defaults, _ = default_settings("split-mnist", "pr-bbb", "mlp-400-400")
    assert build_config(defaults, {}, "test").heads == "multi"
    assert build_config(defaults, {"tasks.scenario": "domain"}, "test").heads is None
    assert build_config(defaults, {"tasks.scenario": "domain", "heads": "multi"}, "test").heads == "multi"


def test_a_users_network_need_not_grow() -> None:
    assert "heads" not in default_settings("split-mnist", "pr-bbb", "package:network")[0]
    assert default_settings("split-mnist", "pr-bbb", "mlp-50")[0]["heads"] == "multi"


def test_a_benchmarks_problem_chooses_the_settings_for_own_data_not_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    renamed = {"plain": BENCHMARKS["regression-1d"], "no-regression": BENCHMARKS["modes-2d"]}
    monkeypatch.setattr("metareplay.learner.recipe_book.BENCHMARKS", renamed)
    for name, own_data in (("plain", "custom-regression"), ("no-regression", CUSTOM)):
        expected, source = default_settings(own_data, "pr-bbb", "mlp-20-20")
        expected |= {"benchmark": name, "data_seed": renamed[name].data_seed}
        assert default_settings(name, "pr-bbb", "mlp-20-20") == (expected, source)
