"""Configurations: unknown, invalid and ineffective settings are refused in one clear sentence."""

import re
from typing import Any

import pytest
import yaml

from metareplay.errors import ConfigError
from metareplay.inference.criteria import CRITERIA
from metareplay.learner.compose import ALWAYS
from metareplay.learner.config import (
    RunConfig,
    Source,
    build_config,
    config_class,
    parse_setting,
    setting_descriptions,
    without_inert,
)
from metareplay.learner.methods import METHODS
from metareplay.nets.base import NETWORKS
from metareplay.posteriors.matching.direct import DirectSettings
from metareplay.settings import flatten, key_of, nest


def refusal(given: dict[str, Any], defaults: dict[str, Any] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        build_config(defaults or {}, given, "here")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("training.iteration", "; did you mean training.iterations? "),
        ("iterations", "; did you mean training.iterations? "),
        (
            "training.plateau",
            "; did you mean training.plateau_floor, training.plateau_factor or training.patience? ",
        ),
        ("sede", "; did you mean seed? "),
        ("zzz", ". "),
    ],
)
def test_an_unknown_key_names_the_closest_few_and_where_all_are_listed(key: str, hint: str) -> None:
    message = refusal({key: 5})
    assert message.startswith(f"here: unknown setting {key!r}{hint}")
    assert message.endswith(" See metareplay list settings")
    assert len(message) < 200


def test_every_setting_is_blamed_on_its_own_source() -> None:
    source = Source("mine.yaml", {"seed": "", "threads": "--set"})
    for given, words in (
        ({"training.iterations": 0}, "mine.yaml: training.iterations=0: must be a positive integer or null"),
        ({"seed": -1}, "seed=-1: must be a non-negative integer"),
        ({"threads": 0}, "--set: threads=0: must be a positive integer"),
        ({"training.epochs": 2, "training.iterations": 3}, "mine.yaml: training: give either iterations or epochs"),
    ):
        with pytest.raises(ConfigError) as caught:
            build_config({}, given, source)
        assert str(caught.value).startswith(words)


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
    ("training.rotations", 4),
    ("training.other", -1.0),
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
    method = next(name for name in ("pr-bbb", *METHODS) if key in flatten(config_class(name, "mlp-3")().model_dump()))
    message = refusal({"method": method, key: value})
    assert message.startswith("here: ")
    assert key.rpartition(".")[2] in message
    assert re.search("must|choose|is not allowed", message)
    assert not re.search("[Ii]nput should|None", message)


def test_a_wrong_value_shows_what_came_and_what_is_allowed() -> None:
    assert "strategy.penalty='l1': must be mse, fkl, rkl, w2 or fisher" in refusal({"strategy.penalty": "l1"})
    assert "seed=null: must be a non-negative integer" in refusal({"seed": None})


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("statistics.megabytes", 1e300, "numbers must be at most 1e+100 in absolute value"),
        ("training.learning_rate", 1e101, "numbers must be at most 1e+100 in absolute value"),
        ("training.iterations", 2**63, "integers must be at most 9223372036854775807 in absolute value"),
    ],
)
def test_numbers_whose_products_would_be_infinite_are_refused(key: str, value: float, words: str) -> None:
    assert words in refusal({key: value})


def test_an_unknown_method_is_refused_with_the_closest() -> None:
    message = refusal({"method": "pr-bb"})
    assert "method='pr-bb' is unknown" in message
    assert "did you mean pr-bbb?" in message
    assert all(name in message for name in METHODS)


