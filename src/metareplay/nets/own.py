"""A user's own network: a function or class named ``package.module:function`` that builds any ``nn.Module``."""

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from metareplay.errors import ConfigError
from metareplay.files import real_path
from metareplay.nets.base import NetworkFactory, NetworkPart, register_network
from metareplay.nets.weights import Buffers, WeightSpec
from metareplay.permissions import is_permitted
from metareplay.settings import Composition
from metareplay.texts import read_json_file

STORED = ("model.safetensors", "config.yaml", "metrics.jsonl")
HOW = (
    "write package.module:function, with a function of (input_shape, outputs) or of (outputs) that returns an nn.Module"
)


def load_function(name: str) -> Callable[..., Any]:
    """The function or class with this name, which the user must have permitted; the current folder is searched too.

    Nothing is imported from the folder of a model or a run.
    """
    module_name, _, function_name = name.partition(":")
    if (
        not module_name
        or not function_name.isidentifier()
        or not all(part.isidentifier() for part in module_name.split("."))
    ):
        raise ConfigError(f"network={name!r} does not name a function; {HOW}")
    refuse_unpermitted(name)
    here = str(Path.cwd())
    if module_name not in sys.modules:
        _refuse_stored_code(name, module_name, [*sys.path, here])
    if here not in sys.path and stored_folder(Path(here)) is None:
        sys.path.append(here)
        importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"network={name!r}: there is no module {error.name!r} in {here} or among the installed packages; {HOW}"
            ) from error
        raise ConfigError(f"network={name!r}: importing {module_name} failed: {words_of(error)}") from error
    except Exception as error:  # whatever the user's module does
        raise ConfigError(f"network={name!r}: importing {module_name} failed: {words_of(error)}") from error
    function = getattr(module, function_name, None)
    if function is None:
        raise ConfigError(
            f"network={name!r}: {getattr(module, '__file__', None) or module_name} "
            f"has no function {function_name!r}; {HOW}"
        )
    if not (inspect.isfunction(function) or inspect.isclass(function)):
        raise ConfigError(f"network={name!r} is a {type(function).__name__}, not a Python function or class; {HOW}")
    return function


def refuse_unpermitted(name: str) -> None:
    """Refuse code that only a file names."""
    if not is_permitted(name):
        raise ConfigError(
            f"network={name!r} is code that a stored model or configuration names, and opening one never runs code; "
            f"if you know and trust it, say so: --trust-network {name}, or load(..., network=function) in Python"
        )


def _refuse_stored_code(name: str, module_name: str, path: list[str]) -> None:
    """Refuse a module in the folder of a model or a run; finding it imports nothing."""
    found: str | None = None
    parts = module_name.split(".")
    for count in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:count]), path)
        if spec is None:
            return  # not a file: whoever imports it says so
        path = list(spec.submodule_search_locations or [])
        for place in (spec.origin, *path):
            if place is not None and (folder := stored_folder(Path(place))) is not None:
                found = str(folder)
    if found is not None:
        raise ConfigError(
            f"network={name!r}: the module is in {found}, the folder of a model or a run, from which no code is "
            "imported; move it elsewhere if you trust it"
        )


def stored_folder(path: Path) -> Path | None:
    """The folder of a model or a run that contains a path."""
    for folder in (path := real_path(path), *path.parents):
        names = {name for name in STORED if (folder / name).exists()}
        if names & {"model.safetensors"} or names >= {"config.yaml", "metrics.jsonl"} or _is_first_format(folder):
            return folder
    return None


def _is_first_format(folder: Path) -> bool:
    """Whether this is the folder of a model of version 0.1."""
    try:
        return str(read_json_file(folder / "model.json")["format"]).startswith("metareplay")
    except (OSError, ValueError, KeyError, TypeError):
        return False


def name_of(function: Callable[..., Any]) -> str:
    """The name under which ``load_function`` finds this function again."""
    module, name = str(getattr(function, "__module__", None)), str(getattr(function, "__qualname__", None))
    importable = getattr(sys.modules.get(module), name, None)
    if importable is not function or not (inspect.isfunction(function) or inspect.isclass(function)):
        raise ConfigError(
            f"network={function!r} cannot be imported when a model is loaded; give the name of a network, "
            "or a function or class defined at the top level of a module"
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
            f"network={name!r} failed for inputs of shape {input_shape} and {outputs} outputs: {words_of(error)}"
        ) from error
    if not isinstance(network, nn.Module):
        raise ConfigError(f"network={name!r} returned a {type(network).__name__}, not an nn.Module; {HOW}")
    for weight, parameter in network.named_parameters():
        if isinstance(parameter, nn.UninitializedParameter):
            raise ConfigError(
                f"network={name!r}: the weight {weight!r} of a lazy layer has no shape yet; "
                "use a layer with a fixed input size"
            )
    return network


