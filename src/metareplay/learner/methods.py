"""Methods by name: each is a row that names its parts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from metareplay.errors import ConfigError
from metareplay.learner.built_in import BUILT_IN
from metareplay.parts import Registry, check_settings
from metareplay.posteriors.base import FAMILIES, MATCHINGS, FamilyPart
from metareplay.settings import Composition, Part, Settings
from metareplay.strategies.base import STRATEGIES
from metareplay.task_maps.base import TASK_MAPS, TaskMapPart
from metareplay.task_maps.settings import HeadsSettings

assert BUILT_IN  # importing them registers the built-in parts


class TotalOutputsSettings(Settings):
    """A softmax with all its outputs from the start."""

    total_outputs: int | None = Field(
        None,
        ge=1,
        description="outputs of a softmax that spans all tasks from the start; null: the benchmark's number of classes",
    )


class GrowingOutputsSettings(Settings):
    """Outputs that come with the tasks."""

    outputs_from_start: bool = Field(
        False,
        description="the network has the outputs of all tasks from the start, as in the published runs; those of later "
        "tasks do not compete until their tasks are learned",
    )

    def without_effect(self, composition: Composition) -> Mapping[str, str]:
        """Where all tasks use the same outputs."""
        task_map, heads = composition.parts().get("task map"), composition.find(HeadsSettings)
        if getattr(task_map, "shared", False) or (heads is not None and heads.heads == "multi"):
            return {}
        return {"outputs_from_start": "all tasks use the same outputs"}


OUTPUTS: Registry[Part] = Registry("outputs")
"""Which classes compete where tasks share their weights."""
OUTPUTS.register(
    Part(name="per-task", phrase="outputs that are added with its tasks", settings=(GrowingOutputsSettings,))
)
OUTPUTS.register(
    Part(name="growing", phrase="one softmax that grows with its tasks", settings=(GrowingOutputsSettings,))
)
OUTPUTS.register(
    Part(name="shared", phrase="one softmax over the classes of all tasks", settings=(TotalOutputsSettings,))
)


@dataclass(frozen=True, kw_only=True)
class Method(Part):
    """Who stores theta, what it means, how it is matched with a prior, what binds the tasks, which classes compete."""

    task_map: str
    family: str
    strategy: str
    description: str
    matching: str | None = None
    """None: the default of the family."""
    outputs: str = "per-task"
    lenders: tuple[str, ...] = ()
    """Methods whose recipes this one can borrow, the closest first."""
    when_lent: Mapping[str, Any] = field(default_factory=dict)
    """Additional settings for borrowed recipes."""
    for_regression: str | None = None
    """The method to use instead for regression; None: this one."""
    network: str | None = None
    """The network if none is chosen; None: that of the benchmark or of the estimator."""
    own_widths: bool = True
    """Whether it is exactly this network; otherwise one of its kind, as wide as the benchmark's or the estimator's."""
    phrase: str = ""

    def parts(self) -> dict[str, Part]:
        """Its parts by kind; the network is chosen separately."""
        family = self.family_part
        return {
            "task map": self.task_map_part,
            "family": family,
            "matching": MATCHINGS.named(self.matching or family.matching),
            "strategy": STRATEGIES.named(self.strategy),
            "outputs": OUTPUTS.named(self.outputs),
        }

    @property
    def closed_form(self) -> bool:
        """Whether it computes its weights when a task ends, without training steps."""
        return STRATEGIES.named(self.strategy).closed_form

    @property
    def task_map_part(self) -> TaskMapPart:
        """Who stores theta."""
        return TASK_MAPS.named(self.task_map)

    @property
    def family_part(self) -> FamilyPart:
        """What theta means."""
        return FAMILIES.named(self.family)


METHODS: Registry[Method] = Registry("method")


def register_method(method: Method, *, replace: bool = False) -> Method:
    """Add a method; its parts must be registered already, and agree on the settings that they share."""
    try:
        parts = method.parts()
    except ConfigError as error:
        raise ConfigError(f"method {method.name!r} cannot be composed: {error}") from error
    check_settings(method.name, settings_of(parts))
    return METHODS.register(method, replace=replace)


def settings_of(parts: Mapping[str, Part]) -> dict[str, tuple[type[Settings], ...]]:
    """The settings of each part, by kind and name."""
    return {f"the {kind} {part.name!r}": part.settings for kind, part in parts.items()}


def register_family_methods(
    short: str,
    words: str,
    *,
    family: str,
    matching: str | None = None,
    members: str | None = None,
    replace: bool = False,
) -> None:
    """Register all methods of a posterior family; ``members`` is the short name of an ensemble's members."""

    def add(name: str, task_map: str, strategy: str, description: str, **options: Any) -> None:
        relatives = (f"pr-{short}",) if name in (f"pr-{short}-sr", f"pr-{short}-cs") else ()
        if members is not None:
            relatives += tuple(other.replace(short, members) for other in (name, *relatives))
        register_method(
            Method(
                name=name,
                task_map=task_map,
                family=family,
                matching=matching,
                strategy=strategy,
                description=description,
                lenders=relatives,
                **options,
            ),
            replace=replace,
        )

    add(f"pr-{short}", "hypernetwork", "posterior-replay", f"posterior replay with {words}")
    add(
        f"pr-{short}-sr",
        "hypernetwork",
        "stochastic-posterior-replay",
        f"pr-{short} with one random old task per step",
        when_lent={"strategy.old_tasks": 1, "strategy.targets": "recomputed"},
    )
    add(f"pr-{short}-cs", "hypernetwork", "coreset-replay", f"pr-{short}, fine-tuned on coresets")
    add(f"sp-{short}", "per-task", "unbound", f"a separate network per task, {words}")
    add(f"sp-tc-{short}", "per-task-hypernetwork", "unbound", f"a separate hypernetwork per task, {words}")


