"""Weight samples that are kept between predictions: the same bits, dropped on any change, bounded, under threads."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Generator, Tensor

from metareplay.inference.drawn_weights import DrawnWeights
from metareplay.inference.predictive import predictive_outputs
from metareplay.likelihoods import Categorical
from metareplay.model import ContinualModel
from metareplay.nets.mlp import MLP
from metareplay.posteriors.families.gaussian import GaussianFamily
from metareplay.task_maps.direct import PerTaskParameters
from metareplay.task_maps.heads import HeadLayout


@pytest.fixture
def model(rng: Generator) -> ContinualModel:
    model = ContinualModel(
        lambda outputs: MLP((2,), (4,), outputs),
        GaussianFamily(),
        lambda size, _: PerTaskParameters(size),
        HeadLayout.SINGLE,
        Categorical(),
        lambda family, network, spec: None,
    )
    for classes in (3, 2):
        model.add_task(classes, generator=rng)
    model.try_out((2,))
    return model


def outputs(model: ContinualModel, x: Tensor, task: int, drawn: DrawnWeights | None, samples: int = 13) -> Tensor:
    return predictive_outputs(model, x, task, samples, generator=Generator().manual_seed(task), drawn=drawn)


def test_kept_samples_are_the_same_bits_for_any_number_and_task(model: ContinualModel, rng: Generator) -> None:
    drawn = DrawnWeights()
    for samples, task, rows in ((13, 0, 9), (13, 1, 3), (13, 0, 2), (4, 0, 9), (20, 0, 1), (13, 1, 5)):
        x = torch.randn(rows, 2, generator=rng)
        kept = outputs(model, x, task, drawn, samples)
        assert torch.equal(kept, outputs(model, x, task, None, samples))


def test_a_change_of_the_weights_by_any_means_is_noticed(model: ContinualModel, rng: Generator) -> None:
    drawn, x = DrawnWeights(), torch.randn(3, 2, generator=rng)
    before = outputs(model, x, 0, drawn)
    next(model.task_map.parameters()).data[0] += 0.1  # even without a trace in its version
    assert not torch.equal(outputs(model, x, 0, drawn), before)
    assert torch.equal(outputs(model, x, 0, drawn), outputs(model, x, 0, None))


def test_samples_are_drawn_once_and_never_fill_more_than_the_bound(
    model: ContinualModel, rng: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, counted = torch.randn(3, 2, generator=rng), []
    posterior = type(model.posterior(0))
    sample = posterior.rsample
    monkeypatch.setattr(posterior, "rsample", lambda *args, **kwargs: counted.append(1) or sample(*args, **kwargs))
    size = 13 * model.spec.numel * 4
    for most, calls in ((2 * size, 6), (size, 12), (size - 1, 12)):  # both tasks fit, one, none; 3 draws for a task
        counted.clear()
        drawn = DrawnWeights(most)
        for task in (0, 1, 0, 1):
            outputs(model, x, task, drawn)
        assert len(counted) == calls
        assert sum(entry.size for entry in drawn._kept.values()) <= most


def test_threads_may_ask_at_once(model: ContinualModel, rng: Generator) -> None:
    drawn, x = DrawnWeights(), torch.randn(4, 2, generator=rng)
    expected = [outputs(model, x, task, None) for task in (0, 1)]
    with ThreadPoolExecutor(4) as pool:
        asked = [(task, pool.submit(outputs, model, x, task, drawn)) for task in (0, 1) * 20]
        assert all(torch.equal(found.result(), expected[task]) for task, found in asked)
