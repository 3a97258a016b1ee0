"""The keeper of task statistics: takes them when a task has been learned, and lets them follow later changes."""

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor

from metareplay.benchmarks.base import Problem, TaskData
from metareplay.inference.statistics.combine import Combination, updated
from metareplay.inference.statistics.density import InputDensity, input_density
from metareplay.inference.statistics.evidence import (
    Descriptions,
    Stored,
    TaskEvidence,
    gather,
    output_costs,
    space_name,
    spaces_of,
)
from metareplay.inference.statistics.moments import AffineMap, MomentSums
from metareplay.inference.statistics.passes import INPUTS, Pass, chosen_layers, in_parts, run_pass, total_bytes
from metareplay.inference.statistics.revise import (
    drift_by_task,
    examples_of,
    follow_change,
    merged,
    mixed_scales,
    widened,
    without_task,
)
from metareplay.inference.statistics.rows import (
    FOLDS,
    bounded,
    by_task,
    common_labels,
    folds,
    joined,
    own_scales,
    part_of,
)
from metareplay.inference.statistics.settings import StatisticsSettings
from metareplay.inference.statistics.unknown import calibrated, measures, strangeness
from metareplay.inference.task_statistics import TaskStatistics
from metareplay.model import ContinualModel
from metareplay.seeding import generator_for
from metareplay.task_maps.base import TaskMap

NAME = "statistics"
"""The name under which they are stored."""
DRIFT_INPUTS = 2000
"""The most inputs by which a change of a network's features is measured."""
CALIBRATION_INPUTS = 1000
PART = 500
IMAGINED, MOST_IMAGINED = 400, 64
"""Inputs drawn from the densities of earlier tasks, and the widest inputs for which densities are good enough."""


