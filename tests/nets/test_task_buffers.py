"""Buffers of a network: run beside flat weights, updated in training only, kept for each task."""

from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor, nn

from metareplay.errors import CheckpointError, ConfigError
from metareplay.nets.noise import drawing_from
from metareplay.nets.norm import TaskBuffers
from metareplay.nets.weights import Buffers, WeightSpec, linearised_outputs, run_flat, training_mode


class Moving(nn.Module):
    """Replaces its buffer instead of changing it in place, and has a constant."""

    mean: Tensor
    constant: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("constant", torch.randn(4), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        h = x * self.linear.weight.sum() + self.constant
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * h.mean(0)
        return self.linear(h - self.mean)


class Deep(nn.Module):
    """A linear layer, a normalisation, and one of the module's inputs beside it."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.linear, self.norm, self.head = nn.Linear(4, 4), norm, nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.linear(x)))


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm, self.head = nn.Conv1d(1, 2, 2), nn.BatchNorm1d(2), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.convolution(x.unsqueeze(1))).view(len(x), -1))


class Sequenced(nn.Module):
    """Instance normalisation needs a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.InstanceNorm1d(1, affine=True, track_running_stats=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x.unsqueeze(1)).squeeze(1))


MODULES: dict[str, Callable[[], nn.Module]] = {
    "batch norm": lambda: Deep(nn.BatchNorm1d(4)),
    "plain batch norm": lambda: Deep(nn.BatchNorm1d(4, affine=False)),
    "cumulative batch norm": lambda: Deep(nn.BatchNorm1d(4, momentum=None)),
    "layer norm": lambda: Deep(nn.LayerNorm(4)),
    "group norm": lambda: Deep(nn.GroupNorm(2, 4)),
    "instance norm": Sequenced,
    "convolution": Convolutional,
    "a buffer that is replaced": Moving,
}


def fresh(module: nn.Module) -> Buffers:
    return {name: buffer.clone() for name, buffer in module.named_buffers()}


@pytest.fixture(params=MODULES)
def module(request: pytest.FixtureRequest) -> nn.Module:
    return MODULES[request.param]().double()


@pytest.fixture
def x(rng: Generator) -> Tensor:
    return 3 + 2 * torch.randn(5, 4, generator=rng, dtype=torch.float64)


def test_one_sample_does_what_the_module_itself_does(module: nn.Module, x: Tensor) -> None:
    spec, buffers = WeightSpec.of(module), fresh(module)
    flat = spec.flatten(module).unsqueeze(0)
    for _ in range(3):
        outputs = run_flat(module, spec, flat, x, [buffers])
        torch.testing.assert_close(outputs[0], module(x))
    for name, buffer in module.named_buffers():
        torch.testing.assert_close(buffers[name], buffer)
    torch.testing.assert_close(run_flat(module.eval(), spec, flat, x, [buffers])[0], module(x))


def test_several_samples_change_statistics_by_their_mean(module: nn.Module, x: Tensor, rng: Generator) -> None:
    spec, buffers = WeightSpec.of(module), fresh(module)
    weights = spec.flatten(module) + 0.3 * torch.randn(3, spec.numel, generator=rng, dtype=torch.float64)
    weights.requires_grad_()
    before, each = fresh(module), []
    outputs = run_flat(module, spec, weights, x, [buffers])
    loop = []
    for sample in weights:
        own = dict(before)
        loop.append(run_flat(module, spec, sample.unsqueeze(0), x, [own])[0])
        each.append(own)
    torch.testing.assert_close(outputs, torch.stack(loop))
    gradients = [torch.autograd.grad(found.square().sum(), weights)[0] for found in (outputs, torch.stack(loop))]
    torch.testing.assert_close(gradients[0], gradients[1])
    for name, found in buffers.items():
        assert (found.dtype, found.requires_grad) == (before[name].dtype, False)
        torch.testing.assert_close(found, torch.stack([own[name] for own in each]).double().mean(0).to(found.dtype))


