"""What the toy problems' pictures show: predictive posteriors over the input space, as plain tensors."""

import torch
from torch import Tensor

from metareplay.benchmarks.base import Benchmark
from metareplay.benchmarks.toy import REGRESSION_DOMAINS, REGRESSION_FUNCTIONS
from metareplay.evaluation.evaluate import Evaluator
from metareplay.inference.criteria import total_entropy
from metareplay.inference.predictive import log_likelihoods


def predictive_picture(evaluator: Evaluator, benchmark: Benchmark) -> dict[str, Tensor] | None:
    """Tensors for the figure of 1D regression (mean and standard deviation) or of 2D classification (entropy); None otherwise."""
    if benchmark.scaling.tensors:
        return None  # the axes would not be in the user's units
    if benchmark.input_shape == (1,) and evaluator.regression:
        found = _lines(evaluator)
        if benchmark.name == "regression-1d":
            found["truth"] = _true_functions(found["x"])
    elif benchmark.input_shape == (2,) and not evaluator.regression:
        found = _maps(evaluator)
    else:
        return None
    for index, task in enumerate(benchmark):
        found |= {f"train_x_{index}": task.train.x, f"train_y_{index}": task.train.y}
    return found


def _lines(evaluator: Evaluator, points: int = 401) -> dict[str, Tensor]:
    x = torch.linspace(-6, 6, points)
    outputs = [evaluator.outputs(x.unsqueeze(1), task)[..., 0] for task in range(evaluator.model.num_tasks)]  # (S, N) each
    mean = torch.stack([values.mean(0) for values in outputs])  # (T, N)
    std = torch.stack([values.std(0, correction=0) for values in outputs])  # (T, N)
    return {"x": x, "mean": mean, "std": std}


def _true_functions(x: Tensor) -> Tensor:
    """The polynomials of 1D regression on their own domains, NaN elsewhere: (T, N)."""
    functions = zip(REGRESSION_FUNCTIONS, REGRESSION_DOMAINS, strict=True)
    return torch.stack([torch.where((x >= low) & (x <= high), function(x), torch.nan) for function, (low, high) in functions])


def _maps(evaluator: Evaluator, points: int = 101) -> dict[str, Tensor]:
    axis = torch.linspace(-8, 8, points)
    grid = torch.cartesian_prod(axis, axis).flip(1)  # row-major over (y, x): columns are (x, y)
    entropy = []
    for task in range(evaluator.model.num_tasks):
        scores = total_entropy(log_likelihoods(evaluator.outputs(grid, task)))  # (G*G,)
        entropy.append(scores.view(points, points).float())
    return {"grid_x": axis, "grid_y": axis.clone(), "entropy": torch.stack(entropy)}
