"""Notices of training that goes wrong: a data loss that jumps, or never falls below that of a constant answer."""

from typing import Literal, NamedTuple, final

import torch
from torch import Tensor

SMOOTHING = 0.05
"""The share of a step in the smoothed loss."""
LEARNED, FALLEN = 0.5, 0.98
"""Something was learned once the loss is below this share of a constant answer's; nothing, above that one."""
FEWEST = 100
"""Steps after which a loss that has not fallen is noticed, at the earliest."""


class Notice(NamedTuple):
    """What went wrong with a task, and what to try."""

    kind: Literal["jump", "flat", "chance"]
    text: str


@final
class LossWatch:
    """Follows the data loss per example of one task; each notice is given once."""

    def __init__(self, constant: float, iterations: int) -> None:
        self.constant, self.half = constant, max(FEWEST, iterations // 2)
        """The loss of the best constant answer, and the step at which the loss must have fallen below it."""
        self.steps, self.jumped = 0, False
        self.smoothed, self.lowest, self.earlier = 0.0, float("inf"), float("inf")
        """The loss now, its lowest value, and that after half of ``half`` steps."""

    def after_step(self, loss: float) -> Notice | None:
        """Called after a step with this loss per example."""
        self.steps += 1
        weight = max(SMOOTHING, 1 / self.steps)  # a plain mean at first
        self.smoothed += weight * (loss - self.smoothed)
        if self.steps * SMOOTHING >= 1:
            self.lowest = min(self.lowest, self.smoothed)
        if not self.jumped and self.lowest < LEARNED * self.constant and self.smoothed > self.constant:
            self.jumped = True
            return Notice(
                "jump",
                f"the data loss jumped to {self.smoothed:.3g} per example at step {self.steps}, after it had fallen to "
                f"{self.lowest:.3g}; try a smaller training.learning_rate, or training.clip_norm=10",
            )
        if self.steps == self.half // 2:
            self.earlier = self.smoothed
        # one softmax for all tasks starts far above a constant answer to the new one, and may still be falling
        stays = self.smoothed > FALLEN * self.earlier or self.earlier == float("inf")
        if self.steps == self.half and self.lowest > FALLEN * self.constant and stays:
            return Notice(
                "flat",
                f"after {self.steps} steps the data loss ({self.smoothed:.3g} per example) is still that of a constant "
                f"answer ({self.constant:.3g}); try another training.learning_rate or network, or another seed",
            )
        return None

    def tensors(self) -> dict[str, Tensor]:
        """For a checkpoint."""
        numbers = [self.steps, self.jumped, self.smoothed, self.lowest, self.earlier]
        return {"numbers": torch.tensor(numbers, dtype=torch.float64)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue where a checkpoint stopped; those of earlier versions hold less of this, or nothing."""
        if tensors:
            steps, jumped, self.smoothed, self.lowest, *earlier = tensors["numbers"].tolist()
            self.steps, self.jumped, self.earlier = int(steps), bool(jumped), earlier[0] if earlier else float("inf")