def test_only_training_changes_anything(module: nn.Module, x: Tensor) -> None:
    spec, given, own = WeightSpec.of(module), fresh(module), fresh(module)
    weights = spec.flatten(module).expand(2, -1)
    run_flat(module.eval(), spec, weights, x, [given])
    linearised_outputs(module, spec, weights[0], torch.ones(spec.numel).double(), x, buffers=given)
    assert all(torch.equal(given[name], value) for name, value in own.items())
    with training_mode(module):
        assert module.training
        snapshot = dict(given)
        run_flat(module, spec, weights, x, [given])
        run_flat(module, spec, weights, x)
    assert not module.training
    # tensors that were handed out stay as they were
    assert all(torch.equal(snapshot[name], value) for name, value in own.items())
    assert all(torch.equal(buffer, own[name]) for name, buffer in module.named_buffers())  # as do the module's own


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.drop, self.gru = nn.Linear(3, 4), nn.Dropout(0.5), nn.GRU(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(self.linear(x))
        return h if self.training else self.gru(h.unsqueeze(1))[0][:, -1]


def test_what_a_module_draws_comes_from_the_generator() -> None:
    module, x = Noisy(), torch.ones(6, 3)
    spec = WeightSpec.of(module)
    weights, state = spec.flatten(module).expand(2, -1), torch.get_rng_state()

    def drawn(generator: Generator) -> Tensor:
        with drawing_from(generator):
            return run_flat(module, spec, weights, x)

    generator = Generator().manual_seed(3)
    first, second, again = drawn(generator), drawn(generator), drawn(Generator().manual_seed(3))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])  # each weight sample drops different units
    assert torch.equal(torch.get_rng_state(), state)


class RandomRecurrent(nn.Module):
    """Draws before the layer that cannot be batched."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(3, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(x + torch.rand_like(x))[0][:, -1]


def test_the_attempt_to_batch_leaves_no_trace_in_random_numbers() -> None:
    module, x = RandomRecurrent(), torch.ones(4, 5, 3)
    spec = WeightSpec.of(module)
    weights = spec.flatten(module).expand(2, -1)
    found = []
    for _ in range(2):  # the first time batching is tried, the second time it is known not to work
        with drawing_from(Generator().manual_seed(0)):
            found.append(run_flat(module, spec, weights, x))
    assert torch.equal(found[0], found[1])


class Encoder(nn.Module):
    """Tokens, embedded, with a constant of positions, through PyTorch's transformer layer."""

    positions: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 8)
        self.register_buffer("positions", torch.randn(4, 8))
        self.layer, self.head = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(x.long()) + self.positions).mean(1))


@pytest.mark.parametrize("train", [False, True])
def test_a_transformer_layer_runs_batched(train: bool) -> None:
    module = Encoder().train(train)
    spec, x = WeightSpec.of(module), torch.arange(12).view(3, 4) % 7
    weights = torch.stack([spec.flatten(module), 0.5 * spec.flatten(module)])
    with torch.no_grad():
        outputs = run_flat(module, spec, weights, x.float())
        assert outputs.shape == (2, 3, 3)
        assert outputs.isfinite().all()
        if not train:
            torch.testing.assert_close(outputs[0], module(x))
            torch.testing.assert_close(outputs[1:], run_flat(module, spec, weights[1:], x.float()))


def learned(module: nn.Module, statistics: TaskBuffers, task: int, shift: float) -> None:
    with training_mode(module):
        weights = WeightSpec.of(module).flatten(module).unsqueeze(0)
        run_flat(module, WeightSpec.of(module), weights, shift + torch.randn(6, 4), statistics.tasks[task])


def test_every_task_starts_afresh_and_keeps_its_own() -> None:
    module, statistics = Deep(nn.BatchNorm1d(4)).eval(), TaskBuffers()
    for task, shift in enumerate((5.0, -5.0)):
        statistics.add_task(module)
        assert torch.equal(statistics.tasks[task][0]["norm.running_var"], torch.ones(4))
        learned(module, statistics, task, shift)
    means = [sets[0]["norm.running_mean"] for sets in statistics.tasks]
    assert not torch.equal(means[0], means[1])
    assert int(statistics.tasks[0][0]["norm.num_batches_tracked"]) == 1
    assert statistics.per_task() == 4 + 4 + 1
    assert statistics.is_finite()
    statistics.tasks[1][0]["norm.running_mean"] = torch.full((4,), torch.inf)
    assert not statistics.is_finite()


