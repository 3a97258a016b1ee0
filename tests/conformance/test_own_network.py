"""A user's convolutional network with batch norm and dropout, with methods of every kind: trained, resumed, saved."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from metareplay.benchmarks.base import Benchmark
from metareplay.benchmarks.registry import build_benchmark
from metareplay.errors import CheckpointError, ConfigError, DataError
from metareplay.estimators import ContinualClassifier
from metareplay.evaluation.evaluate import Evaluator
from metareplay.experiments.plan import Plan
from metareplay.experiments.run import Run
from metareplay.inference.predictive import predictive_outputs
from metareplay.interrupts import Interrupted
from metareplay.learner.config import RunConfig, build_config
from metareplay.learner.learner import ContinualLearner
from metareplay.learner.methods import METHODS
from metareplay.learner.store import load_model
from metareplay.nets import own
from metareplay.training.checkpoint import CheckpointFolder
from metareplay.training.loop import Step
from metareplay.training.progress import NullObserver

CODE = """
import torch
from torch import nn

class Tiny(nn.Module):
    def __init__(self, input_shape, outputs):
        super().__init__()
        self.convolution = nn.Conv2d(input_shape[0], 3, 3, stride=2)
        self.norm = nn.BatchNorm2d(3)
        self.drop = nn.Dropout(0.2)
        self.register_buffer("mask", torch.rand(27))
        self.head = nn.Linear(27, outputs)

    def forward(self, x):
        h = self.norm(self.convolution(x)).relu()
        return self.head(self.drop(h.view(len(x), -1) * self.mask))

def flat(input_shape, outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, outputs))

def wrong(outputs):
    return nn.Linear(8, outputs)

def wider(outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3 * outputs), nn.Linear(3 * outputs, outputs))
"""
CHOSEN = [
    "pr-bbb",
    "pr-dirac",
    "pr-ssge",
    "pr-ensemble",
    "pr-bbb-cs",
    "vcl",
    "ewc-multihead",
    "exp-replay",
    "sp-radial",
    "fine-tuning",
]
NAME = "conformance_own_network"
SLOW = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's module, in the current folder."""
    folder = tmp_path_factory.mktemp("user")
    (folder / f"{NAME}.py").write_text(CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        patch.setattr(own, "is_permitted", lambda name: True)
        yield


@pytest.fixture(scope="module")
def digits() -> Benchmark:
    return build_benchmark("split-digits", data_seed=0, data_dir=None)[:2]


def config_of(method: str, function: str = "Tiny", **settings: Any) -> RunConfig:
    small = {
        "hypernet.hidden": (6,),
        "hypernet.task_embedding_size": 3,
        "hypernet.chunk_size": 200,
        "hypernet.chunk_embedding_size": 2,
    }
    defaults = {
        "method": method,
        "network": f"{NAME}:{function}",
        **(small if METHODS[method].task_map_part.generated else {}),
    }
    if METHODS[method].strategy == "coreset-replay":
        defaults |= {"strategy.finetune_iterations": 4, "strategy.coreset_size": 10}
    if not METHODS[method].family_part.point and METHODS[method].family != "ewc":
        defaults |= {"posterior.train_samples": 2}
    steps = {
        "training.iterations": 5,
        "training.batch_size": 8,
        "training.checkpoint_every": 2,
        "training.log_every": 1,
    }
    return build_config({**defaults, **steps, "inference.samples": 3}, settings, "test")


def learner_of(config: RunConfig, benchmark: Benchmark) -> ContinualLearner:
    return ContinualLearner(config, benchmark.problem, benchmark.scenario, benchmark.input_shape, total_outputs=4)


def learn(config: RunConfig, benchmark: Benchmark) -> ContinualLearner:
    learner = learner_of(config, benchmark)
    for task in benchmark:
        for step in learner.begin_task(task.train, len(task.classes)):
            assert step.terms.total.isfinite()
    return learner


@pytest.mark.parametrize("function", ["Tiny", "flat"])
@pytest.mark.parametrize("method", CHOSEN)
def test_statistics_belong_to_a_task(method: str, function: str, digits: Benchmark) -> None:
    learner = learn(config_of(method, function), digits)
    model = learner.model
    norm = "norm" if function == "Tiny" else "2"
    means = [model.buffers(task)[0][f"{norm}.running_mean"] for task in range(2)]
    assert not torch.equal(means[0], means[1])
    assert means[0].any()
    counted = [int(model.buffers(task)[0][f"{norm}.num_batches_tracked"]) for task in range(2)]
    assert counted == [5, 10 if method == "exp-replay" else 5]  # a replayed batch is one more
    assert all(
        torch.equal(buffer, model.task_buffers.start[name])
        for name, buffer in model.network.named_buffers()
        if "running" in name
    )
    assert not model.network.training
    assert learner.is_finite()
    assert learner.model.parameter_counts()["statistics"] == model.members * (2 * len(means[0]) + 1)


@pytest.mark.parametrize("method", CHOSEN)
def test_predicting_and_testing_leave_the_statistics_alone(method: str, digits: Benchmark) -> None:
    learner = learn(config_of(method), digits)
    before = {name: tensor.clone() for name, tensor in learner.tensors(training=False).items()}
    tests, judge = [task.test for task in digits], Evaluator(learner.predictor)
    figures = [judge.given(task, test) for task, test in enumerate(tests)]
    judge.inferred(tests)
    assert figures == [judge.given(task, test) for task, test in enumerate(tests)]  # nothing is dropped, either
    after = learner.tensors(training=False)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_a_prediction_uses_the_statistics_of_its_task(digits: Benchmark, rng: torch.Generator) -> None:
    learner = learn(config_of("pr-dirac"), digits)
    model, x = learner.model, digits[0].test.x[:7]

    def outputs() -> Tensor:
        return predictive_outputs(model, x, 0, 1, generator=rng)[0]

    actual = outputs()
    state = {**model.spec.unflatten(model.task_map.theta(0)), **model.buffers(0)[0]}
    expected = torch.func.functional_call(model.network, state, (x,))
    torch.testing.assert_close(actual, expected[:, model.heads[0]])
    model.buffers(1)[0]["norm.running_mean"] += 100
    assert torch.equal(outputs(), actual)
    model.buffers(0)[0]["norm.running_mean"] += 1
    assert not torch.allclose(outputs(), actual)


def config_for_run(method: str) -> RunConfig:
    """Tasks are described by pr-bbb alone: it takes as long as learning them."""
    return config_of(method, **{} if method == "pr-bbb" else {"statistics.collect": False})


class Counter(NullObserver):
    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self, step: Step) -> None:
        self.left -= 1

    def is_done(self) -> bool:
        return self.left <= 0


