"""Ensembles as methods: the mean loss of their members, every member used, every criterion available."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator

from metareplay import ContinualClassifier
from metareplay.batches.base import Batch
from metareplay.benchmarks.toy import modes_2d, regression_1d
from metareplay.errors import ConfigError
from metareplay.inference.criteria import criteria_for, disagreement
from metareplay.inference.predictive import predictive_outputs
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.recipe_book import recipe_for
from metareplay.posteriors.divergences import replay_divergence
from metareplay.strategies.base import LossTerms
from metareplay.task_maps.ensemble import EnsembleMap
from metareplay.task_maps.hypernetwork import PerTaskHypernetworks
from metareplay.task_maps.replay_distance import SquaredChange

MEMBERS = 3
SMALL: dict[str, Any] = {
    "network": "mlp-5",
    "posterior.members": MEMBERS,
    "training.iterations": 2,
    "inference.samples": 4,
}
HYPERNET: dict[str, Any] = {
    "hypernet.hidden": (6,),
    "hypernet.task_embedding_size": 3,
    "hypernet.chunk_embedding_size": 2,
}


def learned(method: str, tasks: int = 2, **given: Any) -> ContinualLearner:
    """A learner in the middle of its last task."""
    generated = "pr-" in method or "-tc-" in method
    config = build_config({"method": method, **SMALL, **(HYPERNET if generated else {}), **given}, {}, "test")
    benchmark = modes_2d()
    learner = ContinualLearner(config, benchmark.problem, benchmark.scenario, benchmark.input_shape)
    for number, task in enumerate(benchmark[:tasks]):
        trainer = learner.begin_task(task.train, 2)
        # what ends the last task is left out
        for _ in islice(trainer, trainer.iterations) if number == tasks - 1 else trainer:
            pass
    return learner


def loss(learner: ContinualLearner) -> LossTerms:
    trainer = learner.trainer
    assert trainer is not None
    return trainer.loss_terms(
        trainer.jobs[0], [Batch(*trainer.examples)], learner.model.training_posterior(trainer.tasks[0])
    )


@pytest.mark.parametrize("penalty", ["mse", "w2"])
@pytest.mark.parametrize("targets", ["stored", "recomputed"])
def test_the_loss_of_an_ensemble_is_the_mean_of_its_members(penalty: str, targets: str) -> None:
    together = learned("pr-ensemble", **{"strategy.penalty": penalty, "strategy.targets": targets})
    expected = loss(together)
    task_map, checkpoint = together.model.task_map, together.strategy.checkpoint  # type: ignore[attr-defined]
    assert isinstance(task_map, EnsembleMap)
    alone = learned("pr-dirac", **{"strategy.penalty": penalty, "strategy.targets": "recomputed"})
    terms = []
    for member in range(MEMBERS):  # give the point estimate the hypernetwork, with this member's embeddings
        for own, whole in ((alone.model.task_map, task_map), (alone.strategy.checkpoint, checkpoint)):  # type: ignore[attr-defined]
            state = {name.removeprefix("inner."): tensor for name, tensor in whole.state_dict().items()}
            chosen = {
                f"task_embeddings.{task}": state[f"task_embeddings.{task * MEMBERS + member}"] for task in range(2)
            }
            own.load_state_dict(
                {**{name: tensor for name, tensor in state.items() if "task_embeddings" not in name}, **chosen}
            )
        alone.strategy.change = SquaredChange(alone.strategy.checkpoint)  # type: ignore[attr-defined]
        terms.append(loss(alone))
    assert len({float(each.data.detach()) for each in terms}) == MEMBERS
    for name in ("data", "replay"):
        mean = torch.stack([getattr(each, name) for each in terms]).mean()
        torch.testing.assert_close(getattr(expected, name), mean)
    assert float(expected.prior) == 0


def test_gaussian_members_have_train_samples_each(rng: Generator) -> None:
    learner = learned("pr-ensemble-bbb", **{"posterior.train_samples": 2, "strategy.penalty": "fkl"})
    counted: list[int] = []
    run = learner.model.run

    def counting(posterior: Any, x: Any, samples: int, task: int, **options: Any) -> Any:
        counted.append(samples)
        return run(posterior, x, samples, task, **options)

    learner.model.run = counting  # type: ignore[method-assign]
    assert loss(learner).total.isfinite()
    assert counted == [2 * MEMBERS]


def test_local_samples_are_taken_of_each_member() -> None:
    learner = learned("sp-ensemble-bbb", **{"posterior.local_reparametrisation": True, "posterior.train_samples": 2})
    posterior, x = learner.model.training_posterior(0), torch.ones(7, 2)
    outputs = learner.model.run(posterior, x, 2 * MEMBERS, 0, generator=Generator().manual_seed(0), local=True)
    assert outputs.shape == (2 * MEMBERS, 7, 2)
    assert len(outputs[:, 0, 0].unique()) == 2 * MEMBERS


def test_each_member_has_an_embedding_per_task() -> None:
    learner = learned("pr-ensemble", tasks=3)
    single = learned("pr-dirac", tasks=3)
    counts, others = learner.model.parameter_counts(), single.model.parameter_counts()
    assert counts["main_network"] == others["main_network"]
    assert counts["posterior"] == MEMBERS * others["posterior"]
    assert counts["per_task"] == MEMBERS * others["per_task"]
    # the hypernetwork is the same
    assert counts["trained"] == others["trained"] + 3 * (MEMBERS - 1) * others["per_task"]
    thetas = learner.model.task_map.thetas(range(3)).view(3 * MEMBERS, -1)
    assert len(thetas.detach().unique(dim=0)) == 3 * MEMBERS


def test_a_separate_hypernetwork_holds_all_members_of_its_task() -> None:
    task_map = learned("sp-tc-ensemble").model.task_map
    assert isinstance(task_map, PerTaskHypernetworks)
    assert [type(each) for each in task_map.separate] == [EnsembleMap, EnsembleMap]


def test_all_embeddings_count_against_the_limit() -> None:
    counts = learned("pr-ensemble", tasks=1).model.parameter_counts()
    limited = build_config(
        {"method": "pr-ensemble", **SMALL, **HYPERNET, "hypernet.smaller_than_posterior": True}, {}, "test"
    )
    learner, task = ContinualLearner(limited, "classification", modes_2d().scenario, (2,)), modes_2d()[0]
    all_tasks = counts["trained"] + 99 * MEMBERS * 3  # an embedding has 3 elements
    with pytest.raises(
        ConfigError, match=f"hypernetwork has {all_tasks:,} parameters for 100 tasks, not fewer than the 81 parameters"
    ):
        learner.begin_task(task.train, 2, expected_tasks=100)


def test_every_point_is_used_once_and_all_criteria_apply() -> None:
    learner, x = learned("pr-ensemble"), modes_2d()[0].test.x
    outputs = predictive_outputs(learner.model, x, 0, 100, generator=Generator().manual_seed(0))
    assert len(outputs) == MEMBERS
    assert learner.predictor.criteria() == criteria_for("classification")
    scores = learner.predictor.statistics(x, [0], {"agree": disagreement})[0]
    by_hand = outputs.double().softmax(-1).std(0, correction=0).mean(-1)
    torch.testing.assert_close(scores["agree"], by_hand)
    assert (by_hand > 0).all()


@pytest.mark.parametrize(("asked", "taken"), [(1, 3), (3, 3), (4, 6), (100, 102)])
def test_gaussian_members_are_used_equally_often(asked: int, taken: int) -> None:
    learner = learned("sp-ensemble-bbb")
    assert (
        len(predictive_outputs(learner.model, torch.ones(2, 2), 0, asked, generator=Generator().manual_seed(0)))
        == taken
    )


def test_regression_infers_the_task_by_the_members_variance() -> None:
    benchmark = regression_1d()
    learner = ContinualLearner(
        build_config({"method": "sp-ensemble", **SMALL}, {}, "test"),
        benchmark.problem,
        benchmark.scenario,
        benchmark.input_shape,
    )
    for task in benchmark[:2]:
        for _ in learner.begin_task(task.train, 1):
            pass
    criteria = learner.predictor.criteria()
    assert [criterion.name for criterion in criteria if not criterion.reads_statistics] == ["variance"]
    outputs = learner.predictor.outputs(benchmark[0].test.x, 0)
    assert float(outputs.var(0).min()) > 0


def test_an_estimator_may_ask_for_agreement() -> None:
    x = np.random.default_rng(0).normal(size=(20, 4))
    model = ContinualClassifier("pr-ensemble", "mlp-5", settings={"training.iterations": 2})
    model.learn_task(x, np.arange(20) % 2)
    answer = model.predict_full(x, criterion="agree")
    assert (np.asarray(answer.epistemic) > 0).all()


def test_the_penalty_is_nothing_where_nothing_changed() -> None:
    learner, rng = learned("pr-ensemble-bbb"), Generator().manual_seed(0)
    model, theta = learner.model, learner.model.task_map.thetas([0]).detach()
    for kind in ("fkl", "rkl", "w2"):
        posterior = model.family.at(theta, model.spec)
        same = replay_divergence(kind, posterior, posterior, 1, generator=rng)  # type: ignore[arg-type]
        torch.testing.assert_close(same, torch.zeros(1))


def test_an_ensemble_borrows_the_recipe_of_its_members() -> None:
    for method, base in (("pr-ensemble", "pr-dirac"), ("pr-ensemble-bbb", "pr-bbb")):
        actual = recipe_for("split-mnist", method, "mlp-400-400")
        lender = recipe_for("split-mnist", base, "mlp-400-400", published=True)
        assert actual is not None
        assert lender is not None
        assert actual.settings == lender.settings
        assert actual.source == f"borrowed from {lender.name}"
    stochastic = recipe_for("split-mnist", "pr-ensemble-sr", "mlp-400-400")
    assert stochastic is not None
    assert stochastic.settings["strategy.strength"] == 10.0  # published for pr-dirac-sr
