"""Optimisers: limits on gradients, and a state that can be stored and continued to the last bit."""

import pytest
import torch
from torch import nn

from metareplay.optimisers import LBFGS, adam, clip_gradients, optimiser_tensors, restore_optimiser


def parameters(count: int = 2) -> list[nn.Parameter]:
    return [nn.Parameter(torch.linspace(-1, 1, 3) + index) for index in range(count)]


def step(optimiser: torch.optim.Optimizer, owned: list[nn.Parameter], factor: float) -> None:
    for index, parameter in enumerate(owned):
        parameter.grad = factor * parameter.detach() + index
    optimiser.step()


def test_a_restored_optimiser_goes_on_exactly() -> None:
    owned = parameters()
    optimiser = adam(owned, 0.1)
    assert optimiser_tensors(optimiser) == {}
    for factor in (1.0, -2.0, 0.5):
        step(optimiser, owned, factor)
    copies = [nn.Parameter(parameter.detach().clone()) for parameter in owned]
    other = adam(copies, 0.1)
    stored = optimiser_tensors(optimiser)
    assert {name.partition(".")[0] for name in stored} == {"0", "1"}
    restore_optimiser(other, stored)
    for factor in (0.3, 4.0):
        step(optimiser, owned, factor)
        step(other, copies, factor)
    assert all(torch.equal(a, b) for a, b in zip(owned, copies, strict=True))


def test_without_the_compiler_steps_are_pytorchs_own() -> None:
    """That it is not imported: test_determinism.py, in a process of its own."""
    owned, copies = parameters(), parameters()
    ours, theirs = adam(owned, 0.1), torch.optim.Adam(copies, lr=0.1, fused=True)
    for factor in (1.0, -2.0, 0.5):
        step(ours, owned, factor)
        step(theirs, copies, factor)
        assert all(torch.equal(a, b) for a, b in zip(owned, copies, strict=True))
    ours.zero_grad()
    assert all(parameter.grad is None for parameter in owned)
    for parameter, optimiser in ((owned[0], LBFGS([owned[0]])), (copies[0], torch.optim.LBFGS([copies[0]]))):

        def loss(parameter: nn.Parameter = parameter, optimiser: torch.optim.Optimizer = optimiser) -> float:
            optimiser.zero_grad()
            value = (parameter - 3).pow(4).sum()
            value.backward()
            return float(value.detach())

        optimiser.step(loss)
    assert torch.equal(owned[0], copies[0])


@pytest.mark.parametrize(
    ("value", "norm", "expected"),
    [(None, None, [3.0, 4.0]), (3.5, None, [3.0, 3.5]), (None, 2.5, [1.5, 2.0]), (3.0, 2.0, [2**0.5, 2**0.5])],
)
def test_gradients_are_clipped_by_value_then_by_norm(
    value: float | None, norm: float | None, expected: list[float]
) -> None:
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([3.0, 4.0])
    clip_gradients([parameter], value=value, norm=norm)
    torch.testing.assert_close(parameter.grad, torch.tensor(expected), atol=1e-5, rtol=1e-5)
