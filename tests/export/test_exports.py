"""Exported networks answer as the model does: as a module, as a state dict, and in onnxruntime."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from metareplay import ContinualClassifier, ContinualRegressor
from metareplay.cli.main import app
from metareplay.errors import ConfigError, DataError, MetaReplayError
from metareplay.export.choice import BATCH
from metareplay.export.facts import facts_of
from metareplay.export.modules import SampledNetworks
from metareplay.export.traceable import traceable
from metareplay.inference.predictive import log_likelihoods, log_predictive
from metareplay.inference.statistics.edges import EdgeScale, described_edges, described_parts
from metareplay.inference.statistics.evidence import Descriptions
from metareplay.inference.statistics.settings import StatisticsSettings
from metareplay.nets.mlp import MLP

Array = npt.NDArray[Any]
CLOSE = 1e-4


def blobs(task: int, rows: int = 60) -> tuple[Array, Array]:
    random, y = np.random.default_rng(task), np.arange(rows) % 2
    x = 5 + 3 * random.normal(size=(rows, 3)) + 9 * y[:, None] + np.array([25, -20, 0]) * task
    return x.astype(np.float32), np.array([["no", "yes"], ["maybe", "yes"]][task % 2])[y]


def trained(
    kind: type[Any] = ContinualClassifier, method: str = "pr-bbb", network: str = "mlp-6", *, calibrate: bool = False
) -> Any:
    settings: dict[str, Any] = {"training.iterations": 150, "training.learning_rate": 0.01, "inference.samples": 3}
    settings |= {"inference.calibrate": calibrate}  # by default a network's own answers
    model = kind(method, network, seed=0, settings=settings)
    for task, name in enumerate(("march", "april")):
        x, y = blobs(task)
        model.learn_task(x, y if kind is ContinualClassifier else x[:, 0] * 2 + x[:, 1], name=name)
    return model


@pytest.fixture(scope="module")
def model() -> ContinualClassifier:
    made: ContinualClassifier = trained()
    return made


@pytest.fixture(scope="module")
def inputs() -> Array:
    return np.concatenate([blobs(0)[0][:7], blobs(1)[0][:4]])


def run(file: Path, x: Array) -> tuple[dict[str, Array], dict[str, str]]:
    """Outputs by name, and the metadata."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    values = session.run(None, {"inputs": x})
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, values, strict=True)), session.get_modelmeta().custom_metadata_map


def mean_probabilities(model: ContinualClassifier, x: Array, task: int) -> Array:
    """Of the network under the mean weights, by the library's own pass."""
    assert model.learner is not None
    outputs = model.learner.predictor.keeper._pass(task, model._inputs(x), False).outputs
    return outputs[:, model.learner.model.heads[task]].softmax(1).numpy()


def test_a_module_is_the_mean_network_in_the_users_units(model: ContinualClassifier, inputs: Array) -> None:
    module = model.export_module("april")
    assert not module.training
    actual = module(torch.tensor(inputs)).detach().numpy()
    np.testing.assert_allclose(actual, mean_probabilities(model, inputs, 1), atol=1e-6)
    before = model.predict_proba(inputs)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    assert np.array_equal(model.predict_proba(inputs), before)  # it is a copy


def test_a_state_dict_loads_into_plain_pytorch(model: ContinualClassifier, inputs: Array, tmp_path: Path) -> None:
    file = tmp_path / "april.safetensors"
    model.export_state_dict(file, "april")
    state = load_file(file)
    with safe_open(file, "pt") as opened:
        facts = json.loads(opened.metadata()["metareplay"])
    network = MLP(facts["input_shape"], [6], facts["network_outputs"])
    network.load_state_dict({k.removeprefix("network."): v for k, v in state.items() if k.startswith("network.")})
    x = (torch.tensor(inputs) - state["inputs.x_mean"]) / state["inputs.x_scale"]
    start, stop = facts["head"]
    actual = network(x)[:, start:stop].softmax(1).detach().numpy()
    np.testing.assert_allclose(actual, mean_probabilities(model, inputs, 1), atol=1e-6)
    assert facts["labels"] == ["maybe", "yes"]
    assert facts["tasks"] == ["april"]


