"""Task-inference criteria on predictions with known answers."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import Problem
from metareplay.errors import ConfigError
from metareplay.inference.criteria import (
    CRITERIA,
    Evidence,
    GradSettings,
    criteria_for,
    criterion_named,
    disagreement,
    entropy_gradient,
    expected_entropy,
    knowledge_uncertainty,
    lack_of_confidence,
    predictive_variance,
    total_entropy,
)
from metareplay.inference.predictive import log_likelihoods, log_predictive


def log_probs(*samples: list[float]) -> Tensor:
    """One input whose weight samples give these probabilities: (S, 1, C)."""
    return torch.tensor(samples, dtype=torch.float64).log().unsqueeze(1)


def entropy(*probabilities: float) -> float:
    return -sum(p * math.log(p) for p in probabilities if p > 0)


def test_known_probabilities_of_one_sample() -> None:
    known = log_probs([0.7, 0.2, 0.1])
    assert float(total_entropy(known)) == pytest.approx(entropy(0.7, 0.2, 0.1), rel=1e-12)
    assert float(expected_entropy(known)) == pytest.approx(entropy(0.7, 0.2, 0.1), rel=1e-12)
    assert float(lack_of_confidence(known)) == pytest.approx(0.3, rel=1e-12)
    assert float(disagreement(known)) == 0
    assert float(knowledge_uncertainty(known)) == 0


def test_known_probabilities_of_two_samples() -> None:
    known = log_probs([0.9, 0.1, 0.0], [0.5, 0.1, 0.4])
    total, inside = entropy(0.7, 0.1, 0.2), (entropy(0.9, 0.1) + entropy(0.5, 0.1, 0.4)) / 2
    assert float(total_entropy(known)) == pytest.approx(total, rel=1e-12)
    assert float(expected_entropy(known)) == pytest.approx(inside, rel=1e-12)
    assert float(knowledge_uncertainty(known)) == pytest.approx(total - inside, rel=1e-10)
    assert float(lack_of_confidence(known)) == pytest.approx(0.3, rel=1e-12)
    assert float(disagreement(known)) == pytest.approx((0.2 + 0.0 + 0.2) / 3, rel=1e-12)


def test_samples_that_contradict_each_other() -> None:
    known = log_probs([1.0, 0.0], [0.0, 1.0])
    assert float(total_entropy(known)) == pytest.approx(math.log(2))
    assert float(expected_entropy(known)) == 0
    assert float(knowledge_uncertainty(known)) == pytest.approx(math.log(2))
    assert float(disagreement(known)) == pytest.approx(0.5)
    assert float(lack_of_confidence(known)) == pytest.approx(0.5)


@pytest.mark.parametrize("classes", [1, 2, 10])
def test_the_uniform_prediction_is_the_most_uncertain(classes: int) -> None:
    known = log_probs([1 / classes] * classes)
    assert float(total_entropy(known)) == pytest.approx(math.log(classes), abs=1e-12)
    assert float(lack_of_confidence(known)) == pytest.approx(1 - 1 / classes, abs=1e-12)


def test_entropies_agree_with_pytorchs(rng: Generator) -> None:
    logits = torch.randn(5, 50, 4, generator=rng, dtype=torch.float64) * 3
    probabilities = logits.softmax(-1)
    known = log_likelihoods(logits)
    torch.testing.assert_close(
        total_entropy(known), torch.distributions.Categorical(probs=probabilities.mean(0)).entropy()
    )
    torch.testing.assert_close(
        expected_entropy(known), torch.distributions.Categorical(probs=probabilities).entropy().mean(0)
    )


def test_the_decomposition_of_entropy(rng: Generator) -> None:
    for scale in (0.01, 1.0, 30.0):
        known = log_likelihoods(torch.randn(7, 200, 5, generator=rng) * scale)
        total, aleatoric, epistemic = total_entropy(known), expected_entropy(known), knowledge_uncertainty(known)
        assert (epistemic >= 0).all()
        assert float(epistemic.max()) > 0
        torch.testing.assert_close(aleatoric + epistemic, total, rtol=1e-12, atol=1e-14)  # SM eq. entropy:decomposition


def test_equal_samples_leave_no_knowledge_uncertainty(rng: Generator) -> None:
    known = log_likelihoods(torch.randn(1, 500, 5, generator=rng)).expand(3, -1, -1)
    epistemic = knowledge_uncertainty(known)
    assert (epistemic >= 0).all()  # although the difference of the two entropies is a rounding error of either sign
    assert float(epistemic.max()) < 1e-14


def test_likelihoods_have_double_precision(rng: Generator) -> None:
    outputs = torch.randn(2, 50, 3, generator=rng)
    actual = log_likelihoods(outputs)
    assert actual.dtype == torch.float64
    torch.testing.assert_close(actual.exp().sum(-1), torch.ones(2, 50, dtype=torch.float64), rtol=1e-14, atol=0)
    torch.testing.assert_close(actual, outputs.double().log_softmax(-1), rtol=1e-14, atol=0)


@pytest.mark.parametrize("criterion", ["ent", "conf"])
@pytest.mark.parametrize("samples", [1, 3])
def test_confident_predictions_stay_apart(criterion: str, samples: int) -> None:
    margins = torch.tensor([20.0, 40.0, 60.0, 70.0, 100.0, 300.0])
    # float32, as networks give them
    outputs = torch.stack([margins, torch.zeros_like(margins)], dim=-1).expand(samples, -1, -1)
    scores = CRITERIA[criterion].score(log_likelihoods(outputs))
    assert (scores.diff() < 0).all()
    assert (scores > 0).all()
    if criterion == "conf":
        torch.testing.assert_close(scores.log(), -margins.double(), rtol=1e-8, atol=1e-8)
    else:  # p (1 + margin) for the small probability p
        torch.testing.assert_close(scores, (-margins.double()).exp() * (1 + margins.double()), rtol=1e-7, atol=0)


def test_for_two_classes_and_one_sample_confidence_and_entropy_rank_alike(rng: Generator) -> None:
    known = log_likelihoods(torch.randn(1, 500, 2, generator=rng) * 40)
    assert torch.equal(total_entropy(known).argsort(), lack_of_confidence(known).argsort())


def test_small_disagreements_stay_apart() -> None:
    def pair(margin: float) -> Tensor:
        return log_likelihoods(torch.tensor([[[margin, 0.0]], [[margin + 1, 0.0]]]))

    assert 0 < float(disagreement(pair(60.0))) < float(disagreement(pair(50.0)))
    assert 0 < float(knowledge_uncertainty(pair(60.0))) < float(knowledge_uncertainty(pair(50.0)))


def test_the_predictive_distribution_is_the_mean_over_samples(rng: Generator) -> None:
    logits = torch.randn(6, 8, 3, generator=rng)
    expected = logits.double().softmax(-1).mean(0)
    actual = log_predictive(log_likelihoods(logits))
    assert actual.dtype == torch.float64
    torch.testing.assert_close(actual.exp(), expected)


def test_predictive_variance_by_hand() -> None:
    outputs = torch.tensor([[[1.0, 0.0], [2.0, 2.0]], [[3.0, 0.0], [2.0, 6.0]]])  # (2, 2, 2)
    assert predictive_variance(outputs).tolist() == [1.0, 4.0]
    assert predictive_variance(outputs[:1]).tolist() == [0.0, 0.0]


def test_an_unknown_criterion_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"criterion='entropy' is unknown.*Choose one of ent, conf, agree, ku"):
        criterion_named("entropy")


@pytest.mark.parametrize("name", ["agree", "ku"])
def test_comparing_samples_of_a_point_is_refused(name: str) -> None:
    assert criterion_named(name).name == name
    with pytest.raises(ConfigError, match=f"criterion='{name}' compares weight samples.*choose ent, conf"):
        criterion_named(name, weight_sets=1)


@pytest.mark.parametrize(
    ("name", "problem", "choice"),
    [("variance", "classification", "ent"), ("ent", "regression", "variance")],
)
def test_a_criterion_of_the_other_problem_is_refused(name: str, problem: Problem, choice: str) -> None:
    with pytest.raises(ConfigError, match=f"criterion='{name}' is for .*, and this is {problem}; choose") as refused:
        criterion_named(name, problem)
    choices = str(refused.value).rpartition("choose ")[2].replace(" or ", ", ").split(", ")
    assert {choice, "stats"} <= set(choices) == {criterion.name for criterion in criteria_for(problem)}


@pytest.mark.parametrize("name", ["ent", "conf"])
def test_a_point_has_entropy_and_confidence(name: str) -> None:
    assert criterion_named(name, weight_sets=1) is CRITERIA[name]


def predictions(rng: Generator, tasks: int = 4) -> list[Tensor]:
    return [(3 * torch.randn(7, 3, generator=rng, dtype=torch.float64)).log_softmax(-1) for _ in range(tasks)]


def mixture_entropy(log_predictives: list[Tensor], v: Tensor) -> Tensor:
    """Plainly: the entropy of sum_t softmax(v)_t p_t over shared outputs; (B,)."""
    mixed = sum(weight.unsqueeze(-1) * log_p.exp() for weight, log_p in zip(v.softmax(0), log_predictives, strict=True))
    assert isinstance(mixed, Tensor)
    return -(mixed * mixed.log()).sum(-1)


@pytest.mark.parametrize(("steps", "rate"), [(1, 1.0), (5, 0.3)])
def test_grad_takes_gradient_steps_on_the_mixing_coefficients(steps: int, rate: float, rng: Generator) -> None:
    log_predictives = predictions(rng)
    v = torch.zeros(4, 7, dtype=torch.float64)
    for _ in range(steps):
        v.requires_grad_()
        v = (v - rate * torch.autograd.grad(mixture_entropy(log_predictives, v).sum(), v)[0]).detach()
    actual = entropy_gradient(
        Evidence(log_predictives, [slice(0, 3)] * 4, GradSettings(grad_steps=steps, grad_rate=rate))
    )
    # what is the same for all tasks is left out
    torch.testing.assert_close(-actual.log_softmax(0), -(-v).log_softmax(0))


def test_grad_lowers_the_entropy_of_the_mixture(rng: Generator) -> None:
    log_predictives, heads = predictions(rng), [slice(0, 3)] * 4
    values = [
        mixture_entropy(
            log_predictives, -entropy_gradient(Evidence(log_predictives, heads, GradSettings(grad_steps=steps)))
        )
        for steps in (1, 3, 10, 50)
    ]
    assert all((after < before).all() for before, after in pairwise(values))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("margins", [(40.0, 60.0, 50.0), (40.0, 45.0, 44.0), (150.0, 90.0, 200.0), (3.0, 60.0, 61.0)])
def test_grad_tells_confident_predictions_apart(margins: tuple[float, ...], shared: bool) -> None:
    """The most confident of several confident tasks wins, with shared outputs or not, as with entropy."""
    log_predictives = [torch.tensor([[margin, 0.0]], dtype=torch.float64).log_softmax(-1) for margin in margins]
    heads = [slice(0, 2)] * 3 if shared else [slice(0, 2), slice(2, 4), slice(4, 6)]
    # next to an uncertain task, later steps lose such differences to rounding
    for steps in (1, 3) if min(margins) > 30 else (1,):
        actual = entropy_gradient(Evidence(log_predictives, heads, GradSettings(grad_steps=steps))).squeeze(1)
        assert actual.unique().numel() == 3
        assert int(actual.argmin()) == int(torch.tensor(margins).argmax())


def test_grad_is_ent_where_no_two_tasks_share_an_output(rng: Generator) -> None:
    """H(mixture) = H(alpha) + sum_t alpha_t H_t then, so the steepest fall is that of the lowest entropy."""
    log_predictives, heads = predictions(rng), [slice(3 * task, 3 * task + 3) for task in range(4)]
    entropies = torch.stack([total_entropy(log_p.unsqueeze(0)) for log_p in log_predictives])
    for steps in (1, 4):
        actual = entropy_gradient(Evidence(log_predictives, heads, GradSettings(grad_steps=steps)))
        assert torch.equal(actual.argsort(0), entropies.argsort(0))
