"""The model: outputs per task, growth, and what is stored."""

import pytest
import torch
from torch import Generator, Tensor

from metareplay.benchmarks.base import Scenario
from metareplay.errors import CheckpointError, ConfigError, NotTrainedError
from metareplay.inference.predictive import predictive_outputs
from metareplay.learner.build import build_model
from metareplay.learner.config import build_config
from metareplay.learner.methods import METHODS
from metareplay.model import ContinualModel
from metareplay.posteriors.families.flow import Flow
from metareplay.posteriors.families.gaussian import MeanFieldGaussian
from metareplay.posteriors.families.implicit import Implicit
from metareplay.posteriors.families.laplace import LinearisedGaussian
from metareplay.posteriors.families.mixture import members_of
from metareplay.posteriors.families.radial import Radial
from metareplay.task_maps.heads import HeadLayout

SHAPE = (3,)
CLASSES = (2, 5, 3)
LAYOUTS = {
    HeadLayout.SINGLE: [(0, 2), (0, 5), (0, 3)],
    HeadLayout.MULTI: [(0, 2), (2, 7), (7, 10)],
    HeadLayout.GROWING: [(0, 2), (2, 7), (7, 10)],
    HeadLayout.SHARED: [(0, 2), (2, 7), (7, 10)],
}
SMALL = {"hypernet.hidden": (8,), "hypernet.task_embedding_size": 4, "hypernet.chunk_embedding_size": 4}
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    # -sr and -cs have the model of those without
    **{name: (name, {}) for name in METHODS if not name.endswith(("-sr", "-cs"))},
    "plain": ("pr-bbb", {"hypernet.kind": "plain"}),
    "chunk-of-7": ("pr-bbb", {"hypernet.chunk_size": 7}),
    "own-chunk-embeddings": ("pr-bbb", {"hypernet.chunk_size": 7, "hypernet.chunk_embeddings_per_task": True}),
    "hyperfan": ("pr-dirac", {"hypernet.kind": "plain", "hypernet.initialisation": "hyperfan"}),
    "gaussian": ("sp-tc-bbb", {"hypernet.initialisation": "gaussian"}),
    "multihead": ("pr-dirac", {"heads": "multi"}),
    "chunked-generator": ("pr-ssge", {"posterior.generator_chunk_size": 7}),
    "separate-chunked-generators": ("sp-ssge", {"posterior.generator_chunk_size": 7, "posterior.latent_size": 50}),
    "many-latents": ("pr-ssge", {"posterior.latent_size": 50}),
    "no-support-noise": ("sp-ssge", {"posterior.support_noise": None}),
}


def empty_model(variant: str, layout: HeadLayout | None = None) -> ContinualModel:
    method, given = VARIANTS[variant]
    small = SMALL if METHODS[method].task_map_part.generated else {}
    config = build_config({"method": method, "network": METHODS[method].network or "mlp-6", **small}, given, "test")
    model = build_model(config, "classification", Scenario.CLASS, SHAPE, 16)
    if layout is not None:
        model.layout, model.total_outputs = layout, sum(CLASSES) if layout is HeadLayout.SHARED else None
    return model


def model_with_tasks(variant: str, generator: Generator, layout: HeadLayout | None = None) -> ContinualModel:
    model = empty_model(variant, layout)
    for classes in CLASSES:
        model.add_task(classes, generator=generator)
    return model


def outputs_of(model: ContinualModel, task: int, *, every_output: bool = False) -> Tensor:
    x = torch.linspace(-1, 1, 12).view(4, 3)
    return predictive_outputs(model, x, task, 5, generator=Generator().manual_seed(task), every_output=every_output)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("variant", ["pr-bbb", "plain", "sp-dirac", "sp-tc-dirac", "fine-tuning"])
