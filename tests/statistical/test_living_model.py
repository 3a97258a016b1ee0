"""What is said in docs/living_model.md about audits and updates, on handwritten digits.

``pytest -m slow -s tests/statistical/test_living_model.py`` prints the figures.
"""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from metareplay import ContinualClassifier

PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
LIMIT = 0.1


def digits(labels: tuple[int, ...], *, train: bool, count: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    part = order[:count] if train else order[count:]
    chosen = part[np.isin(y[part], labels)]
    return x[chosen], y[chosen]


def five_tasks(seed: int, **settings: float) -> ContinualClassifier:
    model = ContinualClassifier("pr-bbb", "mlp-50", seed=seed, settings={"training.iterations": 400, **settings})
    for pair in PAIRS:
        model.learn_task(*digits(pair, train=True, count=1300), name=f"{pair[0]}-{pair[1]}")
    return model


def changes(title: str, model: ContinualClassifier) -> list[float]:
    found = [entry.change or 0.0 for entry in model.audit()]
    scores = [model.score(*digits(pair, train=False, count=1300), task=task) for task, pair in enumerate(PAIRS)]
    print(title, *(f"{100 * change:.1f}" for change in found), "accuracy", *(f"{100 * score:.1f}" for score in scores))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_limit_fires_for_a_damaged_model_and_not_for_an_honest_one(seed: int) -> None:
    model = five_tasks(seed)
    assert max(changes(f"seed {seed} honest", model)) < LIMIT
    assert model.learner is not None
    embedding = model.learner.model.task_map.task_embeddings[1]  # type: ignore[union-attr, index]
    with torch.no_grad():
        embedding.copy_(torch.randn(embedding.shape, generator=torch.Generator().manual_seed(seed)))
    damaged = changes(f"seed {seed} embedding replaced", model)
    assert damaged[1] > LIMIT
    assert max(damaged[:1] + damaged[2:]) < LIMIT  # only the one that was damaged
    assert max(changes(f"seed {seed} without replay", five_tasks(seed, **{"strategy.strength": 0.0}))) > LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("method", ["pr-bbb", "pr-dirac"])
@pytest.mark.parametrize("labels", [(0, 1), (3,), (0, 1, 2, 3)])
def test_an_updated_task_keeps_what_it_knew(method: str, labels: tuple[int, ...]) -> None:
    model = ContinualClassifier(method, "mlp-30", seed=0, settings={"training.iterations": 300})
    model.learn_task(*digits((0, 1, 2), train=True, count=1200), name="a")
    model.learn_task(*digits((5, 6), train=True, count=1200), name="b")
    model.update_task("a", *digits(labels, train=True, count=1200))
    old = model.score(*digits((0, 1, 2), train=False, count=1200), task="a")
    other = model.score(*digits((5, 6), train=False, count=1200), task="b")
    new = model.score(*digits((3,), train=False, count=1200), task="a") if 3 in labels else None
    print(method, labels, f"old {100 * old:.1f}", "" if new is None else f"new {100 * new:.1f}", f"b {100 * other:.1f}")
    assert old > 0.88
    assert other > 0.93
    assert new is None or new > 0.85
