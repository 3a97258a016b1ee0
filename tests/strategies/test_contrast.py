"""Energy-based models: which labels compete, and that others are left alone."""

import pytest
import torch
from torch import Generator

from metareplay.batches.base import Batch
from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.errors import ConfigError
from metareplay.learner.config import build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.methods import default_network
from metareplay.strategies.contrast import drawn_negatives


def learner(**settings: object) -> ContinualLearner:
    given = {"training.iterations": 40, "training.batch_size": 16, "training.learning_rate": 0.01, **settings}
    config = build_config({"method": "ebm", "network": "energy-8"}, given, "test")
    return ContinualLearner(config, "classification", Scenario.CLASS, (2,))


def blobs(task: int, count: int = 90) -> TaskData:
    generator = torch.Generator().manual_seed(task)
    y = torch.arange(count) % 2
    centre = torch.stack([4.0 * y - 2, torch.full((count,), 4.0 * task - 2)], 1)
    return TaskData(centre + 0.5 * torch.randn(count, 2, generator=generator), y)


def test_negatives_are_other_labels_of_the_batch(rng: Generator) -> None:
    y = torch.tensor([3, 5, 3, 8])
    drawn = torch.stack([drawn_negatives(y, 1, 10, generator=rng).squeeze(1) for _ in range(300)])  # (300, B)
    assert not (drawn == y).any()
    for column, others in zip(drawn.T, ((5, 8), (3, 8), (5, 8), (3, 5)), strict=True):
        counts = [int((column == label).sum()) for label in others]
        assert sum(counts) == 300
        assert min(counts) > 100


def test_a_lone_label_competes_with_all_that_are_known(rng: Generator) -> None:
    drawn = drawn_negatives(torch.full((200,), 1), 2, 3, generator=rng)
    assert sorted(drawn.unique().tolist()) == [0, 2]
    assert drawn_negatives(torch.zeros(4, dtype=torch.int64), 0, 1, generator=rng).shape == (4, 0)


def test_the_loss_is_a_softmax_over_the_label_and_its_negative(rng: Generator) -> None:
    model = learner()
    trainer = model.begin_task(blobs(0), 2)
    data = blobs(0, 6)
    batches = model.strategy.batches_for(model.model, 0, Batch(data.x, data.y), generator=rng)
    loss = trainer.loss_terms(trainer.jobs[0], batches, model.model.training_posterior(0)).data
    outputs = model.model.run(model.model.posterior(0), data.x, 1, 0, generator=rng)[0]
    expected = torch.nn.functional.cross_entropy(outputs, data.y)  # of two labels, the other one is the negative
    torch.testing.assert_close(loss, 90 * expected)


def test_gates_of_earlier_labels_do_not_move() -> None:
    model = learner()
    for _ in model.begin_task(blobs(0), 2):
        pass
    before = model.model.spec.unflatten(model.model.task_map.theta(0))["gates"].detach().clone()
    for _ in model.begin_task(blobs(1), 2):
        pass
    after = model.model.spec.unflatten(model.model.task_map.theta(0))["gates"].detach()
    assert torch.equal(after[:2], before)
    answers = model.predictor.predict(blobs(1).x).probabilities.argmax(1)  # type: ignore[union-attr]
    assert float((answers == blobs(1).y + 2).double().mean()) > 0.9


def test_other_networks_are_refused_and_the_default_is_as_wide() -> None:
    with pytest.raises(ConfigError, match=r"ebm needs the energies .* which mlp-8 does not compute; .* energy-100-100"):
        build_config({}, {"method": "ebm", "network": "mlp-8"}, "test")
    assert default_network("ebm", "mlp-400-400") == "energy-400-400"
    assert default_network("ebm", "lenet") == "energy-100-100"
    assert default_network("slda", "mlp-400-400") == "mlp"


def test_regression_is_refused() -> None:
    config = build_config({"method": "ebm", "network": "energy-8"}, {}, "test")
    with pytest.raises(ConfigError, match="regression has no classes; choose er"):
        ContinualLearner(config, "regression", Scenario.DOMAIN, (1,))
