"""Online EWC: the Fisher information, the penalty, and the Gaussian it leaves."""

from typing import cast

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call

from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.errors import ConfigError
from metareplay.inference.predictive import output_samples, predictive_outputs
from metareplay.learner.build import build_model, build_strategy
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.model import ContinualModel
from metareplay.nets import weights as weights_module
from metareplay.nets.linearised import linearised_mlp_outputs
from metareplay.nets.mlp import MLP
from metareplay.nets.weights import WeightSpec, linearised_outputs
from metareplay.posteriors.families.dirac import Dirac
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.families.laplace import LinearisedGaussian
from metareplay.strategies import fisher as estimate
from metareplay.strategies.ewc import OnlineEWC

VARIANCE = 4.0


def parts(method: str = "ewc-multihead", **given: object) -> tuple[ContinualModel, OnlineEWC]:
    settings = {"posterior.prior_variance": VARIANCE, **{key.replace("__", "."): value for key, value in given.items()}}
    config = build_config({"method": method, "network": "mlp-4"}, settings, "test")
    return build_model(config, "classification", Scenario.CLASS, (3,)), cast(OnlineEWC, build_strategy(config))


def some_data(count: int, classes: int, rng: Generator) -> TaskData:
    return TaskData(torch.randn(count, 3, generator=rng), torch.randint(classes, (count,), generator=rng))


def summed_squared_gradients(model: ContinualModel, task: int, data: TaskData, examples: int | None) -> Tensor:
    weights = model.task_map.theta(task).detach().chunk(2)[0]
    return estimate.summed_squared_gradients(model, task, data, weights.unsqueeze(0), examples)


def looped_fisher(model: ContinualModel, task: int, data: TaskData) -> Tensor:
    """One ordinary backward pass per example."""
    weights = model.task_map.theta(task).detach().chunk(2)[0].requires_grad_()
    total = torch.zeros_like(weights)
    for x, y in zip(data.x, data.y, strict=True):
        outputs = functional_call(
            model.network, {**model.spec.unflatten(weights), **model.buffers(task)[0]}, (x.unsqueeze(0),)
        )[:, model.training_columns(task)]
        loss = torch.nn.functional.cross_entropy(outputs, y.unsqueeze(0))
        total += torch.autograd.grad(loss, weights)[0].square()
    return total


