"""How long a training step takes, as a multiple of a fine-tuning step of the same network."""

import sys
from statistics import median

import torch

from benchmarks.common import in_turns, learner_for, plain_steps, ratio, steps_in_task

REFERENCE = "plain PyTorch"
ROWS: dict[str, dict[str, object]] = {
    "fine-tuning": {},
    "pr-dirac": {},
    "pr-dirac-sr": {},
    "pr-bbb": {"posterior__train_samples": 1},
    "pr-radial": {"posterior__train_samples": 10},
    "pr-ssge": {"posterior__train_samples": 1, "posterior__prior_samples": 10, "posterior__ssge_samples": 10},
    "pf-ssge": {"posterior__train_samples": 1, "posterior__prior_samples": 10, "posterior__ssge_samples": 10},
    "vcl": {"posterior__train_samples": 1},
    "ewc-multihead": {},
}


def measure(methods: list[str], tasks: range, rounds: int) -> None:
    """Print each method's multiples, task by task."""
    for task in tasks:
        chosen = {name: steps_in_task(learner_for(name, training__batch_size=128, **ROWS.get(name, {})), task) for name in methods}
        chosen[REFERENCE] = plain_steps()
        actions = {name: (lambda steps=steps: next(steps)) for name, steps in chosen.items()}
        seconds = in_turns(actions, rounds)
        print(f"task {task + 1}: plain {1000 * median(seconds[REFERENCE]):.2f} ms;", end=" ")
        print(", ".join(f"{name} {ratio(seconds[name], seconds[REFERENCE]):.2f}" for name in methods), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    measure(sys.argv[2].split(",") if len(sys.argv) > 2 else list(ROWS), range(5), 15)
