"""Experience replay: coresets, distillation targets, stratified batches, scale, and what survives a restart."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from metareplay import ContinualClassifier
from metareplay.benchmarks.base import TaskData
from metareplay.errors import ConfigError, DataError, TrainingDiverged
from metareplay.likelihoods import Categorical, Gaussian, Likelihood
from metareplay.model import ContinualModel
from metareplay.nets.mlp import MLP
from metareplay.nets.weights import run_flat
from metareplay.posteriors.families.dirac import DiracFamily
from metareplay.posteriors.priors.gaussian import GaussianPrior
from metareplay.strategies.rehearsal import ExperienceReplay, RehearsalSettings
from metareplay.task_maps.direct import SharedParameters
from metareplay.task_maps.heads import HeadLayout

CLASSES = (2, 3, 2, 2)


def make_model(likelihood: Likelihood | None = None, layout: HeadLayout = HeadLayout.GROWING) -> ContinualModel:
    return ContinualModel(
        lambda outputs: MLP((2,), (5,), outputs),
        DiracFamily(),
        lambda size, generator: SharedParameters(size),
        layout,
        likelihood or Categorical(),
        lambda family, network, spec: None,
    )


def replay(seed: int = 0, **settings: object) -> ExperienceReplay:
    return ExperienceReplay(RehearsalSettings.model_validate(settings), GaussianPrior(2.0), seed=seed)


def data(task: int, size: int = 40) -> TaskData:
    """The first column says the task, the second the example."""
    x = torch.stack([torch.full((size,), float(task)), torch.arange(size) / size], 1)
    return TaskData(x, torch.zeros(size, dtype=torch.int64))


def shake(model: ContinualModel, rng: Generator) -> None:
    for parameter in model.task_map.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=rng)


def learned(
    strategy: ExperienceReplay, rng: Generator, classes: Sequence[int] = CLASSES, size: int = 40
) -> tuple[ContinualModel, Tensor]:
    """A model that changes with each task, during the last one; and its outputs for any input before the last task."""
    model = make_model()
    probe = torch.cat([data(task, size).x for task in range(len(classes))])
    before = torch.empty(0)
    for task, count in enumerate(classes):
        if task:
            before = run_flat(model.network, model.spec, model.task_map.theta(0).detach().unsqueeze(0), probe)[0]
        model.add_task(count, generator=rng)
        strategy.before_task(model, task)
        strategy.data_for(task, data(task, size))
        shake(model, rng)
    return model, before


def value(penalty: Tensor | None) -> float:
    assert penalty is not None
    return float(penalty.detach())


def test_a_coreset_is_a_random_part_of_the_inputs() -> None:
    strategy, other = replay(coreset_size=7), replay(seed=1, coreset_size=7)
    for task in range(2):
        own = data(task)
        assert strategy.data_for(task, own) is own  # training sees all of them
        other.data_for(task, own)
        assert strategy.coresets[task].shape == (7, 2)
        assert len(strategy.coresets[task].unique(dim=0)) == 7
        assert strategy.coresets[task][:, 0].tolist() == [float(task)] * 7
    examples = [tuple(coreset[:, 1].tolist()) for each in (strategy, other) for coreset in each.coresets.values()]
    assert len(set(examples)) == 4  # another choice for every task and seed


def test_a_small_task_is_kept_whole() -> None:
    strategy = replay(coreset_size=100)
    strategy.data_for(0, data(0, 9))
    assert sorted(strategy.coresets[0][:, 1].tolist()) == data(0, 9).x[:, 1].tolist()


def test_the_same_data_give_the_same_coreset_again() -> None:
    first, again = replay(coreset_size=5), replay(coreset_size=5)
    first.data_for(0, data(0))
    first.data_for(1, data(1))
    again.data_for(1, data(1))  # a resumed run, in any order
    again.data_for(0, data(0))
    again.data_for(0, data(0))
    for task in range(2):
        assert torch.equal(first.coresets[task], again.coresets[task])


def test_targets_are_what_the_old_model_said(rng: Generator) -> None:
    strategy = replay(coreset_size=6)
    _, before = learned(strategy, rng)
    assert before.shape[1] == 7  # the classes of the first three tasks, not those of the last
    for old in range(3):
        rows = [old * 40 + round(40 * float(example)) for example in strategy.coresets[old][:, 1]]
        torch.testing.assert_close(strategy.teacher[old].softmax(-1), before[rows].softmax(-1))
        assert not strategy.teacher[old].requires_grad


def test_published_replay_sums_the_means_of_softened_predictions(
    rng: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = replay(coreset_size=6, replay_batch_size=9, temperature=2.0, sum_over_tasks=True, strength=5.0)
    model, _ = learned(strategy, rng)
    rows = torch.tensor([0, 2, 2])  # with replacement
    monkeypatch.setattr(torch, "randint", lambda size, shape, generator: rows[: shape[0]])
    expected = 0.0
    for old in range(3):
        new = run_flat(
            model.network, model.spec, model.task_map.theta(0).detach().unsqueeze(0), strategy.coresets[old][rows]
        )[0]
        soft = (strategy.teacher[old][rows] / 2).softmax(-1)
        log_p = (new / 2).log_softmax(-1)[:, : soft.shape[1]]  # new classes have target 0
        expected += float(-4 * (soft * log_p).sum(-1).mean())
    assert value(strategy.penalty(model, 3, generator=rng)) == pytest.approx(5.0 * expected, rel=1e-5)


@pytest.mark.parametrize("strength", [1.0, 0.1, 100.0])
def test_the_penalty_is_the_scaled_mean_cross_entropy(strength: float, rng: Generator) -> None:
    """With a batch that holds every coreset whole, nothing is random."""
    strategy = replay(coreset_size=6, replay_batch_size=6, replay_batch_per_task=True, strength=strength)
    model, _ = learned(strategy, rng)
    x = torch.cat([strategy.coresets[old] for old in range(3)])
    targets = torch.cat(strategy.teacher).softmax(-1)  # (18, 7)
    # (18, 9)
    log_probs = run_flat(model.network, model.spec, model.task_map.theta(0).unsqueeze(0), x)[0].log_softmax(-1)
    expected = -strength * (targets * log_probs[:, :7]).sum(1).mean()
    penalty = strategy.penalty(model, 3, generator=rng)
    assert penalty is not None
    torch.testing.assert_close(penalty, expected)
    (actual,) = torch.autograd.grad(penalty, model.task_map.trained_parameters(3))
    (expected_gradient,) = torch.autograd.grad(expected, model.task_map.trained_parameters(3))
    torch.testing.assert_close(actual, expected_gradient)
    assert actual.any()


def test_following_the_gradient_gives_old_inputs_back_to_old_classes(rng: Generator) -> None:
    strategy = replay(coreset_size=20, replay_batch_size=30)
    model, _ = learned(strategy, rng, (2, 3))
    optimiser = torch.optim.Adam(model.task_map.trained_parameters(1), lr=0.05)
    for _ in range(300):
        penalty = strategy.penalty(model, 1, generator=rng)
        assert penalty is not None
        optimiser.zero_grad()
        penalty.backward()
        optimiser.step()
    outputs = run_flat(model.network, model.spec, model.task_map.theta(0).detach().unsqueeze(0), strategy.coresets[0])[
        0
    ].softmax(-1)
    assert float(outputs[:, 2:].max()) < 0.03
    torch.testing.assert_close(outputs[:, :2], strategy.teacher[0].softmax(-1), atol=0.05, rtol=0)


def replayed(
    strategy: ExperienceReplay, model: ContinualModel, task: int, rng: Generator, monkeypatch: pytest.MonkeyPatch
) -> Tensor:
    """The inputs of one step."""
    seen: list[Tensor] = []
    run = model.run

    def spy(posterior: object, x: Tensor, *arguments: object, **named: object) -> Tensor:
        seen.append(x)
        return run(posterior, x, *arguments, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(model, "run", spy)
        strategy.penalty(model, task, generator=rng)
    assert len(seen) == 1
    return seen[0]


@pytest.mark.parametrize(
    ("batch", "per_task", "least", "total"), [(9, False, 3, 9), (10, False, 3, 10), (2, False, 0, 2), (4, True, 4, 12)]
)
def test_batches_are_stratified(
    batch: int, per_task: bool, least: int, total: int, rng: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = replay(coreset_size=8, replay_batch_size=batch, replay_batch_per_task=per_task)
    model, _ = learned(strategy, rng)
    counts = torch.zeros(3)
    for _ in range(60):
        x = replayed(strategy, model, 3, rng, monkeypatch)
        assert len(x) == total
        assert len(x.unique(dim=0)) == total  # nothing twice in a step
        shares = torch.bincount(x[:, 0].long(), minlength=3)
        assert int(shares.min()) >= least
        assert int(shares.max()) <= least + 1
        counts += shares
        assert all((row == strategy.coresets[int(row[0])]).all(1).any() for row in x)
    assert float((counts / counts.sum() - 1 / 3).abs().max()) < 0.05  # what is left over goes to any task


def test_a_batch_larger_than_a_coreset_repeats_it(rng: Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = replay(coreset_size=3, replay_batch_size=7)
    model, _ = learned(strategy, rng, (2, 2))
    x = replayed(strategy, model, 1, rng, monkeypatch)
    assert sorted(x.unique(dim=0, return_counts=True)[1].tolist()) == [2, 2, 3]


def test_real_targets_are_distilled_by_squared_errors(rng: Generator) -> None:
    model, strategy = (
        make_model(Gaussian(0.5), HeadLayout.SINGLE),
        replay(coreset_size=4, replay_batch_size=4, strength=3.0),
    )
    for task in range(2):
        model.add_task(1, generator=rng)
        strategy.before_task(model, task)
        strategy.data_for(task, data(task))
    assert value(strategy.penalty(model, 1, generator=rng)) == 0  # nothing has changed yet
    shake(model, rng)
    now = run_flat(model.network, model.spec, model.task_map.theta(0).detach().unsqueeze(0), strategy.coresets[0])[0]
    expected = 3.0 * float((now - strategy.teacher[0]).square().mean()) / (2 * 0.25)
    assert value(strategy.penalty(model, 1, generator=rng)) == pytest.approx(expected, rel=1e-5)


def test_no_strength_needs_no_coreset(rng: Generator) -> None:
    strategy, model = replay(strength=0.0), make_model()
    for task in range(2):
        model.add_task(2, generator=rng)
        strategy.before_task(model, task)
        assert strategy.penalty(model, task, generator=rng) is None
        assert strategy.state() == {}


def test_a_checkpoint_holds_coresets_and_the_old_model(rng: Generator) -> None:
    strategy = replay(coreset_size=5)
    model, _ = learned(strategy, rng)
    stored = strategy.state()
    lasting = {f"coreset.{task}": (5, 2) for task in range(4)}
    assert {name: tuple(tensor.shape) for name, tensor in stored.items()} == {
        **lasting,
        "current.checkpoint": (model.spec.numel,),
    }
    again = replay(coreset_size=5)
    again.load_state(model, stored)
    for old in range(3):
        assert torch.equal(again.teacher[old], strategy.teacher[old])
    again.load_state(model, {})
    assert again.coresets == {}
    assert again.penalty(model, 3, generator=rng) is None


def test_missing_coresets_are_refused(rng: Generator) -> None:
    model, strategy = make_model(), replay()
    for _ in range(3):
        model.add_task(2, generator=rng)
    strategy.data_for(1, data(1))
    with pytest.raises(ConfigError, match="needs the coresets of all 2 earlier tasks, but only 1 are available"):
        strategy.before_task(model, 2)


def test_a_loaded_classifier_learns_on_as_if_it_had_never_been_stored(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 2
    model = ContinualClassifier("exp-replay", "mlp-4", settings={"training.iterations": 4})
    model.learn_task(x, y).learn_task(x + 3, y + 2).save(tmp_path)
    again = ContinualClassifier.load(tmp_path)
    for each in (model, again):
        each.learn_task(x - 3, y + 4)
    assert again.classes_.tolist() == [0, 1, 2, 3, 4, 5]
    assert np.array_equal(again.predict_proba(x), model.predict_proba(x))


def test_a_refused_task_leaves_no_coreset() -> None:
    x, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 2
    model = ContinualClassifier(
        "exp-replay", "mlp-4", settings={"training.iterations": 4, "training.learning_rate": 1e30}
    )
    with pytest.raises(TrainingDiverged):
        model.learn_task(x, y)
    model = ContinualClassifier("exp-replay", "mlp-4", settings={"training.iterations": 4})
    model.learn_task(x, y)
    learner = model._trained()
    before = set(learner.strategy.state())
    with pytest.raises(DataError):
        model.learn_task(x[:, :3], y + 2)
    assert set(learner.strategy.state()) == before == {"coreset.0"}
