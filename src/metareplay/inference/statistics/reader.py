"""The reader of task statistics: compares inputs with what is stored about the tasks."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from metareplay.benchmarks.base import Problem
from metareplay.inference.statistics.combine import OTHER, Combination
from metareplay.inference.statistics.density import InputDensity
from metareplay.inference.statistics.edges import EdgeDensities
from metareplay.inference.statistics.evidence import (
    Descriptions,
    Stored,
    TaskEvidence,
    gather,
    output_costs,
    with_outputs,
)
from metareplay.inference.statistics.improbable import NATS, strange_among, strange_to
from metareplay.inference.statistics.passes import Pass, chosen_layers, run_pass, total_bytes
from metareplay.inference.statistics.revise import drift_by_task
from metareplay.inference.statistics.rows import part_of
from metareplay.inference.statistics.settings import StatisticsSettings
from metareplay.inference.statistics.shortlist import first_scores, short_list
from metareplay.inference.statistics.unknown import beyond_bounds, strangeness
from metareplay.inference.task_statistics import TaskStatistics
from metareplay.model import ContinualModel

NAME = "statistics"
"""The name under which they are stored."""


class StatisticsReader:
    """Compares inputs with the statistics of tasks."""

    def __init__(
        self,
        model: ContinualModel,
        settings: StatisticsSettings,
        store: TaskStatistics,
        *,
        problem: Problem,
        batch_size: int,
    ) -> None:
        self.model, self.settings, self.store = model, settings, store
        self.classes, self.batch_size = problem == "classification", batch_size
        self._ready: tuple[int, int, Descriptions] | None = None

    def stored(self) -> tuple[Stored, ...]:
        """What is stored about the tasks that have statistics; all of them or none."""
        return self.store.known(NAME)

    @property
    def available(self) -> bool:
        """Whether all tasks have statistics."""
        return self.model.num_tasks > 0 and len(self.stored()) == self.model.num_tasks

    def evidence(self, x: Tensor, *, distances: bool = True, outputs: bool = True) -> TaskEvidence:
        """How well inputs (N, ...) fit each task; with ``distances`` also by single tasks' covariances of features.

        Of more than ``statistics.shortlist`` tasks as many are short-listed for each input. Without ``outputs`` only
        the networks of these are evaluated.
        """
        model, most = self.model, self.settings.shortlist
        tasks, many = range(model.num_tasks), model.num_tasks > most
        asked = tasks if distances else ()
        everything = outputs or not many
        evidence = self._gather(
            self.stored(), x, self._descriptions(), distances=asked, outputs=everything, together=many
        )
        if not many:
            return evidence
        first = first_scores(self.combination(evidence), evidence.terms())  # (T, N)
        listed = short_list(first, most)  # (M, N)
        evidence = replace(evidence, first=first, listed=listed)
        return evidence if outputs else with_outputs(evidence, listed, x, model.heads, self._pass)

    def _gather(
        self,
        stored: Sequence[Stored],
        x: Tensor,
        ready: Descriptions | None = None,
        *,
        tasks: Sequence[int] | None = None,
        distances: Collection[int] = (),
        weights: Sequence[Tensor] = (),
        outputs: bool = True,
        together: bool = False,
        edges: Tensor | None = None,
    ) -> TaskEvidence:
        """Inputs compared with what is stored about these tasks; by default all from the first on.

        ``weights`` are those that stand for their posteriors, ``edges`` the description of the inputs' edges, if they
        are available.
        """
        numbers = range(len(stored)) if tasks is None else tasks
        descriptions = ready or Descriptions.of(stored, self.layers())

        def run(index: int, inputs: Tensor, features: bool) -> Pass:
            return self._pass(numbers[index], inputs, features, weights=weights[index] if weights else None)

        heads = [self.model.heads[number] for number in numbers]
        return gather(
            descriptions,
            x,
            heads,
            run,
            classes=self.classes,
            by_outputs=self.settings.outputs,
            auxiliary=self.weighs_other(),
            distances=distances,
            outputs=outputs,
            together=together,
            edges=edges,
        )

    def weighs_other(self) -> bool:
        """Whether the auxiliary outputs of tasks are evidence: if there are any, but not in older models."""
        stored = self.stored()
        return self.classes and any(self.model.auxiliary_outputs) and (not stored or OTHER in stored[-1])

    def width(self) -> int:
        """Features per layer, as many as the other half of the permitted size allows."""
        layers = len(self.layers())
        spaces = max(1, layers * self.settings.networks)
        fitting = int((0.5 * self.settings.megabytes * 2**20 / 4 / spaces * 2) ** 0.5)
        return max(2, min(self.settings.width, fitting))

    def _pass(self, task: int, x: Tensor, features: bool, *, weights: Tensor | None = None) -> Pass:
        weights = self.model.central_weights(task) if weights is None else weights
        return run_pass(
            self.model,
            weights,
            task,
            x,
            self.settings,
            width=self.width(),
            features=features,
            batch_size=self.batch_size,
        )

    def layers(self) -> Sequence[str]:
        """The layers whose features are described, in the network's order."""
        return self.settings.layers or chosen_layers(self.model.network)

    def _descriptions(self) -> Descriptions:
        """Prepared once for every state of the store."""
        key = (self.store.version, self.model.num_tasks)
        if self._ready is None or self._ready[:2] != key:
            self._ready = (*key, Descriptions.of(self.stored(), self.layers()))
        return self._ready[2]

    def combination(self, evidence: TaskEvidence) -> Combination:
        """The weights of all evidence, as the last task left them."""
        return Combination.stored(list(evidence.terms()), self.stored())

    def strangeness(self, evidence: TaskEvidence, tasks: Tensor, x: Tensor) -> Tensor:
        """How strange inputs are to these tasks (N,): above 1, unknown; the tasks need not be short-listed."""
        stored = self.stored()
        found = torch.zeros(len(tasks), dtype=torch.float64)
        by_density = torch.tensor([NATS in task for task in stored])[tasks]  # (N,)
        if by_density.any():
            found[by_density] = strange_among(evidence.inputs[:, by_density], stored, x[0].numel())
        if not by_density.all():
            asked = with_outputs(evidence, tasks.unsqueeze(0), x, self.model.heads, self._pass)
            rest = tasks[~by_density]
            found[~by_density] = strangeness(part_of(asked, ~by_density), rest, stored)
        return torch.maximum(found, beyond_bounds(x, tasks, stored))

    def strangeness_to(self, task: int, x: Tensor) -> Tensor:
        """How strange inputs are to one task (N,), without evaluating the others."""
        stored = self.stored()[task]
        if NATS in stored:
            return strange_to(InputDensity.stored(stored).costs(x)[0], stored, x.shape[1:].numel())
        alone = self._evidence_alone(stored, task, x)
        first = torch.zeros(len(x), dtype=torch.int64)
        strange = strangeness(alone, first, [stored])
        return torch.maximum(strange, beyond_bounds(x, first, [stored]))

    def _evidence_alone(self, stored: Stored, task: int, x: Tensor) -> TaskEvidence:
        """How well inputs fit one task, as if it were the only one (1, N); without its features."""
        costs, residuals = InputDensity.stored(stored).costs(x)
        edges = EdgeDensities.stored([stored])
        of_outputs = torch.zeros(3, len(x), dtype=torch.float64)
        if self.classes:
            of_outputs = output_costs(self._pass(task, x, False).outputs[:, self.model.heads[task]])
        entropies, energies, margins = of_outputs.unsqueeze(1)
        return TaskEvidence(
            inputs=costs.unsqueeze(0),
            residuals=residuals.unsqueeze(0),
            edges=None if edges is None else edges.costs(edges.scale.numbers(x)),
            entropies=entropies,
            energies=energies,
            margins=margins,
            classes=self.classes,
        )

    def sizes(self) -> list[int]:
        """Bytes of each task's statistics."""
        return [total_bytes(list(task.values())) for task in self.stored()]

    def drift(self) -> list[dict[str, tuple[float, float]]]:
        """For each task whose network is followed: how far its layers moved in all, and what the maps left open."""
        return drift_by_task(self.stored())
