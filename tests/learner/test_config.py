"""Configurations: unknown, wrong and senseless settings are refused in one clear sentence."""

from typing import Any

import pytest
import yaml

from metareplay.errors import ConfigError
from metareplay.learner.config import (
    RunConfig,
    build_config,
    parse_setting,
    setting_descriptions,
)
from metareplay.learner.methods import METHODS, method_named
from metareplay.learner.relevance import CORESET_KEYS, IMPLICIT_KEYS, STRATEGY_KEYS, why_senseless
from metareplay.settings import flatten, nest


def refusal(given: dict[str, Any], defaults: dict[str, Any] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        build_config(defaults or {}, given, "here")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_unknown_key_names_the_closest_and_what_is_allowed() -> None:
    said = refusal({"training.iteration": 5})
    assert said.startswith("here: unknown setting 'training.iteration'; did you mean training.iterations? Allowed: ")
    allowed = said.rpartition("Allowed: ")[2].split(", ")
    assert allowed == [key for key in setting_descriptions() if key.startswith("training.")]


def test_a_key_like_no_other_shows_them_all() -> None:
    said = refusal({"zzz": 5})
    assert "did you mean" not in said
    assert said.rpartition("Allowed: ")[2].split(", ") == list(setting_descriptions())


WRONG: list[tuple[str, Any]] = [
    ("training.iterations", 0),
    ("training.iterations", 2.5),
    ("training.iterations", "many"),
    ("training.learning_rate", 0),
    ("training.learning_rate", -1.0),
    ("training.learning_rate", float("nan")),
    ("training.learning_rate", float("inf")),
    ("training.batch_size", 0),
    ("training.clip_norm", 0.0),
    ("device", "gpu"),
    ("device", "cuda:x"),
    ("training.augmentation", "rotate"),
    ("training.rate_steps", [[0, 0.1]]),
    ("training.rate_steps", [[2, 0.0]]),
    ("training.rate_steps", [[2, 0.5], [1, 0.1]]),
    ("training.rate_steps", [[2, 0.5], [2, 0.1]]),
    ("training.rate_steps", [2, 0.5]),
    ("training.plateau_patience", 0),
    ("training.plateau_floor", -1.0),
    ("tasks.scenario", "instance"),
    ("tasks.classes_per_task", 0),
    ("tasks.class_order", "random"),
    ("tasks.class_order", [0, 1.5]),
    ("tasks.padding", -1),
    ("inference.test_inputs", 0),
    ("posterior.prior_variance", 0.0),
    ("posterior.prior_scale", -0.1),
    ("posterior.prior_power", 0.0),
    ("strategy.prior_from_earlier", 1.0),
    ("strategy.prior_from_earlier", -0.1),
    ("posterior.train_samples", 0),
    ("posterior.members", 1),
    ("posterior.flow_transforms", 0),
    ("posterior.flow_hidden", [0]),
    ("strategy.penalty_samples", 0),
    ("posterior.generator_hidden", [3, 0]),
    ("posterior.generator_chunk_size", 0),
    ("posterior.latent_std", 0.0),
    ("posterior.support_noise", -1.0),
    ("posterior.ssge_samples", 0),
    ("posterior.ssge_ratio", 1.5),
    ("posterior.avb_hidden", [3, 0]),
    ("posterior.avb_activation", "cosine"),
    ("posterior.avb_steps", 0),
    ("posterior.avb_batch_size", 0),
    ("posterior.avb_learning_rate", 0.0),
    ("posterior.avb_contrast_samples", 1),
    ("posterior.avb_chunk_size", 0),
    ("posterior.avb_chunk_outputs", 0),
    ("strategy.strength", -1),
    ("strategy.penalty", "l1"),
    ("strategy.old_tasks", 0),
    ("strategy.penalty_every", 0),
    ("strategy.fisher_weight_samples", 0),
    ("strategy.age_discount", 0.0),
    ("strategy.age_discount", 1.1),
    ("strategy.task_strengths", [1.0, -0.5]),
    ("strategy.task_strengths", 0.5),
    ("strategy.coreset_size", 0),
    ("strategy.replay_batch_size", 0),
    ("strategy.replay_batch_per_task", "perhaps"),
    ("strategy.finetune_iterations", 0),
    ("strategy.finetune_batch_size", 1),
    ("strategy.finetune_learning_rate", 0.0),
    ("strategy.finetune_prior_scale", -1.0),
    ("strategy.finetune_others", "all"),
    ("strategy.finetune_own_share", 1.0),
    ("hypernet.kind", "big"),
    ("hypernet.hidden", [10, 0]),
    ("hypernet.hidden", "10"),
    ("hypernet.activation", "cosine"),
    ("inference.samples", 0),
    ("seed", -1),
    ("seed", None),
    ("threads", 0),
    ("heads", "many"),
    ("activation", "cosine"),
    ("posterior.local_reparametrisation", "perhaps"),
]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_wrong_value_names_its_key(key: str, value: Any) -> None:
    said = refusal({key: value})
    assert said.startswith("here: ")
    assert key.rpartition(".")[2] in said


def test_a_wrong_value_shows_what_came_and_what_is_allowed() -> None:
    assert "strategy.penalty='l1': input should be 'mse', 'fkl', 'rkl', 'w2' or 'fisher'" in refusal({"strategy.penalty": "l1"})


def test_an_unknown_method_is_refused_with_the_closest() -> None:
    said = refusal({"method": "pr-bb"})
    assert "method='pr-bb' is unknown" in said
    assert "did you mean pr-bbb?" in said
    assert all(name in said for name in METHODS)


SENSELESS: list[tuple[str, str, Any, str]] = [
    ("sp-bbb", "hypernet.hidden", [5], "sp-bbb has no hypernetwork"),
    ("fine-tuning", "hypernet.kind", "plain", "fine-tuning has no hypernetwork"),
    ("sp-tc-bbb", "strategy.strength", 0.1, "sp-tc-bbb has no replay penalty"),
    ("hnet-fine-tuning", "strategy.strength", 0.1, "hnet-fine-tuning has no replay penalty"),
    ("joint", "strategy.penalty", "mse", "joint has no replay penalty"),
    ("exp-replay", "strategy.penalty", "mse", "exp-replay replays inputs, not posteriors"),
    ("exp-replay", "strategy.old_tasks", 1, "exp-replay replays inputs, not posteriors"),
    ("exp-replay", "strategy.targets", "stored", "exp-replay replays inputs, not posteriors"),
    ("sp-bbb", "strategy.age_discount", 0.5, "sp-bbb has no replay penalty"),
    ("ewc-multihead", "strategy.task_strengths", [1.0], "ewc-multihead keeps the Fisher information of old tasks"),
    ("sp-radial", "strategy.penalty", "fisher", "sp-radial has no replay penalty"),
    ("pr-radial", "strategy.fisher_samples", 5, "pr-radial needs the Fisher information of old tasks with strategy.penalty=fisher only"),
    ("ewc-dirac", "strategy.fisher_weight_samples", 5, "ewc-dirac keeps the Fisher information of old tasks"),
    ("pr-bbb", "strategy.coreset_size", 5, "pr-bbb keeps neither inputs nor the Fisher information"),
    ("pr-bbb", "strategy.finetune_iterations", 5, "pr-bbb keeps neither inputs nor the Fisher information"),
    ("exp-replay", "strategy.finetune_others", "none", "exp-replay replays inputs, not posteriors"),
    ("pr-bbb-cs", "strategy.replay_batch_size", 5, "pr-bbb-cs replays posteriors and fine-tunes on what it keeps"),
    ("pr-dirac-cs", "strategy.finetune_prior_scale", 0.1, "pr-dirac-cs has a Dirac posterior"),
    ("fine-tuning", "strategy.replay_batch_size", 5, "fine-tuning has no replay penalty"),
    ("pr-dirac", "posterior.prior_scale", 0.1, "pr-dirac has a Dirac posterior"),
    ("pr-bbb", "posterior.keep_network_init", True, "a hypernetwork with hypernet.initialisation=xavier has a start of its own"),
    ("pr-dirac", "posterior.train_samples", 5, "pr-dirac has a Dirac posterior"),
    ("fine-tuning", "posterior.local_reparametrisation", True, "fine-tuning has a Dirac posterior"),
    ("pr-radial", "inference.predictive", "moments", "moments go through the layers only where the weights of a task are independent"),
    ("pr-ensemble-bbb", "inference.predictive", "moments", "moments go through the layers only where"),
    ("pr-dirac", "inference.adaptive", 4.0, "pr-dirac predicts with point estimates, not with weight samples"),
    ("pr-ensemble", "inference.adaptive", 4.0, "pr-ensemble predicts with point estimates"),
    ("vcl-growing", "inference.adaptive", 4.0, "one softmax of vcl-growing spans all tasks, so no task is inferred"),
    ("ewc-multihead", "inference.adaptive", 4.0, "ewc-multihead predicts with the linearised network"),
    ("ewc-multihead", "inference.autocast", True, "ewc-multihead predicts with the linearised network"),
    ("pr-bbb", "posterior.flow_hidden", [3], "pr-bbb has no normalising flow"),
    ("pr-bbb", "strategy.penalty_samples", 3, "only the penalties fkl and rkl of normalising flows"),
    ("pr-flow", "strategy.penalty_samples", 3, "only the penalties fkl and rkl of normalising flows"),
    ("pr-bbb", "posterior.members", 3, "pr-bbb has no ensemble"),
    ("pr-ensemble", "posterior.train_samples", 5, "pr-ensemble has an ensemble of point estimates"),
    ("sp-ensemble-bbb", "posterior.prior_samples", 5, "the prior-matching term of sp-ensemble-bbb is computed in closed form"),
    ("pr-bbb", "posterior.generator_hidden", [5], "pr-bbb has no implicit posterior"),
    ("pr-radial", "posterior.support_noise", 0.1, "pr-radial has no implicit posterior"),
    ("fine-tuning", "posterior.ssge_samples", 5, "fine-tuning has no implicit posterior"),
    ("vcl", "posterior.latent_size", 5, "vcl has no implicit posterior"),
    ("pr-bbb", "posterior.avb_steps", 5, "pr-bbb has no implicit posterior"),
    ("pr-ssge", "posterior.avb_steps", 5, "pr-ssge estimates its prior-matching term by SSGE, not by AVB"),
    ("sp-avb", "posterior.ssge_samples", 5, "sp-avb estimates its prior-matching term by AVB, not by SSGE"),
    ("pr-avb", "posterior.avb_chunk_outputs", 5, "the discriminator takes all weights at once; set posterior.avb_chunk_size"),
    ("pr-dirac", "posterior.prior_power", 0.5, "pr-dirac has a Dirac posterior, which has no prior"),
    ("ewc-dirac", "posterior.prior_power", 0.5, "ewc-dirac trains a point estimate"),
    (
        "pf-avb",
        "posterior.prior_power",
        0.5,
        "AVB learns from samples of the prior, and a power of an implicit posterior cannot be sampled",
    ),
    ("vcl", "posterior.prior_samples", 5, "the prior-matching term of vcl is computed in closed form"),
    (
        "pr-ssge",
        "strategy.prior_from_earlier",
        0.5,
        "earlier posteriors are part of the prior only as single Gaussians or flows",
    ),
    ("pr-radial", "strategy.prior_from_earlier", 0.5, "earlier posteriors are part of the prior only as single Gaussians or flows"),
    ("pr-dirac", "strategy.prior_from_earlier", 0.5, "earlier posteriors are part of the prior only as single Gaussians or flows"),
    ("vcl", "strategy.prior_from_earlier", 0.5, "the last posterior is the whole prior of vcl"),
    ("sp-bbb", "strategy.prior_from_earlier", 0.5, "sp-bbb does not replay posteriors"),
    ("sp-bbb", "heads", "multi", "the outputs of sp-bbb follow from its kind"),
]


@pytest.mark.parametrize(("method", "key", "value", "reason"), SENSELESS)
def test_a_senseless_setting_is_refused_with_the_reason(method: str, key: str, value: Any, reason: str) -> None:
    said = refusal({"method": method, key: value})
    assert f"{key} means nothing here: {reason}" in said


@pytest.mark.parametrize(
    ("method", "key", "reason"),
    [
        ("pr-bbb", "strategy.fisher_samples", "is computed in closed form"),
        ("pr-bbb", "strategy.fisher_weight_samples", "is computed in closed form"),
        ("pr-ensemble-bbb", "strategy.fisher_samples", "is computed in closed form"),
        ("pr-flow", "strategy.fisher_samples", "is estimated from its density, not from data"),
        ("pr-flow", "strategy.penalty_samples", "only the penalties fkl and rkl"),
        ("pr-ensemble", "strategy.fisher_weight_samples", "has point estimates, which have no samples"),
        ("pr-dirac", "strategy.fisher_weight_samples", "has point estimates, which have no samples"),
    ],
)
def test_what_an_estimate_of_the_information_does_not_need(method: str, key: str, reason: str) -> None:
    assert reason in refusal({"method": method, "strategy.penalty": "fisher", key: 5})


def test_a_point_estimate_has_a_prior_for_its_information_only() -> None:
    given = {"method": "pr-dirac", "posterior.prior_variance": 4.0}
    assert "Dirac posterior" in refusal(given)
    config = build_config({}, {**given, "strategy.penalty": "fisher"}, "here")
    assert flatten(config.dump())["posterior.prior_variance"] == 4.0


def test_chunks_mean_nothing_to_a_plain_hypernetwork() -> None:
    assert "set hypernet.kind=chunked" in refusal({"hypernet.kind": "plain", "hypernet.chunk_size": 100})


@pytest.mark.parametrize("penalty", ["fkl", "rkl"])
def test_a_point_estimate_has_no_kl(penalty: str) -> None:
    assert "choose mse, w2 or fisher" in refusal({"method": "pr-dirac", "strategy.penalty": penalty})
    assert "pr-ensemble has point estimates; choose mse, w2 or fisher" in refusal({"method": "pr-ensemble", "strategy.penalty": penalty})


@pytest.mark.parametrize("penalty", ["fkl", "rkl", "w2"])
def test_an_implicit_posterior_has_no_closed_forms(penalty: str) -> None:
    for family in ("ssge", "avb"):
        said = refusal({"method": f"pr-{family}", "strategy.penalty": penalty})
        assert "no closed form for implicit posteriors; choose mse or fisher" in said
        assert f"needs a Gaussian posterior, not {family}" in refusal({"method": f"sp-{family}", "posterior.local_reparametrisation": True})


def test_what_a_flow_cannot_do() -> None:
    assert "w2 has no closed form for normalising flows; choose mse, fkl, rkl or fisher" in refusal(
        {"method": "pr-flow", "strategy.penalty": "w2"}
    )
    assert "needs a Gaussian posterior, not flow" in refusal({"method": "sp-flow", "posterior.local_reparametrisation": True})


@pytest.mark.parametrize("family", ["ssge", "avb"])
def test_what_a_chunked_generator_cannot_do(family: str) -> None:
    chunked = {"method": f"pr-{family}", "posterior.generator_chunk_size": 9}
    assert "keep_network_init needs a generator without chunks" in refusal(
        {**chunked, "method": f"sp-{family}", "posterior.keep_network_init": True}
    )
    assert "hyperfan needs a weight generator without chunks" in refusal({**chunked, "hypernet.initialisation": "hyperfan"})


def test_a_mixture_prior_is_sampled() -> None:
    given = {"strategy.prior_from_earlier": 0.5, "posterior.prior_samples": 7}
    assert build_config({"method": "pr-bbb"}, given, "here").posterior.prior_samples == 7


@pytest.mark.parametrize("given", [{"training.iterations": 5, "training.epochs": 2}, {"training.iterations": None}])
def test_either_iterations_or_epochs(given: dict[str, Any]) -> None:
    assert "give either iterations or epochs, and set the other to null" in refusal(given)


def test_fine_tuning_has_one_length_or_that_of_a_task() -> None:
    both = {"method": "pr-bbb-cs", "strategy.finetune_iterations": 5, "strategy.finetune_epochs": 2}
    assert "give finetune_iterations or finetune_epochs, not both" in refusal(both)


def test_an_own_share_needs_others() -> None:
    said = refusal({"method": "pr-bbb-cs", "strategy.finetune_others": "none", "strategy.finetune_own_share": 0.5})
    assert "strategy.finetune_own_share means nothing here: with strategy.finetune_others=none" in said


def test_one_length_replaces_the_other_of_the_defaults() -> None:
    epochs = build_config({"training.iterations": 100}, {"training.epochs": 3}, "here").training
    assert (epochs.iterations, epochs.epochs) == (None, 3)
    iterations = build_config({"training.epochs": 3, "training.iterations": None}, {"training.iterations": 100}, "here").training
    assert (iterations.iterations, iterations.epochs) == (100, None)


PAIRS: list[tuple[str, tuple[str, Any]]] = [
    ("training.learning_rate=1e-3", ("training.learning_rate", 0.001)),
    ("training.learning_rate=0.5", ("training.learning_rate", 0.5)),
    ("training.iterations=500", ("training.iterations", 500)),
    ("hypernet.hidden=[10, 20]", ("hypernet.hidden", [10, 20])),
    ("hypernet.hidden=[]", ("hypernet.hidden", [])),
    ("training.iterations=null", ("training.iterations", None)),
    ("posterior.local_reparametrisation=true", ("posterior.local_reparametrisation", True)),
    (" method = pr-bbb", ("method", "pr-bbb")),
    ("data_dir=/a=b", ("data_dir", "/a=b")),
]


@pytest.mark.parametrize(("text", "expected"), PAIRS)
def test_settings_of_the_command_line(text: str, expected: tuple[str, Any]) -> None:
    found = parse_setting(text)
    assert found == expected
    assert type(found[1]) is type(expected[1])


@pytest.mark.parametrize("text", ["training.iterations", "=5", "", "a=[1", "a={"])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--set"):
        parse_setting(text)


@pytest.mark.parametrize("method", METHODS)
def test_yaml_gives_the_same_configuration_back(method: str) -> None:
    config = build_config({}, {"method": method, "training.learning_rate": 1e-5, "seed": 3}, "here")
    again = build_config({}, flatten(yaml.safe_load(config.to_yaml())), "again")
    assert again == config
    assert again.fingerprint() == config.fingerprint()


@pytest.mark.parametrize("method", METHODS)
def test_a_dump_holds_only_what_means_something(method: str) -> None:
    config = build_config({}, {"method": method}, "here")
    kind = method_named(method)
    flat = flatten(config.dump())
    assert {"method", "training.iterations", "seed"} <= flat.keys()
    assert ("hypernet.hidden" in flat) == kind.has_hypernetwork
    assert ("strategy.strength" in flat) == (kind.strategy in ("posterior-replay", "rehearsal", "ewc"))
    assert ("strategy.penalty" in flat) == (kind.strategy == "posterior-replay")
    assert ("strategy.coreset_size" in flat) == (kind.strategy == "rehearsal" or kind.coresets)
    assert ("strategy.finetune_batch_size" in flat) == kind.coresets
    assert ("strategy.decay" in flat) == (kind.strategy == "ewc")
    assert ("posterior.prior_scale" in flat) == (kind.member_family not in ("dirac", "ewc"))
    assert ("posterior.members" in flat) == kind.ensemble


OTHER_VALUES: dict[str, Any] = {
    "benchmark": "modes-2d",
    "method": "pr-bbb-sr",
    "network": "mlp-7",
    "activation": "tanh",
    "heads": "multi",
    "seed": 1,
    "data_seed": 9,
    "data_dir": "/data",
    "threads": 2,
    "data.path": "/data/flowers.csv",
    "data.label": "kind",
    "data.tasks_by": "season",
    "data.task_order": ["spring", "summer"],
    "data.test_share": 0.5,
    "data.test_path": "/data/test.csv",
    "data.split_by": "part",
    "data.ignore": ["id"],
    "data.problem": "regression",
    "data.missing": "drop",
    "data.image_size": [8, 8],
    "data.fingerprint": "0123456789abcdef",
    "device": "cuda:1",
    "posterior.prior_variance": 2.0,
    "posterior.prior_scale": 0.5,
    "posterior.prior_power": 0.5,
    "posterior.train_samples": 2,
    "total_outputs": 20,
    "posterior.members": 2,
    "posterior.local_reparametrisation": True,
    "posterior.keep_network_init": True,
    "posterior.likelihood_scale": 0.5,
    "posterior.prior_samples": 3,
    "posterior.generator_hidden": [3],
    "posterior.generator_activation": "elu",
    "posterior.generator_chunk_size": 33,
    "posterior.generator_chunk_embedding_size": 3,
    "posterior.generator_chunk_embedding_std": 0.5,
    "posterior.latent_size": 3,
    "posterior.latent_std": 0.5,
    "posterior.support_noise": None,
    "posterior.ssge_samples": 3,
    "posterior.ssge_width": 0.5,
    "posterior.ssge_eigenfunctions": 3,
    "posterior.ssge_ratio": 0.5,
    "posterior.avb_hidden": [3],
    "posterior.avb_activation": "elu",
    "posterior.avb_batch_statistics": True,
    "posterior.avb_learning_rate": 0.5,
    "posterior.avb_steps": 3,
    "posterior.avb_batch_size": 3,
    "posterior.avb_contrast_samples": None,
    "posterior.avb_chunk_size": 33,
    "posterior.avb_chunk_hidden": [3],
    "posterior.avb_chunk_outputs": 3,
    "posterior.flow_transforms": 3,
    "posterior.flow_hidden": [3],
    "posterior.flow_activation": "elu",
    "hypernet.kind": "plain",
    "hypernet.hidden": [3],
    "hypernet.activation": "elu",
    "hypernet.task_embedding_size": 3,
    "hypernet.task_embedding_std": 0.5,
    "hypernet.chunk_size": 33,
    "hypernet.chunk_embedding_size": 3,
    "hypernet.chunk_embedding_std": 0.5,
    "hypernet.chunk_embeddings_per_task": True,
    "hypernet.initialisation": "hyperfan",
    "hypernet.smaller_than_posterior": True,
    "hypernet.smaller_than_network": True,
    "strategy.strength": 0.5,
    "strategy.decay": 0.5,
    "strategy.fisher_samples": 3,
    "strategy.linearised": False,
    "strategy.fisher_weight_samples": 3,
    "strategy.penalty": "w2",
    "strategy.penalty_samples": 3,
    "strategy.old_tasks": 2,
    "strategy.penalty_every": 3,
    "strategy.targets": "recomputed",
    "strategy.age_discount": 0.5,
    "strategy.task_strengths": [1.0, 0.5],
    "strategy.prior_from_earlier": 0.5,
    "strategy.coreset_size": 9,
    "strategy.replay_batch_size": 9,
    "strategy.replay_batch_per_task": True,
    "strategy.finetune_iterations": 9,
    "strategy.finetune_epochs": 9,
    "strategy.finetune_batch_size": 9,
    "strategy.finetune_learning_rate": 0.5,
    "strategy.finetune_prior_scale": 0.5,
    "strategy.finetune_others": "random",
    "strategy.finetune_own_share": 0.3,
    "training.iterations": 11,
    "training.epochs": 2,
    "training.batch_size": 3,
    "training.learning_rate": 0.5,
    "training.clip_norm": 0.5,
    "training.clip_value": 0.5,
    "training.checkpoint_every": 3,
    "training.record_signals": True,
    "training.log_every": 3,
    "training.augmentation": "crop-flip",
    "training.rate_steps": [[2, 0.1], [3, 0.5]],
    "training.cosine": True,
    "training.plateau_patience": 3,
    "training.plateau_factor": 0.5,
    "training.plateau_floor": 0.001,
    "training.autocast": True,
    "tasks.scenario": "domain",
    "tasks.classes_per_task": 5,
    "tasks.class_order": "seeded",
    "tasks.padding": 2,
    "inference.samples": 3,
    "inference.predictive": "moments",
    "inference.adaptive": 3.0,
    "inference.autocast": True,
    "inference.test_inputs": 9,
    "inference.batch_wise": 3,
    "inference.batch_size": 3,
    "inference.grad_steps": 3,
    "inference.grad_rate": 0.5,
}


PASSIVE = {"data.path", "data.test_path", "data_dir", "training.log_every", "training.checkpoint_every", "inference.batch_size"}


@pytest.mark.parametrize("key", OTHER_VALUES)
def test_the_fingerprint_ignores_passive_settings_only(key: str) -> None:
    special = {"posterior.prior_samples": "pr-radial", "posterior.members": "pr-ensemble", "total_outputs": "ewc-shared"}
    special |= dict.fromkeys((name for name in OTHER_VALUES if name.startswith("posterior.flow_")), "pr-flow")
    for strategy, method in (("rehearsal", "exp-replay"), ("ewc", "ewc-multihead")):
        special |= dict.fromkeys(STRATEGY_KEYS[strategy] - {"strategy.strength"}, method)
    special |= dict.fromkeys((key for key in CORESET_KEYS if "finetune" in key), "pr-bbb-cs")
    base = {"method": special[key]} if key in special else {}
    base = {"method": "pr-radial", "strategy.penalty": "fisher"} if key == "strategy.fisher_weight_samples" else base
    base = {"method": "pr-ssge"} if key.startswith(IMPLICIT_KEYS) else base
    base = {"method": "pr-avb", "posterior.avb_chunk_size": 9} if key.startswith("posterior.avb_") else base
    base = {"method": "pr-flow", "strategy.penalty": "fkl"} if key == "strategy.penalty_samples" else base
    base = {"hypernet.initialisation": "gaussian"} if key == "posterior.keep_network_init" else base
    base = {"data.path": "/data/plants.csv"} if key.startswith("data.") else base
    base = {"training.plateau_patience": 2} if key.startswith("training.plateau_") else base
    plain = build_config(base, {}, "here")
    changed = build_config(base, {key: OTHER_VALUES[key]}, "here")
    assert changed != plain
    assert (changed.fingerprint() == plain.fingerprint()) == (key in PASSIVE)


def test_moments_are_for_mlps_and_need_no_weight_samples() -> None:
    moments = {"method": "pr-bbb", "inference.predictive": "moments"}
    assert "moments works for MLPs only, not for lenet" in refusal({**moments, "network": "lenet"})
    for key, value in (("inference.adaptive", 4.0), ("inference.autocast", True)):
        assert f"{key} means nothing here: inference.predictive=moments needs no weight samples" in refusal({**moments, key: value})


def test_every_setting_was_tried() -> None:
    assert set(OTHER_VALUES) == set(setting_descriptions())


def test_every_setting_is_explained() -> None:
    assert [key for key, text in setting_descriptions().items() if len(text) < 10] == []


def test_flat_and_nested() -> None:
    flat = {"a": 1, "b.c": 2, "b.d": [3]}
    assert nest(flat) == {"a": 1, "b": {"c": 2, "d": [3]}}
    assert flatten(nest(flat)) == flat


def test_a_configuration_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        RunConfig().seed = 5  # type: ignore[misc]


def test_every_setting_means_something_to_some_method() -> None:
    flat = flatten(RunConfig().model_dump())
    flat |= {"posterior.avb_chunk_size": 9, "strategy.penalty": "fkl", "data.path": "/data/plants.csv", "training.plateau_patience": 2}
    for key in setting_descriptions():
        variants = (flat, flat | {"strategy.penalty": "fisher"}, flat | {"data.path": None})
        assert any(why_senseless(key, method, given) is None for method in METHODS.values() for given in variants), key


@pytest.mark.parametrize(("key", "value", "words"), [("device", "gpu", "cuda:N"), ("training.autocast", "bfloat16", "true or false")])
def test_refusals_say_what_is_allowed(key: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_config({}, {key: value}, "test")
