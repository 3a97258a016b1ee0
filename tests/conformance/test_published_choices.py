"""Published choices with a memory from task to task: learning goes on after a restart as if there had been none."""

from typing import Any

import pytest
import torch
from torch import Tensor

from metareplay.benchmarks.toy import modes_2d
from metareplay.errors import ConfigError
from metareplay.learner.config import build_config
from metareplay.learner.learner import HANDED_ON, ContinualLearner

TASKS = modes_2d()
KEPT = {"posterior.avb_kept": True, "posterior.avb_hidden": [5], "posterior.avb_contrast_samples": 6}
PUBLISHED = {
    "pf-avb": {**KEPT, "outputs_from_start": True, "posterior.avb_batch_statistics": "mean"},
    "pr-avb": KEPT,
    "sp-avb": {**KEPT, "posterior.avb_chunk_size": 7},
    "pr-dirac": {"strategy.own_outputs": True, "heads": "multi"},
    "pr-bbb": {"strategy.own_outputs": True, "heads": "multi", "hypernet.kind": "plain"},
    "pr-radial-sr": {"strategy.own_outputs": True, "heads": "multi", "hypernet.chunk_size": 9},
    "pr-dirac-cs": {"strategy.own_outputs": True, "heads": "multi", "strategy.targets": "recomputed"},
}
SSGE = {"posterior.ssge_apart": True, "posterior.ssge_below": True, "posterior.ssge_zero_distances": True}
WITHOUT_MEMORY = {
    "pr-ssge": {**SSGE, "posterior.train_samples": 2, "training.clip_norm": 0.5},
    "sp-ssge": {**SSGE, "posterior.ssge_samples": 4, "training.clip_norm": 0.5},
}
"""Choices that act in every step alike."""
every_choice = pytest.mark.parametrize("method", [*PUBLISHED, *WITHOUT_MEMORY])


def unlearned(method: str, **given: Any) -> ContinualLearner:
    settings = {"training.iterations": 4, "training.batch_size": 8, "seed": 3}
    settings |= {**PUBLISHED, **WITHOUT_MEMORY}[method] | given
    config = build_config({"method": method, "network": "mlp-4"}, settings, "test")
    return ContinualLearner(config, TASKS.problem, TASKS.scenario, TASKS.input_shape, total_outputs=6)


def learn(learner: ContinualLearner, task: int) -> list[Tensor]:
    return [step.terms.total for step in learner.begin_task(TASKS[task].train, 2)]


def thetas(learner: ContinualLearner) -> Tensor:
    return learner.model.task_map.thetas(range(learner.num_tasks)).detach()


def stored(learner: ContinualLearner, *, training: bool) -> dict[str, Tensor]:
    return {key: tensor.clone() for key, tensor in learner.tensors(training=training).items()}


@every_choice
@pytest.mark.parametrize("task", [1, 2])
def test_a_task_goes_on_after_a_restart_between_steps(method: str, task: int) -> None:
    whole, again = unlearned(method), unlearned(method)
    for earlier in range(task):
        learn(whole, earlier)
    steps = iter(whole.begin_task(TASKS[task].train, 2))
    next(steps), next(steps)
    checkpoint = stored(whole, training=True)
    again.restore(whole.facts(), checkpoint)
    for earlier in range(task):
        again.revisit(earlier, lambda earlier=earlier: TASKS[earlier].train)  # type: ignore[misc]
    expected = [step.terms.total for step in steps]
    assert [step.terms.total for step in again.continue_task(TASKS[task].train, checkpoint)] == expected
    ours, theirs = whole.tensors(training=True), again.tensors(training=True)
    assert ours.keys() == theirs.keys()
    assert [key for key in ours if not torch.equal(ours[key], theirs[key])] == []


@every_choice
def test_the_next_task_is_learned_the_same_by_a_stored_model(method: str) -> None:
    whole, again = unlearned(method), unlearned(method)
    learn(whole, 0), learn(whole, 1)
    again.restore(whole.facts(), stored(whole, training=False))
    for earlier in range(2):
        again.revisit(earlier, lambda earlier=earlier: TASKS[earlier].train)  # type: ignore[misc]
    assert learn(whole, 2) == learn(again, 2)
    assert torch.equal(thetas(whole), thetas(again))