register_family_methods("dirac", "point estimates", family="dirac")
register_family_methods("bbb", "mean-field Gaussian posteriors", family="bbb")
register_family_methods("radial", "radial posteriors", family="radial")
register_family_methods("ssge", "implicit posteriors (SSGE)", family="implicit", matching="ssge")
register_family_methods("avb", "implicit posteriors (AVB)", family="implicit", matching="avb")
register_family_methods("flow", "normalising flows", family="flow")
register_family_methods("ensemble", "ensembles of point estimates", family="ensemble", members="dirac")
register_family_methods(
    "ensemble-bbb", "ensembles of mean-field Gaussian posteriors", family="ensemble-bbb", members="bbb"
)


def _register(name: str, task_map: str, family: str, strategy: str, description: str, **options: Any) -> None:
    register_method(
        Method(name=name, task_map=task_map, family=family, strategy=strategy, description=description, **options)
    )


_PF, _PRECISE = "prior-focused", "shared-precisions"
_register("vcl", "shared", "bbb", _PF, "one Gaussian posterior, which is the prior of the next task; a head per task")
_register(
    "vcl-growing",
    *("shared", "bbb", _PF, "vcl with one softmax that grows with the tasks"),
    outputs="growing",
    lenders=("vcl",),
    for_regression="vcl",
)
for _matching in ("ssge", "avb"):
    _register(
        f"pf-{_matching}",
        *("shared", "implicit", _PF),
        f"vcl with an implicit posterior ({_matching.upper()}), whose samples are the next prior",
        matching=_matching,
    )
