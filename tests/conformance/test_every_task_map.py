"""What every task map owes to the rest; a new one is tested as soon as a method uses it."""

import pytest
import torch
from torch import Generator

from metareplay.learner.build import build_task_map
from metareplay.learner.config import RunConfig, build_config
from metareplay.learner.methods import METHODS
from metareplay.task_maps.base import TASK_MAPS, Start, TaskMap

SIZE, MEMBERS = 24, 3
SMALL = {"hypernet.hidden": (6, 5), "hypernet.task_embedding_size": 3, "hypernet.chunk_embedding_size": 2}
KINDS: dict[str, dict[str, object]] = {
    "plain": {"hypernet.kind": "plain"},
    "linear": {"hypernet.kind": "plain", "hypernet.hidden": ()},
    "chosen-chunk": {},
    "chunk-5": {"hypernet.chunk_size": 5},
    "chunk-24": {"hypernet.chunk_size": 24},
    "chunk-1000": {"hypernet.chunk_size": 1000},
    "own-chunk-embeddings": {"hypernet.chunk_size": 5, "hypernet.chunk_embeddings_per_task": True},
}


def _configs() -> dict[str, RunConfig]:
    """Each task map with its first method and its first ensemble method; hypernetworks in all variants."""
    actual: dict[str, RunConfig] = {}
    for method in METHODS.values():
        for kind, given in KINDS.items() if method.task_map_part.generated else [("", {})]:
            defaults = {"method": method.name, **(SMALL if method.task_map_part.generated else {})}
            given = {**given, **({"posterior.members": MEMBERS} if method.family_part.members is not None else {})}
            label = f"{method.task_map} {'ensemble ' if method.family_part.members is not None else ''}{kind}".strip()
            actual.setdefault(label, build_config(defaults, given, "test"))
    return actual


CONFIGS = _configs()


def make(name: str, tasks: int, seed: int = 0) -> TaskMap:
    generator = Generator().manual_seed(seed)
    task_map = build_task_map(CONFIGS[name], SIZE, generator)
    for _ in range(tasks):
        task_map.add_task(Start(torch.rand(SIZE, generator=generator)), generator=generator)
    return task_map


@pytest.fixture(params=CONFIGS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_known_task_map_is_here() -> None:
    assert {known.split()[0] for known in CONFIGS} == set(TASK_MAPS)


def test_tasks_are_added_one_at_a_time(name: str) -> None:
    task_map = make(name, 0)
    for tasks in (1, 2, 3):
        task_map.add_task(Start(torch.full((SIZE,), float(tasks))), generator=Generator().manual_seed(tasks))
        assert task_map.num_tasks == tasks
        assert task_map.thetas(range(tasks)).shape == (tasks, SIZE)
        assert task_map.thetas(range(tasks)).isfinite().all()


def test_theta_is_a_row_of_thetas(name: str) -> None:
    task_map = make(name, 3)
    together = task_map.thetas([2, 0, 2])
    for row, task in zip(together, (2, 0, 2), strict=True):
        torch.testing.assert_close(row, task_map.theta(task))
    assert torch.equal(task_map.theta(0), task_map.theta(1)) == task_map.one_theta == TASK_MAPS[name.split()[0]].shared


def test_a_new_task_changes_no_old_one(name: str) -> None:
    task_map = make(name, 2)
    before = task_map.thetas([0, 1]).detach().clone()
    task_map.add_task(Start(torch.zeros(SIZE), torch.ones(SIZE)), generator=Generator().manual_seed(5))
    assert torch.equal(task_map.thetas([0, 1]), before)


def test_the_start_follows_the_generator(name: str) -> None:
    state = torch.get_rng_state()
    first, again, other = (make(name, 2, seed).thetas([0, 1]) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_gradients_reach_what_is_trained_and_nothing_else(name: str) -> None:
    task_map = make(name, 3)
    trained = task_map.trained_parameters(1)
    assert {id(parameter) for parameter in trained} <= {id(parameter) for parameter in task_map.parameters()}
    weights = torch.linspace(1, 2, SIZE)
    (task_map.theta(1) * weights).sum().backward()
    outside = {id(parameter) for parameter in trained}
    reached = [parameter for parameter in task_map.parameters() if parameter.grad is not None and parameter.grad.any()]
    assert reached
    assert all(id(parameter) in outside for parameter in reached)


def test_a_step_on_the_trained_parameters_moves_theta(name: str) -> None:
    task_map = make(name, 2)
    before = task_map.theta(1).detach().clone()
    optimiser = torch.optim.SGD(task_map.trained_parameters(1), lr=0.001)
    task_map.theta(1).square().sum().backward()
    optimiser.step()
    assert float(task_map.theta(1).detach().square().sum()) < float(before.square().sum())


def test_parameters_are_counted(name: str) -> None:
    counts = [make(name, tasks).num_parameters() for tasks in (1, 2, 3)]
    per_task = make(name, 1).per_task_parameters()
    assert [counts[1] - counts[0], counts[2] - counts[1]] == [per_task, per_task]


def test_growth_keeps_old_elements(name: str, rng: Generator) -> None:
    task_map = make(name, 2)
    before = task_map.thetas([0, 1]).detach().clone()
    # the members of an ensemble grow alike
    share = torch.randperm((SIZE + 9) // MEMBERS, generator=rng)[: SIZE // MEMBERS]
    positions = (share + torch.arange(MEMBERS).unsqueeze(1) * (SIZE + 9) // MEMBERS).flatten()
    task_map.grow(positions, Start(torch.linspace(5, 6, SIZE + 9)), generator=rng)
    assert task_map.num_outputs == SIZE + 9
    after = task_map.thetas([0, 1])
    assert after.shape == (2, SIZE + 9)
    torch.testing.assert_close(after[:, positions], before, rtol=1e-5, atol=1e-6)
    task_map.add_task(Start(torch.zeros(SIZE + 9)), generator=rng)
    assert task_map.thetas([0, 1, 2]).isfinite().all()


def test_the_state_gives_the_same_thetas(name: str) -> None:
    task_map, other = make(name, 3, seed=1), make(name, 3, seed=2)
    other.load_state_dict(task_map.state_dict())
    assert torch.equal(other.thetas([0, 1, 2]), task_map.thetas([0, 1, 2]))