@pytest.mark.parametrize("method", PUBLISHED)
def test_the_choice_changes_later_tasks_only(method: str) -> None:
    key = next(key for key in PUBLISHED[method] if key in ("posterior.avb_kept", "strategy.own_outputs"))
    chosen, plain = unlearned(method), unlearned(method, **{key: False})
    learn(chosen, 0), learn(plain, 0)
    assert torch.equal(thetas(chosen), thetas(plain))
    for task in (1, 2):
        learn(chosen, task), learn(plain, task)
    assert not torch.equal(thetas(chosen), thetas(plain))


@pytest.mark.parametrize("method", WITHOUT_MEMORY)
def test_the_entropy_is_added_after_clipping(method: str) -> None:
    """However strictly the rest is clipped, the entropy's gradient stays as it is."""
    sizes = []
    for norm in (1e-6, 1e-9):
        learner = unlearned(method, **{"training.clip_norm": norm})
        trainer = learner.begin_task(TASKS[0].train, 2)
        next(iter(trainer))
        gradients = [parameter.grad for parameter in trainer.parameters if parameter.grad is not None]
        sizes.append(float(torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()))
    assert sizes[0] > 1e-3
    assert sizes[1] == pytest.approx(sizes[0], rel=1e-2)


@pytest.mark.parametrize("method", ["pf-avb", "pr-avb", "sp-avb"])
def test_a_task_starts_with_the_last_discriminator_and_a_new_optimiser(method: str) -> None:
    learner = unlearned(method)
    learn(learner, 0)
    assert learner.trainer is not None
    last = {name: value.clone() for name, value in learner.trainer.jobs[0].matching.tensors().items()}
    trainer = learner.begin_task(TASKS[1].train, 2)
    now = trainer.jobs[0].matching.tensors()
    assert any(name.startswith("optimiser.") for name in last)
    assert now.keys() == {name for name in last if name.startswith("discriminator.")}
    assert all(torch.equal(now[name], last[name]) for name in now)
    kept = {name: value for name, value in learner.tensors(training=False).items() if name.startswith(HANDED_ON)}
    assert kept.keys() == {HANDED_ON + name.removeprefix("discriminator.") for name in now}
    before = {name: value.clone() for name, value in kept.items()}
    next(iter(trainer))
    assert all(torch.equal(kept[name], before[name]) for name in kept)  # until the task is learned


@pytest.mark.parametrize("method", ["pf-avb", "pr-avb", "sp-avb"])
def test_by_default_nothing_is_handed_on(method: str) -> None:
    learner = unlearned(method, **{"posterior.avb_kept": False})
    learn(learner, 0)
    assert learner.handed_on == {}
    assert not any(name.startswith(HANDED_ON) for name in learner.tensors(training=True))


@pytest.mark.parametrize(
    ("method", "given"), [("pf-avb", {"outputs_from_start": False}), ("pr-avb", {"heads": "multi"})]
)
def test_a_kept_discriminator_needs_a_fixed_number_of_weights(method: str, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="avb_kept keeps one discriminator for all tasks, but each task adds outputs"):
        unlearned(method, **given)


def test_a_task_with_more_classes_than_the_kept_discriminator_knows_leaves_no_trace() -> None:
    learner = unlearned("pr-avb")
    learn(learner, 0)
    before = stored(learner, training=False)
    with pytest.raises(ConfigError, match="does not fit the 27 weights that the network has now"):
        learner.begin_task(TASKS[1].train, 3)
    assert learner.num_tasks == 1
    after = learner.tensors(training=False)
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert len(learn(learner, 1)) == 4  # with as many as before


def test_a_task_that_is_trained_further_has_a_discriminator_of_its_own() -> None:
    learner = unlearned("pr-avb")
    learn(learner, 0)
    learner.finish_task(TASKS[0].train)
    kept = {name: value.clone() for name, value in learner.handed_on.items()}
    trainer = learner.begin_revision(0, TASKS[0].train)
    own = trainer.jobs[0].matching.tensors()
    assert any(not torch.equal(own[f"discriminator.{name}"], value) for name, value in kept.items())
    list(trainer)
    assert all(torch.equal(learner.handed_on[name], value) for name, value in kept.items())
