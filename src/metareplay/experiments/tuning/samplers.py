"""How the next trial is proposed.

A proposal depends on the trials so far and on the trial's number alone, so that a study that was interrupted goes on as
it would have.
"""

from typing import Any

import torch

from metareplay.experiments.tuning.definition import Definition
from metareplay.experiments.tuning.space import points
from metareplay.seeding import derive_seed, generator_for

AT_RANDOM = 10
"""Trials of the TPE sampler before it learns from them."""
MOST_AT_ONCE = 100_000
"""Points of a grid that are shuffled as a whole."""


def sampler_for(optuna: Any, definition: Definition, number: int) -> Any:
    """The sampler that chooses one trial: Optuna's TPE, or the points of the grid in random order."""
    if definition.sampler == "grid":
        return _grid_sampler(optuna, definition, number)
    seed = derive_seed(definition.seed, "tuning", number) % 2**32
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=AT_RANDOM)


def _grid_sampler(optuna: Any, definition: Definition, number: int) -> Any:
    """The one point of the grid that is this trial's. Optuna's own sampler of grids keeps all points in memory, which
    the paper's grid has too many of."""
    point = grid_point(definition, number)

    class Point(optuna.samplers.BaseSampler):
        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
            return {}

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
            return {}

        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> str:
            return point[param_name]

    return Point()


def grid_point(definition: Definition, number: int) -> dict[str, str]:
    """The labels of a trial's values; no point comes twice."""
    total = points(definition.space)
    index, labels = _place(definition.seed, number % total, total), {}
    for key, entry in definition.space.items():
        index, digit = divmod(index, len(entry.examples))
        labels[key] = list(entry.labels())[digit]  # type: ignore[union-attr]  # points refuses ranges
    return labels


def _place(seed: int, number: int, total: int) -> int:
    """The position in the grid of the trial with this number."""
    generator = generator_for(seed, "grid")
    if total <= MOST_AT_ONCE:
        return int(torch.randperm(total, generator=generator)[number])
    seen: dict[int, None] = {}
    while len(seen) <= number:
        seen[int(torch.randint(min(total, 2**62), (), generator=generator))] = None
    return list(seen)[number]