def test_an_onnx_graph_of_the_mean(model: ContinualClassifier, inputs: Array, tmp_path: Path) -> None:
    file = tmp_path / "april.onnx"
    model.export_onnx(file, "april")
    outputs, facts = run(file, inputs)
    np.testing.assert_allclose(outputs["probabilities"], mean_probabilities(model, inputs, 1), atol=CLOSE)
    assert run(file, inputs[:1])[0]["probabilities"].shape == (1, 2)
    assert json.loads(facts["labels"]) == ["maybe", "yes"]
    assert facts["content"] == "mean"
    assert b"site-packages" not in file.read_bytes()  # nothing of the machine that made it
    assert b"metareplay/export" not in file.read_bytes()


def test_modules_are_calibrated_as_predictions_are_and_follow_a_task_that_moved(inputs: Array) -> None:
    """By temperature and doubt; the weight samples are those of the task, also after another was removed."""
    model = ContinualClassifier("pr-bbb", "mlp-6", seed=0, settings={"training.iterations": 60, "inference.samples": 3})
    for task, name in enumerate(("march", "april")):
        model.learn_task(*blobs(task, 250), name=name)
    model.remove_task("march")
    assert model.learner is not None
    predictor = model.learner.predictor
    assert predictor.calibrated
    calibration = predictor.calibration(0)  # type: ignore[union-attr]
    x = model._inputs(inputs)
    expected = log_predictive(calibration.log_likelihoods(predictor.outputs(x, 0))).exp().numpy()
    sampled = SampledNetworks(model._learned(), 0).eval()
    np.testing.assert_allclose(sampled(torch.tensor(inputs))[0].detach().numpy(), expected, atol=CLOSE)
    outputs = predictor.keeper._pass(0, x, False).outputs[:, model.learner.model.heads[0]].unsqueeze(0)
    mean = calibration.log_likelihoods(outputs)[0].exp().numpy()
    np.testing.assert_allclose(model.export_module("april")(torch.tensor(inputs)).detach().numpy(), mean, atol=CLOSE)
    assert not np.allclose(mean, outputs[0].softmax(1).numpy(), atol=CLOSE)
    assert facts_of(model._learned(), 0)["calibrated"]


@pytest.mark.slow
def test_an_onnx_graph_of_weight_samples(model: ContinualClassifier, inputs: Array, tmp_path: Path) -> None:
    assert model.learner is not None
    file = tmp_path / "march.onnx"
    model.export_onnx(file, "march", content="samples")
    outputs, _ = run(file, inputs)
    expected = log_predictive(log_likelihoods(model.learner.predictor.outputs(model._inputs(inputs), 0))).exp()
    np.testing.assert_allclose(outputs["probabilities"], expected.numpy(), atol=CLOSE)
    answer = model.predict_full(inputs, "march")
    for name in ("total", "aleatoric", "epistemic"):
        np.testing.assert_allclose(outputs[name], getattr(answer, name), atol=CLOSE)


OTHER_CRITERIA = ("energy", "margin", "pca", "pairs", "mahalanobis", "relative")


@pytest.mark.parametrize("criterion", [None, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHER_CRITERIA)])
def test_a_graph_of_all_tasks_chooses_as_predictions_do(
    model: ContinualClassifier, inputs: Array, criterion: str | None, tmp_path: Path
) -> None:
    assert model.learner is not None
    file = tmp_path / "all.onnx"
    model.export_onnx(file, criterion=criterion)
    outputs, facts = run(file, inputs)
    assert run(file, inputs[:1])[0]["task"].tolist() == outputs["task"][:1].tolist()
    answer = model.learner.predictor.predict(model._inputs(inputs), criterion=criterion)
    assert outputs["task"].tolist() == answer.task.tolist()
    assert answer.scores is not None
    np.testing.assert_allclose(outputs["task_scores"], answer.scores.T.numpy(), rtol=CLOSE, atol=CLOSE)
    assert facts["criterion"] == criterion or (criterion is None and facts["criterion"] == "stats")
    assert json.loads(facts["labels"]) == model.classes_.tolist() == ["no", "yes", "maybe"]
    for row, task in enumerate(outputs["task"]):
        expected = np.zeros(3)
        columns = [model.classes_.tolist().index(label) for label in model.tasks[task].classes]
        expected[columns] = mean_probabilities(model, inputs[row : row + 1], int(task))[0]
        np.testing.assert_allclose(outputs["probabilities"][row], expected, atol=CLOSE)