FOREIGN: list[tuple[str, str, Any, str, str]] = [
    ("sp-bbb", "hypernet.hidden", [5], "a hypernetwork", "stores theta in separate parameters for every task"),
    ("fine-tuning", "hypernet.kind", "plain", "a hypernetwork", "stores theta in parameters that all tasks share"),
    ("sp-tc-bbb", "strategy.strength", 0.1, "posterior replay", "uses no measures against forgetting"),
    ("joint", "strategy.penalty", "mse", "posterior replay", "uses the data of all tasks so far"),
    ("exp-replay", "strategy.penalty", "mse", "posterior replay", "uses experience replay"),
    ("ewc-multihead", "strategy.task_strengths", [1.0], "posterior replay", "uses online EWC"),
    ("ewc-dirac", "strategy.fisher_weight_samples", 5, "posterior replay", "uses online EWC"),
    ("pr-bbb", "strategy.coreset_size", 5, "coreset replay", "uses posterior replay"),
    ("exp-replay", "strategy.finetune_others", "none", "coreset replay", "uses experience replay"),
    ("pr-bbb-cs", "strategy.replay_batch_size", 5, "experience replay", "uses coreset replay"),
    ("pr-dirac", "posterior.prior_scale", 0.1, "Gaussian posteriors", "has point estimates"),
    ("fine-tuning", "posterior.local_reparametrisation", True, "Gaussian posteriors", "has point estimates"),
    ("sp-ssge", "posterior.local_reparametrisation", True, "Gaussian posteriors", "has implicit posteriors"),
    ("sp-flow", "posterior.local_reparametrisation", True, "Gaussian posteriors", "has normalising flows"),
    ("pr-radial", "inference.predictive", "moments", "Gaussian posteriors", "has radial posteriors"),
    (
        "pr-ensemble-bbb",
        "inference.predictive",
        "moments",
        "Gaussian posteriors",
        "has ensembles of Gaussian posteriors",
    ),
    ("pr-bbb", "posterior.flow_hidden", [3], "normalising flows", "has Gaussian posteriors"),
    ("pr-bbb", "posterior.members", 3, "ensembles of point estimates", "has Gaussian posteriors"),
    ("pr-ensemble", "posterior.train_samples", 5, "Gaussian posteriors", "has ensembles of point estimates"),
    ("pr-bbb", "posterior.generator_hidden", [5], "implicit posteriors", "has Gaussian posteriors"),
    ("pr-bbb", "posterior.ssge_width", 0.5, "implicit posteriors trained by SSGE", "has Gaussian posteriors"),
    (
        "pr-ssge",
        "posterior.avb_steps",
        5,
        "implicit posteriors trained by AVB",
        "has implicit posteriors trained by SSGE",
    ),
    (
        "sp-avb",
        "posterior.ssge_samples",
        5,
        "implicit posteriors trained by SSGE",
        "has implicit posteriors trained by AVB",
    ),
    ("ewc-dirac", "posterior.prior_power", 0.5, "Gaussian posteriors", "has point estimates held by EWC"),
    ("ewc-dirac", "strategy.linearised", True, "Gaussian posteriors built by EWC", "has point estimates held by EWC"),
    ("vcl", "strategy.prior_from_earlier", 0.5, "posterior replay", "uses the last posterior as the next prior"),
    ("sp-bbb", "heads", "multi", "a hypernetwork", "stores theta in separate parameters for every task"),
    (
        "pr-bbb",
        "total_outputs",
        9,
        "one softmax over the classes of all tasks",
        "has outputs that are added with its tasks",
    ),
]


@pytest.mark.parametrize(("method", "key", "value", "owner", "own"), FOREIGN)
def test_a_setting_of_other_parts_is_refused_in_the_words_of_both(
    method: str, key: str, value: Any, owner: str, own: str
) -> None:
    message = refusal({"method": method, key: value})
    assert message.startswith(f"here: {key} belongs to {owner}")
    assert f"; {method} {own}. Remove it, or choose a method such as " in message
    example = message.rpartition(" ")[2]
    assert key in flatten(config_class(example, "mlp-3")().model_dump())
    assert build_config({"method": method, key: value}, {}, "here") == build_config({"method": method}, {}, "here")


