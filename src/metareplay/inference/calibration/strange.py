"""How far the answer for a strange input is replaced by what is known without looking at it."""

from torch import Tensor


def unknown_share(strangeness: Tensor) -> Tensor:
    """0 for inputs like a task's own, towards 1 far from all data; smooth: (N,) -> (N,)."""
    return 1.0 - (-0.5 * (strangeness - 1.0).clamp_min(0.0).square()).exp()