@pytest.mark.slow
def test_a_graph_of_all_tasks_may_have_one_task(inputs: Array, tmp_path: Path) -> None:
    model = ContinualClassifier(seed=0, settings={"training.iterations": 3, "inference.samples": 3})
    model.learn_task(inputs, np.arange(len(inputs)) % 2)
    model.export_onnx(tmp_path / "all.onnx")
    model.export_onnx(tmp_path / "one.onnx", task=0)
    (outputs, _), (alone, _) = (run(tmp_path / name, inputs) for name in ("all.onnx", "one.onnx"))
    assert outputs["task"].tolist() == [0] * len(inputs)
    np.testing.assert_allclose(outputs["probabilities"], alone["probabilities"], atol=CLOSE)


@pytest.mark.slow
def test_the_entropy_of_the_mean_networks_chooses(model: ContinualClassifier, inputs: Array, tmp_path: Path) -> None:
    model.export_onnx(tmp_path / "all.onnx", criterion="ent")
    outputs, _ = run(tmp_path / "all.onnx", inputs)
    p = np.stack([mean_probabilities(model, inputs, task) for task in range(2)]).astype(np.float64)
    entropies = -(p * np.log(np.maximum(p, 1e-300))).sum(2)  # (T, N, C) -> (T, N)
    np.testing.assert_allclose(outputs["task_scores"], entropies.T, atol=CLOSE)
    assert outputs["task"].tolist() == entropies.argmin(0).tolist()


@pytest.mark.slow
def test_a_graph_holds_the_network_that_infers_tasks(inputs: Array, tmp_path: Path) -> None:
    model = trained(method="hnet-tir")
    model.export_onnx(tmp_path / "all.onnx")
    outputs, facts = run(tmp_path / "all.onnx", inputs)
    assert facts["criterion"] == "task-net"
    answer = model.learner.predictor.predict(model._inputs(inputs))
    assert outputs["task"].tolist() == answer.task.tolist()
    np.testing.assert_allclose(outputs["task_scores"], answer.scores.T.numpy(), rtol=CLOSE, atol=CLOSE)


def test_a_regressors_module_mixes_in_the_linear_fit(inputs: Array) -> None:
    model = trained(ContinualRegressor, calibrate=True)
    correction = model.learner.predictor.calibration(0)
    assert correction.share is not None
    assert float(correction.share) < 0.9
    answer = model.predict_full(inputs, "march")
    mean, std = SampledNetworks(model._learned(), 0).eval()(torch.tensor(inputs))
    np.testing.assert_allclose(mean[:, 0], answer.mean, rtol=CLOSE, atol=1e-3)
    known = answer.known
    np.testing.assert_allclose(std[known, 0], answer.epistemic[known], rtol=CLOSE, atol=1e-3)
    truth = 2 * inputs[:, 0] + inputs[:, 1]
    exported = model.export_module("march")(torch.tensor(inputs))[:, 0].numpy()
    network = model.learner.predictor.statistics(model._inputs(inputs), [0], model.learner.predictor.wanted)[0]["mean"]
    raw = model.scaling.undo_y(network, network)[0][:, 0].numpy()
    assert np.abs(exported - truth)[:7].mean() < np.abs(raw - truth)[:7].mean()


@pytest.mark.slow
def test_a_regressors_graphs_answer_in_the_users_units(inputs: Array, tmp_path: Path) -> None:
    model = trained(ContinualRegressor)
    model.export_onnx(tmp_path / "march.onnx", "march", content="samples")
    outputs, _ = run(tmp_path / "march.onnx", inputs)
    answer = model.predict_full(inputs, "march")
    np.testing.assert_allclose(outputs["target_mean"][:, 0], answer.mean, rtol=CLOSE, atol=1e-3)
    np.testing.assert_allclose(outputs["target_std"][:, 0], answer.std, rtol=CLOSE, atol=1e-3)
    with pytest.raises(
        ConfigError, match="only graphs of classifiers can choose the task; export the tasks of a regressor one by one"
    ):
        model.export_onnx(tmp_path / "all.onnx")


@pytest.mark.slow
def test_networks_of_images_are_exported(tmp_path: Path) -> None:
    settings = {"training.iterations": 3, "inference.samples": 2, "statistics.collect": False}
    model = ContinualClassifier("sp-bbb", "lenet", seed=0, settings=settings)
    x = np.random.default_rng(0).random(size=(8, 1, 28, 28)).astype(np.float32)
    model.learn_task(x, [0, 1] * 4, name="photos")
    model.export_onnx(tmp_path / "photos.onnx", "photos", content="samples")
    outputs, _ = run(tmp_path / "photos.onnx", x)
    np.testing.assert_allclose(outputs["probabilities"], model.predict_proba(x, "photos"), atol=CLOSE)