def test_heads_of_tasks_with_different_numbers_of_classes(layout: HeadLayout, variant: str, rng: Generator) -> None:
    model = model_with_tasks(variant, rng, layout)
    assert model.head_bounds() == LAYOUTS[layout]
    assert model.num_tasks == 3
    assert model.outputs == max(stop for _, stop in LAYOUTS[layout])
    for task, classes in enumerate(CLASSES):
        assert outputs_of(model, task).shape[1:] == (4, classes)
        everything = outputs_of(model, task, every_output=True)
        assert everything.shape[-1] == model.outputs
        assert torch.equal(everything[..., model.heads[task]], outputs_of(model, task))
        columns, bounds = model.training_columns(task), LAYOUTS[layout]
        all_compete = layout is HeadLayout.SHARED or (layout.one_softmax and model.task_map.one_theta)
        start, stop = 0 if layout.one_softmax else bounds[task][0], 10 if all_compete else bounds[task][1]
        assert (columns.start, columns.stop) == (start, stop)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_growth_keeps_what_old_tasks_predict(layout: HeadLayout, variant: str, rng: Generator) -> None:
    model = empty_model(variant, layout)
    before: list[tuple[Tensor, ...]] = []
    for classes in CLASSES:
        model.add_task(classes, generator=rng)
        now = [_old_outputs(model, task) for task in range(model.num_tasks)]
        for task, old in enumerate(before):
            for left, right in zip(now[task], old, strict=True):
                torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)
        before = now


def _old_outputs(model: ContinualModel, task: int) -> tuple[Tensor, ...]:
    """Outputs that do not depend on how many random numbers a sample takes: at the mean, and one deviation above it.

    Implicit posteriors are given the noise itself, of which old weights take the first numbers.
    """
    posterior, members = members_of(model.posterior(task))
    x = torch.linspace(-1, 1, 12).view(4, 3)
    if isinstance(posterior, MeanFieldGaussian | Radial | LinearisedGaussian):
        points = torch.stack([posterior.mean, posterior.mean + posterior.scale])
    elif isinstance(posterior, Flow):
        # the same for every weight
        noise = torch.stack([torch.zeros_like(posterior.mean), torch.ones_like(posterior.mean)])
        points = posterior.mean + posterior.scale * posterior._couple(noise, inverse=False)[0]
    elif isinstance(posterior, Implicit):
        noise = torch.randn(2, 200, generator=Generator().manual_seed(9))
        points = posterior.weights_at(noise[:, : posterior.noise_size])
    else:
        points = posterior.rsample(members, generator=Generator())
    runs = [
        model.run(point_at(point), x, 1, 0, generator=Generator()) for point in points.reshape(-1, model.spec.numel)
    ]
    return tuple(outputs[..., model.heads[task]].detach().clone() for outputs in runs)


def point_at(weights: Tensor) -> MeanFieldGaussian:
    return MeanFieldGaussian(weights, torch.zeros_like(weights))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_restored_model_is_the_same_bit_for_bit(variant: str, rng: Generator) -> None:
    model = model_with_tasks(variant, rng)
    for parameter in model.task_map.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=rng)
    stored = {name: tensor.clone() for name, tensor in model.tensors().items()}
    other = empty_model(variant)
    other.restore(model.head_bounds(), stored)
    assert other.head_bounds() == model.head_bounds()
    assert other.parameter_counts() == model.parameter_counts()
    for task in range(3):
        assert torch.equal(outputs_of(other, task), outputs_of(model, task))
    for left in (model, other):  # both learn on in the same way
        left.add_task(6, generator=Generator().manual_seed(9))
    assert all(torch.equal(outputs_of(other, task), outputs_of(model, task)) for task in range(4))


def test_restoring_replaces_what_was_there(rng: Generator) -> None:
    model, other = model_with_tasks("plain", rng), model_with_tasks("plain", rng)
    assert not torch.equal(outputs_of(other, 0), outputs_of(model, 0))
    other.restore(model.head_bounds(), model.tensors())
    assert other.num_tasks == 3
    assert torch.equal(outputs_of(other, 0), outputs_of(model, 0))


@pytest.mark.parametrize("variant", ["pr-bbb", "sp-dirac", "sp-tc-bbb", "fine-tuning"])
def test_tensors_of_something_else_are_refused(variant: str, rng: Generator) -> None:
    model = model_with_tasks(variant, rng)
    stored = model.tensors()
    name = next(iter(stored))
    wrong = [
        {key: value for key, value in stored.items() if key != name},
        {**stored, "something": torch.zeros(2)},
        {**stored, name: torch.zeros(1)},
        {},
    ]
    for tensors in wrong:
        with pytest.raises(CheckpointError, match=r"do not fit this model.*another configuration"):
            empty_model(variant).restore(model.head_bounds(), tensors)


