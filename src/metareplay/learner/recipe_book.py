"""Recipes: settings for benchmark, method and network, as data in recipes/*.yaml."""

from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any

from metareplay.benchmarks.base import Problem
from metareplay.benchmarks.registry import BENCHMARKS
from metareplay.benchmarks.toy import DATA_SEED
from metareplay.learner.methods import method_named
from metareplay.nets.backbones import has_backbone, is_adapted, is_features
from metareplay.nets.registry import is_linear, is_mlp, is_own
from metareplay.settings import flatten
from metareplay.texts import read_yaml

CUSTOM = "custom"
"""The benchmark name of a user's own data; regression has separate settings."""
CUSTOM_REGRESSION = "custom-regression"
OWN_DATA: dict[Problem, str] = {"classification": CUSTOM, "regression": CUSTOM_REGRESSION}
"""The names of recipes for a user's own data, by problem."""

OF_FEATURES: dict[str, Any] = {
    "statistics.width": 2048,
    "statistics.megabytes": 64.0,
    "training.iterations": 1600,
    "training.learning_rate": 0.003,
    "training.cosine": True,
    "training.early_stopping": 25,
    "training.patience": 6,
    "posterior.prior_scale": 0.03,
}
"""Of the features of a backbone all are described, with their covariance: they tell tasks apart by themselves.
Training is as the rule for a user's own data has it for 10,000 rows."""
OF_LINEAR_FEATURES: dict[str, Any] = {
    "hypernet.kind": "plain",
    "posterior.prior_scale": 1.0,
    "posterior.prior_variance": 0.005,
    "statistics.outputs": False,
}
"""A linear layer is small enough to be generated at once; in chunks it is forgotten. It has about a thousand
inputs of variance one, so weights of this variance give outputs of a few units; such a prior needs no tempering."""
START_OF_ADAPTERS: dict[str, Any] = {
    "training.learning_rate": 0.003,
    "training.warm_up": 50,
    "hypernet.kind": "plain",
    "hypernet.initialisation": "gaussian",
    "posterior.keep_network_init": True,
    "posterior.prior_scale": 0.03,
}
"""The posterior's mean starts at the backbone. In chunks, later tasks were learned much worse (benchmarks/adapters.py,
on training images that were set apart), and the second factors do not start at zero."""
OF_ADAPTERS: dict[str, Any] = {**OF_FEATURES, **START_OF_ADAPTERS}

PUBLISHED_PENALTIES: dict[str, Any] = {"strategy.divide_twice": True, "strategy.own_outputs": True}
"""How the published runs computed replay penalties; each has an effect with some penalties, families and outputs only,
and is ignored with others."""
PUBLISHED_SSGE: dict[str, Any] = {
    "posterior.ssge_below": True,
    "posterior.ssge_zero_distances": True,
    "posterior.ssge_apart": True,
}
"""How they estimated the prior-matching term by SSGE; ignored with other families."""


@dataclass(frozen=True)
class Recipe:
    """Settings that were published with the paper or tuned by this project."""

    benchmark: str
    method: str
    network: str
    source: str
    settings: dict[str, Any] = field(default_factory=dict)
    fast: bool = False
    """Tuned by this project: cheaper than the published recipe, with the same results; the default of a run."""
    published: dict[str, Any] = field(default_factory=dict)
    """What the published run did besides, where this project does what is sound; only for ``--published``."""

    @property
    def name(self) -> str:
        """Its name in lists."""
        return f"{self.benchmark}/{self.method}/{self.network}{'/fast' if self.fast else ''}"


@cache
def all_recipes() -> tuple[Recipe, ...]:
    """Every recipe that ships with the package."""
    folder = resources.files("metareplay.learner") / "recipes"
    recipes = []
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".yaml"):
            benchmark = file.name.removesuffix(".yaml")
            for entry in read_yaml(file.read_text()):
                settings, published = flatten(entry["settings"]), flatten(entry.get("published", {}))
                recipes.append(
                    Recipe(
                        benchmark,
                        entry["method"],
                        entry["network"],
                        entry["source"],
                        settings,
                        entry.get("fast", False),
                        published,
                    )
                )
    return tuple(recipes)


