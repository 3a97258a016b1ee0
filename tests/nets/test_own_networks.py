"""A user's own network by the name of a function: every failure is reported in one sentence."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Generator, Tensor, nn

from metareplay.errors import ConfigError
from metareplay.nets import own
from metareplay.nets.own import check_growth, check_outputs, load_function, name_of
from metareplay.nets.registry import network_factory, network_part
from metareplay.nets.weights import WeightSpec

CODE = """
from torch import nn

def both(input_shape, outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(input_shape[0], outputs))

def one(outputs):
    return nn.Linear(3, outputs)

def other_names(shape, classes):
    return nn.Linear(shape[0], classes)

def swapped(outputs, input_shape, width=7):
    return nn.Linear(input_shape[0], outputs)

def one_and_width(outputs, width=7):
    return nn.Linear(3, outputs)

def keywords(*, outputs):
    return nn.Linear(3, outputs)

class Module(nn.Linear):
    def __init__(self, outputs):
        super().__init__(3, outputs)

def none():
    return nn.Linear(3, 2)

def three(a, b, c):
    return nn.Linear(3, 2)

def text(outputs):
    return "network"

def broken(outputs):
    raise ValueError("no such thing\\nas this")

def lazy(outputs):
    return nn.LazyLinear(outputs)

number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module of networks and one that cannot be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(own, "is_permitted", lambda name: True)
    for name in ("own_networks_here", "fails_here", "needs_here", "package_here", "package_here.inner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "own_networks_here.py").write_text(CODE)
    (tmp_path / "fails_here.py").write_text("1 / 0")
    (tmp_path / "needs_here.py").write_text("import no_such_library_at_all")
    (tmp_path / "package_here").mkdir()
    (tmp_path / "package_here" / "inner.py").write_text(CODE)
    return tmp_path


@pytest.mark.parametrize("function", ["both", "one", "other_names", "swapped", "one_and_width", "keywords", "Module"])
def test_functions_and_classes_build_networks(function: str, folder: Path) -> None:
    for module in ("own_networks_here", "package_here.inner"):
        network = network_factory(f"{module}:{function}", (3,))(4)
        assert network(torch.ones(5, 3)).shape == (5, 4)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module_here:one", "there is no module 'no_such_module_here' in .* or among the installed packages"),
        ("package_here.no:one", "there is no module 'package_here.no'"),
        (
            "needs_here:one",
            "importing needs_here failed: ModuleNotFoundError: No module named 'no_such_library_at_all'",
        ),
        ("fails_here:one", "importing fails_here failed: ZeroDivisionError: division by zero"),
        ("own_networks_here:two", "own_networks_here.py has no function 'two'"),
        ("own_networks_here:number", "is a int, not a Python function or class"),
        ("os:_exit", "is a builtin_function_or_method, not a Python function or class"),
        ("own_networks_here:", "does not name a function; write package.module:function"),
        (":one", "does not name a function"),
        ("own networks:one", "does not name a function"),
        ("own_networks_here:one:two", "does not name a function"),
    ],
)
def test_names_that_lead_nowhere_are_refused(name: str, words: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        network_part(name)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("none", r"takes no arguments; it must take \(input_shape, outputs\) or \(outputs\)"),
        ("three", r"takes a, b, c; it must take"),
        ("text", "returned a str, not an nn.Module"),
        ("broken", r"failed for inputs of shape \(3,\) and 2 outputs: ValueError: no such thing$"),
        ("lazy", "the weight 'weight' of a lazy layer has no shape yet"),
    ],
)
def test_functions_that_build_no_network_are_refused(function: str, words: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        network_factory(f"own_networks_here:{function}", (3,))(2)


def test_the_name_of_a_function(folder: Path) -> None:
    function = load_function("own_networks_here:one")
    assert name_of(function) == "own_networks_here:one"
    assert name_of(nn.Linear) == "torch.nn.modules.linear:Linear"
    for nameless in (
        lambda outputs: nn.Linear(3, outputs),
        nn.Linear(3, 2),
        5,
        SimpleNamespace(__module__="os", __qualname__="getcwd"),
    ):
        with pytest.raises(ConfigError, match="defined at the top level of a module"):
            name_of(nameless)  # type: ignore[arg-type]


class Returns(nn.Module):
    """Gives whatever a function makes of its linear layer's outputs."""

    def __init__(self, change: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.linear, self.change = nn.Linear(3, 2), change

    def forward(self, x: Tensor) -> object:
        return self.change(self.linear(x))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda y: y[:, :1], r"outputs of shape \(2, 1\) for 2 inputs and 2 outputs; it must return \(2, 2\)"),
        (lambda y: y.sum(), r"outputs of shape \(\)"),
        (lambda y: (y, y), "returns a tuple; it must return one tensor"),
        (lambda y: y @ y[:1], r"the network Returns fails on inputs of shape \(3,\): RuntimeError: mat1"),
    ],
)
def test_outputs_of_another_shape_are_refused(change: Callable[[Tensor], object], words: str) -> None:
    check_outputs(Returns(lambda y: y), torch.ones(2, 3), 2, {})
    with pytest.raises(ConfigError, match=words):
        check_outputs(Returns(change), torch.ones(2, 3), 2, {})


def test_a_network_that_cannot_answer_a_single_input_is_refused() -> None:
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2, track_running_stats=False)).eval()
    with pytest.raises(
        ConfigError, match=r"fails on inputs of shape .*: ValueError: Expected more than 1 value per channel"
    ):
        check_outputs(network, torch.ones(2, 3), 2, {})


def grow(small: nn.Module, large: nn.Module) -> None:
    old, new = ((module.eval(), WeightSpec.of(module), dict(module.named_buffers())) for module in (small, large))
    check_growth(old, new, torch.randn(2, 3, generator=Generator().manual_seed(1)))


def two_layers(
    hidden: int, outputs: int, last: Callable[[int], nn.Module] = lambda outputs: nn.Identity()
) -> nn.Module:
    return nn.Sequential(nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, outputs), last(outputs))


def test_growth_of_the_last_layer_alone_is_allowed() -> None:
    grow(two_layers(5, 2), two_layers(5, 4))
    grow(two_layers(5, 2, nn.BatchNorm1d), two_layers(5, 4, nn.BatchNorm1d))


@pytest.mark.parametrize("zeros", [False, True])
def test_growth_that_changes_earlier_outputs_is_refused(zeros: bool) -> None:
    small, large = two_layers(4, 2), two_layers(8, 4)
    if zeros:  # layers that start at zero hide nothing
        for module in (small, large):
            nn.init.zeros_(module[2].weight)  # type: ignore[index]
    with pytest.raises(ConfigError, match="its existing outputs change"):
        grow(small, large)
    with pytest.raises(ConfigError, match="its existing outputs change"):
        grow(two_layers(5, 2, nn.LayerNorm), two_layers(5, 4, nn.LayerNorm))


@pytest.mark.parametrize(
    ("small", "large", "words"),
    [
        (nn.Linear(3, 2), nn.Linear(2, 4), r"its weight 'weight' of shape \(2, 3\) then has shape \(4, 2\)"),
        (nn.Linear(3, 2), nn.Linear(3, 4, bias=False), r"its weight 'bias' of shape \(2,\) then is missing"),
        (nn.Linear(3, 2), nn.Conv1d(3, 4, 1), r"'weight' of shape \(2, 3\) then has shape \(4, 3, 1\)"),
    ],
)
def test_weights_that_are_not_a_leading_corner_are_refused(small: nn.Module, large: nn.Module, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        WeightSpec.of(small).positions_in(WeightSpec.of(large))