def test_edges_can_be_traced_for_any_number_of_images() -> None:
    generator = torch.Generator().manual_seed(0)
    x, labels = torch.rand(40, 2, 5, 7, generator=generator), torch.arange(40) % 2
    scale = EdgeScale.of(x)
    stored = described_edges(described_parts(x, scale), labels, scale, StatisticsSettings(), used=0)
    inputs = {"inputs.mean": torch.zeros(1, 70), "inputs.directions": torch.zeros(1, 1, 70)}
    inputs |= {"inputs.variances": torch.ones(1, 1), "inputs.noise": torch.ones(1), "inputs.share": torch.ones(1)}
    edges = traceable(Descriptions.of([{**stored, **inputs}, {**scale.tensors(), **inputs}])).edges
    assert edges is not None

    class Costs(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return edges.costs(edges.scale.numbers(images))

    shapes = ({0: torch.export.Dim("rows", max=BATCH)},)
    graph = torch.export.export(Costs(), (x[:3],), dynamic_shapes=shapes).module()
    torch.testing.assert_close(graph(x), edges.costs(scale.numbers(x)), equal_nan=True)


@pytest.mark.slow
def test_a_graph_of_all_tasks_compares_edges_and_colours(tmp_path: Path) -> None:
    """Of images whose sides are no multiples of the cells."""
    settings = {"training.iterations": 3, "inference.samples": 2}
    model = ContinualClassifier(network="mlp-5", seed=0, settings=settings)
    noise = np.random.default_rng(0)
    x = [noise.random(size=(40, 2, 5, 7)).cumsum(2 + task).astype(np.float32) for task in range(2)]
    for task, images in enumerate(x):
        model.learn_task(images, [2 * task, 2 * task + 1] * 20, name=str(task))
    model.export_onnx(tmp_path / "photos.onnx")
    images = np.concatenate([x[0][:4], x[1][:3]])
    assert model.learner is not None
    answer = model.learner.predictor.predict(model._inputs(images))
    assert answer.scores is not None
    outputs, _ = run(tmp_path / "photos.onnx", images)
    np.testing.assert_allclose(outputs["task_scores"], answer.scores.T.numpy(), rtol=CLOSE, atol=CLOSE)
    assert run(tmp_path / "photos.onnx", images[:1])[0]["task"].tolist() == outputs["task"][:1].tolist() == [0]


MISTAKES: list[tuple[dict[str, Any], type[MetaReplayError], str]] = [
    ({"task": "may"}, DataError, "'may' is unknown; the model has learned 'march', 'april'"),
    ({"task": "march", "content": "all"}, ConfigError, "choose one of mean, samples"),
    ({"content": "samples"}, ConfigError, "holds mean networks only; name a task"),
    ({"task": "march", "criterion": "ent"}, ConfigError, "the graph holds one task"),
    ({"task": "march", "samples": 3}, ConfigError, "has no weight samples"),
    ({"criterion": "ku"}, ConfigError, "choose ent, conf, .*stats"),
    ({"criterion": "luck"}, ConfigError, "Choose one of"),
]


@pytest.mark.parametrize(("options", "error", "message"), MISTAKES)
def test_what_cannot_be_exported_is_refused(
    model: ContinualClassifier, options: dict[str, Any], error: type[MetaReplayError], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        model.export_onnx(tmp_path / "x.onnx", **options)
    assert list(tmp_path.iterdir()) == []


def test_tasks_that_share_one_network_are_not_chosen(tmp_path: Path) -> None:
    model = trained(method="exp-replay")
    with pytest.raises(ConfigError, match="there is no task to choose; export one task"):
        model.export_onnx(tmp_path / "x.onnx")


def test_the_command_writes_a_state_dict(
    model: ContinualClassifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.save(tmp_path / "model")
    out = tmp_path / "march.safetensors"
    arguments = ["export", str(tmp_path / "model"), "--format", "state-dict", "--out", str(out)]
    app([*arguments, "--task", "march"], standalone_mode=False)
    assert "march.safetensors: " in capsys.readouterr().out
    model.export_state_dict(tmp_path / "same", "march")
    assert out.read_bytes() == (tmp_path / "same").read_bytes()
    for more, message in (
        (["--content", "samples", "--task", "march"], "holds the mean"),
        ([], "add --task: march, april"),
    ):
        with pytest.raises(ConfigError, match=message):
            app([*arguments, *more], standalone_mode=False)