FISHER = {"strategy.penalty": "fisher"}
UNUSED: list[tuple[str, dict[str, Any], str, Any, str]] = [
    ("pr-radial", {}, "posterior.prior_samples", 5, "its prior-matching term has a closed form"),
    ("vcl", {}, "posterior.prior_samples", 5, "its prior-matching term has a closed form"),
    ("sp-ensemble-bbb", {}, "posterior.prior_samples", 5, "its prior-matching term has a closed form"),
    ("pr-dirac", {}, "posterior.prior_samples", 5, "point estimates have no prior-matching term"),
    ("pr-radial", {}, "strategy.fisher_samples", 5, "it needs the Fisher information of old tasks with"),
    ("pr-bbb", FISHER, "strategy.fisher_samples", 5, "the Fisher information of its posteriors has a closed form"),
    (
        "pr-bbb",
        FISHER,
        "strategy.fisher_weight_samples",
        5,
        "the Fisher information of its posteriors has a closed form",
    ),
    ("pr-ensemble-bbb", FISHER, "strategy.fisher_samples", 5, "the Fisher information of its posteriors has a closed"),
    (
        "pr-flow",
        FISHER,
        "strategy.fisher_samples",
        5,
        "the Fisher information of its posteriors is estimated from their",
    ),
    ("pr-flow", FISHER, "strategy.penalty_samples", 5, "strategy.penalty=fisher is not estimated from weight samples"),
    ("pr-flow", {}, "strategy.penalty_samples", 3, "strategy.penalty=mse is not estimated from weight samples"),
    (
        "pr-bbb",
        {"strategy.penalty": "fkl"},
        "strategy.penalty_samples",
        3,
        "the penalty fkl of its posteriors has a closed",
    ),
    ("pr-dirac", FISHER, "strategy.fisher_weight_samples", 5, "point estimates have no weight samples"),
    ("pr-ensemble", FISHER, "strategy.fisher_weight_samples", 5, "ensembles of point estimates have no weight samples"),
    ("pr-dirac", {}, "posterior.prior_variance", 4.0, "point estimates have no prior"),
    ("pr-dirac-cs", {}, "strategy.finetune_prior_scale", 0.1, "point estimates have no prior"),
    (
        *("pr-bbb-cs", {"strategy.finetune_others": "none"}, "strategy.finetune_own_share", 0.5),
        "with strategy.finetune_others=none a task is fine-tuned on its own coreset alone",
    ),
    (
        "pr-bbb",
        {},
        "posterior.keep_network_init",
        True,
        "hypernet.initialisation=xavier initialises the hypernetwork differently",
    ),
    ("pr-bbb", {"hypernet.kind": "plain"}, "hypernet.chunk_size", 100, "a plain hypernetwork has no chunks; set"),
    ("pr-dirac", {}, "inference.adaptive", 4.0, "it predicts with point estimates, not with weight samples"),
    ("pr-ensemble", {}, "inference.adaptive", 4.0, "it predicts with point estimates, not with weight samples"),
    ("vcl-growing", {}, "inference.adaptive", 4.0, "one softmax spans all tasks, so no task is inferred"),
    ("ewc-multihead", {}, "inference.adaptive", 4.0, "it predicts with the linearised network"),
    ("ewc-multihead", {}, "inference.autocast", True, "it predicts with the linearised network"),
    ("pr-bbb", {"inference.predictive": "moments"}, "inference.adaptive", 4.0, "inference.predictive=moments needs no"),
    (
        "pr-bbb",
        {"inference.predictive": "moments"},
        "inference.autocast",
        True,
        "inference.predictive=moments needs no",
    ),
    ("pr-avb", {}, "posterior.avb_chunk_outputs", 5, "the discriminator takes all weights at once; set posterior.avb_"),
    ("pf-avb", {}, "posterior.prior_power", 0.5, "AVB samples the prior, and a power of an implicit"),
    ("pr-ssge", {}, "strategy.prior_from_earlier", 0.5, "only single Gaussians or flows can be mixed into the prior"),
    (
        "pr-ensemble-bbb",
        {},
        "strategy.prior_from_earlier",
        0.5,
        "only single Gaussians or flows can be mixed into the prior",
    ),
    (
        "pr-bbb",
        {},
        "training.plateau_factor",
        0.5,
        "the learning rate is not reduced on a plateau; set training.plateau_",
    ),
    ("pr-bbb", {}, "data.label", "kind", "no data of your own are given; pass them with --data"),
    ("pr-bbb", {"data.path": "/plants.csv"}, "data_dir", "/data", "your own data are read from --data"),
]


