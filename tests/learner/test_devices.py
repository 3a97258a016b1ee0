"""Devices: every method computes where the model lives. No GPU is needed: PyTorch's meta device has shapes only."""

import pytest
import torch

from metareplay.batches.base import Batch
from metareplay.benchmarks.base import Scenario, TaskData
from metareplay.benchmarks.toy import modes_2d
from metareplay.devices import device_named
from metareplay.errors import ConfigError
from metareplay.learner.config import RunConfig, build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.methods import METHODS, default_network
from metareplay.strategies.base import LossTerms
from metareplay.training.loop import TaskTrainer

META = torch.device("meta")
READS_NUMBERS = {
    "ssge": "SSGE looks at eigenvalues to choose how many it keeps",
    "flow": "zuko looks where its masks are true",
}
pytestmark = pytest.mark.filterwarnings("ignore:for .*copying from a non-meta parameter")


def _learner(method: str, device: str, **settings: object) -> ContinualLearner:
    network = default_network(method, "mlp-5")
    config: RunConfig = build_config(
        {}, {"method": method, "network": network, "training.batch_size": 4, **settings}, "test"
    )
    benchmark = modes_2d()
    config = config.model_copy(update={"device": device})
    return ContinualLearner(config, benchmark.problem, benchmark.scenario, benchmark.input_shape, total_outputs=6)


def _begin(learner: ContinualLearner, task: int) -> TaskTrainer:
    return learner.begin_task(modes_2d()[task].train, 2)


def _moved(learner: ContinualLearner, task: int) -> TaskTrainer:
    """What trains the last task, continued on the meta device as from a checkpoint."""
    return _continued(learner, modes_2d()[task].train)


def _continued(learner: ContinualLearner, train: TaskData) -> TaskTrainer:
    stored = learner.tensors(training=True)
    learner.model.to(META)
    kept = {name.removeprefix("memory."): tensor for name, tensor in stored.items() if name.startswith("memory.")}
    learner.strategy.load_state(learner.model, kept)
    return learner.continue_task(train, stored)


def _loss(trainer: TaskTrainer, x: torch.Tensor, y: torch.Tensor) -> LossTerms:
    """The loss of the task on a batch."""
    job = trainer.jobs[0]
    return trainer.loss_terms(job, [Batch(x, y)], trainer.model.training_posterior(job.task))


@pytest.mark.parametrize(
    "method",
    [
        name
        for name, method in METHODS.items()
        if not {method.family, method.matching} & set(READS_NUMBERS) and not method.closed_form
    ],
)
def test_the_loss_of_every_method_is_computed_where_the_model_is(method: str) -> None:
    """A tensor that was made elsewhere cannot be combined with those on the meta device."""
    learner = _learner(method, "cpu")
    for task in range(2):  # the second has old tasks, and for some methods more outputs
        _begin(learner, task)
    trainer = _moved(learner, 1)
    x, y = trainer.jobs[0].batches.next()
    assert x.device.type == "cpu"  # data stay where they are until they are needed
    terms = _loss(trainer, x, y)
    assert all(term.device == META for term in terms)
    terms.total.backward()
    assert all(parameter.device == META for parameter in trainer.parameters)
    assert any(parameter.grad is not None for parameter in trainer.parameters)
    trainer.optimiser.step()


@pytest.mark.parametrize("penalty", ["mse", "fkl", "rkl", "w2"])
def test_so_are_the_penalties(penalty: str) -> None:
    settings: dict[str, object] = {
        "strategy.penalty": penalty,
        "strategy.age_discount": 0.5,
        "strategy.prior_from_earlier": 0.3,
    }
    learner = _learner("pr-bbb", "cpu", **settings)
    for task in range(3):
        _begin(learner, task)
    trainer = _moved(learner, 2)
    assert _loss(trainer, *trainer.jobs[0].batches.next()).replay.device == META


@pytest.mark.parametrize("method", ["pr-bbb", "exp-replay"])
def test_so_are_statistics_of_batch_normalisation(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def same_place(first: torch.Tensor, second: torch.Tensor) -> bool:
        assert first.device == second.device == META
        return False  # unknown without numbers: they are replaced

    config = build_config({}, {"method": method, "network": "resnet-32", "training.batch_size": 4}, "test")
    learner = ContinualLearner(config, "classification", Scenario.CLASS, (3, 8, 8))
    train = TaskData(torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 0, 1]))
    for _ in range(2):
        learner.begin_task(train, 2)
    trainer = _continued(learner, train)
    monkeypatch.setattr(torch, "equal", same_place)
    assert _loss(trainer, *trainer.jobs[0].batches.next()).total.device == META


def test_random_numbers_do_not_depend_on_the_device() -> None:
    from metareplay.seeding import normal

    like = torch.zeros(3, dtype=torch.float64)
    actual = normal(2, 3, generator=torch.Generator().manual_seed(1), like=like)
    assert torch.equal(actual, torch.randn(2, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    generator = torch.Generator().manual_seed(1)
    assert normal(2, 3, generator=generator, like=like.to(META)).device == META
    # they were drawn
    assert not torch.equal(
        torch.randn(3, generator=generator), torch.randn(3, generator=torch.Generator().manual_seed(1))
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"device=cuda:1: PyTorch .* finds no CUDA GPU; choose cpu"):
        device_named("cuda:1")
    with pytest.raises(ConfigError, match="finds no CUDA GPU"):
        _learner("pr-bbb", "cuda")


def test_a_gpu_beyond_the_last_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_named("cuda") == torch.device("cuda")
    assert device_named("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ConfigError, match="this machine has 2 CUDA GPUs"):
        device_named("cuda:2")


@pytest.mark.parametrize("method", ["pr-dirac", "pr-bbb", "ewc-multihead"])
def test_autocast_computes_the_network_alone_in_bfloat16(method: str) -> None:
    plain, rounded = (_begin(_learner(method, "cpu", **{"training.autocast": on}), 0) for on in (False, True))
    x, y = plain.jobs[0].batches.next()
    exact, actual = _loss(plain, x, y), _loss(rounded, x, y)
    assert all(term.dtype == torch.float32 for term in actual)
    assert actual.data != exact.data
    torch.testing.assert_close(actual.data, exact.data, rtol=0.05, atol=0.0)
    assert actual.prior == exact.prior  # the other terms are not touched
    actual.total.backward()
    assert all(parameter.grad is None or parameter.grad.dtype == torch.float32 for parameter in rounded.parameters)


def test_autocast_does_not_go_with_local_reparametrisation() -> None:
    with pytest.raises(ConfigError, match="would round the variances"):
        build_config({}, {"training.autocast": True, "posterior.local_reparametrisation": True}, "test")
