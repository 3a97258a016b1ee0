"""Sizes by rule: network, length and strength of training that follow from a user's own data.

The rule sees the first task's rows, columns and classes; what a user sets wins. Named benchmarks have recipes instead.
"""

from collections.abc import Mapping
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

from metareplay.benchmarks.base import Problem, TaskData
from metareplay.learner.methods import Method, default_network, method_named
from metareplay.learner.noise import noise_level
from metareplay.learner.recipe_book import OWN_DATA, START_OF_ADAPTERS, default_settings
from metareplay.nets.backbones import is_adapted, is_features
from metareplay.nets.registry import is_linear, is_mlp, network_kind

FAMILIES = ("bbb", "dirac", "ensemble", "ensemble-bbb")
"""Posteriors that the rule was tried with; others keep the fixed defaults."""
STEPS, FEWEST_STEPS, STEPS_AT = 350, 300, 100
"""A task of 100 rows takes 350 steps; others as many times more as the cube root of their rows."""
MOST_STEPS = 3000
FEW_ROWS = 1000
"""Up to this many rows the learning rate is highest."""
RATE, RATE_OF_IMAGES = 0.005, 0.001
WIDTHS, WIDTH_OF_REGRESSION = (100, 160), 20
"""The narrowest and the widest network whose weights are generated in chunks; narrower ones leave the hypernetwork too
few parameters for later tasks."""
WIDTH = 64
"""Of networks for tables, whose weights are generated at once."""
GENERATED, EMBEDDING, SHORTEST_EMBEDDING = 1_000_000, 32, 16
"""The most numbers of a hypernetwork that generates all weights at once, and the length of its task embeddings: it
keeps about as many tasks apart. If only a shorter one fits, weights are generated in chunks."""
CHECKS, PATIENCE = 25, 6
"""Steps between two checks of the held-out loss, and checks without progress after which a task ends."""
WARM_UP = 50
"""Of images."""
RATE_OF_GENERATED, START_OF_IMAGES = 0.0003, 0.01
"""Of networks for images without normalisation. A step of Adam moves a weight that is generated in chunks by up to
thirty times the learning rate, since all elements of the embeddings act together: as far as such weights measure, so
that units are switched off. And standard deviations of weights start below what weights measure, or noise drowns all
answers, and a constant one is better."""


FEATURES = (-1,)
"""The shape of inputs that a backbone turns into features; how many is not known yet."""


class Facts(NamedTuple):
    """What the rule goes by: the first task."""

    rows: int
    shape: tuple[int, ...]
    classes: int
    """0 for regression."""
    noise: float | None = None
    """Standard deviation of regression targets around what can be predicted."""

    @classmethod
    def of(cls, train: TaskData, problem: Problem) -> "Facts":
        """From the scaled training data of the first task."""
        shape = tuple(train.x.shape[1:])
        if problem == "regression":
            return cls(len(train.x), shape, 0, noise_level(train))
        return cls(len(train.x), shape, len(train.y.unique()))

    @property
    def images(self) -> bool:
        """Whether inputs are images."""
        return len(self.shape) > 1

    @property
    def words(self) -> str:
        """For people."""
        classes = "1 class" if self.classes == 1 else f"{self.classes} classes"
        if self.shape == FEATURES:
            return f"{self.rows:,} rows of features, {classes}"
        columns = f"{' x '.join(map(str, self.shape))} pixels" if self.images else f"{prod(self.shape)} columns"
        return f"{self.rows:,} rows, {columns}{f', {classes}' if self.classes else ''}"


TYPICAL: Mapping[Problem, Facts] = {
    "classification": Facts(500, (5,), 2),
    "regression": Facts(500, (5,), 0, 0.5),
}
"""For settings that are checked before there are data."""


def network_for(facts: Facts) -> str:
    """An MLP with two hidden layers; for images and very wide tables wider ones, by columns and classes."""
    of_tables = f"mlp-{WIDTH}-{WIDTH}"
    if not facts.classes:
        return f"mlp-{WIDTH_OF_REGRESSION}-{WIDTH_OF_REGRESSION}"
    if not facts.images and embedding_size(facts, "bbb", of_tables) is not None:
        return of_tables
    narrowest, widest = WIDTHS
    width = min(max(4 * (prod(facts.shape) + facts.classes), narrowest), widest)
    return f"mlp-{width}-{width}"


def embedding_size(facts: Facts, family: str, network: str) -> int | None:
    """The length of task embeddings if a network's weights can all be generated at once, else None.

    In chunks, a linear hypernetwork adds the same numbers to every chunk: W e + V c + b for the embeddings of a task
    and of a chunk. So two tasks' posteriors differ by the elements of one chunk, too few for tasks unlike the first.
    """
    if facts.shape == FEATURES or is_features(network) or not is_mlp(network):
        return None
    widths = (prod(facts.shape), *map(int, network.split("-")[1:]), facts.classes)
    weights = sum((a + 1) * b for a, b in pairwise(widths))
    longest = GENERATED // (2 * weights if family.endswith("bbb") else weights) - 1  # a bias comes with the embedding
    return None if longest < SHORTEST_EMBEDDING else min(longest, EMBEDDING)


