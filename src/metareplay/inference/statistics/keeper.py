"""The keeper of task statistics: takes them when a task has been learned, and lets them follow later changes."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy

import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import Problem, TaskData
from metareplay.inference.statistics.combine import Combination, updated
from metareplay.inference.statistics.density import InputDensity
from metareplay.inference.statistics.describer import InputForm, StatisticsDescriber
from metareplay.inference.statistics.edges import MEAN
from metareplay.inference.statistics.entropies import (
    FACTOR,
    FOLLOWED,
    THEN,
    as_they_are_now,
    due,
    factor,
    probes,
)
from metareplay.inference.statistics.evidence import Stored, TaskEvidence, output_costs, spaces_of
from metareplay.inference.statistics.few_columns import left_out_costs
from metareplay.inference.statistics.improbable import NATS, nats, widened_nats
from metareplay.inference.statistics.moments import AffineMap
from metareplay.inference.statistics.passes import INPUTS
from metareplay.inference.statistics.reader import NAME
from metareplay.inference.statistics.revise import (
    examples_of,
    follow_change,
    merged,
    mixed_scales,
    widened,
    without_task,
)
from metareplay.inference.statistics.rows import (
    FOLDS,
    Drawn,
    bounded,
    by_task,
    common_labels,
    drawn_inputs,
    folds,
    joined,
    left_out,
    own_scales,
    part_of,
)
from metareplay.inference.statistics.settings import StatisticsSettings
from metareplay.inference.statistics.shortlist import rivals
from metareplay.inference.statistics.unknown import CONTRAST, calibrated, contrast_bounds, own_measures
from metareplay.inference.task_statistics import TaskStatistics
from metareplay.model import ContinualModel
from metareplay.seeding import generator_for
from metareplay.task_maps.base import TaskMap

DRIFT_INPUTS = 2000
"""The most inputs by which a change of a network's features is measured."""
CALIBRATION_INPUTS = 1000
MANY_HELD_OUT, LEFT_OUT_FOLDS = 100, 10
"""With fewer held-out inputs, others are left out for thresholds; of rows of few columns in as many parts."""
ENOUGH_ENTROPIES = 20
"""With as many held-out inputs, their entropies stand for those of inputs that the network was trained on."""
WEIGHTS_AT_HAND = 2**22
"""The most weights that are kept while inputs are compared with tasks several times."""
IMAGINED, OWN_IMAGINED = 400, 200
"""Inputs drawn from the densities of earlier tasks, and from that of the newest one."""
MOST_PRECISE = 64
"""Densities of wider inputs are rough: what is drawn from them is judged by draws from the newest task's density."""
MOST_NUMBERS = 2**23
"""Drawn inputs hold at most so many numbers."""