_register(
    "ewc-multihead",
    *(_PRECISE, "ewc", "ewc", "online EWC, a head per task; predicts with the Gaussian it implies"),
)
_register(
    "ewc-dirac",
    *(_PRECISE, "ewc-point", "ewc", "ewc-multihead, predicting with the point estimate only"),
    lenders=("ewc-multihead",),
)
_register(
    "ewc-growing",
    *(_PRECISE, "ewc-point", "ewc", "online EWC with one growing softmax"),
    outputs="growing",
    for_regression="ewc-multihead",
)
_register(
    "ewc-shared",
    *(_PRECISE, "ewc-point", "ewc", "online EWC, one softmax over all tasks"),
    outputs="shared",
    for_regression="ewc-multihead",
)
_register(
    "exp-replay",
    *("shared", "dirac", "rehearsal", "one network that replays a few stored inputs of old tasks"),
    outputs="growing",
)
_LIKE_FINE_TUNING = ("fine-tuning",)
_register(
    "si",
    *("shared", "dirac", "synaptic-intelligence", "synaptic intelligence, a head per task"),
    lenders=_LIKE_FINE_TUNING,
)
_register(
    "si-growing",
    *("shared", "dirac", "synaptic-intelligence", "synaptic intelligence with one growing softmax"),
    outputs="growing",
    lenders=("si", *_LIKE_FINE_TUNING),
    for_regression="si",
)
_register(
    "er",
    *("shared", "dirac", "reservoir", "one network that replays labelled examples from a memory of fixed size"),
    outputs="growing",
    lenders=_LIKE_FINE_TUNING,
)
_register(
    "der++",
    *("shared", "dirac", "dark-reservoir", "er that also keeps the outputs of its examples: dark experience replay"),
    outputs="growing",
    lenders=_LIKE_FINE_TUNING,
)
_register(
    "lwf",
    *("shared", "dirac", "without-forgetting", "learning without forgetting: new inputs labelled by the old network"),
    outputs="growing",
    lenders=_LIKE_FINE_TUNING,
)
_register(
    "ebm",
    *("shared", "dirac", "contrast", "energies of input and label, trained by contrast with one label of the batch"),
    outputs="growing",
    lenders=_LIKE_FINE_TUNING,
    for_regression="er",
    network="energy-100-100",
    own_widths=False,
)
_register(
    "dgr",
    *(
        "shared",
        "dirac",
        "generative-replay",
        "one network that replays inputs from an autoencoder trained with it",
    ),
    outputs="growing",
    lenders=_LIKE_FINE_TUNING,
)
_register(
    "hnet-r",
    *("shared", "dirac", "hypernetwork-replay", "dgr with a decoder for each task, which a hypernetwork generates"),
    outputs="growing",
    lenders=("dgr", *_LIKE_FINE_TUNING),
)
_register(
    "hnet-tir",
    *("hypernetwork", "dirac", "task-network-replay"),
    "pr-dirac with a network that infers tasks, trained on inputs from decoders that a hypernetwork generates",
    lenders=("pr-dirac",),
)
_register(
    "fine-tuning",
    *("shared", "dirac", "unbound", "one network trained sequentially, with no measures against forgetting"),
)
_register(
    "hnet-fine-tuning",
    *("hypernetwork", "dirac", "unbound", "one hypernetwork trained sequentially, with no measures against forgetting"),
)
_register(
    "joint",
    *("shared", "dirac", "joint", "one network trained on the data of all tasks so far: an upper bound"),
    outputs="growing",
)
_CLOSED = {"outputs": "growing", "for_regression": "joint", "network": "mlp"}
_register("nmc", "shared", "dirac", "class-means", "nearest class mean of the inputs, in closed form", **_CLOSED)
_register(
    "slda",
    *("shared", "dirac", "shared-covariance", "class means and one covariance for all classes, in closed form"),
    **_CLOSED,
)


def default_network(method: str, otherwise: str) -> str:
    """The network where none is chosen: the method's own, if it has one, or another."""
    kind = method_named(method)
    widths = otherwise.removeprefix("mlp-") if otherwise.startswith("mlp-") else None
    if kind.network is None or kind.own_widths or widths is None:
        return kind.network or otherwise
    return f"{kind.network.partition('-')[0]}-{widths}"


def method_named(name: str) -> Method:
    """The method with that name."""
    return METHODS.named(name)
