"""How long a training step takes, as a multiple of a fine-tuning step of the same network, and its arithmetic floor."""

from collections.abc import Iterator, Sequence
from statistics import mean, median
from typing import NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.common import in_turns, learner_for, plain_steps, ratio, steps_in_task

REFERENCE = "fine-tuning"
PLAIN = "PyTorch alone"
NETWORK = "mlp-400-400"
TASKS = range(5)
ROWS: dict[str, tuple[str, dict[str, object]]] = {
    "pr-dirac": ("pr-dirac", {}),
    "pr-dirac-sr": ("pr-dirac-sr", {}),
    "pr-bbb, published, 1 sample": ("pr-bbb", {"posterior__train_samples": 1}),
    "pr-bbb, fast, 1 sample": ("pr-bbb", {"fast": True}),
    "pr-radial, 10 samples": ("pr-radial", {"posterior__train_samples": 10}),
    "pr-ssge, S = 10, 1 and 10": (
        "pr-ssge",
        {"posterior__train_samples": 1, "posterior__prior_samples": 10, "posterior__ssge_samples": 10},
    ),
    "pf-ssge, S = 10, 1 and 10": (
        "pf-ssge",
        {"posterior__train_samples": 1, "posterior__prior_samples": 10, "posterior__ssge_samples": 10},
    ),
    "vcl, 1 sample": ("vcl", {"posterior__train_samples": 1}),
    "vcl by IVON, 1 sample": ("vcl", {"posterior__train_samples": 1, "training__optimiser": "ivon"}),
    "ewc-multihead": ("ewc-multihead", {}),
}
ON_LENET = ("pr-bbb, published, 1 sample", "pr-bbb, fast, 1 sample")
"""Rows that are also measured with LeNet."""
PAPERS_CODE = {
    "pr-dirac": "4.9; task 5: 7.4",
    "pr-dirac-sr": "3.5",
    "pr-bbb, published, 1 sample": "31",
    "pr-radial, 10 samples": "31",
    "pr-ssge, S = 10, 1 and 10": "147",
    "pf-ssge, S = 10, 1 and 10": "215",
    "vcl, 1 sample": "3.0",
    "ewc-multihead": "1.2",
}
"""What the paper's own code takes, in its fine-tuning steps of 6.4 ms, measured on a machine like this one."""


class StepTimes(NamedTuple):
    """Multiples of a fine-tuning step, task by task."""

    measured: list[float]
    floor: list[float]


def steps_of(row: str, task: int, network: str = NETWORK) -> Iterator[object]:
    """Training steps of a row of the table in one of its tasks."""
    if row == PLAIN:
        return plain_steps(network)
    method, given = ROWS.get(row, (row, {}))
    return steps_in_task(learner_for(method, network, training__batch_size=128, **given), task)


def operations(steps: Iterator[object]) -> int:
    """Floating-point operations of the matrix products in one step."""
    next(steps)
    with FlopCounterMode(display=False) as counter:
        next(steps)
    return counter.get_total_flops()


def measure(
    rows: Sequence[str], rounds: int, threads: int, network: str = NETWORK
) -> tuple[dict[str, StepTimes], float]:
    """Each row's multiples, and the milliseconds of a fine-tuning step."""
    torch.set_num_threads(threads)
    times = {row: StepTimes([], []) for row in rows}
    reference = []
    for task in TASKS:
        steps = {row: steps_of(row, task, network) for row in [*rows, REFERENCE]}
        least = operations(steps[REFERENCE])
        for row in rows:
            times[row].floor.append(operations(steps[row]) / least)
        seconds = in_turns(
            {row: (lambda row_steps=row_steps: next(row_steps)) for row, row_steps in steps.items()}, rounds
        )
        reference.append(1000 * median(seconds[REFERENCE]))
        for row in rows:
            times[row].measured.append(ratio(seconds[row], seconds[REFERENCE]))
    return times, median(reference)


def table(rounds: int, cores: int) -> str:
    """The table of training steps, on one core and on all, in Markdown."""
    rows = [PLAIN, *ROWS]
    (one, milliseconds), (all_, together) = measure(rows, rounds, 1), measure(rows, rounds, cores)
    lines = [
        f"Fine-tuning: {milliseconds:.1f} ms on one core, {together:.1f} ms on {cores}; "
        f"medians of {rounds} rounds in each of five tasks.",
        "",
        "| method | the paper's code | floor, mean (task 5) | one core, mean | task 5 "
        f"| {cores} cores, mean | task 5 |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        single, several = one[row], all_[row]
        lines.append(
            f"| {row} | {PAPERS_CODE.get(row, '–')} | {mean(single.floor):.1f} ({single.floor[-1]:.1f}) "
            f"| {mean(single.measured):.2f} | {single.measured[-1]:.2f} "
            f"| {mean(several.measured):.2f} | {several.measured[-1]:.2f} |"
        )
    return "\n".join(lines)


def lenet_table(rounds: int) -> str:
    """Some rows with LeNet, on one core, in Markdown."""
    rows, milliseconds = measure(ON_LENET, rounds, 1, "lenet")
    lines = [
        f"The same with LeNet, on one core; fine-tuning takes {milliseconds:.0f} ms there.",
        "",
        "| method | floor, mean (task 5) | mean | task 5 |",
        "|---|---|---|---|",
    ]
    for row, times in rows.items():
        lines.append(
            f"| {row} | {mean(times.floor):.1f} ({times.floor[-1]:.1f}) "
            f"| {mean(times.measured):.2f} | {times.measured[-1]:.2f} |"
        )
    return "\n".join(lines)
