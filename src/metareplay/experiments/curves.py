"""What the figures of the toy problems show: predictive posteriors over the input space, as plain tensors."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from metareplay.benchmarks.base import Benchmark
from metareplay.inference.criteria import disagreement, single_entropies, total_entropy
from metareplay.inference.predictive import log_likelihoods, log_predictive
from metareplay.inference.predictor import AnyPredictor
from metareplay.posteriors.base import FAMILIES
from metareplay.seeding import generator_for

SINGLE_SAMPLES = 4
"""The number of single weight samples that the maps show next to the mean."""
FINEST, COARSEST, MAP_BYTES = 181, 61, 3_700_000
"""Points of a map along each axis, at most and at least, and the disk space that all maps of a run may use."""
WEIGHT_SAMPLES = 500
CHOSEN_WEIGHTS = 24


def predictive_picture(predictor: AnyPredictor, benchmark: Benchmark) -> dict[str, Tensor]:
    """Tensors for the figure of 1D regression (mean and std) or of 2D classification (entropy); otherwise none."""
    if benchmark.scaling.tensors:
        return {}  # the axes would not be in the user's units
    if benchmark.input_shape == (1,) and predictor.problem == "regression":
        tensors = _lines(predictor)
        if benchmark.truth is not None:
            x, tasks = tensors["x"], range(benchmark.num_tasks)
            tensors["truth"] = torch.stack([benchmark.truth(task, x) for task in tasks])  # (T, N)
    elif benchmark.input_shape == (2,) and predictor.problem == "classification":
        tensors = _maps(predictor)
    else:
        return {}
    if FAMILIES[predictor.model.family.name].correlated:
        tensors |= weight_samples(predictor)
    for index, task in enumerate(benchmark):
        tensors |= {f"train_x_{index}": task.train.x, f"train_y_{index}": task.train.y}
    return tensors


@torch.no_grad()
def weight_samples(predictor: AnyPredictor) -> dict[str, Tensor]:
    """Samples of a few randomly chosen weights from each task's posterior (T, S, K), and their indices (K,)."""
    model = predictor.model
    common = torch.nonzero(model.introduced_by_task == 0).flatten()  # those that every task has; (W,)
    order = torch.randperm(len(common), generator=generator_for(predictor.seed, "picture of weights"))
    chosen = common[order[:CHOSEN_WEIGHTS]].sort().values  # (K,)
    drawn = []
    for task in range(model.num_tasks):
        generator = generator_for(predictor.seed, "picture of weights", task)
        weights = model.posterior(task).rsample(WEIGHT_SAMPLES, generator=generator)
        drawn.append(weights[:, chosen].cpu())  # (S, W) -> (S, K)
    return {"weights": torch.stack(drawn), "weight_index": chosen.cpu()}


def _lines(predictor: AnyPredictor, points: int = 401) -> dict[str, Tensor]:
    x = torch.linspace(-6, 6, points)
    tasks = range(predictor.model.num_tasks)
    outputs = [predictor.outputs(x.unsqueeze(1), task)[..., 0] for task in tasks]  # (S, N) each
    mean = torch.stack([values.mean(0) for values in outputs])  # (T, N)
    std = torch.stack([values.std(0, correction=0) for values in outputs])  # (T, N)
    return {"x": x, "mean": mean, "std": std}


def map_points(tasks: int, classes: int, singles: int) -> int:
    """The number of points along each axis with which the maps of all tasks fit ``MAP_BYTES``."""
    # entropy, disagreement, probabilities, single samples
    bytes_per_point = 4 + 2 + 2 * classes + singles * (2 + 2 * classes)
    return min(FINEST, max(COARSEST, int((MAP_BYTES / (tasks * bytes_per_point)) ** 0.5)))


def _maps(predictor: AnyPredictor) -> dict[str, Tensor]:
    """Over a plane: entropy and disagreement (T, G, G), probabilities (T, C, G, G).

    Of single samples: entropy (T, K, G, G), probabilities (T, K, C, G, G).
    """
    model = predictor.model
    classes = max(head.stop - head.start for head in model.heads)
    points = map_points(model.num_tasks, classes, min(SINGLE_SAMPLES, predictor.settings.samples))
    axis = torch.linspace(-8, 8, points)
    grid = torch.cartesian_prod(axis, axis).flip(1)  # row-major over (y, x): columns are (x, y)
    maps: dict[str, list[Tensor]] = {
        "entropy": [],
        "agree": [],
        "probability": [],
        "sample_entropy": [],
        "sample_probability": [],
    }
    for task in range(model.num_tasks):
        log_probs = log_likelihoods(predictor.outputs(grid, task))  # (S, G*G, C)
        missing = (0, 0, 0, classes - log_probs.shape[-1])  # a task may have fewer classes
        probability = log_predictive(log_probs).exp().T  # (G*G, C) -> (C, G*G)
        maps["entropy"].append(total_entropy(log_probs).view(points, points).float())
        maps["probability"].append(pad(probability, missing).view(-1, points, points).half())
        if len(log_probs) > 1:  # a point estimate agrees with itself
            singles = log_probs[:SINGLE_SAMPLES]  # (K, G*G, C)
            maps["agree"].append(disagreement(log_probs).view(points, points).half())
            maps["sample_entropy"].append(single_entropies(singles).view(-1, points, points).half())
            probability = pad(singles.exp().mT, missing)  # (K, G*G, C) -> (K, C, G*G)
            maps["sample_probability"].append(probability.view(len(singles), -1, points, points).half())
    stacked = {name: torch.stack(of_tasks) for name, of_tasks in maps.items() if of_tasks}
    return {"grid_x": axis, "grid_y": axis.clone(), **stacked}