def test_constants_are_the_first_networks_and_stored_once() -> None:
    statistics, first = TaskBuffers(), Moving().eval()
    statistics.add_task(first)
    learned(first, statistics, 0, 1.0)
    second = Moving().eval()
    statistics.add_task(second)
    assert not torch.equal(first.constant, second.constant)
    assert torch.equal(statistics.tasks[1][0]["constant"], first.constant)
    assert set(statistics.tensors()) == {"start.mean", "start.constant", "0.mean"}
    restored = TaskBuffers()
    for module in (Moving(), Moving()):
        restored.add_task(module)
    restored.restore(dict(sorted(statistics.tensors().items())))  # numbers come before "start", as in files
    first_sets = [statistics.start, *(sets[0] for sets in statistics.tasks)]
    for before, after in zip(first_sets, [restored.start, *(sets[0] for sets in restored.tasks)], strict=True):
        assert before.keys() == after.keys()
        assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_statistics_of_outputs_grow_with_them() -> None:
    statistics, small, large = TaskBuffers(), nn.BatchNorm1d(4).eval(), nn.BatchNorm1d(6).eval()
    statistics.add_task(small)
    learned(small, statistics, 0, 3.0)
    before = statistics.tasks[0][0]["running_mean"]
    statistics.add_task(large)
    assert torch.equal(statistics.tasks[0][0]["running_mean"], torch.cat([before, torch.zeros(2)]))
    assert torch.equal(statistics.tasks[1][0]["running_mean"], torch.zeros(6))
    with pytest.raises(ConfigError, match=r"its buffer 'running_mean' of shape \(6,\)"):
        statistics.add_task(small)


@pytest.mark.parametrize("stored", [{"0.other": torch.zeros(4)}, {"start.running_mean": torch.zeros(5)}])
def test_statistics_of_another_network_are_refused(stored: dict[str, Tensor]) -> None:
    statistics = TaskBuffers()
    statistics.add_task(nn.BatchNorm1d(4))
    with pytest.raises(CheckpointError, match="does not fit this network"):
        statistics.restore(stored)


@pytest.mark.parametrize("kind", ["batch norm", "convolution"])
def test_members_of_an_ensemble_have_statistics_of_their_own(kind: str, x: Tensor, rng: Generator) -> None:
    module, statistics = MODULES[kind]().double().eval(), TaskBuffers(members=2)
    statistics.add_task(module)
    spec, sets = WeightSpec.of(module), statistics.tasks[0]
    weights = spec.flatten(module) + 0.5 * torch.randn(4, spec.numel, generator=rng, dtype=torch.float64)
    alone: list[Buffers] = [dict(statistics.start), dict(statistics.start)]
    with training_mode(module):
        run_flat(module, spec, weights, x, sets)
        for member in range(2):
            run_flat(module, spec, weights[member::2], x, [alone[member]])  # sample i is of member i modulo 2
    for own, expected in zip(sets, alone, strict=True):
        assert all(torch.allclose(own[name].double(), tensor.double()) for name, tensor in expected.items())
    outputs = run_flat(module, spec, weights, x, sets)
    for sample in range(4):
        single = run_flat(module, spec, weights[sample : sample + 1], x, [sets[sample % 2]])
        torch.testing.assert_close(outputs[sample], single[0])
    restored = TaskBuffers(members=2)
    restored.add_task(module)
    restored.restore(statistics.tensors())
    assert all(
        torch.equal(again[name], own[name]) for own, again in zip(sets, restored.tasks[0], strict=True) for name in own
    )
    assert not torch.equal(sets[0]["norm.running_mean"], sets[1]["norm.running_mean"])
    with pytest.raises(CheckpointError, match="does not fit this network"):
        restored.restore({"0.norm.running_mean": statistics.tensors()["0.norm.running_mean"][:, :1]})