@pytest.mark.parametrize(("method", "also", "key", "value", "reason"), UNUSED)
def test_a_setting_without_effect_is_refused_with_the_reason(
    method: str, also: dict[str, Any], key: str, value: Any, reason: str
) -> None:
    message = refusal({"method": method, **also, key: value})
    assert message.startswith(f"here: {key} has no effect with {method}: {reason}")
    config = build_config({"method": method, **also, key: value}, {}, "here")  # as a recipe may have it
    assert key not in flatten(config.dump())
    assert config.fingerprint() == build_config({"method": method, **also}, {}, "here").fingerprint()


def test_a_point_estimate_has_a_prior_for_its_information_only() -> None:
    config = build_config({}, {"method": "pr-dirac", "posterior.prior_variance": 4.0, **FISHER}, "here")
    assert flatten(config.dump())["posterior.prior_variance"] == 4.0


@pytest.mark.parametrize(
    ("method", "refused", "choose"),
    [
        ("pr-dirac", ("fkl", "rkl"), "not defined for point estimates, which pr-dirac has; choose mse, w2 or fisher"),
        (
            "pr-ensemble",
            ("fkl", "rkl"),
            "ensembles of point estimates, which pr-ensemble has; choose mse, w2 or fisher",
        ),
        ("pr-radial", ("fkl", "rkl", "w2"), "radial posteriors, which pr-radial has; choose mse or fisher"),
        ("pr-avb-cs", ("fkl", "rkl", "w2"), "implicit posteriors, which pr-avb-cs has; choose mse or fisher"),
        ("pr-flow-sr", ("w2",), "normalising flows, which pr-flow-sr has; choose mse, fkl, rkl or fisher"),
        ("pr-bbb", (), ""),
    ],
)
def test_a_penalty_has_to_be_defined_for_the_posteriors(method: str, refused: tuple[str, ...], choose: str) -> None:
    for penalty in ("mse", "fkl", "rkl", "w2", "fisher"):
        if penalty in refused:
            assert choose in refusal({"method": method, "strategy.penalty": penalty})
        else:
            build_config({}, {"method": method, "strategy.penalty": penalty}, "here")


@pytest.mark.parametrize("family", ["ssge", "avb"])
def test_what_a_chunked_generator_cannot_do(family: str) -> None:
    chunked = {"method": f"pr-{family}", "posterior.generator_chunk_size": 9}
    assert "keep_network_init needs a generator without chunks" in refusal(
        {**chunked, "method": f"sp-{family}", "posterior.keep_network_init": True}
    )
    assert "hyperfan needs a weight generator without chunks" in refusal(
        {**chunked, "hypernet.initialisation": "hyperfan"}
    )


def test_what_needs_the_layers_of_an_mlp() -> None:
    lenet = {"method": "pr-bbb", "network": "lenet"}
    assert "local_reparametrisation works for MLPs only, not for lenet" in refusal(
        {**lenet, "posterior.local_reparametrisation": True}
    )
    assert "moments works for MLPs only, not for lenet" in refusal({**lenet, "inference.predictive": "moments"})


def test_variances_are_not_rounded() -> None:
    given = {"method": "sp-bbb", "posterior.local_reparametrisation": True, "training.autocast": True}
    assert "training.autocast would round the variances of posterior.local_reparametrisation" in refusal(given)


def test_a_mixture_prior_is_sampled() -> None:
    given = {"strategy.prior_from_earlier": 0.5, "posterior.prior_samples": 7}
    assert build_config({"method": "pr-bbb"}, given, "here").get(DirectSettings).prior_samples == 7


