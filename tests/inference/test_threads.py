"""Several threads that predict with one model answer as one after another would, bit for bit."""

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Generator, Tensor, nn

from metareplay.estimators import ClassPrediction, ContinualClassifier
from metareplay.nets.lending import borrowed
from metareplay.nets.noise import drawing_in_evaluation, draws_in_evaluation

THREADS, REPEATS = 4, 3
Array = npt.NDArray[np.float64]


class Convolutions(nn.Module):
    """Like LeNet, with batch normalisation."""

    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


class Dropping(nn.Module):
    """Dropout: in training alone, or always."""

    always = False

    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(64, 8), nn.LayerNorm(8), nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.first(x.flatten(1)).relu())
        return self.last(nn.functional.dropout(h, training=self.training or self.always))  # type: ignore[no-any-return]


class AlwaysDropping(Dropping):
    """Draws random numbers also when it predicts."""

    always = True


class Uncopyable(Dropping):
    """Holds something that cannot be copied, so that threads have to wait for each other."""

    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(input_shape, outputs)
        self.lock = threading.Lock()


CASES: dict[str, tuple[str, str | Callable[..., nn.Module]]] = {
    "Gaussian MLP": ("pr-bbb", "mlp-8"),
    "Dirac MLP": ("pr-dirac", "mlp-8"),
    "linearised": ("ewc-multihead", Dropping),
    "batch normalisation": ("sp-bbb", Convolutions),
    "ensemble": ("sp-ensemble", Convolutions),
    "dropout": ("sp-bbb", Dropping),
    "dropout always": ("sp-bbb", AlwaysDropping),
    "uncopyable": ("sp-dirac", Uncopyable),
}


@pytest.fixture(autouse=True)
def eager_switches() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@cache
def learned(method: str, network: str | Callable[..., nn.Module]) -> ContinualClassifier:
    rng, settings = (
        np.random.default_rng(0),
        {"training.iterations": 3, "inference.samples": 6, "inference.batch_size": 7},
    )
    model = ContinualClassifier(method, network, settings=settings)
    for task in range(2):
        model.learn_task(rng.normal(size=(20, 1, 8, 8)) + task, rng.integers(0, 2, 20) + 2 * task)
    return model


def same(one: ClassPrediction, other: ClassPrediction) -> bool:
    arrays = ("labels", "probabilities", "total", "aleatoric", "epistemic")
    return one.task == other.task and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)


def parts() -> list[Array]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=(9, 1, 8, 8)) + index % 2 for index in range(THREADS)]


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow) if case == "linearised" else case for case in CASES]
)
def test_threads_answer_as_one_after_another_would(case: str, tmp_path: Path) -> None:
    learned(*CASES[case]).save(tmp_path)
    expected = [ContinualClassifier.load(tmp_path).predict_full(x) for x in parts()]
    model, start = ContinualClassifier.load(tmp_path), threading.Barrier(THREADS)

    def ask(x: Array) -> list[ClassPrediction]:
        start.wait()
        return [model.predict_full(x) for _ in range(REPEATS)]

    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(ask, parts()))
    assert all(same(one, right) for of_thread, right in zip(answers, expected, strict=True) for one in of_thread)


@pytest.mark.parametrize("case", [name for name in CASES if name != "dropout always"])
def test_the_global_generator_is_left_alone(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = learned(*CASES[case])
    model.save(tmp_path)
    models, state = [model, ContinualClassifier.load(tmp_path)], torch.get_rng_state()
    monkeypatch.setattr(torch, "set_rng_state", lambda state: pytest.fail("the global generator was exchanged"))
    monkeypatch.setattr(nn.Module, "train", lambda *given: pytest.fail("the mode was changed"))
    for each in models:
        each.predict_full(parts()[0])
    assert torch.equal(torch.get_rng_state(), state)


def test_what_a_network_draws_comes_from_the_seed() -> None:
    model = learned(*CASES["dropout always"])
    assert model.learner is not None
    assert draws_in_evaluation(model.learner.model.network)
    state = torch.get_rng_state()
    first = model.predict_full(parts()[0])
    torch.randn(3)
    assert same(model.predict_full(parts()[0]), first)
    torch.set_rng_state(state)


def test_a_module_is_watched_until_it_is_known() -> None:
    for kind, draws in ((AlwaysDropping, True), (Dropping, False)):
        module, generator = kind((64,), 2).eval(), Generator().manual_seed(0)
        assert draws_in_evaluation(module) is None
        with drawing_in_evaluation(module, generator):
            module(torch.ones(3, 64))
        assert draws_in_evaluation(module) is draws


def test_a_lent_module_is_copied_around_the_same_tensors() -> None:
    module = Convolutions((1, 8, 8), 2)
    with borrowed(module) as first, borrowed(module) as second, borrowed(module) as third:
        assert first is module
        assert len({id(first), id(second), id(third)}) == 3
        for name, tensor in module.state_dict(keep_vars=True).items():
            assert second.state_dict(keep_vars=True)[name] is tensor
    with borrowed(module) as again, borrowed(module) as spare:
        assert again is module
        assert spare in (second, third)