class StatisticsKeeper(StatisticsDescriber):
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
        super().__init__(model, settings, store, problem=problem, batch_size=batch_size)
        self.seed = seed
        self.earlier: TaskMap | None = None
        """The task map as it was before the training that is under way."""

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
        form = self._form(train.x, labels, earlier)
        described = self._described(task, train.x, labels, form)
        others = self._rivals(task, earlier, described)
        compared, known = [earlier[other] for other in others], held_out.x[:CALIBRATION_INPUTS]
        evidence, imagined = self._calibration_evidence(
            [*others, task], train.x, labels, known[: bounded(len(others))], [*compared, described], form
        )
        before = Combination.stored(list(evidence.terms()), compared, last=earlier[-1] if earlier else None)
        some, rough = len(others) < len(earlier), train.x[0].numel() > MOST_PRECISE
        combination = updated(before, evidence, imagined, some=some, rough=rough, learned=not len(known))
        if form.groups is not None:
            unknown = self._nats(task, train.x, labels, form.groups, known, [*compared, described])
        else:
            probed = self._probed(task, described, train.x.shape[1:])
            strange = self._strange(task, TaskData(train.x, labels), known, form, described, probed)
            unknown = calibrated(strange, self.settings.false_rejections, features=train.x[0].numel()) | probed
        unknown |= contrast_bounds(torch.cat([known, self._sample(train.x, DRIFT_INPUTS, self._number(task))]))
        own = own_scales(len(others), evidence)
        self.store.put(NAME, [*earlier, {**described, **combination.tensors(), **unknown, **own}])

    def _strange(
        self,
        task: int,
        data: TaskData,
        held_out: Tensor,
        form: InputForm,
        described: Stored,
        probed: Stored,
        whole: Callable[[Stored], Stored] = dict,
    ) -> Tensor:
        """What makes inputs strange that are held out and, unless these are many, left out: (J, N)."""
        found, edges, then = [], MEAN in described, probed.get(THEN)
        if len(held_out):
            found.append(own_measures(self._evidence_alone(described, task, held_out), edges=edges))
            then = then if len(held_out) < ENOUGH_ENTROPIES or then is None else found[0][0]
        if len(held_out) < MANY_HELD_OUT:
            alone = self._left_out(task, data, form, described, self._order(task), whole)
            found.append(own_measures(alone, edges=edges, then=then))
        return torch.cat(found, dim=1)

    def _nats(
        self, task: int, x: Tensor, labels: Tensor, groups: Mapping[int, int], known: Tensor, stored: Sequence[Stored]
    ) -> dict[str, Tensor]:
        """For unknown rows of few columns, from rows that are held out and, unless these are many, left out."""
        densities = [InputDensity.stored(other) for other in stored]
        rows, own = known[:0], torch.zeros(0, dtype=torch.float64)
        if len(known) < MANY_HELD_OUT:
            chosen = self._chosen(len(x), min(CALIBRATION_INPUTS, bounded(len(stored))), self._number(task))
            rows, of_rows = x[chosen], labels[chosen]
            order = torch.randperm(len(rows), generator=generator_for(self.seed, "left out", self._number(task)))
            parts = order.chunk(LEFT_OUT_FOLDS)
            own = left_out_costs(rows, of_rows, parts, groups)
        costs = torch.stack([density.costs(torch.cat([rows, known]))[0] for density in densities])  # (T, n)
        costs[-1, : len(own)] = own
        return nats(costs, stored[:-1], self.settings.false_rejections)

    def after_revision(self, task: int, train: TaskData, held_out: TaskData) -> None:
        """Add a known task's new examples to what is stored about it; that of other tasks follows the change."""
        stored = self._compensated(self._sample(train.x, DRIFT_INPUTS, self._number(task)))
        if not self.available:
            return
        old = as_they_are_now(stored[task])
        labels = common_labels(train.y) if self.classes else torch.zeros(len(train.x), dtype=torch.int64)
        form = self._form(train.x, labels, [old])
        new = self._described(task, train.x, labels, form)
        share = examples_of(new) / (examples_of(old) + examples_of(new))
        classes, features = max(len(new["classes"]), len(old.get("classes", ()))), train.x[0].numel()
        components, directions = self.settings.density_size(classes, features)
        most = max(len(old["inputs.mean"]), len(new["inputs.mean"]), components * classes)

        def both(new: Stored) -> dict[str, Tensor]:
            return {**old, **merged(old, new, gaussians=most, directions=max(directions, 1))}

        described, few = both(new), held_out.x[:CALIBRATION_INPUTS]
        data, known = TaskData(train.x, labels), few if len(few) else train.x[:CALIBRATION_INPUTS]
        if NATS in old:
            if len(few):
                alone = self._evidence_alone(described, task, few)
            else:
                alone = self._left_out(task, data, form, described, self._order(task), both)
            described |= widened_nats(old[NATS], alone.inputs[0], share, self.settings.false_rejections)
        else:
            probed = self._probed(task, described, train.x.shape[1:])
            of_task = self._strange(task, data, few, form, described, probed, both)
            described |= {**widened(old, of_task, self.settings.false_rejections, share), **probed}
        described |= contrast_bounds(known, old.get(CONTRAST))
        others = [*stored[:task], described, *stored[task + 1 :]]
        evidence = self._gather(others, known, distances=[task], outputs=False)
        described |= mixed_scales(old, own_scales(task, evidence), share)
        self.store.put(NAME, [*stored[:task], described, *stored[task + 1 :]])

    def remove_task(self, task: int) -> None:
        """Forget a task that the model no longer has; called before the store drops its entry."""
        if len(self.stored()) > task:
            rest: list[Stored] = list(without_task(self.stored(), task))
            self.store.put(NAME, [*rest[:task], {}, *rest[task:]])

    def _order(self, task: int) -> Generator:
        """The random order in which a task's inputs are divided into parts."""
        return generator_for(self.seed, "folds", self._number(task))

    def _number(self, task: int) -> int:
        """The number by which a task's random numbers are drawn."""
        return self.model.lineage.number_of(task)

    def after_update(self, x: Tensor) -> None:
        """Let the statistics follow a change of all networks, measured by some inputs of the tasks."""
        if stored := self._compensated(self._sample(x, DRIFT_INPUTS, self.model.num_tasks)):
            self.store.put(NAME, stored)

    def _sample(self, x: Tensor, most: int, number: int) -> Tensor:
        return x if len(x) <= most else x[self._chosen(len(x), most, number)]

    def _chosen(self, count: int, most: int, number: int) -> Tensor:
        """Indices of some of as many inputs."""
        return torch.randperm(count, generator=generator_for(self.seed, NAME, number))[:most]

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
                change, many = AffineMap.between(old, new_pass.features[layer]), len(stored) > self.settings.shortlist
                follow_change(stored, network, layer, change, together=many)
        self._follow_entropies(stored, x.shape[1:])
        return list(stored)

    def _probed(self, task: int, stored: Stored, shape: torch.Size) -> dict[str, Tensor]:
        """Entropies of a task's present answers to inputs drawn from its density; nothing for regression."""
        if not self.classes:
            return {}
        now, last = self._probe_entropies(task, stored, shape), torch.tensor(self.model.num_tasks)
        return {THEN: now.float(), FACTOR: torch.ones((), dtype=torch.float64), FOLLOWED: last}

    def _probe_entropies(self, task: int, stored: Stored, shape: torch.Size) -> Tensor:
        """Of always the same probes (P,)."""
        x = probes(stored, shape, generator_for(self.seed, "entropies", self._number(task)))
        return output_costs(self._pass(task, x, False).outputs[:, self.model.heads[task]])[0]

    def _follow_entropies(self, stored: Sequence[dict[str, Tensor]], shape: torch.Size) -> None:
        """Take the change of some earlier tasks' entropies: as many as are short-listed, the longest waiting first."""
        for task in due(stored, self.settings.shortlist):
            now = self._probe_entropies(task, stored[task], shape)
            stored[task] |= {FACTOR: factor(stored[task][THEN], now), FOLLOWED: torch.tensor(self.model.num_tasks)}

    # Statistics of one task.

    def _rivals(self, task: int, earlier: Sequence[Stored], described: Stored) -> list[int]:
        """The earlier tasks with which a new one is compared: all, or as many as are short-listed for an input."""
        networks = 1 + max((network for network, _ in self._spaces(task)), default=-1)
        return rivals(earlier, described, self.settings.shortlist - 1, networks=networks)

    def _calibration_evidence(
        self,
        tasks: Sequence[int],
        x: Tensor,
        labels: Tensor,
        held_out: Tensor,
        stored: Sequence[Stored],
        form: InputForm,
    ) -> tuple[TaskEvidence, dict[int, TaskEvidence]]:
        """Evidence on inputs of the last task that its statistics were not taken from, and on imagined ones of others.

        Of these tasks, with what is stored about them; those of the imagined inputs are told by their place among them.
        Where nothing is held out, or inputs are wide, there are imagined inputs of the last task, too, unless tasks are
        many.
        """
        task, own, many = tasks[-1], len(tasks) - 1, tasks[-1] >= self.settings.shortlist

        def gather(stored: Sequence[Stored], inputs: Drawn, *, distances: Sequence[int] = ()) -> TaskEvidence:
            return self._gather(
                stored, inputs.x, tasks=tasks, together=many, weights=weights, distances=distances, edges=inputs.edges
            )

        imagined, places = self._imagined(task, x.shape[1:], stored)
        kept = len(tasks) * self.model.spec.numel <= WEIGHTS_AT_HAND and not len(held_out)
        weights = [self.model.central_weights(number) for number in tasks] if kept else []
        of_own = {}
        if places and not many and (x[0].numel() > MOST_PRECISE or not len(held_out)):
            of_own[own] = gather(stored, self._drawn_of_own(task, x.shape[1:], stored[-1]))
        if len(held_out):
            known = Drawn(held_out, None if form.edges is None else form.edges.numbers(held_out))
            both, count = gather(stored, Drawn.together([known, imagined]), distances=[own]), len(held_out)
            return part_of(both, slice(count)), by_task(part_of(both, slice(count, None)), places) | of_own
        of_others = by_task(gather(stored, imagined), places) | of_own if places else {}
        parts = []
        for fold, rest in left_out(len(x), folds(len(x)), self._order(task)):
            part = self._described(task, x[rest], labels[rest], form) if len(x) > FOLDS else stored[-1]
            parts.append(gather([*stored[:-1], part], Drawn(x[fold]), distances=[own]))
        return joined(parts) if parts else gather(stored, Drawn(x), distances=[own]), of_others

    def _imagined(self, task: int, shape: torch.Size, stored: Sequence[Stored]) -> tuple[Drawn, list[int]]:
        """Inputs drawn from the densities of earlier tasks, and their places, each of as many in a row.

        None where inputs are wide and tasks many: those of the last task would be needed as well.
        """
        others, many = len(stored) - 1, task >= self.settings.shortlist
        if others == 0 or (many and shape.numel() > MOST_PRECISE):
            return Drawn(torch.zeros(0, *shape)), []
        generator = generator_for(self.seed, "imagined", self._number(task))
        total = min(IMAGINED, bounded(others), max(MOST_NUMBERS // shape.numel(), 1))
        chosen = torch.randperm(others, generator=generator)[:total].sort().values.tolist()  # of very many tasks some
        count = max(1, total // len(chosen))
        return Drawn.together([drawn_inputs(stored[index], count, shape, generator) for index in chosen]), chosen

    def _drawn_of_own(self, task: int, shape: torch.Size, described: Stored) -> Drawn:
        """Inputs drawn from the density of the last task."""
        generator = generator_for(self.seed, "imagined own", self._number(task))
        return drawn_inputs(described, min(OWN_IMAGINED, max(MOST_NUMBERS // shape.numel(), 2)), shape, generator)
