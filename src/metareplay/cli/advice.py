"""Which method to use when: what ``metareplay list methods --advice`` prints."""

from typing import NamedTuple


class Advice(NamedTuple):
    """A situation, the methods that suit it, and what was measured or what it costs."""

    situation: str
    methods: tuple[str, ...]
    why: str


ADVICE = (
    Advice(
        "you do not know yet, or no old rows may be kept",
        ("pr-bbb",),
        "the default: nothing is forgotten, and tasks are told apart by stored statistics. Accuracy with the task "
        "known / inferred: split-digits 99.3 / 98.0, split-mnist 99.8 / 97.0 (by the paper's criterion ent only 54.7, "
        "72.1)",
    ),
    Advice(
        "some old rows may be kept, and the task is unknown",
        ("exp-replay", "pr-bbb-cs"),
        "without statistics they lead by 15 to 35 points: split-digits 90.3 and 88.2 (ent) against 54.7, split-mnist "
        "86.6 and 89.3 against 72.1. With statistics pr-bbb has 98.0 and 97.0 and leads: use these two if its report "
        "shows that tasks are confused with one another. exp-replay trains fastest; kept rows are saved with the model",
    ),
    Advice(
        "no old rows may be kept, and one softmax over all classes is wanted",
        ("hnet-r", "dgr", "ebm"),
        "hnet-r and dgr replay inputs that autoencoders generate, which are trained alongside the network "
        "(split-digits, task unknown, 94.3 and 86.8); ebm keeps nothing at all and forgets less than a softmax does "
        "(54.7)",
    ),
    Advice(
        "all rows may be kept, and retraining each time is fine",
        ("joint",),
        "one network on the data of all tasks so far: an upper bound (split-digits 99.5, task unknown 97.1)",
    ),
    Advice(
        "the task is always known",
        ("pr-dirac", "sp-dirac"),
        "point estimates are as accurate as posteriors (split-digits 99.3, split-mnist 99.7) and train fastest; sp- "
        "has a network per task, so that nothing can be forgotten, and grows with every task",
    ),
    Advice(
        "more than 20 tasks",
        ("pr-bbb-sr", "pr-dirac-sr"),
        "a step protects one random old task instead of all, so its cost does not grow (split-mnist 99.8, as pr-bbb)",
    ),
    Advice(
        "small networks, and uncertainty matters most",
        ("pr-avb", "pr-ssge", "pr-ensemble-bbb"),
        "richer posteriors at several times the cost; pr-avb and pr-ssge tell the tasks of modes-2d apart by ent for "
        "96.6 and 100 % of the inputs, pr-bbb for 69.7 %",
    ),
    Advice(
        "memory does not matter",
        ("sp-bbb", "sp-ensemble"),
        "a separate posterior for every task: nothing to protect, nothing to forget",
    ),
    Advice(
        "you need baselines to compare with",
        ("fine-tuning", "vcl", "ewc-multihead"),
        "no protection at all, and two well-known ways to protect one network (vcl: split-digits 85.7, inferred 84.6)",
    ),
)
"""Figures are percentages, seed 0 unless docs/results.md has more; it says how each was measured."""


def advice_table() -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows."""
    rows = [(advice.situation, ", ".join(advice.methods), advice.why) for advice in ADVICE]
    return ("if", "use", "because"), [*rows]
