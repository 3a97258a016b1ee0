"""Chunked hypernetworks: called once per chunk of theta, with an embedding per chunk [Henning2021, SM "Chunking"]."""

from collections.abc import Sequence
from math import ceil
from typing import cast, final

import torch
from torch import Generator, Tensor, nn

from metareplay.task_maps.base import Start
from metareplay.task_maps.hypernetwork import Hypernetwork, without
from metareplay.task_maps.initialise import embedding_variances, keep_input_variance


@final
class ChunkedHypernetwork(Hypernetwork):
    """Each row is a task embedding and a chunk embedding, and gives ``chunk_size`` elements of theta.

    Chunk embeddings are shared by all tasks, or each task has its own (``chunk_embeddings_per_task``). Where outputs
    start with given variances, these come from the output layer, or (``by_embeddings``) from the chunk embeddings.
    """

    def __init__(
        self,
        num_outputs: int,
        *,
        hidden: Sequence[int],
        chunk_size: int,
        activation: str = "relu",
        task_embedding_size: int = 32,
        task_embedding_std: float = 1.0,
        chunk_embedding_size: int = 32,
        chunk_embedding_std: float = 1.0,
        chunk_embeddings_per_task: bool = False,
        by_embeddings: bool = False,
        generator: Generator,
    ) -> None:
        super().__init__(
            num_outputs,
            input_size=task_embedding_size + chunk_embedding_size,
            row_size=chunk_size,
            hidden=hidden,
            activation=activation,
            task_embedding_size=task_embedding_size,
            task_embedding_std=task_embedding_std,
            generator=generator,
        )
        self.chunk_size, self.chunk_embedding_size, self.chunk_embedding_std = (
            chunk_size,
            chunk_embedding_size,
            chunk_embedding_std,
        )
        self.per_task, self.by_embeddings = chunk_embeddings_per_task, by_embeddings
        self.chunk_stds: Tensor | None = None
        """Initial standard deviation of each chunk's embedding (L,), where they differ."""
        shared = [] if self.per_task else [nn.Parameter(self._new_embeddings(self.num_chunks, generator))]
        self.chunk_embeddings = nn.ParameterList(shared)

    @property
    def num_chunks(self) -> int:
        """The number of hypernetwork calls for one theta."""
        return ceil(self.num_outputs / self.chunk_size)

    def _new_embeddings(self, count: int, generator: Generator) -> Tensor:
        """For the last ``count`` chunks: (count, C)."""
        drawn = torch.randn(count, self.chunk_embedding_size, generator=generator)
        if self.chunk_stds is None:
            return drawn * self.chunk_embedding_std
        return drawn * self.chunk_stds[len(self.chunk_stds) - count :].unsqueeze(1)

    def start_with(self, variances: Tensor, generator: Generator, weights: Tensor | None) -> None:
        if not self.by_embeddings:
            super().start_with(variances, generator, weights)
            return
        for layer in (*self.hidden_layers, self.output_layer):
            keep_input_variance(cast(nn.Linear, layer), generator)
        self._set_stds(variances)
        for shared in self.chunk_embeddings:
            shared.data.copy_(self._new_embeddings(len(shared), generator))

    def _set_stds(self, variances: Tensor) -> None:
        task = (self.task_embedding_size, self.task_embedding_std**2)
        self.chunk_stds = embedding_variances(variances, self.chunk_size, task, self.chunk_embedding_size).sqrt()

    def add_task(self, start: Start, *, generator: Generator) -> None:
        super().add_task(start, generator=generator)
        if self.per_task:
            self.chunk_embeddings.append(nn.Parameter(self._new_embeddings(self.num_chunks, generator)))

    def remove_task(self, task: int) -> None:
        super().remove_task(task)
        if self.per_task:
            self.chunk_embeddings = without(self.chunk_embeddings, task)

    def rows(self, tasks: Sequence[int]) -> Tensor:
        task = torch.stack([self.task_embeddings[t] for t in tasks])  # (T, E)
        task = task.unsqueeze(1).expand(-1, self.num_chunks, -1)  # (T, E) -> (T, L, E)
        if self.per_task:
            chunk = torch.stack([self.chunk_embeddings[t] for t in tasks])  # (T, L, C)
        else:
            chunk = self.chunk_embeddings[0].expand(len(tasks), -1, -1)  # (L, C) -> (T, L, C)
        return torch.cat([task, chunk], dim=-1)  # (T, L, E + C)

    def input_second_moment(self) -> float:
        task = self.task_embedding_size * self.task_embedding_std**2
        chunk = self.chunk_embedding_size * self.chunk_embedding_std**2
        return (task + chunk) / (self.task_embedding_size + self.chunk_embedding_size)

    def grow_outputs(self, variances: Tensor | None, generator: Generator) -> None:
        if self.by_embeddings and variances is not None:
            self._set_stds(variances)
        for index, old in enumerate(self.chunk_embeddings):
            new = self._new_embeddings(self.num_chunks - len(old), generator)
            self.chunk_embeddings[index] = nn.Parameter(torch.cat([old.data, new]))

    def per_task_parameters(self) -> int:
        return self.task_embedding_size + (self.num_chunks * self.chunk_embedding_size if self.per_task else 0)