def sizes_for(facts: Facts, method: str, network: str = "") -> dict[str, Any]:
    """The settings that the rule chooses (dotted keys); none for methods with other posteriors or without steps."""
    kind = method_named(method)
    if kind.family not in FAMILIES or kind.closed_form:
        return {}
    chosen: dict[str, Any] = {
        "training.iterations": min(MOST_STEPS, max(FEWEST_STEPS, round(STEPS * (facts.rows / STEPS_AT) ** (1 / 3)))),
        "training.reference_rows": facts.rows,
        "training.learning_rate": RATE_OF_IMAGES
        if facts.images
        else round(RATE * min(1.0, FEW_ROWS / facts.rows) ** 0.25, 5),
        "training.cosine": True,
        "training.early_stopping": CHECKS,
        "training.patience": PATIENCE,
    }
    if facts.images:  # the first steps of a cold start are large enough to switch off all units of a convolution
        start = {"hypernet.initialisation": "gaussian", "posterior.keep_network_init": True}
        chosen |= {"training.warm_up": WARM_UP, **start}
        if network and not (network_kind(network).normalised or is_adapted(network)):
            chosen["posterior.initial_std"] = START_OF_IMAGES
            if kind.task_map_part.generated:
                chosen["training.learning_rate"] = RATE_OF_GENERATED
        if network and not (is_mlp(network) or is_adapted(network)):
            chosen["training.clip_norm"] = float(facts.rows)  # a huge gradient makes Adam's steps tiny for a long time
    else:
        chosen["posterior.prior_scale"] = 0.3 if facts.noise is not None else 0.03
        chosen |= _generated_at_once(facts, kind, network)
    if facts.noise is not None:
        chosen["posterior.likelihood_scale"] = float(f"{facts.noise:.3g}")
    return chosen


def _generated_at_once(facts: Facts, method: Method, network: str) -> dict[str, Any]:
    """For classes, if one hypernetwork for all tasks may generate all weights at once."""
    task_map = method.task_map_part
    if not (facts.classes and network and task_map.generated) or task_map.separate:
        return {}
    length = embedding_size(facts, method.family, network)
    if length is None:
        return {}
    start = {"hypernet.initialisation": "gaussian", "posterior.keep_network_init": True}
    return {"hypernet.kind": "plain", "hypernet.task_embedding_size": length, **start}


def own_settings(
    facts: Facts,
    problem: Problem,
    method: str,
    network: str | None,
    given: Mapping[str, Any],
    *,
    published: bool = False,
    repeated: bool = False,
) -> tuple[dict[str, Any], str]:
    """Default settings for a user's own data, and a sentence on where they come from.

    ``given`` are the user's own settings: what would contradict them is left out. Those of an earlier run that is
    ``repeated`` are complete.
    """
    chosen = network or default_network(method, network_for(facts))
    if is_features(chosen):
        facts = facts._replace(shape=FEATURES)
    defaults, source = default_settings(OWN_DATA[problem], method, chosen, published=published)
    sizes = {} if published or repeated else _agreeing(sizes_for(facts, method, chosen), given)
    if sizes and is_adapted(chosen):
        sizes |= START_OF_ADAPTERS
    if is_features(chosen) and is_linear(chosen):
        sizes.pop("posterior.prior_scale", None)  # it has a prior of its own
    if not sizes:
        return defaults, source
    values = {**defaults, **sizes, **given}
    shown = {
        "steps": values.get("training.iterations"),
        "learning rate": values.get("training.learning_rate"),
        "prior scale": values.get("posterior.prior_scale"),
        "noise": values.get("posterior.likelihood_scale") if facts.noise is not None else None,
    }
    numbers = {
        name: value for name, value in shown.items() if isinstance(value, int | float)
    }  # others are refused soon
    words = ", ".join(f"{name} {value:g}" for name, value in numbers.items())
    return {**defaults, **sizes}, f"by rule for {facts.words} (first task): {chosen}, {words}"


def _agreeing(sizes: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The rule's settings without what the user's exclude: a length is meant exactly, a schedule
    is complete, and a hypernetwork has the shape that was given."""
    dropped: set[str] = set()
    if given.get("training.iterations") is not None or given.get("training.epochs") is not None:
        dropped |= {f"training.{name}" for name in ("iterations", "reference_rows", "early_stopping", "patience")}
    if given.get("training.rate_steps") or given.get("training.plateau_patience") is not None:
        dropped |= {"training.cosine"}
    shape = ("kind", "hidden", "chunk_", "smaller_than_")
    if any(key.startswith(tuple(f"hypernet.{name}" for name in shape)) for key in given):
        dropped |= {key for key in sizes if key.startswith("hypernet.")} | {"posterior.keep_network_init"}
    return {key: value for key, value in sizes.items() if key not in dropped}