@pytest.mark.parametrize("given", [{"training.iterations": 5, "training.epochs": 2}, {"training.iterations": None}])
def test_either_iterations_or_epochs(given: dict[str, Any]) -> None:
    assert "give either iterations or epochs, and set the other to null" in refusal(given)


def test_fine_tuning_has_one_length_or_that_of_a_task() -> None:
    both = {"method": "pr-bbb-cs", "strategy.finetune_iterations": 5, "strategy.finetune_epochs": 2}
    assert "give finetune_iterations or finetune_epochs, not both" in refusal(both)


def test_one_length_replaces_the_other_of_the_defaults() -> None:
    epochs = build_config({"training.iterations": 100}, {"training.epochs": 3}, "here").training
    assert (epochs.iterations, epochs.epochs) == (None, 3)
    iterations = build_config(
        {"training.epochs": 3, "training.iterations": None}, {"training.iterations": 100}, "here"
    ).training
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
    actual = parse_setting(text)
    assert actual == expected
    assert type(actual[1]) is type(expected[1])


@pytest.mark.parametrize("text", ["training.iterations", "=5", "", "a=[1", "a={"])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--set"):
        parse_setting(text)


@pytest.mark.parametrize("method", METHODS)
def test_yaml_gives_the_same_configuration_back(method: str) -> None:
    rate = {} if METHODS[method].closed_form else {"training.learning_rate": 1e-5}
    config = build_config({}, {"method": method, **rate, "seed": 3}, "here")
    again = build_config({}, flatten(yaml.safe_load(config.to_yaml())), "again")
    assert again == config
    assert again.fingerprint() == config.fingerprint()


@pytest.mark.parametrize("method", ["pr-bbb-cs", "ewc-shared", "pf-avb"])
def test_what_is_stored_begins_with_the_run_and_has_its_groups_in_one_order(method: str) -> None:
    given = {"method": method, "data.path": "/plants.csv"}
    keys = list(build_config({}, given, "here").dump())
    first = ["benchmark", "method", "network", "seed", "data_seed"]
    groups = ["data", "tasks", "posterior", "hypernet", "strategy", "training", "inference", "statistics", "report"]
    assert keys[:5] == first
    present = [key for key in groups if key in keys]
    assert keys[-len(present) :] == present


