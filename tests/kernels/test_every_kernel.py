"""Every fused autograd function against its plain reference: its value, and every gradient."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

import metareplay.kernels
from metareplay.kernels.gaussian_kl import gaussian_kl, gaussian_kl_reference
from metareplay.kernels.product_distance import OldLayer, product_distance, product_distance_reference
from metareplay.kernels.quadratic import quadratic_change, quadratic_change_reference
from metareplay.kernels.reparametrise import reparametrise, reparametrise_reference
from metareplay.kernels.with_score import with_score, with_score_reference

Function = Callable[..., Tensor]


@dataclass(frozen=True)
class Case:
    """One fused function, its reference, and inputs as a caller has them."""

    module: str
    fused: Function
    reference: Function
    inputs: tuple[Tensor, ...]
    """In double precision."""
    differentiated: tuple[bool, ...]
    """Which of them get a gradient."""
    twice: bool = False
    """Whether it can be differentiated twice and mapped by vmap."""


def _normal(*shape: int) -> Tensor:
    seed = sum((place + 1) * size for place, size in enumerate(shape))
    return torch.randn(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def _scales(*shape: int) -> Tensor:
    return 0.3 + 0.5 * _normal(*shape).abs()


def _number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _reparametrise(samples: int, *shape: int) -> Case:
    inputs = _normal(*shape), _scales(*shape), _normal(samples, *shape)
    return Case("reparametrise", reparametrise, reparametrise_reference, inputs, (True, True, False), twice=True)


def _gaussian_kl(*inputs: Tensor) -> Case:
    return Case("gaussian_kl", gaussian_kl, gaussian_kl_reference, inputs, (True,) * 4)


def _with_score(samples: int) -> Case:
    inputs = _normal(samples, 6), _normal(samples, 6) + 1
    return Case("with_score", with_score, with_score_reference, inputs, (False, True))


def _quadratic(*shape: int) -> Case:
    inputs = _scales(*shape), _normal(*shape), _normal(*shape).flip(-1)
    return Case("quadratic", quadratic_change, quadratic_change_reference, inputs, (False, False, True))


def _product_distance(tasks: int, chunks: int, width: int, used: int) -> Case:
    weight, bias, change = _normal(5, width), _normal(5), _normal(width, 5).T
    state = weight + 0.5 * change, bias.flip(0)

    def given(function: Function, *inputs: Tensor) -> Tensor:
        return function(*inputs, OldLayer(state[0].to(inputs[0]), state[1].to(inputs[0]), used))

    old = OldLayer(*state, used)
    v, v_old = old.inputs(_normal(tasks, chunks, width)), old.inputs(_normal(chunks, tasks, width).transpose(0, 1))
    fused, reference = (partial(given, function) for function in (product_distance, product_distance_reference))
    return Case("product_distance", fused, reference, (weight, bias, v, v_old), (True, True, True, False))


CASES = {
    "one sample": _reparametrise(1, 4),
    "samples": _reparametrise(3, 4),
    "samples of several posteriors": _reparametrise(3, 2, 4),
    "two Gaussians": _gaussian_kl(_normal(7), _scales(7), _normal(7) / 2, _scales(7).flip(0)),
    "pairs of Gaussians": _gaussian_kl(_normal(3, 7), _scales(3, 7), _normal(3, 7) / 2, _scales(3, 7).flip(0)),
    "several Gaussians and one": _gaussian_kl(_normal(3, 7), _scales(3, 7), _normal(7), _scales(7)),
    "one Gaussian and several": _gaussian_kl(_normal(7), _scales(7), _normal(3, 7), _scales(3, 7)),
    "Gaussians and a fixed prior": _gaussian_kl(_normal(3, 7), _scales(3, 7), _number(0.0), _number(0.7)),
    "score at one sample": _with_score(1),
    "score at samples": _with_score(4),
    "change of one vector": _quadratic(6),
    "change of several vectors": _quadratic(3, 6),
    "a plain layer": _product_distance(3, 1, 8, used=5),
    "chunks": _product_distance(3, 4, 5, used=5),
    "chunks, the last one short": _product_distance(3, 4, 5, used=2),
    "chunks of one task": _product_distance(1, 2, 7, used=1),  # nothing is padded: [h; 1] has 8 elements
}


@pytest.fixture(params=CASES, ids=lambda name: name.replace(" ", "-"))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def _value_and_gradients(function: Function, case: Case, dtype: torch.dtype) -> tuple[Tensor, list[Tensor | None]]:
    """With a different weight on every element of the value, and every input asking for a gradient."""
    inputs = [tensor.detach().to(dtype).requires_grad_() for tensor in case.inputs]
    value = function(*inputs)
    weights = torch.linspace(-1, 2, value.numel(), dtype=dtype).view(value.shape)
    return value.detach(), list(torch.autograd.grad((weights * value).sum(), inputs, allow_unused=True))


def _leaves(case: Case) -> list[Tensor]:
    """Copies of the inputs; those that get a gradient ask for one."""
    pairs = zip(case.inputs, case.differentiated, strict=True)
    return [tensor.clone().requires_grad_(wanted) for tensor, wanted in pairs]


def test_every_file_is_tested() -> None:
    files = {path.stem for path in Path(metareplay.kernels.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == {case.module for case in CASES.values()}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_value_and_gradients_are_those_of_the_reference(case: Case, dtype: torch.dtype) -> None:
    tolerance = 1e-12 if dtype is torch.float64 else 2e-5
    value, gradients = _value_and_gradients(case.fused, case, dtype)
    expected_value, expected_gradients = _value_and_gradients(case.reference, case, dtype)
    torch.testing.assert_close(value, expected_value, rtol=tolerance, atol=tolerance)
    for gradient, expected, tensor in zip(gradients, expected_gradients, case.inputs, strict=True):
        assert (gradient is None) == (expected is None)
        if gradient is not None:
            assert gradient.shape == tensor.shape
            torch.testing.assert_close(gradient, expected, rtol=tolerance, atol=tolerance)


def test_gradients_reach_the_inputs_that_they_should(case: Case) -> None:
    gradients = _value_and_gradients(case.fused, case, torch.float64)[1]
    assert tuple(gradient is not None for gradient in gradients) == case.differentiated
    assert all(gradient.any() for gradient in gradients if gradient is not None)


def test_an_input_asked_for_alone_gets_the_same_gradient(case: Case) -> None:
    together = _value_and_gradients(case.fused, case, torch.float64)[1]
    for place, expected in enumerate(together):
        if expected is not None:
            inputs = [tensor.clone().requires_grad_(place == position) for position, tensor in enumerate(case.inputs)]
            value = case.fused(*inputs)
            weights = torch.linspace(-1, 2, value.numel(), dtype=value.dtype).view(value.shape)
            (gradient,) = torch.autograd.grad((weights * value).sum(), inputs[place])
            torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-12)


def test_inputs_stay_as_they_are(case: Case) -> None:
    before = [tensor.clone() for tensor in case.inputs]
    _value_and_gradients(case.fused, case, torch.float64)
    assert all(torch.equal(tensor, old) for tensor, old in zip(case.inputs, before, strict=True))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.module != "with_score"])  # always zero
def test_gradients_are_those_of_the_value(name: str) -> None:
    case = CASES[name]
    inputs = _leaves(case)
    assert torch.autograd.gradcheck(case.fused, inputs)


def test_what_can_be_differentiated_once_says_so_the_second_time(case: Case) -> None:
    inputs = _leaves(case)
    if case.twice:
        assert torch.autograd.gradgradcheck(case.fused, inputs)
        return
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    factor = _number(2.0).requires_grad_()  # a gradient that comes in and has one itself
    gradients = torch.autograd.grad(factor * case.fused(*inputs).sum(), wanted, create_graph=True)
    for gradient in gradients:
        with pytest.raises(RuntimeError, match="once_differentiable"):
            gradient.sum().backward()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.twice])
def test_vmap_gives_what_a_loop_gives(name: str) -> None:
    case = CASES[name]
    batched = [torch.stack([tensor, 2 * tensor, tensor + 1]) for tensor in case.inputs]
    looped = torch.stack([case.fused(*inputs) for inputs in zip(*batched, strict=True)])
    torch.testing.assert_close(torch.func.vmap(case.fused)(*batched), looped)
    value, pull = torch.func.vjp(lambda *inputs: case.fused(*inputs, case.inputs[-1]), *case.inputs[:-1])
    slopes = torch.stack([torch.ones_like(value), value.detach(), -value.detach().square()])
    looped_pulls = zip(*(pull(slope) for slope in slopes), strict=True)
    for together, apart in zip(torch.func.vmap(pull)(slopes), looped_pulls, strict=True):
        torch.testing.assert_close(together, torch.stack(apart))


# What only one of them promises.


def test_samples_are_rounded_as_addcmul_rounds() -> None:
    mean, scale, noise = CASES["samples"].inputs
    assert torch.equal(reparametrise(mean, scale, noise), torch.addcmul(mean, scale, noise))


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_score_that_is_not_finite_makes_the_value_nan(broken: float) -> None:
    score, weights = _normal(2, 6), _normal(2, 6).requires_grad_()
    score[0, 3] = broken
    assert with_score(score, weights).isnan()


def test_the_distance_from_the_same_layer_is_exactly_zero() -> None:
    weight, bias = _normal(5, 7).float().requires_grad_(), _normal(5).float().requires_grad_()
    old = OldLayer(weight, bias, used=3)
    v = old.inputs(_normal(2, 4, 7).float()).requires_grad_()
    value = product_distance(weight, bias, v, v.detach().clone(), old)
    assert float(value.detach()) == 0
    assert not any(gradient.any() for gradient in torch.autograd.grad(value, (weight, bias, v)))


def test_an_old_layer_is_a_copy_and_pads_with_zeros() -> None:
    weight, bias = _normal(5, 6), _normal(5)
    old = OldLayer(weight, bias, used=5)
    weight.zero_()
    assert old.a.shape == (5, 8)
    assert old.a[:, :7].all()
    assert not old.a[:, 7:].any()
    padded = old.inputs(torch.zeros(2, 3, 6, dtype=torch.float64))
    assert torch.equal(padded[1, 2], torch.eye(8, dtype=torch.float64)[6])