def _arguments(
    name: str, function: Callable[..., Any], input_shape: tuple[int, ...], outputs: int
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments for a function of (input_shape, outputs) or (outputs): by name where possible, else by position."""
    values: dict[str, Any] = {"input_shape": input_shape, "outputs": outputs}
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    signature = inspect.signature(function)
    parameters = [parameter for parameter in signature.parameters.values() if parameter.kind not in variadic]
    required = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    named = {
        parameter.name: values[parameter.name]
        for parameter in parameters
        if parameter.name in values and parameter.kind is not parameter.POSITIONAL_ONLY
    }
    if "outputs" in named and set(required) <= set(named):
        return [], named
    positional = [parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]
    if len(required) in (1, 2) and positional[: len(required)] == required:
        return ([input_shape, outputs] if len(required) == 2 else [outputs]), {}
    raise ConfigError(
        f"network={name!r} takes {', '.join(required) or 'no arguments'}; "
        "it must take (input_shape, outputs) or (outputs)"
    )


def check_outputs(network: nn.Module, x: Tensor, outputs: int, buffers: Buffers) -> None:
    """Refuse a network that cannot run on these inputs (B, ...), or returns anything but (B, outputs)."""
    kind = type(network).__name__
    try:
        with torch.no_grad():
            functional_call(network, dict(buffers), (x[:1],))  # a single input must work too
            result = functional_call(network, dict(buffers), (x,))
    except Exception as error:  # whatever the user's module does
        raise ConfigError(
            f"the network {kind} fails on inputs of shape {tuple(x.shape[1:])}: {words_of(error)}"
        ) from error
    if not isinstance(result, Tensor):
        raise ConfigError(
            f"the network {kind} returns a {type(result).__name__}; it must return one tensor of shape (batch, outputs)"
        )
    if result.shape != (len(x), outputs):
        raise ConfigError(
            f"the network {kind} returns outputs of shape {tuple(result.shape)} for {len(x)} inputs "
            f"and {outputs} outputs; it must return {(len(x), outputs)}"
        )


def check_growth(
    old: tuple[nn.Module, WeightSpec, Mapping[str, Tensor]],
    new: tuple[nn.Module, WeightSpec, Mapping[str, Tensor]],
    x: Tensor,
) -> None:
    """Refuse a network whose existing outputs change when it is given more: what was learned would be lost."""
    flat, place = new[1].flatten(new[0]), old[1].positions_in(new[1])
    noise = torch.randn(len(flat), generator=torch.Generator().manual_seed(0)).to(flat)
    flat = flat + 0.01 * noise  # so that weights initialised to zero matter too
    before, after = _run(*old, flat[place], x), _run(*new, flat, x)
    difference = (after[:, : before.shape[1]] - before).abs().max()
    if not float(difference) <= 1e-3 * float(before.abs().max()) + 1e-6:
        raise ConfigError(
            f"the network {type(new[0]).__name__} cannot be given more outputs: its existing outputs change, "
            "so earlier tasks would be lost; let the number of outputs change only the last layer, "
            "or choose a method whose tasks share their outputs"
        )


def _run(network: nn.Module, spec: WeightSpec, buffers: Mapping[str, Tensor], flat: Tensor, x: Tensor) -> Tensor:
    with torch.no_grad():
        return functional_call(network, {**spec.unflatten(flat), **buffers}, (x,))


def words_of(error: Exception) -> str:
    """An error in the user's code, in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _factory(name: str, input_shape: tuple[int, ...], parts: Composition) -> NetworkFactory:
    function = load_function(name)
    return lambda outputs: build_own(name, function, input_shape, outputs)


register_network(
    NetworkPart(
        name="own",
        phrase="your own network",
        pattern="(?!features:|adapters:).*:.*",
        title="MODULE:FUNCTION",
        description="your own: a function of (input_shape, outputs) or (outputs) that returns any nn.Module",
        build=_factory,
        check=load_function,
    )
)
