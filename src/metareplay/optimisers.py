"""What every optimiser needs besides its step: gradient clipping, and its state as tensors for a checkpoint."""

import inspect
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

# PyTorch's optimisers import its compiler, which takes about as long as PyTorch itself, only to keep some of their
# methods out of compiled code. Nothing is compiled here, so these are the same methods without that.


class Adam(torch.optim.Adam):
    """Adam, which starts without the compiler."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


class PlainOptimiser(Optimizer):
    """The base of optimisers of our own; likewise."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)


class LBFGS(torch.optim.LBFGS):
    """Likewise."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)


def adam(parameters: Sequence[nn.Parameter], learning_rate: float) -> Optimizer:
    """Adam, fused where the device supports it."""
    fused = all(parameter.device.type in ("cpu", "cuda", "mps") for parameter in parameters)
    return Adam(parameters, lr=learning_rate, fused=fused)


def clip_gradients(parameters: Sequence[nn.Parameter], *, value: float | None, norm: float | None) -> None:
    """Clip each element of the gradient, then its norm; None: no limit."""
    if value is not None:
        nn.utils.clip_grad_value_(parameters, value)
    if norm is not None:
        nn.utils.clip_grad_norm_(parameters, norm)


def optimiser_tensors(optimiser: Optimizer) -> dict[str, Tensor]:
    """The moments and step counts of every parameter, named by its position."""
    return {
        f"{index}.{name}": value
        for index, parameter in enumerate(_parameters(optimiser))
        for name, value in optimiser.state.get(parameter, {}).items()
    }


def restore_optimiser(optimiser: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Continue with the moments and step counts from ``optimiser_tensors``."""
    parameters = _parameters(optimiser)
    for name, value in tensors.items():
        index, _, key = name.partition(".")
        parameter = parameters[int(index)]
        optimiser.state[parameter][key] = value.clone().to(parameter.device)


def _parameters(optimiser: Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimiser.param_groups for parameter in group["params"]]