def recipe_for(benchmark: str, method: str, network: str, *, published: bool = False) -> Recipe | None:
    """The recipe for a benchmark, method and network, with all that was ``published`` of it if that is requested."""
    found = _nearest(benchmark, method, network, published)
    return found if found is None or not published else replace(found, settings={**found.settings, **found.published})


def _nearest(benchmark: str, method: str, network: str, published: bool) -> Recipe | None:
    """The exact recipe, else the closest: for another network, else that of the base method.

    Of two exact recipes the fast one is used, unless the ``published`` one is requested; only published ones are lent.

    The base of a method with stochastic regularisation is the one that regularises all old tasks, that of a method with
    coresets the one without, that of an ensemble the method of its members.
    A recipe borrowed from another network leaves the chunk size to be chosen for the new network, which may be too
    small for an even smaller hypernetwork; a weight generator then generates all weights at once.
    """
    kind = method_named(method)
    for name in (kind.name, *kind.lenders):
        matching = [recipe for recipe in all_recipes() if recipe.benchmark == benchmark and recipe.method == name]
        exact = [recipe for recipe in matching if recipe.network == network]
        if exact and name == method:
            return next((recipe for recipe in exact if recipe.fast is not published), exact[0])
        matching, exact = ([recipe for recipe in recipes if not recipe.fast] for recipes in (matching, exact))
        if matching:
            nearest = (exact or matching)[0]
            settings = dict(nearest.settings)
            if not exact:
                sizes = {f"hypernet.{key}" for key in ("chunk_size", "smaller_than_posterior", "smaller_than_network")}
                dropped = sizes | {"posterior.generator_chunk_size"}
                dropped |= set() if is_mlp(network) else {"posterior.local_reparametrisation"}
                dropped |= {"heads"} if is_own(network) else set()  # a user's network may not be able to grow
                settings = {key: value for key, value in settings.items() if key not in dropped}
            if method_named(name).strategy != kind.strategy:
                settings |= kind.when_lent
            source = f"borrowed from {nearest.name}"
            return Recipe(benchmark, method, network, source, settings, published=nearest.published)
    return None


def default_settings(
    benchmark: str, method: str, network: str, *, published: bool = False
) -> tuple[dict[str, Any], str]:
    """Default settings and their source: a recipe of the benchmark, else the recipe for a user's own data."""
    fallback = OWN_DATA[BENCHMARKS[benchmark].problem] if benchmark in BENCHMARKS else benchmark
    names = (fallback,) if has_backbone(network) else (benchmark, fallback)  # features are not the benchmark's inputs
    recipes = (recipe_for(name, method, network, published=published) for name in names)
    recipe = next((found for found in recipes if found is not None), None)
    base: dict[str, Any] = {"benchmark": benchmark, "method": method, "network": network}
    if published:
        base |= {"statistics.held_out": 0.0, "inference.calibrate": False}  # as the paper, train on all examples
    if (info := BENCHMARKS.get(benchmark)) is not None:
        base |= {**PUBLISHED_PENALTIES, **PUBLISHED_SSGE, **info.published} if published else {}
        base |= {} if info.data_seed == DATA_SEED else {"data_seed": info.data_seed}
    if is_features(network):
        recipe_settings = {} if recipe is None else recipe.settings
        linear = OF_LINEAR_FEATURES if is_linear(network) else {}
        return {**base, **recipe_settings, **OF_FEATURES, **linear}, "general defaults for the features of a backbone"
    if is_adapted(network):
        settings = {**({} if recipe is None else recipe.settings), **OF_ADAPTERS}
        return {**base, **settings}, "general defaults for a backbone with adapters"
    if benchmark in BENCHMARKS and BENCHMARKS[benchmark].augmentation != "none":
        base["training.augmentation"] = BENCHMARKS[benchmark].augmentation
    if recipe is None:
        return base, "general defaults"
    return {**base, **recipe.settings}, recipe.source
