"""Task maps that generate theta: one hypernetwork for all tasks, or one for each."""

from itertools import pairwise
from math import ceil

from torch import Generator

from metareplay.settings import Composition
from metareplay.task_maps.base import TaskMap, TaskMapPart, register_task_map
from metareplay.task_maps.chunked import ChunkedHypernetwork
from metareplay.task_maps.ensemble import EnsembleMap
from metareplay.task_maps.hypernetwork import Hypernetwork, PerTaskHypernetworks, PlainHypernetwork
from metareplay.task_maps.settings import HeadsSettings, HypernetSettings

LARGEST_SHARE = 0.9
"""The most parameters a hypernetwork with automatic chunk size may have, as a share of its number of outputs."""


def build_generated(parts: Composition, size: int, generator: Generator, members: int) -> TaskMap:
    """A hypernetwork with one embedding per task, or per member of a task's ensemble."""
    settings = parts.get(HypernetSettings)
    if members == 1:
        return build_hypernetwork(settings, size, generator)
    return EnsembleMap(build_hypernetwork(settings, size // members, generator, members=members), members)


def build_separate(parts: Composition, size: int, generator: Generator, members: int) -> TaskMap:
    """A hypernetwork for each task."""
    return PerTaskHypernetworks(size, lambda outputs, rng: build_generated(parts, outputs, rng, members))


def build_hypernetwork(
    settings: HypernetSettings, size: int, generator: Generator, *, members: int = 1
) -> Hypernetwork:
    """A plain or chunked hypernetwork with ``size`` outputs, for tasks with ``members`` embeddings."""
    if settings.kind == "plain":
        return PlainHypernetwork(
            size,
            hidden=settings.hidden,
            activation=settings.activation,
            task_embedding_size=settings.task_embedding_size,
            task_embedding_std=settings.task_embedding_std,
            generator=generator,
        )
    return ChunkedHypernetwork(
        size,
        hidden=settings.hidden,
        chunk_size=min(size, settings.chunk_size or chosen_chunk_size(settings, size, members)),
        activation=settings.activation,
        task_embedding_size=settings.task_embedding_size,
        task_embedding_std=settings.task_embedding_std,
        chunk_embedding_size=settings.chunk_embedding_size,
        chunk_embedding_std=settings.chunk_embedding_std,
        chunk_embeddings_per_task=settings.chunk_embeddings_per_task,
        by_embeddings=settings.initialisation == "embeddings",
        generator=generator,
    )


def chosen_chunk_size(settings: HypernetSettings, size: int, members: int = 1) -> int:
    """The largest chunk that keeps the parameters below 90 % of the outputs; else that with the fewest parameters."""
    inputs = settings.task_embedding_size + settings.chunk_embedding_size
    widths = (inputs, *settings.hidden)
    fixed = sum((a + 1) * b for a, b in pairwise(widths)) + 10 * members * settings.task_embedding_size  # for ten tasks
    counts = {}
    chunk = float(size)
    while chunk >= 1:
        candidate = ceil(chunk)
        embeddings = ceil(size / candidate) * settings.chunk_embedding_size
        counts[candidate] = fixed + (widths[-1] + 1) * candidate + embeddings
        if counts[candidate] <= LARGEST_SHARE * size:
            return candidate
        chunk *= 0.95
    return min(counts, key=lambda candidate: counts[candidate])


register_task_map(
    TaskMapPart(
        name="hypernetwork",
        phrase="a hypernetwork",
        settings=(HypernetSettings, HeadsSettings),
        build=build_generated,
        generated=True,
    )
)
register_task_map(
    TaskMapPart(
        name="per-task-hypernetwork",
        phrase="a hypernetwork for every task",
        settings=(HypernetSettings,),
        build=build_separate,
        generated=True,
        separate=True,
    )
)
