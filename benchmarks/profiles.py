"""Where the time of a training step goes: PyTorch's profiler, operations in groups, in fine-tuning steps."""

from collections.abc import Iterator

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.common import in_turns, ratio
from benchmarks.steps import REFERENCE, ROWS, steps_of

TASK = 2
"""The third of five: two old tasks are regularised."""
GROUPS: dict[str, frozenset[str]] = {
    "matrix products": frozenset({"mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_", "dot", "addbmm"}),
    "random numbers": frozenset({"normal_", "uniform_", "random_", "randperm", "bernoulli_", "_standard_gamma"}),
    "copies": frozenset(
        {
            "copy_",
            "cat",
            "index",
            "index_add_",
            "scatter_add_",
            "index_put_",
            "_index_put_impl_",
            "gather",
            "fill_",
            "index_select",
        }
    ),
    "optimiser": frozenset({"_fused_adam_"}),
}
"""Operations by the names of their kernels; whatever else computes is "elementwise, sums"."""
OTHER, REST = "elementwise, sums", "bookkeeping"
COLUMNS = (*list(GROUPS)[:3], OTHER, "optimiser", REST)
VIEWS = frozenset(
    {"view", "reshape", "expand", "transpose", "t", "as_strided", "slice", "select", "unsqueeze", "squeeze", "detach"}
)
MORE_VIEWS = frozenset(
    {
        "split",
        "split_with_sizes",
        "narrow",
        "unbind",
        "flatten",
        "unflatten",
        "_unsafe_view",
        "movedim",
        "permute",
        "alias",
    }
)
CALLERS = frozenset(
    {
        "empty",
        "empty_like",
        "empty_strided",
        "resize_",
        "linear",
        "matmul",
        "to",
        "_to_copy",
        "result_type",
        "is_nonzero",
    }
)
NO_WORK = VIEWS | MORE_VIEWS | CALLERS
"""Operations that only create views of tensors, allocate them, or call other operations."""


def shares(steps: Iterator[object], count: int) -> dict[str, float]:
    """The share of each group in the time of some steps."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in range(count):
            next(steps)
    total, sums = 0.0, dict.fromkeys(COLUMNS, 0.0)
    for event in profiled.key_averages():
        self_time, name = event.self_cpu_time_total, event.key.removeprefix("aten::")
        total += self_time
        group = next(
            (group for group, names in GROUPS.items() if name in names),
            OTHER if event.key.startswith("aten::") else REST,
        )
        sums[REST if name in NO_WORK else group] += self_time
    return {group: group_time / total for group, group_time in sums.items()}


def table(rounds: int, rows: tuple[str, ...] = (REFERENCE, *ROWS)) -> str:
    """Each method's step in the third task on one core, and what it is made of, in Markdown."""
    torch.set_num_threads(1)
    lines = [f"| method | a step | {' | '.join(COLUMNS)} |", "|---" * (2 + len(COLUMNS)) + "|"]
    reference = steps_of(REFERENCE, TASK)
    for row in rows:
        steps = steps_of(row, TASK)
        seconds = in_turns({"row": lambda steps=steps: next(steps), REFERENCE: lambda: next(reference)}, rounds)
        multiple = ratio(seconds["row"], seconds[REFERENCE])
        parts = shares(steps, max(5, min(50, int(100 / multiple))))
        lines.append(
            f"| {row} | {multiple:.2f} | {' | '.join(f'{multiple * parts[group]:.2f}' for group in COLUMNS)} |"
        )
    return "\n".join(lines)