@pytest.mark.parametrize("method", ["ewc-multihead", "ewc-growing", "ewc-dirac"])
def test_batched_gradients_equal_a_loop_over_examples(
    method: str, rng: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = parts(method)
    for _ in range(2):
        model.add_task(2, generator=rng)
    data = some_data(7, 2, rng)
    for numbers in (10**9, 3 * model.spec.numel):  # in one batch, and in three
        monkeypatch.setattr(estimate, "GRADIENT_NUMBERS", numbers)
        torch.testing.assert_close(summed_squared_gradients(model, 1, data, None), looped_fisher(model, 1, data))


def test_a_part_of_the_data_stands_for_all_of_it(rng: Generator) -> None:
    model, _ = parts()
    model.add_task(2, generator=rng)
    data = some_data(9, 2, rng)
    chosen = torch.tensor([0, 4, 8])  # spread over the data, so that sorted classes are all seen
    expected = 3 * looped_fisher(model, 0, TaskData(data.x[chosen], data.y[chosen]))
    torch.testing.assert_close(summed_squared_gradients(model, 0, data, 3), expected)
    torch.testing.assert_close(summed_squared_gradients(model, 0, data, 100), looped_fisher(model, 0, data))


def test_the_empirical_fisher_of_a_linear_gaussian_model_is_its_squared_residuals() -> None:
    config = build_config({"method": "ewc-multihead", "network": "mlp"}, {"posterior.likelihood_scale": 0.5}, "test")
    model = build_model(config, "regression", Scenario.DOMAIN, (1,))
    model.add_task(1, generator=Generator().manual_seed(0))
    x, y = torch.tensor([[1.0], [-2.0], [0.5]]), torch.tensor([[0.3], [1.0], [-1.0]])
    weight, bias = model.task_map.theta(0).detach()[:2]
    residual = (weight * x + bias - y) / 0.5**2
    expected = torch.cat([(residual * x).square().sum(0), residual.square().sum(0)])
    torch.testing.assert_close(summed_squared_gradients(model, 0, TaskData(x, y), None), expected)


def importance_at(truth: Tensor, model: ContinualModel, strategy: OnlineEWC, data: TaskData) -> tuple[Tensor, Tensor]:
    """Importance after an exactly solved task, without the prior: from its precision and as used in the next task."""
    model.task_map.trained_theta(0).data[:] = truth
    strategy.before_task(model, 0)
    strategy.after_task(model, 0, data)
    kept, precision = model.spec, model.task_map.theta(0).detach().chunk(2)[1].clone()
    model.add_task(model.heads[0].stop, generator=Generator().manual_seed(1))
    strategy.before_task(model, 1)
    assert strategy.importance is not None
    places = kept.positions_in(model.spec)
    assert torch.equal(strategy.importance[model.fresh], torch.full((model.spec.numel - kept.numel,), 1 / VARIANCE))
    return precision - 1 / VARIANCE, strategy.importance[places] - 1 / VARIANCE


def test_the_importance_of_a_linear_gaussian_model_is_the_analytic_fisher_information() -> None:
    """X'X / sigma^2 within 5 %, from 40,000 targets drawn from the model: a standard deviation of 1 %."""
    rng, scale = Generator().manual_seed(0), 0.5
    given = {"posterior.likelihood_scale": scale, "posterior.prior_variance": VARIANCE}
    config = build_config({"method": "ewc-multihead", "network": "mlp"}, given, "test")
    model, strategy = build_model(config, "regression", Scenario.DOMAIN, (2,)), cast(OnlineEWC, build_strategy(config))
    model.add_task(1, generator=rng)
    truth, widths = torch.tensor([1.0, -2.0, 0.3]), torch.tensor([0.5, 2.0])
    x = widths * (2 * torch.rand(40_000, 2, generator=rng) - 1)
    design = torch.cat([x, torch.ones(len(x), 1)], dim=1)  # what the two weights and the bias see
    y = (design @ truth).unsqueeze(1) + scale * torch.randn(len(x), 1, generator=rng)
    expected = (design.T @ design).diagonal() / scale**2
    actual, taken = importance_at(truth, model, strategy, TaskData(x, y))
    torch.testing.assert_close(actual, expected, rtol=0.05, atol=0)
    torch.testing.assert_close(taken, actual)


def test_the_importance_of_a_softmax_of_a_linear_model_is_the_analytic_fisher_information() -> None:
    """sum_n p_c (1 - p_c) x_i^2, within 5 %, by 40,000 classes that the model itself draws."""
    rng = Generator().manual_seed(0)
    given = {"posterior.prior_variance": VARIANCE}
    config = build_config({"method": "ewc-multihead", "network": "mlp"}, given, "test")
    model, strategy = (
        build_model(config, "classification", Scenario.CLASS, (2,)),
        cast(OnlineEWC, build_strategy(config)),
    )
    model.add_task(3, generator=rng)
    weight, bias = torch.tensor([[1.0, -0.5], [-1.0, 0.2], [0.0, 0.6]]), torch.tensor([0.5, -0.5, 0.0])
    x = torch.tensor([0.5, 2.0]) * (2 * torch.rand(40_000, 2, generator=rng) - 1)
    probabilities = (x @ weight.T + bias).softmax(1)
    y = torch.multinomial(probabilities, 1, generator=rng).squeeze(1)
    spread = probabilities * (1 - probabilities)  # (N, C)
    expected = torch.cat([(spread.T @ x.square()).flatten(), spread.sum(0)])
    actual, taken = importance_at(torch.cat([weight.flatten(), bias]), model, strategy, TaskData(x, y))
    torch.testing.assert_close(actual, expected, rtol=0.05, atol=0)
    torch.testing.assert_close(taken, actual)


class Normalised(nn.Module):
    """Three inputs through batch normalisation: in training, outputs and statistics depend on the whole batch."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.last(self.norm(self.first(x)).relu()))


def test_the_fisher_takes_batch_normalisation_as_it_predicts(rng: Generator) -> None:
    model, _ = parts()
    model.factory = Normalised
    model.add_task(2, generator=rng)
    statistics = {
        "norm.running_mean": torch.tensor([0.5, -0.5, 0.1, 0.0]),
        "norm.running_var": torch.tensor([2.0, 0.5, 1.0, 3.0]),
    }
    model.buffers(0)[0].update(statistics)
    before = {name: buffer.clone() for name, buffer in model.buffers(0)[0].items()}
    data = some_data(6, 2, rng)
    actual = summed_squared_gradients(model, 0, data, None)
    for name, buffer in model.buffers(0)[0].items():
        assert torch.equal(buffer, before[name]), name
    torch.testing.assert_close(actual, looped_fisher(model, 0, data))
    model.buffers(0)[0]["norm.running_mean"] = torch.ones(4)
    assert not torch.allclose(actual, summed_squared_gradients(model, 0, data, None))


def test_precisions_add_up_with_decay(rng: Generator) -> None:
    model, strategy = parts(strategy__decay=0.5)
    first, second = some_data(5, 2, rng), some_data(6, 3, rng)
    model.add_task(2, generator=rng)
    strategy.before_task(model, 0)
    fisher = summed_squared_gradients(model, 0, first, None)
    strategy.after_task(model, 0, first)
    torch.testing.assert_close(model.task_map.theta(0).detach().chunk(2)[1], fisher + 1 / VARIANCE)
    kept = model.spec
    model.add_task(3, generator=rng)
    strategy.before_task(model, 1)
    expected = torch.zeros(model.spec.numel)
    expected[kept.positions_in(model.spec)] = 0.5 * fisher
    expected += summed_squared_gradients(model, 1, second, None) + 1 / VARIANCE
    strategy.after_task(model, 1, second)
    torch.testing.assert_close(model.task_map.theta(1).detach().chunk(2)[1], expected)


def test_the_penalty_is_the_old_gaussian_and_the_prior_for_new_weights(rng: Generator) -> None:
    strength = 3.0
    model, strategy = parts(strategy__strength=strength)
    model.add_task(2, generator=rng)
    strategy.before_task(model, 0)
    weights = model.task_map.theta(0).detach().chunk(2)[0]
    actual = strategy.penalty(model, 0, generator=rng)
    assert actual is not None
    # the first task has only the prior
    torch.testing.assert_close(actual.detach(), 0.5 * weights.square().sum() / VARIANCE)
    strategy.after_task(model, 0, some_data(5, 2, rng))
    fisher = model.task_map.theta(0).detach().chunk(2)[1] - 1 / VARIANCE
    kept, old = model.spec, weights.clone()
    model.add_task(2, generator=rng)
    strategy.before_task(model, 1)
    for parameter in model.task_map.parameters():
        parameter.data[: model.spec.numel] += 0.1
    places = kept.positions_in(model.spec)
    now = model.task_map.theta(1).detach().chunk(2)[0]
    fresh = torch.ones(model.spec.numel, dtype=torch.bool)
    fresh[places] = False
    expected = (
        0.5 * ((strength * fisher + 1 / VARIANCE) * (now[places] - old).square()).sum()
        + 0.5 * now[fresh].square().sum() / VARIANCE
    )
    actual = strategy.penalty(model, 1, generator=rng)
    assert actual is not None
    torch.testing.assert_close(actual.detach(), expected)


def test_training_uses_a_point_and_prediction_the_gaussian(rng: Generator) -> None:
    model, _ = parts()
    model.add_task(2, generator=rng)
    assert isinstance(model.training_posterior(0), Dirac)
    posterior = model.posterior(0)
    assert isinstance(posterior, LinearisedGaussian)
    torch.testing.assert_close(posterior.scale.detach(), torch.full((model.spec.numel,), VARIANCE**0.5))
    sampled, _ = parts(strategy__linearised=False)
    sampled.add_task(2, generator=rng)
    assert isinstance(sampled.posterior(0), MeanFieldGaussian)
    point, _ = parts("ewc-dirac")
    point.add_task(2, generator=rng)
    assert isinstance(point.posterior(0), Dirac)


@pytest.mark.parametrize("count", [1, 4, 7])
def test_samples_of_gaussian_outputs_come_in_pairs(count: int, rng: Generator) -> None:
    """The pairs' mean prediction is the mean's class, samples have the Gaussian's moments, even a singular one's."""
    mean = torch.tensor([[1.0, -2.0], [0.5, 0.1]])
    covariance = torch.tensor([[[4.0, 1.0], [1.0, 9.0]], [[1.0, 2.0], [2.0, 4.0]]])
    draws = output_samples(mean, covariance, count, generator=rng)
    assert draws.shape == (count, 2, 2)
    pairs = draws[: count // 2 * 2].view(-1, 2, 2, 2)
    torch.testing.assert_close(pairs.mean(1), mean.expand(len(pairs), -1, -1))
    many = output_samples(mean, covariance, 40_000, generator=rng)
    for actual, expected in zip(many.unbind(1), covariance, strict=True):
        torch.testing.assert_close(torch.cov(actual.T), expected, rtol=0.03, atol=0.03)
    assert torch.equal(many.softmax(-1).mean(0).argmax(-1), mean.argmax(-1))


def test_predictions_of_the_gaussian_in_the_network_itself(rng: Generator) -> None:
    model, _ = parts(strategy__linearised=False)
    model.add_task(2, generator=rng)
    x = torch.randn(5, 3, generator=rng)
    actual = predictive_outputs(model, x, 0, 4, generator=Generator().manual_seed(1), batch_size=2)  # in three parts
    weights = model.posterior(0).rsample(4, generator=Generator().manual_seed(1)).detach()
    each = [functional_call(model.network, model.spec.unflatten(flat), (x,)) for flat in weights]
    torch.testing.assert_close(actual, torch.stack(each)[..., model.heads[0]])


def test_linearised_outputs_are_those_of_linearised_weight_samples(
    rng: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their moments are those of f(m) + J (w - m) over 50,000 weight samples within 3 %, for any batch size."""
    model, _ = parts()
    for classes in (2, 3):
        model.add_task(classes, generator=rng)
    x, point = torch.randn(5, 3, generator=rng), model.task_map.theta(0).detach().chunk(2)[0]
    scale = 0.1 + torch.rand(point.shape, generator=rng)

    def outputs(flat: Tensor) -> Tensor:
        return cast(Tensor, functional_call(model.network, model.spec.unflatten(flat), (x,)))[:, model.heads[1]]

    slopes = torch.func.jacrev(outputs)(point)  # (B, C, W)
    noise = scale * torch.randn(50_000, len(point), generator=rng)
    sampled = outputs(point) + torch.einsum("bcw,sw->sbc", slopes, noise)
    mean, covariance = linearised_outputs(model.network, model.spec, point, scale, x, model.heads[1])
    torch.testing.assert_close(mean, outputs(point))
    for actual, drawn in zip(covariance, sampled.unbind(1), strict=True):
        torch.testing.assert_close(actual, torch.cov(drawn.T), rtol=0.03, atol=0.03 * float(actual.max()))
    monkeypatch.setattr(weights_module, "JACOBIAN_ELEMENTS", 2 * 3 * len(point))
    torch.testing.assert_close(
        linearised_outputs(model.network, model.spec, point, scale, x, model.heads[1]), (mean, covariance)
    )


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh", "elu", "linear"])
@pytest.mark.parametrize("hidden", [(), (4,), (5, 3)])
def test_an_mlp_takes_the_short_way_to_the_same_outputs(
    hidden: tuple[int, ...], activation: str, rng: Generator
) -> None:
    mlp = MLP((3,), hidden, 4, activation)
    spec, x = WeightSpec.of(mlp), torch.randn(6, 3, generator=rng)
    mean, scale = torch.randn(spec.numel, generator=rng), 0.1 + torch.rand(spec.numel, generator=rng)
    for columns in (slice(None), slice(1, 3)):
        expected = linearised_outputs(mlp, spec, mean, scale, x, columns)
        torch.testing.assert_close(linearised_mlp_outputs(mlp, spec, mean, scale, x, columns), expected)


def test_the_predictive_variance_of_a_linear_model_is_exact() -> None:
    """y = w x + b: the output's variance is x^2 / precision_w + 1 / precision_b, within 5 % over 20,000 samples."""
    config = build_config({"method": "ewc-multihead", "network": "mlp"}, {"posterior.likelihood_scale": 0.5}, "test")
    model, strategy = build_model(config, "regression", Scenario.DOMAIN, (1,)), cast(OnlineEWC, build_strategy(config))
    model.add_task(1, generator=Generator().manual_seed(0))
    strategy.before_task(model, 0)
    strategy.after_task(model, 0, TaskData(torch.tensor([[1.0], [-2.0], [0.5]]), torch.tensor([[0.3], [1.0], [-1.0]])))
    precision, x = model.task_map.theta(0).detach()[2:], torch.tensor([[0.0], [0.7], [-3.0]])
    actual = predictive_outputs(model, x, 0, 20_000, generator=Generator().manual_seed(0)).var(0)
    torch.testing.assert_close(actual, x.square() / precision[0] + 1 / precision[1], rtol=0.05, atol=0.0)


def test_training_leaves_precisions_alone_until_the_task_is_done(rng: Generator) -> None:
    config = build_config({"method": "ewc-multihead", "network": "mlp-4"}, {"training.iterations": 3}, "test")
    learner = ContinualLearner(config, "classification", Scenario.CLASS, (3,))
    data = some_data(8, 2, rng)
    for step in learner.begin_task(TaskData(data.x, data.y), 2):
        precision = learner.model.task_map.theta(0).detach().chunk(2)[1]
        assert (precision == 1).all(), step.iteration
    assert (learner.model.task_map.theta(0).detach().chunk(2)[1] > 1).any()


@pytest.mark.parametrize(
    ("method", "key", "value", "reason"),
    [
        (
            "ewc-dirac",
            "strategy.linearised",
            False,
            "Gaussian posteriors built by EWC; ewc-dirac has point estimates held by EWC",
        ),
        ("ewc-multihead", "strategy.penalty", "w2", "posterior replay, .*; ewc-multihead uses online EWC"),
        ("ewc-multihead", "strategy.old_tasks", 1, "posterior replay, .*; ewc-multihead uses online EWC"),
        (
            "ewc-multihead",
            "posterior.train_samples",
            2,
            "Gaussian posteriors, .*; ewc-multihead has Gaussian posteriors built by EWC",
        ),
        (
            "ewc-multihead",
            "posterior.prior_scale",
            0.1,
            "Gaussian posteriors, .*; ewc-multihead has Gaussian posteriors built by EWC",
        ),
    ],
)
def test_settings_of_other_parts_are_refused(method: str, key: str, value: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key} belongs to {reason}\. Remove it, or choose a method such as "):
        build_config({"method": method}, {key: value}, "test")


def test_the_published_precision_starts_at_the_scaled_prior(rng: Generator) -> None:
    """The first task's is N/n (1 / sigma^2 + sum of squared gradients); later ones add theirs; lambda takes all."""
    model, strategy = parts(strategy__scaled_prior=True, strategy__strength=3.0, strategy__fisher_samples=4)
    expected = torch.empty(0)
    for task in range(2):
        model.add_task(2, generator=rng)
        strategy.before_task(model, task)
        data, precision = some_data(8, 2, rng), model.task_map.theta(task).detach().chunk(2)[1].clone()
        assert strategy.importance is not None
        wanted = torch.where(model.fresh, 1 / VARIANCE, 3.0 * precision)  # new weights: the prior without lambda
        torch.testing.assert_close(strategy.importance, wanted)
        again = OnlineEWC(strategy.settings, strategy.prior)  # type: ignore[arg-type]
        again.load_state(model, strategy.state())
        fisher = summed_squared_gradients(model, task, data, 4)
        expected = torch.where(model.fresh, 2 / VARIANCE, precision) + fisher
        again.after_task(model, task, data)
        torch.testing.assert_close(model.task_map.theta(task).detach().chunk(2)[1], expected)
        assert again.fresh is None


def test_outputs_of_all_tasks_from_the_start(rng: Generator) -> None:
    config = build_config({"method": "ewc-growing", "network": "mlp-4"}, {"outputs_from_start": True}, "test")
    model = build_model(config, "classification", Scenario.CLASS, (3,), 6)
    for known in (2, 4, 6):
        model.add_task(2, generator=rng)
        assert model.outputs == 6
        assert model.training_columns(model.num_tasks - 1) == slice(0, known)
    assert not model.fresh.any()
    again = build_model(config, "classification", Scenario.CLASS, (3,), 6)
    again.restore(model.head_bounds(), model.tensors())
    assert again.outputs == 6
    with pytest.raises(ConfigError, match="only a run on a benchmark"):
        build_model(config, "classification", Scenario.CLASS, (3,))