@pytest.mark.parametrize(
    "method",
    [
        method
        if method in ("pr-bbb", "pr-ensemble", "pr-bbb-cs", "vcl", "exp-replay")
        else pytest.param(method, marks=SLOW)
        for method in CHOSEN
    ],
)
def test_a_run_that_is_stopped_resumes_exactly(method: str, tmp_path: Path, digits: Benchmark) -> None:
    config, folders = config_for_run(method), (tmp_path / "whole", tmp_path / "broken")
    Run(Plan.of(config, folders[0], benchmark=digits)).execute()
    for index, steps in enumerate((3, 3, 2)):  # within the first task, within the second
        counter = Counter(steps)
        with pytest.raises(Interrupted):
            Run(Plan.of(config, folders[1], benchmark=digits), observer=counter, should_stop=counter.is_done).execute(
                resume=index > 0
            )
    Run(Plan.of(config, folders[1], benchmark=digits)).execute(resume=True)
    weights = [load_model(folder).learner.tensors(training=False) for folder in folders]
    assert weights[0].keys() == weights[1].keys()
    assert "model.statistics.start.norm.running_mean" in weights[0]
    assert "model.statistics.1.norm.running_mean" in weights[0]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
    metrics = [(folder / "metrics.jsonl").read_text() for folder in folders]
    assert metrics[0] == metrics[1]


class Killed(BaseException):
    """The process is gone: nothing may be tidied up."""