def test_the_settings_of_a_method_are_those_of_its_parts() -> None:
    """For every method: no key of another part, and none of its own missing."""
    for method in METHODS.values():
        config = build_config({}, {"method": method.name}, "here")
        parts = [*method.parts().values(), NETWORKS["mlp"], *CRITERIA.values()]
        own = {key_of(settings, name) for part in parts for settings in part.settings for name in settings.model_fields}
        everybody = {key_of(settings, name) for settings in ALWAYS for name in settings.model_fields}
        top = {name for name, field in RunConfig.model_fields.items() if field.description}
        assert set(flatten(config.model_dump())) == own | everybody | top, method.name
        assert set(flatten(config.dump())) == (own | everybody | top) - set(config.without_any_effect()), method.name


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
    "data.text": "review",
    "data.text_bytes": 80,
    "strategy.task_hidden": [5],
    "strategy.task_rate": 0.1,
    "training.optimiser": "ivon",
    "training.ivon_rate": 0.1,
    "training.ivon_momentum": 0.5,
    "training.ivon_decay": 0.9,
    "training.ivon_start": 0.5,
    "data.problem": "regression",
    "data.missing": "drop",
    "data.encoding": "latin-1",
    "data.decimal": "comma",
    "data.dates": "day-first",
    "data.image_size": [8, 8],
    "data.fingerprint": "0123456789abcdef",
    "device": "cuda:1",
    "posterior.prior_variance": 2.0,
    "posterior.prior_scale": 0.5,
    "posterior.prior_power": 0.5,
    "posterior.train_samples": 2,
    "total_outputs": 20,
    "outputs_from_start": True,
    "report.test_during": 5,
    "report.test_every": 5,
    "report.joint": "runs/joint",
    "posterior.generator_start": "hyperfan",
    "posterior.avb_clipped": False,
    "posterior.avb_kept": True,
    "strategy.scaled_prior": True,
    "strategy.divide_twice": True,
    "strategy.own_outputs": True,
    "strategy.sum_over_tasks": True,
    "training.fill_batches": True,
    "tasks.first_unpermuted": True,
    "tasks.pixel_scaling": "imagenet",
    "posterior.members": 2,
    "posterior.local_reparametrisation": True,
    "posterior.keep_network_init": True,
    "posterior.initial_std": 0.02,
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
    "posterior.ssge_below": True,
    "posterior.ssge_zero_distances": True,
    "posterior.ssge_apart": True,
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
    "strategy.negatives": 2,
    "strategy.generator_hidden": (7,),
    "strategy.latent_size": 3,
    "strategy.generator_rate": 0.5,
    "strategy.gates": 0.25,
    "strategy.generator_strength": 0.5,
    "strategy.generator_hypernet": (7,),
    "strategy.generator_embedding": 3,
    "strategy.generator_chunk": 9,
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
    "strategy.memory_size": 9,
    "training.reference_rows": 500,
    "training.warm_up": 5,
    "training.early_stopping": 7,
    "training.patience": 2,
    "inference.calibrate": False,
    "inference.coverage": 0.8,
    "report.references": False,
    "strategy.output_strength": 0.25,
    "strategy.damping": 0.25,
    "strategy.temperature": 3.0,
    "strategy.finetune_iterations": 9,
    "strategy.finetune_epochs": 9,
    "strategy.finetune_batch_size": 9,
    "strategy.finetune_learning_rate": 0.5,
    "strategy.finetune_prior_scale": 0.5,
    "strategy.finetune_others": "random",
    "strategy.finetune_own_share": 0.3,
    "strategy.shrinkage": 0.5,
    "features.size": 32,
    "features.mean": [0.5],
    "features.std": [0.5],
    "adapters.rank": 3,
    "adapters.alpha": 2.5,
    "adapters.layers": ["query"],
    "features.power": 0.5,
    "features.mirror": True,
    "features.autocast": True,
    "statistics.outputs": False,
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
    "training.rotations": True,
    "training.other": 0.5,
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
    "tasks.first": 2,
    "tasks.validation": 0.3,
    "inference.samples": 3,
    "inference.predictive": "moments",
    "inference.adaptive": 3.0,
    "inference.autocast": True,
    "inference.test_inputs": 9,
    "inference.batch_wise": 3,
    "inference.batch_size": 3,
    "inference.grad_steps": 3,
    "inference.grad_rate": 0.5,
    "statistics.collect": False,
    "statistics.layers": ["layers.0"],
    "statistics.networks": 3,
    "statistics.shortlist": 5,
    "statistics.width": 9,
    "statistics.directions": 3,
    "statistics.components": 3,
    "statistics.edges": False,
    "statistics.megabytes": 0.5,
    "statistics.compensate": False,
    "statistics.held_out": 0.3,
    "statistics.false_rejections": 0.3,
}


PASSIVE = {
    "data.path",
    "data.test_path",
    "data_dir",
    "training.log_every",
    "training.checkpoint_every",
    "inference.batch_size",
    "report.references",
    "report.test_during",
    "report.test_every",
    "report.joint",
}


