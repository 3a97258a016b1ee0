"""A user's own network: a function or class named ``package.module:function`` that builds any ``nn.Module``."""

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from metareplay.errors import ConfigError
from metareplay.nets.base import NetworkFactory, NetworkPart, register_network
from metareplay.nets.weights import Buffers, WeightSpec
from metareplay.settings import Composition

HOW = (
    "write package.module:function, with a function of (input_shape, outputs) or of (outputs) that returns an nn.Module"
)


def load_function(name: str) -> Callable[..., Any]:
    """The function or class that a name stands for; modules in the current folder are found too."""
    module_name, _, function_name = name.partition(":")
    if (
        not module_name
        or not function_name.isidentifier()
        or not all(part.isidentifier() for part in module_name.split("."))
    ):
        raise ConfigError(f"network={name!r} names no function; {HOW}")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
        importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"network={name!r}: there is no module {error.name!r} in {here} or among the installed packages; {HOW}"
            ) from error
        raise ConfigError(f"network={name!r}: importing {module_name} failed: {_words(error)}") from error
    except Exception as error:  # whatever the user's module does
        raise ConfigError(f"network={name!r}: importing {module_name} failed: {_words(error)}") from error
    function = getattr(module, function_name, None)
    if function is None:
        raise ConfigError(
            f"network={name!r}: {getattr(module, '__file__', None) or module_name} has no function {function_name!r}; {HOW}"
        )
    if not (inspect.isfunction(function) or inspect.isclass(function)):
        raise ConfigError(f"network={name!r} is a {type(function).__name__}, no Python function or class; {HOW}")
    return function


def name_of(function: Callable[..., Any]) -> str:
    """The name under which ``load_function`` finds this function again."""
    module, name = str(getattr(function, "__module__", None)), str(getattr(function, "__qualname__", None))
    found = getattr(sys.modules.get(module), name, None)
    if found is not function or not (inspect.isfunction(function) or inspect.isclass(function)):
        raise ConfigError(
            f"network={function!r} cannot be found again when a model is loaded; give the name of a network, or a function or class "
            "that is defined at the top of a module"
        )
    return f"{module}:{name}"


def build_own(name: str, function: Callable[..., Any], input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Call the user's function."""
    positional, named = _arguments(name, function, input_shape, outputs)
    try:
        network = function(*positional, **named)
    except ConfigError:
        raise
    except Exception as error:  # whatever the user's function does
        raise ConfigError(
            f"network={name!r} failed for inputs of shape {input_shape} and {outputs} outputs: {_words(error)}"
        ) from error
    if not isinstance(network, nn.Module):
        raise ConfigError(f"network={name!r} returned a {type(network).__name__}, no nn.Module; {HOW}")
    for weight, parameter in network.named_parameters():
        if isinstance(parameter, nn.UninitializedParameter):
            raise ConfigError(
                f"network={name!r}: the weight {weight!r} of a lazy layer has no shape yet; use the layer that is told its inputs"
            )
        if not parameter.requires_grad:
            raise ConfigError(
                f"network={name!r}: the weight {weight!r} is frozen (requires_grad=False), but every weight gets a posterior and would "
                "not stay as it is; keep what is fixed as a buffer (register_buffer), or compute such features beforehand"
            )
    return network


def _arguments(
    name: str, function: Callable[..., Any], input_shape: tuple[int, ...], outputs: int
) -> tuple[list[Any], dict[str, Any]]:
    """How to call a function of (input_shape, outputs) or of (outputs): by these names if it has them, else by position."""
    given: dict[str, Any] = {"input_shape": input_shape, "outputs": outputs}
    everything = inspect.signature(function).parameters.values()
    parameters = [each for each in everything if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    required = [each.name for each in parameters if each.default is each.empty]
    named = {
        each.name: given[each.name]
        for each in parameters
        if each.name in given and each.kind is not each.POSITIONAL_ONLY
    }
    if "outputs" in named and set(required) <= set(named):
        return [], named
    if (
        len(required) in (1, 2)
        and [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY][: len(required)] == required
    ):
        return ([input_shape, outputs] if len(required) == 2 else [outputs]), {}
    raise ConfigError(
        f"network={name!r} takes {', '.join(required) or 'no arguments'}; it must take (input_shape, outputs) or (outputs)"
    )


def check_outputs(network: nn.Module, x: Tensor, outputs: int, buffers: Buffers) -> None:
    """Refuse a network that cannot run on these inputs (B, ...), or gives anything but (B, outputs)."""
    kind = type(network).__name__
    try:
        with torch.no_grad():
            functional_call(network, dict(buffers), (x[:1],))  # also a single input must have an answer
            found = functional_call(network, dict(buffers), (x,))
    except Exception as error:  # whatever the user's module does
        raise ConfigError(
            f"the network {kind} fails on inputs of shape {tuple(x.shape[1:])}: {_words(error)}"
        ) from error
    if not isinstance(found, Tensor):
        raise ConfigError(
            f"the network {kind} returns a {type(found).__name__}; it must return one tensor of shape (batch, outputs)"
        )
    if found.shape != (len(x), outputs):
        raise ConfigError(
            f"the network {kind} gives outputs of shape {tuple(found.shape)} for {len(x)} inputs and {outputs} outputs asked for; "
            f"it must give {(len(x), outputs)}"
        )


def check_growth(
    old: tuple[nn.Module, WeightSpec, Mapping[str, Tensor]],
    new: tuple[nn.Module, WeightSpec, Mapping[str, Tensor]],
    x: Tensor,
) -> None:
    """Refuse a network whose earlier outputs change when it is given more outputs: what was learned would be lost."""
    flat, place = new[1].flatten(new[0]), old[1].positions_in(new[1])
    flat = flat + 0.01 * torch.randn(len(flat), generator=torch.Generator().manual_seed(0)).to(
        flat
    )  # also where weights start at zero
    before, after = (_run(*each, x) for each in ((old[0], old[1], old[2], flat[place]), (new[0], new[1], new[2], flat)))
    difference = (after[:, : before.shape[1]] - before).abs().max()
    if not float(difference) <= 1e-3 * float(before.abs().max()) + 1e-6:
        raise ConfigError(
            f"the network {type(new[0]).__name__} cannot be given more outputs: its earlier outputs change, so that earlier tasks would be "
            "lost; let the number of outputs change the last layer alone, or choose a method whose tasks need no outputs of their own"
        )


def _run(network: nn.Module, spec: WeightSpec, buffers: Mapping[str, Tensor], flat: Tensor, x: Tensor) -> Tensor:
    with torch.no_grad():
        return functional_call(network, {**spec.unflatten(flat), **buffers}, (x,))


def _words(error: Exception) -> str:
    """An error of the user's code in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _factory(name: str, input_shape: tuple[int, ...], parts: Composition) -> NetworkFactory:
    function = load_function(name)
    return lambda outputs: build_own(name, function, input_shape, outputs)


register_network(
    NetworkPart(
        name="own",
        phrase="a network of your own",
        pattern=".*:.*",
        title="MODULE:FUNCTION",
        description="your own: a function of (input_shape, outputs) or (outputs) that returns any nn.Module",
        build=_factory,
        check=load_function,
    )
)
