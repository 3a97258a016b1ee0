"""All tasks' mean networks in one module, with the choice of the task."""

from typing import cast

import torch
from torch import Tensor, nn

from metareplay.errors import ConfigError, listed
from metareplay.export.modules import Learned, ScaledInputs, TaskNetwork
from metareplay.export.traceable import traceable, whole
from metareplay.inference.criteria import CRITERIA
from metareplay.inference.criteria.base import Comparison, Criterion, Evidence, criteria_for
from metareplay.inference.statistics.combine import Combination
from metareplay.inference.statistics.evidence import Descriptions, gather
from metareplay.inference.statistics.passes import Pass, run_pass

BATCH = 2**30
"""The most inputs of one call of a graph: they run together."""


def exportable(criterion: Criterion) -> bool:
    """Whether a criterion needs no more than one pass through each task's mean network and what is stored."""
    of_outputs = criterion.score is not None and criterion.alone and not criterion.needs_samples
    return of_outputs or criterion.asks_network or (criterion.reads_statistics and criterion.features is None)


class AllTasks(nn.Module):
    """Inputs -> the task of each, its answer in the columns of all labels, and the scores of all tasks (N, T).

    The lowest score wins. Criteria by statistics score as predictions do; those of outputs see the mean networks only.
    """

    def __init__(self, learned: Learned, criterion: str | None = None) -> None:
        super().__init__()
        learner = learned.learner
        self.criterion, self.learned = _chosen(learned, criterion), learned
        self.inputs = ScaledInputs(learned.scaling.tensors)
        self.tasks = nn.ModuleList(TaskNetwork(learned, task) for task in range(learner.num_tasks))
        self.weights = [learner.model.central_weights(task) for task in range(learner.num_tasks)]
        asks = learner.predictor.infers if self.criterion.asks_network else None
        self.network = None if asks is None else asks.task_network()
        layers = learner.predictor.keeper.layers()
        self.stored = learner.predictor.keeper.stored()
        self.descriptions = traceable(Descriptions.of(self.stored, layers)) if self.criterion.reads_statistics else None
        for task, info in enumerate(learned.tasks):
            columns = torch.tensor([learned.labels.index(label) for label in info.classes])
            place = torch.zeros(len(columns), len(learned.labels)).scatter_(1, columns.unsqueeze(1), 1.0)
            self.register_buffer(f"place{task}", place)  # (C, labels)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scaled = self.inputs(x)
        outputs = [cast(TaskNetwork, task).outputs(scaled) for task in self.tasks]  # T times (N, C)
        scores = self.scores(scaled, outputs)  # (T, N)
        task = scores.argmin(0)  # (T, N) -> (N,)
        chosen = torch.nn.functional.one_hot(task, len(outputs)).to(x.dtype).unbind(1)  # T times (N,)
        answers = [self.answer(number, part) for number, part in enumerate(outputs)]
        answer = torch.stack([row.unsqueeze(1) * part for row, part in zip(chosen, answers, strict=True)]).sum(0)
        return task, answer, scores.T.float()  # (N,), (N, labels), (N, T)

    def answer(self, task: int, outputs: Tensor) -> Tensor:
        """Of one task, in the columns of all: (N, C) -> (N, labels)."""
        return cast(Tensor, cast(TaskNetwork, self.tasks[task]).probabilities(outputs)) @ self.get_buffer(
            f"place{task}"
        )

    def scores(self, x: Tensor, outputs: list[Tensor]) -> Tensor:
        """Of all tasks, for scaled inputs: (T, N)."""
        learner, score = self.learned.learner, self.criterion.score
        heads, settings = learner.model.heads, learner.config.inference
        if len(outputs) == 1:  # there is nothing to choose
            return torch.zeros_like(outputs[0][:, :1]).T  # (N, 1) -> (1, N)
        if score is not None:
            return torch.stack([score(part.double().log_softmax(1).unsqueeze(0)) for part in outputs])
        if self.network is not None:
            log_tasks = self.network(x).double().log_softmax(1).T  # (N, T) -> (T, N)
            return self.criterion.compare(Evidence((), heads, settings, log_tasks=log_tasks))
        assert self.descriptions is not None
        evidence = gather(
            self.descriptions,
            x,
            heads,
            self._pass,
            classes=True,
            by_outputs=learner.config.statistics.outputs,
            auxiliary=learner.predictor.keeper.weighs_other(),
            distances=range(len(heads)) if self.criterion.reads_distances else (),
        )
        combination = whole(Combination.stored(list(evidence.terms()), self.stored))
        comparison = Comparison(evidence, combination, self.stored)
        return self.criterion.compare(Evidence((), heads, settings, comparison=comparison))

    def _pass(self, task: int, x: Tensor, features: bool) -> Pass:
        learner = self.learned.learner
        settings = learner.config.statistics
        return run_pass(
            learner.model,
            self.weights[task],
            task,
            x,
            settings,
            width=learner.predictor.keeper.width(),
            features=features,
            batch_size=BATCH,
        )


def _chosen(learned: Learned, name: str | None) -> Criterion:
    """The criterion; refused if it needs more than the mean networks and statistics."""
    predictor, problem = learned.learner.predictor, learned.learner.problem
    if not learned.classifies:
        raise ConfigError("only graphs of classifiers can choose the task; export the tasks of a regressor one by one")
    if predictor.model.layout.one_softmax or predictor.one_answer:
        raise ConfigError(
            f"the tasks of {learned.learner.config.method} share one network, so there is no task to choose; "
            "export one task, e.g. the last one"
        )
    criterion = predictor.criterion(name)
    if not exportable(criterion):
        known = [each.name for each in criteria_for(problem, weight_sets=1) if exportable(CRITERIA[each.name])]
        raise ConfigError(
            f"criterion={criterion.name!r} compares weight samples or gradients, which a graph of mean networks does "
            f"not have; choose {listed(known)}"
        )
    if criterion.reads_statistics and not predictor.keeper.available:
        raise ConfigError(
            f"criterion={criterion.name!r} needs task statistics, and this model was trained without them; choose ent"
        )
    return criterion
