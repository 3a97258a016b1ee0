"""Adaptive sampling: more weight samples only where a decision is open."""

import pytest
import torch
from torch import Generator, Tensor

from metareplay.inference.adaptive import LOG_PREDICTIVE, adaptive_statistics
from metareplay.inference.criteria import CRITERIA, Criterion, Evidence, criteria_for, expected_entropy
from metareplay.inference.criteria.base import Contest
from metareplay.inference.predictive import WeightSamples, log_likelihoods, log_predictive, predictive_outputs
from metareplay.inference.settings import InferenceSettings
from metareplay.likelihoods import Categorical
from metareplay.model import ContinualModel
from metareplay.nets.mlp import MLP
from metareplay.posteriors.families.gaussian import GaussianFamily
from metareplay.task_maps.direct import PerTaskParameters
from metareplay.task_maps.heads import HeadLayout

SAMPLES = 100
BY_SAMPLES = [criterion for criterion in criteria_for("classification") if not criterion.reads_statistics]
"""The criteria that weight samples decide."""
PATIENT = 1e9


class PredefinedSamples(WeightSamples):
    """Returns predefined outputs (K, N, C), and counts the samples drawn; an input is its row number."""

    def __init__(self, outputs: Tensor) -> None:
        self.outputs, self.steps, self.taken = outputs, [5] * (len(outputs) // 5), 0
        self.asked = torch.zeros(outputs.shape[1], dtype=torch.int64)

    def draw(self, samples: int, x: Tensor) -> Tensor:
        rows = x[:, 0].long()
        self.asked[rows] += samples
        self.taken += samples
        return self.outputs[self.taken - samples : self.taken, rows]


def random_outputs(rng: Generator, tasks: int, inputs: int, classes: int = 2) -> list[Tensor]:
    """Outputs of tasks with widely varying confidence, with some noise over weight samples."""
    centres = 6 * torch.randn(tasks, 1, inputs, classes, generator=rng)
    return list(centres + torch.randn(tasks, SAMPLES, inputs, classes, generator=rng))


def ask(outputs: list[Tensor], criteria: list[Criterion], adaptive: float) -> tuple[list[dict[str, Tensor]], Tensor]:
    """The tasks' statistics, and how many weight samples each input needed from each task (T, N)."""
    samples = [PredefinedSamples(values) for values in outputs]
    scores = {criterion.name: criterion.score for criterion in criteria if criterion.score is not None}
    statistics = scores | {LOG_PREDICTIVE: log_predictive}
    x = torch.arange(outputs[0].shape[1]).unsqueeze(1).float()
    evidence = Evidence((), [slice(0, outputs[0].shape[2])] * len(outputs), InferenceSettings())
    actual = adaptive_statistics(
        samples, x, statistics, [Contest(criterion, evidence) for criterion in criteria], adaptive
    )
    return actual, torch.stack([task_samples.asked for task_samples in samples])


def decisions(actual: list[dict[str, Tensor]], criterion: Criterion, classes: int = 2) -> Tensor:
    """Task and class of each input as one number."""
    evidence = Evidence(
        [statistics_of_task[criterion.name] for statistics_of_task in actual],
        [slice(0, classes)] * len(actual),
        InferenceSettings(),
    )
    tasks = criterion.compare(evidence).argmin(0)
    named = torch.stack([statistics_of_task[LOG_PREDICTIVE].argmax(-1) for statistics_of_task in actual])
    return tasks * classes + named.gather(0, tasks.unsqueeze(0)).squeeze(0)


@pytest.mark.parametrize("name", [criterion.name for criterion in BY_SAMPLES])
def test_infinite_patience_is_the_plain_way(name: str, rng: Generator) -> None:
    outputs = random_outputs(rng, 3, 20)
    actual, asked = ask(outputs, [CRITERIA[name]], PATIENT)
    assert bool((asked == SAMPLES).all())
    for statistics_of_task, values in zip(actual, outputs, strict=True):
        assert torch.equal(statistics_of_task[name], CRITERIA[name].score(log_likelihoods(values)))  # type: ignore[misc]
        assert torch.equal(statistics_of_task[LOG_PREDICTIVE], log_predictive(log_likelihoods(values)))


@pytest.mark.parametrize("name", ["ent", "conf", "agree", "ku"])
def test_most_decisions_need_few_samples(name: str, rng: Generator) -> None:
    outputs = random_outputs(rng, 5, 1000)
    plain, _ = ask(outputs, [CRITERIA[name]], PATIENT)
    actual, asked = ask(outputs, [CRITERIA[name]], 4.0)
    same = (decisions(actual, CRITERIA[name]) == decisions(plain, CRITERIA[name])).double().mean()
    assert float(same) >= 0.995
    assert float(asked.double().mean()) < 0.3 * SAMPLES
    assert int(asked.min()) == 5
    assert int(asked.max()) == SAMPLES


def test_all_criteria_at_once(rng: Generator) -> None:
    outputs = random_outputs(rng, 4, 500, classes=3)
    plain, _ = ask(outputs, BY_SAMPLES, PATIENT)
    actual, asked = ask(outputs, BY_SAMPLES, 4.0)
    same = {
        each.name: float((decisions(actual, each, 3) == decisions(plain, each, 3)).double().mean())
        for each in BY_SAMPLES
    }
    assert min(same.values()) >= 0.97, same  # grad is the least smooth
    assert float(asked.double().mean()) < SAMPLES


def test_more_patience_draws_more(rng: Generator) -> None:
    outputs = random_outputs(rng, 4, 300)
    taken = [float(ask(outputs, [CRITERIA["ent"]], patience)[1].double().mean()) for patience in (1.0, 3.0, 10.0)]
    assert taken == sorted(taken)
    assert taken[0] < taken[-1]


def test_what_is_clear_stops_at_once_and_what_is_not_goes_on(rng: Generator) -> None:
    """Task 0 is confident about input 0; both tasks are equally uncertain about input 1 and the class of input 2."""
    noise = 0.1 * torch.randn(2, SAMPLES, 3, 2, generator=rng)
    first = torch.tensor([[9.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    second = torch.tensor([[0.5, 0.0], [1.0, 0.0], [0.0, 0.0]])
    _, asked = ask([first + noise[0], second + noise[1]], [CRITERIA["ent"]], 4.0)
    assert asked[:, 0].tolist() == [5, 5]
    assert int(asked[:, 1].min()) > 5
    assert int(asked[:, 2].min()) > 5


def test_losers_are_not_asked_again(rng: Generator) -> None:
    noise = 0.1 * torch.randn(3, SAMPLES, 50, 2, generator=rng)
    centres = [torch.tensor([5.0, 0.0]), torch.tensor([5.0, 0.0]), torch.tensor([0.5, 0.0])]
    _, asked = ask([centre + each for centre, each in zip(centres, noise, strict=True)], [CRITERIA["ent"]], 4.0)
    assert bool((asked[2] == 5).all())
    assert float(asked[:2].double().mean()) > 20


def test_with_the_task_given_only_the_class_counts(rng: Generator) -> None:
    outputs = torch.tensor([[3.0, 0.0], [0.02, 0.0]]) + 0.3 * torch.randn(SAMPLES, 2, 2, generator=rng)
    actual, asked = ask([outputs], [], 4.0)
    assert asked[0].tolist() == [5, SAMPLES]
    assert torch.equal(actual[0][LOG_PREDICTIVE][1], log_predictive(log_likelihoods(outputs))[1])


def test_other_statistics_are_of_the_same_samples(rng: Generator) -> None:
    outputs = random_outputs(rng, 1, 4)
    samples, x = PredefinedSamples(outputs[0]), torch.arange(4).unsqueeze(1).float()
    statistics = {"aleatoric": expected_entropy, LOG_PREDICTIVE: log_predictive}
    actual = adaptive_statistics([samples], x, statistics, [], 4.0)[0]
    for row, count in enumerate(samples.asked.tolist()):
        expected = expected_entropy(log_likelihoods(outputs[0][:count, row : row + 1]))[0]
        torch.testing.assert_close(actual["aleatoric"][row], expected)


def test_no_inputs() -> None:
    actual, _ = ask([torch.zeros(SAMPLES, 0, 2)] * 2, [CRITERIA["ent"]], 4.0)
    assert [statistics_of_task["ent"].shape for statistics_of_task in actual] == [(0,), (0,)]


def test_weights_are_a_prefix_of_all_samples_whatever_the_inputs(rng: Generator) -> None:
    model = ContinualModel(
        lambda outputs: MLP((2,), (4,), outputs),
        GaussianFamily(),
        lambda size, _: PerTaskParameters(size),
        HeadLayout.SINGLE,
        Categorical(),
        lambda family, network, spec: None,
    )
    model.add_task(3, generator=rng)
    x = torch.randn(11, 2, generator=rng)
    whole = predictive_outputs(model, x, 0, 17, generator=Generator().manual_seed(3))
    samples = WeightSamples(model, 0, 17, generator=Generator().manual_seed(3), columns=model.heads[0], batch_size=500)
    assert sum(samples.steps) == 17
    done = 0
    for step, rows in zip(samples.steps, [slice(None), slice(3, 5), slice(4, 5), slice(0, 9)], strict=True):
        torch.testing.assert_close(samples.draw(step, x[rows]), whole[done : done + step, rows])
        done += step
