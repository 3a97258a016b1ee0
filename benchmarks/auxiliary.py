"""How much longer a step takes with auxiliary outputs: copies for "other", rotations as classes."""

import torch

from benchmarks.common import in_turns, learner_for, ratio, steps_in_task

TRAINING: dict[str, dict[str, object]] = {
    "training.other=1": {"training__other": 1},
    "training.rotations=true": {"training__rotations": True},
    "both": {"training__other": 1, "training__rotations": True},
}
ROWS = (("pr-bbb", "mlp-100-100"), ("pr-bbb", "mlp-400-400"), ("fine-tuning", "mlp-400-400"), ("pr-bbb", "lenet"))
TASK = 1


def table(rounds: int) -> str:
    """Multiples of a step without them, in task 2, on one core, in Markdown."""
    torch.set_num_threads(1)
    lines = [
        f"| step of | {' | '.join(f'`{name}`' if '=' in name else name for name in TRAINING)} |",
        "|---|---|---|---|",
    ]
    for method, network in ROWS:
        fast = {"fast": True} if method == "pr-bbb" else {}
        steps = {
            name: steps_in_task(learner_for(method, network, training__batch_size=128, **fast, **given), TASK)
            for name, given in {"plain": {}, **TRAINING}.items()
        }
        actions = {name: (lambda row_steps=row_steps: next(row_steps)) for name, row_steps in steps.items()}
        seconds = in_turns(actions, rounds)
        times = " | ".join(f"{ratio(seconds[name], seconds['plain']):.2f}" for name in TRAINING)
        lines.append(f"| {method}, {network} | {times} |")
    return "\n".join(lines)
