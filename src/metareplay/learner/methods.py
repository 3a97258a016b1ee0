"""Methods by name: each is a task map, a posterior family and a strategy put together."""

import difflib
from dataclasses import dataclass
from typing import Literal

from metareplay.errors import ConfigError

TaskMapName = Literal["hypernetwork", "per-task", "per-task-hypernetwork", "shared"]
FamilyName = Literal["dirac", "bbb", "radial", "ssge", "avb", "ewc", "flow", "ensemble", "ensemble-bbb"]
MEMBERS: dict[FamilyName, FamilyName] = {"ensemble": "dirac", "ensemble-bbb": "bbb"}
"""Ensembles and the family of their members."""

StrategyName = Literal["posterior-replay", "prior-focused", "ewc", "rehearsal", "unbound", "joint"]


@dataclass(frozen=True)
class Method:
    """A row of the table of methods: who stores theta, what it means, what binds the tasks."""

    name: str
    task_map: TaskMapName
    family: FamilyName
    strategy: StrategyName
    description: str
    stochastic: bool = False
    """Regularise a random subset of the old tasks in each step (suffix -sr)."""
    coresets: bool = False
    """Hold a few examples of each task back, and fine-tune on them after the last task (suffix -cs)."""
    growing_softmax: bool = False
    """One softmax over the classes of all tasks so far, instead of one per task."""
    shared_softmax: bool = False
    """One softmax that spans the classes of all tasks from the start."""
    point_prediction: bool = False
    """EWC: predict with the mode of the posterior instead of samples."""

    @property
    def has_hypernetwork(self) -> bool:
        """Whether theta is generated."""
        return "hypernetwork" in self.task_map

    @property
    def ensemble(self) -> bool:
        """Whether a task's posterior has several members."""
        return self.family in MEMBERS

    @property
    def member_family(self) -> FamilyName:
        """The family of an ensemble's members; without an ensemble the family itself."""
        return MEMBERS.get(self.family, self.family)

    @property
    def deterministic(self) -> bool:
        """Whether predictions come from point estimates, one or several."""
        return self.member_family == "dirac" or self.point_prediction


def _all_methods() -> list[Method]:
    names: list[tuple[FamilyName, str]] = [
        ("dirac", "point estimates"),
        ("bbb", "mean-field Gaussian posteriors"),
        ("radial", "radial posteriors"),
        ("ssge", "implicit posteriors (SSGE)"),
        ("avb", "implicit posteriors (AVB)"),
        ("flow", "normalising flows"),
        ("ensemble", "ensembles of point estimates"),
        ("ensemble-bbb", "ensembles of mean-field Gaussian posteriors"),
    ]
    methods = []
    for family, words in names:
        methods += [
            Method(f"pr-{family}", "hypernetwork", family, "posterior-replay", f"posterior replay with {words}"),
            Method(f"pr-{family}-sr", "hypernetwork", family, "posterior-replay", f"pr-{family}, a random old task a step", True),
            Method(
                f"pr-{family}-cs", "hypernetwork", family, "posterior-replay", f"pr-{family}, fine-tuned on kept examples", coresets=True
            ),
            Method(f"sp-{family}", "per-task", family, "unbound", f"a separate network per task, {words}"),
            Method(f"sp-tc-{family}", "per-task-hypernetwork", family, "unbound", f"a separate hypernetwork per task, {words}"),
        ]
    return [
        *methods,
        Method("vcl", "shared", "bbb", "prior-focused", "one Gaussian posterior, the last one is the next prior; a head per task"),
        Method("vcl-growing", "shared", "bbb", "prior-focused", "vcl with one softmax that grows with the tasks", growing_softmax=True),
        Method("pf-ssge", "shared", "ssge", "prior-focused", "vcl with an implicit posterior (SSGE): its samples are the next prior"),
        Method("pf-avb", "shared", "avb", "prior-focused", "vcl with an implicit posterior (AVB): its samples are the next prior"),
        Method("ewc-multihead", "shared", "ewc", "ewc", "online EWC, a head per task; predicts with the Gaussian that it implies"),
        Method("ewc-dirac", "shared", "ewc", "ewc", "ewc-multihead that predicts with the point estimate alone", point_prediction=True),
        Method("ewc-growing", "shared", "ewc", "ewc", "online EWC with one growing softmax", growing_softmax=True, point_prediction=True),
        Method(
            "ewc-shared",
            "shared",
            "ewc",
            "ewc",
            "online EWC, one softmax over all tasks",
            shared_softmax=True,
            point_prediction=True,
        ),
        Method(
            "exp-replay", "shared", "dirac", "rehearsal", "one network that replays a few kept inputs of old tasks", growing_softmax=True
        ),
        Method("fine-tuning", "shared", "dirac", "unbound", "one network trained on, with no measure against forgetting"),
        Method("hnet-fine-tuning", "hypernetwork", "dirac", "unbound", "one hypernetwork trained on, with no measure against forgetting"),
        Method("joint", "shared", "dirac", "joint", "one network trained on all tasks' data so far: an upper bound", growing_softmax=True),
    ]


METHODS: dict[str, Method] = {method.name: method for method in _all_methods()}


def method_named(name: str) -> Method:
    """The method with that name."""
    if name not in METHODS:
        close = difflib.get_close_matches(name, METHODS, n=1)
        hint = f"; did you mean {close[0]}?" if close else "."
        raise ConfigError(f"method={name!r} is unknown{hint} Choose one of {', '.join(METHODS)}")
    return METHODS[name]