IVON = {"method": "vcl", "training.optimiser": "ivon"}
NEEDED: dict[str, dict[str, Any]] = {
    "posterior.prior_samples": {"method": "pr-flow"},
    "training.optimiser": {"method": "vcl"},
    **dict.fromkeys((f"training.ivon_{name}" for name in ("rate", "momentum", "decay", "start")), IVON),
    "strategy.fisher_weight_samples": {"method": "pr-radial", **FISHER},
    "strategy.fisher_samples": {"method": "pr-radial", **FISHER},
    "strategy.penalty_samples": {"method": "pr-flow", "strategy.penalty": "fkl"},
    "strategy.divide_twice": {"strategy.penalty": "fkl"},
    "strategy.own_outputs": {"heads": "multi"},
    "report.test_every": {"report.test_during": 9},
    "posterior.generator_start": {"method": "pf-ssge"},
    "outputs_from_start": {"method": "ewc-growing"},
    "strategy.negatives": {"method": "ebm", "network": "energy-3"},
    "strategy.finetune_own_share": {"method": "pr-bbb-cs"},
    "strategy.finetune_prior_scale": {"method": "pr-bbb-cs"},
    "posterior.avb_chunk_hidden": {"method": "pr-avb", "posterior.avb_chunk_size": 9},
    "posterior.avb_chunk_outputs": {"method": "pr-avb", "posterior.avb_chunk_size": 9},
    "posterior.keep_network_init": {"hypernet.initialisation": "gaussian"},
    "training.plateau_factor": {"training.plateau_patience": 2},
    "training.plateau_floor": {"training.plateau_patience": 2},
    "training.patience": {"training.early_stopping": 5},
    **{
        f"features.{key}": {"network": "features:efficientnet-lite0"}
        for key in ("size", "mean", "std", "power", "mirror", "autocast")
    },
    **{f"adapters.{key}": {"network": "adapters:efficientnet-lite0"} for key in ("rank", "alpha", "layers")},
}
"""What has to be chosen so that a setting has an effect; all others have one with the first method that has them."""


@pytest.mark.parametrize("key", OTHER_VALUES)
def test_the_fingerprint_ignores_passive_settings_only(key: str) -> None:
    base: dict[str, Any] = {"data.path": "/data/plants.csv"} if key.startswith("data.") else NEEDED.get(key, {})
    base = base or next(
        {"method": name} for name in ("pr-bbb", *METHODS) if key in flatten(config_class(name, "mlp-3")().model_dump())
    )
    plain = build_config(base, {}, "here")
    changed = build_config(base, {key: OTHER_VALUES[key]}, "here")
    assert changed != plain
    assert (changed.fingerprint() == plain.fingerprint()) == (key in PASSIVE)


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


@pytest.mark.parametrize(
    ("key", "value", "words"), [("device", "gpu", "cuda:N"), ("training.autocast", "bfloat16", "true or false")]
)
def test_refusals_say_what_is_allowed(key: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_config({}, {key: value}, "test")


def test_settings_that_earlier_versions_stored_are_passed_over() -> None:
    """They wrote settings of other parts, at their defaults; a run of theirs also had some without effect."""
    old = {"method": "pr-radial", "posterior.local_reparametrisation": False, "posterior.prior_samples": 10}
    plain = build_config({}, {"method": "pr-radial"}, "here")
    assert build_config({}, old, "here", stored=True).fingerprint() == plain.fingerprint()
    assert set(without_inert(old)) == {"method", "posterior.prior_samples"}
    assert "posterior.prior_samples has no effect with pr-radial" in refusal(without_inert(old))
    assert "posterior.local_reparametrisation" in without_inert({**old, "posterior.local_reparametrisation": True})


def test_stored_settings_of_a_part_that_is_not_installed_are_ignored_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"inference\.zed belongs to a part that is not installed"):
        config = build_config({}, {"method": "pr-bbb", "inference.zed": 3}, "model.json", stored=True)
    assert config == build_config({}, {"method": "pr-bbb"}, "here")
    assert "unknown setting 'inference.zed'" in refusal({"inference.zed": 3})


def test_the_suggested_method_is_the_nearest() -> None:
    for method, key, nearest in (
        ("pr-radial", "strategy.coreset_size", "pr-radial-cs"),
        ("sp-ssge", "heads", "pr-ssge"),
    ):
        assert refusal({"method": method, key: 5}).endswith(f"choose a method such as {nearest}")