@pytest.mark.parametrize("variant", ["pr-bbb", "sp-dirac", "sp-tc-bbb", "fine-tuning"])
@pytest.mark.parametrize("source", ["pr-dirac", "plain", "sp-bbb", "sp-tc-dirac"])
def test_another_methods_tensors_are_refused(variant: str, source: str, rng: Generator) -> None:
    model = model_with_tasks(source, rng)
    with pytest.raises(CheckpointError, match="another configuration"):
        empty_model(variant).restore(model.head_bounds(), model.tensors())


def test_outputs_of_another_layout_are_refused(rng: Generator) -> None:
    model = model_with_tasks("multihead", rng)
    with pytest.raises(CheckpointError, match="another configuration"):
        empty_model("pr-dirac").restore(model.head_bounds(), model.tensors())


def test_a_task_that_was_not_learned_is_refused(rng: Generator) -> None:
    model = model_with_tasks("sp-dirac", rng)
    for task in (3, -1):
        with pytest.raises(NotTrainedError, match=f"task {task} has not been learned; the model knows 3 tasks"):
            model.posterior(task)


def test_the_start_depends_on_the_generator_only() -> None:
    def theta(seed: int, global_seed: int) -> Tensor:
        torch.manual_seed(global_seed)
        return model_with_tasks("pr-bbb", Generator().manual_seed(seed)).task_map.thetas([0, 1, 2])

    assert torch.equal(theta(1, 1), theta(1, 2))
    assert not torch.equal(theta(1, 1), theta(2, 1))


def test_parameter_counts(rng: Generator) -> None:
    model = model_with_tasks("sp-bbb", rng)
    weights = (3 + 1) * 6 + (6 + 1) * 5
    assert model.parameter_counts() == {
        "main_network": weights,
        "posterior": 2 * weights,
        "trained": 6 * weights,
        "per_task": 2 * weights,
        "statistics": 0,
    }


def test_the_network_itself_is_never_trained(rng: Generator) -> None:
    model = model_with_tasks("pr-bbb", rng)
    x = torch.ones(4, 3)
    model.run(model.posterior(1), x, 2, 1, generator=rng).sum().backward()
    assert all(parameter.grad is None for parameter in model.network.parameters())
    assert any(parameter.grad is not None for parameter in model.task_map.parameters())


def test_local_sampling_can_be_asked_for(rng: Generator) -> None:
    model = model_with_tasks("sp-bbb", rng)
    x = torch.ones(1, 3).expand(4, -1)
    whole, local = (model.run(model.posterior(0), x, 2, 0, generator=rng, local=kind) for kind in (False, True))
    assert whole.shape == local.shape == (2, 4, 5)
    assert torch.allclose(whole[:, :1], whole)
    assert not torch.allclose(local[:, :1], local)


def test_a_shared_softmax_has_all_its_outputs_from_the_start(rng: Generator) -> None:
    model = empty_model("ewc-shared")
    sizes = []
    for classes in CLASSES:
        model.add_task(classes, generator=rng)
        sizes.append((model.outputs, model.spec.numel, int(model.fresh.sum())))
    assert sizes[0] == (16, 6 * 4 + 16 * 7, 6 * 4 + 16 * 7)
    assert sizes[1:] == [(16, 6 * 4 + 16 * 7, 0)] * 2
    with pytest.raises(ConfigError, match=r"has 7 classes, but only 6 of the 16 outputs that all tasks share are left"):
        model.add_task(7, generator=rng)
    assert model.num_tasks == 3


def test_a_shared_softmax_needs_to_know_how_many_outputs() -> None:
    config = build_config({"method": "ewc-shared", "network": "mlp-6"}, {}, "test")
    with pytest.raises(ConfigError, match="set their number with total_outputs"):
        build_model(config, "classification", Scenario.CLASS, SHAPE)
    given = build_config({"method": "ewc-shared", "network": "mlp-6"}, {"total_outputs": 12}, "test")
    assert build_model(given, "classification", Scenario.CLASS, SHAPE, 10).total_outputs == 12