class StatisticsKeeper:
    """Takes statistics of tasks, and compares inputs with them."""

    def __init__(
        self,
        model: ContinualModel,
        settings: StatisticsSettings,
        store: TaskStatistics,
        *,
        problem: Problem,
        seed: int,
        batch_size: int,
    ) -> None:
        self.model, self.settings, self.store = model, settings, store
        self.classes, self.seed, self.batch_size = problem == "classification", seed, batch_size
        self.earlier: TaskMap | None = None
        """The task map as it was before the training that is under way."""
        self._ready: tuple[int, int, Descriptions] | None = None

    # While a task is learned.

    def before_training(self, *, revision: bool = False) -> None:
        """Remember the networks in which tasks are described; training, or a revision of a known task, changes them."""
        self.earlier = None
        if self.settings.compensate and self.stored() and (revision or not self._separate()):
            self.earlier = deepcopy(self.model.task_map).requires_grad_(False)

    def _separate(self) -> bool:
        """Whether training the last task leaves all others unchanged."""
        task_map, last = self.model.task_map, self.model.num_tasks - 1
        trained = {id(parameter) for parameter in task_map.trained_parameters(last)}
        return last > 0 and not any(
            id(parameter) in trained for task in range(last) for parameter in task_map.trained_parameters(task)
        )

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint needs while a task is learned."""
        return {} if self.earlier is None else dict(self.earlier.state_dict())

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of ``tensors``."""
        self.earlier = None
        if tensors:
            self.earlier = deepcopy(self.model.task_map).requires_grad_(False)
            self.earlier.load_state_dict(dict(tensors))

    def after_task(self, task: int, train: TaskData, held_out: TaskData) -> None:
        """Take the statistics of a task just learned; those of earlier tasks follow the change of their networks."""
        if not self.settings.collect or len(self.stored()) != task:
            self.earlier = None
            return
        earlier = self._compensated(self._sample(train.x, DRIFT_INPUTS, self._number(task)))
        labels = common_labels(train.y) if self.classes else torch.zeros(len(train.x), dtype=torch.int64)
        described = self._described(task, train.x, labels)
        known = held_out.x[:CALIBRATION_INPUTS]
        evidence, imagined = self._calibration_evidence(
            task, train.x, labels, known[: bounded(task)], earlier, described
        )
        combination = updated(Combination.stored(list(evidence.terms()), earlier), evidence, imagined)
        of_task = self._evidence_alone(described, task, known) if len(known) else evidence
        own_row = torch.full((of_task.inputs.shape[1],), 0 if len(known) else task)
        unknown = calibrated(measures(of_task, own_row), self.settings.false_rejections)
        own = own_scales(task, evidence)
        self.store.put(NAME, [*earlier, {**described, **combination.tensors(), **unknown, **own}])

    def after_revision(self, task: int, train: TaskData, held_out: TaskData) -> None:
        """Add a known task's new examples to what is stored about it; that of other tasks follows the change."""
        stored = self._compensated(self._sample(train.x, DRIFT_INPUTS, self._number(task)))
        if not self.available:
            return
        old = stored[task]
        labels = common_labels(train.y) if self.classes else torch.zeros(len(train.x), dtype=torch.int64)
        new = self._described(task, train.x, labels)
        share = examples_of(new) / (examples_of(old) + examples_of(new))
        classes, features = max(len(new["classes"]), len(old.get("classes", ()))), train.x[0].numel()
        components, directions = self.settings.density_size(classes, features)
        most = max(len(old["inputs.mean"]), len(new["inputs.mean"]), components * classes)
        described = {**old, **merged(old, new, gaussians=most, directions=max(directions, 1))}
        known = (held_out if len(held_out.x) else train).x[:CALIBRATION_INPUTS]
        alone = measures(self._evidence_alone(described, task, known), torch.zeros(len(known), dtype=torch.int64))
        described |= widened(old, alone, self.settings.false_rejections, share)
        others = [*stored[:task], described, *stored[task + 1 :]]
        evidence = self._gather(others, known, distances=[task])
        described |= mixed_scales(old, own_scales(task, evidence), share)
        self.store.put(NAME, [*stored[:task], described, *stored[task + 1 :]])

    def remove_task(self, task: int) -> None:
        """Forget a task that the model no longer has; called before the store drops its entry."""
        if len(self.stored()) > task:
            rest: list[Stored] = list(without_task(self.stored(), task))
            self.store.put(NAME, [*rest[:task], {}, *rest[task:]])

    def _number(self, task: int) -> int:
        """The number by which a task's random numbers are drawn."""
        return self.model.lineage.number_of(task)

    def after_update(self, x: Tensor) -> None:
        """Let the statistics follow a change of all networks, measured by some inputs of the tasks."""
        if stored := self._compensated(self._sample(x, DRIFT_INPUTS, self.model.num_tasks)):
            self.store.put(NAME, stored)

    def _sample(self, x: Tensor, most: int, number: int) -> Tensor:
        if len(x) <= most:
            return x
        return x[torch.randperm(len(x), generator=generator_for(self.seed, NAME, number))[:most]]

    # Drift.

    def _compensated(self, x: Tensor) -> list[Stored]:
        """What is stored about earlier tasks, mapped along with the change of the networks they are described in."""
        stored: list[dict[str, Tensor]] = [dict(task) for task in self.stored()]
        earlier, self.earlier = self.earlier, None
        if earlier is None or not stored:
            return list(stored)
        for network in sorted({network for network, _ in spaces_of(stored[-1])} | {0} if stored else set()):
            if network >= len(stored):
                continue
            before, now = self.model.central_weights(network, earlier), self.model.central_weights(network)
            if torch.equal(before, now):
                continue
            old_pass = self._pass(network, x, True, weights=before)
            new_pass = self._pass(network, x, True)
            for layer, old in old_pass.features.items():
                if layer == INPUTS:
                    continue  # inputs do not change
                follow_change(stored, network, layer, AffineMap.between(old, new_pass.features[layer]))
        return list(stored)

    # Statistics of one task.

    def _described(self, task: int, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Densities of a task's inputs, and moments of its features in its own and the first networks."""
        classes, features = int(labels.max()) + 1, x[0].numel()
        components, directions = self.settings.density_size(classes, features)
        if directions == 0:  # too many classes for separate densities
            labels, classes = torch.zeros_like(labels), 1
            components, directions = self.settings.density_size(classes, features)
        parts = partial(in_parts, x, labels, 4 * PART)
        density = input_density(parts, classes, max(directions, 1), components)
        stored = density.tensors()
        allowed = self._spaces(task)
        for network in sorted({network for network, _ in allowed} | ({task} if self._is_home(task) else set())):
            sums: dict[str, MomentSums] = {}
            weights = self.model.central_weights(network)
            for part, of_part in in_parts(x, labels, 4 * PART):
                for layer, values in self._pass(network, part, True, weights=weights).features.items():
                    if (network, layer) not in allowed and not (network == task and self._is_home(task)):
                        continue
                    sums.setdefault(layer, MomentSums(classes)).add(values, of_part)
            for layer, layer_sums in sums.items():
                stored |= layer_sums.moments().tensors(space_name(network, layer))
        counts = torch.bincount(labels).double()
        present = counts.nonzero().squeeze(1)
        return {**stored, "classes": present, "class_counts": counts[present], "examples": torch.tensor(len(x))}

    def _spaces(self, task: int) -> set[tuple[int, str]]:
        """The networks and layers in which a task is described, besides its own network."""
        stored = self.stored()
        return set(spaces_of(stored[task] if task < len(stored) else stored[-1])) if stored else set()

    def _is_home(self, task: int) -> bool:
        """Whether a new task's own network becomes one of those in which later tasks are described."""
        return task >= len(self.stored()) and task < self.settings.networks

    def width(self) -> int:
        """Features per layer, as many as the other half of the permitted size allows."""
        layers = len(self._layers())
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

    def _calibration_evidence(
        self, task: int, x: Tensor, labels: Tensor, held_out: Tensor, earlier: Sequence[Stored], described: Stored
    ) -> tuple[TaskEvidence, dict[int, TaskEvidence]]:
        """Evidence on inputs of the task that its statistics were not taken from, and on imagined ones of others."""
        stored = [*earlier, described]
        imagined, tasks = self._imagined(task, x.shape[1:], stored)
        if len(held_out):
            together = self._gather(stored, torch.cat([held_out, imagined]), distances=[task])
            count = len(held_out)
            return part_of(together, slice(count)), by_task(part_of(together, slice(count, None)), tasks)
        of_others = by_task(self._gather(stored, imagined), tasks) if tasks else {}
        parts = []
        for fold in folds(len(x), generator_for(self.seed, "folds", self._number(task))):
            rest = torch.ones(len(x), dtype=torch.bool)
            rest[fold] = False
            if not len(fold) or not rest.any():
                continue
            part = self._described(task, x[rest], labels[rest]) if len(x) > FOLDS else described
            parts.append(self._gather([*earlier, part], x[fold], distances=[task]))
        return joined(parts) if parts else self._gather(stored, x, distances=[task]), of_others

    def _imagined(self, task: int, shape: torch.Size, stored: Sequence[Stored]) -> tuple[Tensor, list[int]]:
        """Inputs (n, ...) drawn from the densities of earlier tasks, and these tasks, each of as many in a row.

        None where inputs are too wide for that.
        """
        if shape.numel() > MOST_IMAGINED or task == 0:
            return torch.zeros(0, *shape), []
        generator, total = generator_for(self.seed, "imagined", self._number(task)), min(IMAGINED, bounded(task))
        chosen = torch.randperm(task, generator=generator)[:total].sort().values.tolist()  # of very many tasks some
        count = max(1, total // len(chosen))
        drawn = [InputDensity.stored(stored[index]).draw(count, generator=generator) for index in chosen]
        return torch.cat(drawn).float().reshape(-1, *shape), chosen

    # Inputs compared with all tasks.

    def stored(self) -> tuple[Stored, ...]:
        """What is stored about the tasks that have statistics; all of them or none."""
        return self.store.known(NAME)

    @property
    def available(self) -> bool:
        """Whether all tasks have statistics."""
        return self.model.num_tasks > 0 and len(self.stored()) == self.model.num_tasks

    def evidence(self, x: Tensor, *, distances: bool = True) -> TaskEvidence:
        """How well inputs (N, ...) fit each task; with ``distances`` also by single tasks' covariances of features."""
        tasks = range(self.model.num_tasks) if distances else ()
        return self._gather(self.stored(), x, self._descriptions(), distances=tasks)

    def _gather(
        self, stored: Sequence[Stored], x: Tensor, ready: Descriptions | None = None, *, distances: Collection[int] = ()
    ) -> TaskEvidence:
        heads = self.model.heads[: len(stored)]
        descriptions = ready or Descriptions.of(stored, self._layers())
        run, outputs = self._pass, self.settings.outputs
        return gather(descriptions, x, heads, run, classes=self.classes, outputs=outputs, distances=distances)

    def _layers(self) -> Sequence[str]:
        """The layers whose features are described, in the network's order."""
        return self.settings.layers or chosen_layers(self.model.network)

    def _descriptions(self) -> Descriptions:
        """Prepared once for every state of the store."""
        key = (self.store.version, self.model.num_tasks)
        if self._ready is None or self._ready[:2] != key:
            self._ready = (*key, Descriptions.of(self.stored(), self._layers()))
        return self._ready[2]

    def combination(self, evidence: TaskEvidence) -> Combination:
        """The weights of all evidence, as the last task left them."""
        return Combination.stored(list(evidence.terms()), self.stored())

    def strangeness(self, evidence: TaskEvidence, tasks: Tensor) -> Tensor:
        """How strange inputs are to these tasks (N,): above 1, unknown."""
        return strangeness(evidence, tasks, list(self.stored()))

    def strangeness_to(self, task: int, x: Tensor) -> Tensor:
        """How strange inputs are to one task (N,), without asking the others."""
        stored = self.stored()[task]
        alone = self._evidence_alone(stored, task, x)
        return strangeness(alone, torch.zeros(len(x), dtype=torch.int64), [stored])

    def _evidence_alone(self, stored: Stored, task: int, x: Tensor) -> TaskEvidence:
        """How well inputs fit one task, as if it were the only one (1, N); without its features."""
        costs, residuals = InputDensity.stored(stored).costs(x)
        of_outputs = torch.zeros(3, len(x), dtype=torch.float64)
        if self.classes:
            of_outputs = output_costs(self._pass(task, x, False).outputs[:, self.model.heads[task]])
        entropies, energies, margins = of_outputs.unsqueeze(1)
        return TaskEvidence(
            inputs=costs.unsqueeze(0),
            residuals=residuals.unsqueeze(0),
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