@pytest.mark.parametrize("method", ["pr-bbb", "exp-replay", "pr-ensemble"])
def test_a_run_that_is_killed_resumes_exactly(
    method: str, tmp_path: Path, digits: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, folders, write = config_for_run(method), (tmp_path / "whole", tmp_path / "broken"), CheckpointFolder.write
    Run(Plan.of(config, folders[0], benchmark=digits)).execute()

    def die(folder: CheckpointFolder, serial: int, *arguments: Any) -> None:
        if serial == 5:  # in the second task, two steps after the checkpoint that is left
            raise Killed
        write(folder, serial, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFolder, "write", die)
        with pytest.raises(Killed):
            Run(Plan.of(config, folders[1], benchmark=digits)).execute()
    Run(Plan.of(config, folders[1], benchmark=digits)).execute(resume=True)
    weights = [load_model(folder).learner.tensors(training=False) for folder in folders]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_the_data_decide_not_the_global_generator(digits: Benchmark) -> None:
    actual = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        actual.append(learn(config_of("pr-bbb"), digits).tensors(training=False))
    assert all(torch.equal(tensor, actual[1][name]) for name, tensor in actual[0].items())


def arrays(benchmark: Benchmark) -> list[tuple[Tensor, Tensor]]:
    return [(task.train.x[:20], task.train.y[:20]) for task in benchmark]


def test_estimators_take_a_name_or_a_function(tmp_path: Path, digits: Benchmark) -> None:
    settings = {"training.iterations": 3, "training.batch_size": 8}
    named = ContinualClassifier("pr-bbb-cs", f"{NAME}:Tiny", settings=settings)
    given = ContinualClassifier("pr-bbb-cs", vars(sys.modules[NAME])["Tiny"], settings=settings)
    for model in (named, given):
        for x, y in arrays(digits):
            model.learn_task(x, y)
    x = digits[0].test.x[:5]
    assert (named.predict_proba(x) == given.predict_proba(x)).all()
    given.save(tmp_path / "model")
    loaded = ContinualClassifier.load(tmp_path / "model")
    assert (loaded.predict_proba(x) == given.predict_proba(x)).all()
    before = (
        {name: tensor.clone() for name, tensor in loaded.learner.tensors(training=False).items()}
        if loaded.learner
        else {}
    )
    for model in (loaded, given):
        model.refresh_task(0)
    after = loaded.learner.tensors(training=False) if loaded.learner else {}
    statistics = [name for name in before if name.startswith("model.statistics.")]
    changed = {name for name in statistics if not torch.equal(after[name], before[name])}
    assert changed == {
        f"model.statistics.0.norm.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")
    }
    assert (loaded.predict_proba(x) == given.predict_proba(x)).all()
    with pytest.raises(ConfigError, match="defined at the top level of a module"):
        ContinualClassifier("pr-bbb", lambda outputs: torch.nn.Linear(64, outputs))


def test_models_from_before_statistics_were_stored_can_be_read(digits: Benchmark) -> None:
    config = config_of("pr-dirac", "flat")
    learner, other = learn(config, digits), learner_of(config, digits)
    stored = {name: tensor for name, tensor in learner.tensors(training=False).items() if "statistics" not in name}
    other.restore(learner.facts(), stored)
    assert torch.equal(other.model.task_map.theta(1), learner.model.task_map.theta(1))
    assert not other.model.buffers(1)[0]["2.running_mean"].any()
    foreign = {**stored, "model.statistics.0.other": torch.zeros(3)}
    with pytest.raises(CheckpointError, match="belongs to another configuration"):
        other.restore(learner.facts(), foreign)


@pytest.mark.parametrize(
    ("method", "function", "words"),
    [("pr-dirac", "wrong", "returns outputs of shape"), ("vcl", "wider", "its existing outputs change")],
)
def test_a_network_that_does_not_fit_is_refused_and_leaves_no_trace(
    method: str, function: str, words: str, digits: Benchmark
) -> None:
    learner = learner_of(config_of(method, function), digits)
    if method == "vcl":  # the first task is fine, the second adds outputs
        list(learner.begin_task(digits[0].train, 2))
    before = (learner.num_tasks, learner.model.outputs, learner.tensors(training=False) if learner.num_tasks else {})
    with pytest.raises(ConfigError, match=words):
        learner.begin_task(digits[1].train, 2)
    assert (learner.num_tasks, learner.model.outputs) == before[:2]
    assert all(torch.equal(learner.tensors(training=False)[name], tensor) for name, tensor in before[2].items())


def test_one_example_is_too_few_for_batch_normalisation(digits: Benchmark) -> None:
    learner = learner_of(config_of("pr-dirac", "flat"), digits)
    train = digits[0].train
    with pytest.raises(DataError, match="batch normalisation cannot be trained on one example at a time"):
        list(learner.begin_task(type(train)(train.x[:1], train.y[:1]), 2))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"posterior.local_reparametrisation": True}, "works for MLPs only, not for conformance_own_network:Tiny"),
        ({"activation": "tanh"}, "activation belongs to .*; pr-bbb runs conformance_own_network:Tiny"),
    ],
)
def test_settings_of_other_networks_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config_of("pr-bbb", **settings)


def test_the_run_command_takes_it() -> None:
    from metareplay.experiments.plan import default_folder, make_plan

    chosen: dict[str, object] = {"benchmark": "split-digits", "network": f"{NAME}:Tiny"}
    plan = make_plan(chosen)
    assert plan.config.network == f"{NAME}:Tiny"
    assert plan.folder == default_folder(chosen) == Path(f"runs/split-digits-pr-bbb-{NAME}.Tiny")
    assert "borrowed" in plan.source
    assert "activation" not in plan.config.dump()
