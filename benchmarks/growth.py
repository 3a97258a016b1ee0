"""How the cost of a step grows with the number of tasks, with every old task regularised in every step."""

import torch

from benchmarks.common import in_turns, learner_for, ratio, steps_in_task
from benchmarks.steps import operations

SHAPES: dict[str, tuple[str, str, dict[str, object]]] = {
    "mse, hypernetwork 100-100, chunks of 4,500 (published)": ("pr-dirac", "mlp-400-400", {}),
    "mse, hypernetwork 50-50, chunks of 39,800, mlp-1000-1000 (published for permuted-mnist-10)": (
        "pr-dirac",
        "mlp-1000-1000",
        {
            "hypernet__hidden": [50, 50],
            "hypernet__chunk_size": 39800,
            "hypernet__chunk_embedding_size": 16,
            "hypernet__task_embedding_size": 16,
        },
    ),
    "mse, the fast pr-bbb": ("pr-bbb", "mlp-400-400", {"fast": True}),
}
LATER = (19, 99)
"""Tasks 20 and 100."""


def table(rounds: int) -> str:
    """Later tasks' steps over those of task 2, on one core, in Markdown."""
    torch.set_num_threads(1)
    lines = [
        "| penalty and shape | task 20 / task 2 | task 100 / task 2 | floor, task 100 / task 2 |",
        "|---|---|---|---|",
    ]
    for name, (method, network, given) in SHAPES.items():
        steps = {
            task: steps_in_task(learner_for(method, network, many_tasks=True, training__batch_size=128, **given), task)
            for task in (1, *LATER)
        }
        counts = {task: operations(task_steps) for task, task_steps in steps.items()}
        actions = {str(task): (lambda task_steps=task_steps: next(task_steps)) for task, task_steps in steps.items()}
        seconds = in_turns(actions, rounds)
        times = [ratio(seconds[str(task)], seconds["1"]) for task in LATER]
        lines.append(f"| {name} | {times[0]:.2f} | {times[1]:.2f} | {counts[LATER[-1]] / counts[1]:.2f} |")
    return "\n".join(lines)
