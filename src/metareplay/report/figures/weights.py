"""The figure of a posterior in weight space: joint densities of a few pairs of weights, and correlations."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from metareplay.errors import DataError
from metareplay.report.figures.canvas import BLUE, LIGHT, VERMILION, Theme, new_figure, plain, style_axes

Array = NDArray[np.floating]
PAIRS = 3
_CORRELATION_COLOURS = LinearSegmentedColormap.from_list(
    "correlation", [(0, (BLUE, 1.0)), (0.5, (BLUE, 0.0)), (0.5, (VERMILION, 0.0)), (1, (VERMILION, 1.0))]
)
_GRID = 60
_LEVELS = (0.05, 0.2, 0.4, 0.6, 0.8, 1.01)  # as fractions of the highest density


def weights_figure(samples: Array, index: Array, names: Sequence[str], *, theme: Theme = LIGHT) -> Figure:
    """A row per task: densities of random pairs of weights with the samples, and correlations of all chosen weights.

    ``samples`` is (T, S, K): S samples of K weights of each task; ``index`` (K,) are the indices of these weights.
    """
    tasks, count, chosen = samples.shape
    if tasks != len(names) or len(index) != chosen or chosen < 2 or count < 2:
        raise DataError(
            f"weights of shape {samples.shape} do not fit {len(names)} tasks and {len(index)} weights; "
            "at least two samples of two weights are needed"
        )
    order = np.random.default_rng(0).permutation(chosen)[: 2 * min(PAIRS, chosen // 2)]
    pairs = np.sort(order.reshape(-1, 2), axis=1)  # (pairs, 2)
    columns = len(pairs) + 1
    figure = new_figure(0.9 + 2.15 * columns, 0.6 + 2.05 * tasks)
    panels = figure.subplots(tasks, columns, squeeze=False)
    for task, line in enumerate(panels):
        for axes, (first, second) in zip(line, pairs, strict=False):
            _density(axes, samples[task][:, [first, second]], theme)
            axes.set_xlabel(f"weight {int(index[first])}")
            axes.set_ylabel(f"weight {int(index[second])}")
        _correlations(line[-1], samples[task], theme)
        line[0].set_title(plain(names)[task], loc="left", color=theme.ink, fontsize=11)
    panels[0, -1].set_title(f"correlations of {chosen} weights", color=theme.ink, fontsize=10)
    place: dict[str, Any] = {"ax": list(panels[:, -1]), "shrink": 0.9 / tasks, "aspect": 18, "pad": 0.02}
    scale = figure.colorbar(ScalarMappable(Normalize(-1, 1), _CORRELATION_COLOURS), **place)
    scale.ax.patch.set_alpha(0.0)
    scale.ax.tick_params(colors=theme.muted, labelsize=9)
    scale.set_label("correlation", color=theme.ink)
    scale.outline.set_visible(False)
    return figure


def density(points: Array, x: Array, y: Array) -> Array:
    """Kernel density of points (S, 2) over a grid (len(y), len(x)).

    Gaussians with the covariance of the points, scaled by Scott's rule.
    """
    # a minimal width, for points on a line; (2,)
    least = np.maximum(np.array([np.ptp(x), np.ptp(y)]) / 100, 1e-12)
    # Scott in 2D: standard deviations times n^(-1/6); (2, 2)
    kernel = np.cov(points.T) * len(points) ** (-1 / 3) + np.diag(least**2)
    root = np.linalg.cholesky(np.linalg.inv(kernel))  # kernel^-1 = root root^T
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2) @ root  # (len(y) * len(x), 2)
    centres = points @ root  # (S, 2)
    along = [(grid[:, None, i] - centres[None, :, i]) ** 2 for i in range(2)]  # (len(y) * len(x), S) each
    # |kernel|^(-1/2) = |root|
    total = np.exp(-0.5 * (along[0] + along[1])).mean(axis=1) * np.prod(np.diag(root)) / (2 * np.pi)
    return np.asarray(total.reshape(len(y), len(x)), dtype=np.float64)


def correlations(samples: Array) -> Array:
    """Pairwise correlations of weights over the samples (S, K) -> (K, K); 0 if a weight does not vary."""
    centred = samples - samples.mean(axis=0)
    scale = np.sqrt((centred**2).sum(axis=0))
    normed = centred / np.where(scale > 0, scale, 1.0)
    return np.asarray(np.clip(normed.T @ normed, -1, 1), dtype=np.float64)  # (S, K) -> (K, K)


def _density(axes: Axes, points: Array, theme: Theme) -> None:
    style_axes(axes, theme)
    axes.xaxis.label.set_fontsize(9)
    axes.yaxis.label.set_fontsize(9)
    low, high = np.percentile(points, [0.5, 99.5], axis=0)  # (2,), (2,)
    margin = np.maximum(0.2 * (high - low), 1e-3)
    x, y = (np.linspace(low[i] - margin[i], high[i] + margin[i], _GRID) for i in range(2))
    heights = density(points, x, y)
    axes.scatter(points[:, 0], points[:, 1], s=2, color=theme.muted, alpha=0.35, linewidths=0, rasterized=True)
    levels = [share * heights.max() for share in _LEVELS]
    axes.contourf(x, y, heights, levels, colors=[(*to_rgb(BLUE), alpha) for alpha in (0.15, 0.3, 0.45, 0.6, 0.8)])
    axes.contour(x, y, heights, levels[:-1], colors=BLUE, linewidths=0.6)
    axes.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.yaxis.set_major_locator(MaxNLocator(3))


def _correlations(axes: Axes, samples: Array, theme: Theme) -> None:
    """Blue below zero, red above, more opaque for stronger correlations: readable on both light and dark pages."""
    style_axes(axes, theme, frame=())
    values = correlations(samples)
    colours = np.where((values > 0)[..., None], to_rgb(VERMILION), to_rgb(BLUE))  # (K, K, 3)
    axes.imshow(np.dstack([colours, np.abs(values)]), interpolation="none")  # (K, K, 4)
    axes.set(xticks=[], yticks=[])
