"""Auxiliary outputs as evidence: their log-odds in every orientation, weighed with everything else."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from metareplay.estimators import ContinualClassifier
from metareplay.export.choice import AllTasks
from metareplay.inference.statistics.combine import OTHER
from metareplay.inference.statistics.evidence import TaskEvidence
from metareplay.learner.learner import ContinualLearner

SIDE = 6
QUICK = {"training.iterations": 30, "training.batch_size": 20, "training.warm_up": 0, "inference.samples": 2}


def images(task: int, count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Images that are bright in a place of their class, in the corner of their task."""
    rng = np.random.default_rng(task)
    x, y = rng.uniform(0, 0.2, (count, 1, SIDE, SIDE)).astype(np.float32), np.arange(count) % 2
    for label in range(2):
        x[y == label, 0, 3 * task + label, 3 * task + 1] += 1.0
    return x, y + 2 * task


def trained(**auxiliary: float) -> ContinualClassifier:
    settings = {**QUICK, **{f"training.{name}": value for name, value in auxiliary.items()}}
    model = ContinualClassifier("pr-bbb", "mlp-12", settings=settings)
    for task in range(2):
        model.learn_task(*images(task))
    return model


def learner_of(model: ContinualClassifier) -> ContinualLearner:
    assert model.learner is not None
    return model.learner


def evidence_of(model: ContinualClassifier, x: np.ndarray) -> tuple[TaskEvidence, Tensor]:
    scaled = model.scaling.x(torch.from_numpy(x))
    return learner_of(model).predictor.keeper.evidence(scaled), scaled


@pytest.mark.parametrize(("auxiliary", "turns"), [({"rotations": True}, 4), ({"other": 1.0}, 1)])
def test_the_cost_is_the_mean_log_odds_against_the_right_orientation(auxiliary: dict[str, float], turns: int) -> None:
    model = trained(**auxiliary)
    evidence, x = evidence_of(model, images(0)[0])
    network = learner_of(model).model
    for task in range(2):
        odds = []
        for turn in range(turns):
            weights = network.spec.unflatten(network.central_weights(task))
            with torch.no_grad():
                outputs = functional_call(network.network, weights, (x.rot90(turn, (2, 3)),)).double()  # (N, C + A)
            probabilities = outputs[:, network.training_columns(task)].softmax(1)
            right = probabilities[:, 2 * turn : 2 * turn + 2].sum(1)
            odds.append(((1 - right) / right).log())
        assert evidence.other is not None
        torch.testing.assert_close(evidence.other[task], torch.stack(odds).mean(0), rtol=1e-4, atol=1e-4)
    assert "other" in evidence.terms()


def test_their_weight_is_learned_and_a_graph_of_all_tasks_scores_as_predictions_do() -> None:
    model = trained(rotations=True)
    x = np.concatenate([images(0, 10)[0], images(1, 10)[0]])
    answer = learner_of(model).predictor.predict(model._inputs(x))
    assert answer.scores is not None
    _, _, scores = AllTasks(model._learned()).eval()(torch.from_numpy(x))
    np.testing.assert_allclose(scores.detach().numpy(), answer.scores.T.numpy(), rtol=1e-4, atol=1e-4)
    keeper = learner_of(model).predictor.keeper
    evidence, _ = evidence_of(model, x)
    combination = keeper.combination(evidence)
    index = list(combination.names).index("other")
    assert len(combination.weights) == len(combination.names)
    assert combination.weights[index] != 0.5  # no longer the prior's


def test_without_auxiliary_outputs_or_in_an_older_model_they_are_no_evidence() -> None:
    plain, x = trained(), images(0)[0]
    assert evidence_of(plain, x)[0].other is None
    model = trained(other=1.0)
    keeper = learner_of(model).predictor.keeper
    assert keeper.weighs_other()
    names = list(evidence_of(model, x)[0].terms())
    keep = [index for index, name in enumerate(names) if name != "other"]
    older = []
    for task in keeper.stored():
        entries = {key: value for key, value in task.items() if key != OTHER}
        entries |= {key: task[key][keep] for key in ("pairs.weights", "pairs.spread")}
        older.append({**entries, "pairs.precision": task["pairs.precision"][keep][:, keep]})
    keeper.store.put("statistics", older)
    evidence, _ = evidence_of(model, x)
    assert evidence.other is None
    assert keeper.combination(evidence).scores(evidence).isfinite().all()
