"""Draw the animation at the top of the README from a run: posteriors and inferred tasks while three tasks arrive.

    python docs/make_animation.py docs/images/posteriors

trains `pr-bbb` on `regression-1d` (seed 1, the recipe of `metareplay run`), looks at all posteriors now and then, and
writes docs/images/posteriors-light.svg and docs/images/posteriors-dark.svg: the same files each time on one
machine. A browser interpolates between the moments (SMIL); where less motion is preferred, the last moment is shown.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metareplay.experiments.plan import make_plan
from metareplay.experiments.run import Run
from metareplay.files import write_atomically
from metareplay.inference.predictive import predictive_outputs
from metareplay.report import DARK, LIGHT, PALETTE, Theme
from metareplay.seeding import generator_for
from metareplay.training.loop import Step
from metareplay.training.progress import NullObserver, Stage

Array = NDArray[np.floating]
MOMENTS = (0.002, 0.01, 0.03, 0.06, 0.1, 0.16, 0.25, 0.4, 0.7, 1.0)
"""When a task's training is looked at, as shares of its steps."""
POINTS, SAMPLES = 73, 100
LEARNING, SWEEP, REST = 3.2, 4.5, 1.3
"""Seconds for each task, for the inputs that are asked at the end, and until it begins again."""
LEFT, TOP, WIDTH, HEIGHT = 24, 52, 772, 250
STRIP = TOP + HEIGHT + 12
X, Y = (-5.4, 5.4), (-2.3, 2.3)
TASKS = ("first task", "second task", "third task")
WORDS = (
    "Learn the first task",
    "Learn the second: its data alone, the first posterior is replayed",
    "Learn the third: nothing old is kept but the posteriors",
    "Which task does an input belong to? The most certain posterior answers",
)


class Watcher(NullObserver):
    """Keeps mean and standard deviation of all tasks' predictions at some moments of a run."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.stage = Stage(0, 0, "")
        self.x = torch.linspace(*X, POINTS)
        self.kept: list[tuple[int, Array, Array]] = []

    def stage_begins(self, stage: Stage, iteration: int, iterations: int) -> None:
        self.stage = stage

    def step(self, step: Step) -> None:
        if step.iteration in {max(1, round(share * step.iterations)) for share in MOMENTS}:
            self.kept.append((self.stage.number, *self.predictions()))

    @torch.no_grad()
    def predictions(self) -> tuple[Array, Array]:
        """Means and standard deviations (T, N), by the same noise each time."""
        assert self.run is not None
        model, means, stds = self.run.learner.model, [], []
        for task in range(model.num_tasks):
            generator = generator_for(1, "animation", task)
            outputs = predictive_outputs(model, self.x.unsqueeze(1), task, SAMPLES, generator=generator)[
                ..., 0
            ]  # (S, N)
            means.append(outputs.mean(0).numpy())
            stds.append(outputs.std(0, correction=0).numpy())
        return np.stack(means), np.stack(stds)


def record() -> tuple[Watcher, list[tuple[Array, Array]]]:
    """Train, and look now and then; also the training points of each task."""
    watcher = Watcher()
    with tempfile.TemporaryDirectory() as folder:
        plan = make_plan({"benchmark": "regression-1d", "method": "pr-bbb", "seed": 1}, {}, out=Path(folder) / "run")
        watcher.run = Run(plan, observer=watcher)
        watcher.run.execute()
        train = [(np.ravel(task.train.x.numpy()), np.ravel(task.train.y.numpy())) for task in plan.benchmark]
    return watcher, train


def across(x: Array | float) -> Array:
    return LEFT + (np.asarray(x) - X[0]) / (X[1] - X[0]) * WIDTH


def down(y: Array) -> Array:
    height = TOP + HEIGHT * (Y[1] - np.asarray(y)) / (Y[1] - Y[0])
    return np.clip(height, TOP - 40, TOP + HEIGHT + 40)  # the rest is outside, and clipped


def line(x: Array, y: Array) -> str:
    return "M" + " ".join(f"{a:.0f},{b:.1f}" for a, b in zip(across(x), down(y), strict=True))


def band(x: Array, mean: Array, std: Array) -> str:
    return line(np.concatenate([x, x[::-1]]), np.concatenate([mean + std, (mean - std)[::-1]])) + "Z"


def animate(name: str, values: Sequence[Any], times: Sequence[float], total: float, *, jump: bool = False) -> str:
    """One attribute over the whole animation, which it repeats forever."""
    marks = ";".join(f"{time / total:.4f}" for time in times)
    mode = ' calcMode="discrete"' if jump else ""
    return (
        f'<animate attributeName="{name}" values="{";".join(map(str, values))}" keyTimes="{marks}"'
        f' dur="{total:g}s" repeatCount="indefinite"{mode}/>'
    )


class Film:
    """The moments of a run on a line of time."""

    def __init__(self, watcher: Watcher, train: Sequence[tuple[Array, Array]]) -> None:
        self.x, self.train = watcher.x.numpy().astype(float), train
        self.kept = watcher.kept
        gap = LEARNING / len(MOMENTS)
        self.times = [0.0, *(LEARNING * task + gap * (n % len(MOMENTS) + 1) for n, (task, *_) in enumerate(self.kept))]
        self.learned = LEARNING * len(train)
        self.total = self.learned + SWEEP + REST
        self.mean, self.std = self.kept[-1][1], self.kept[-1][2]

    def moments(self, task: int) -> list[tuple[Array, Array]]:
        """Mean and standard deviation of one task at all times; before it begins, its first ones."""
        own = [(mean[task], std[task]) if task < len(mean) else None for _, mean, std in self.kept]
        first = next(moment for moment in own if moment is not None)
        filled = [moment or first for moment in own]
        return [filled[0], *filled, filled[-1]]

    @property
    def marks(self) -> list[float]:
        return [*self.times, self.total]

    def choices(self) -> list[NDArray[np.integer]]:
        """The most certain task for each input, at all times."""
        chosen = [np.argmin(std, axis=0) for _, _, std in self.kept]
        return [chosen[0], *chosen, chosen[-1]]

    def appears(self, task: int) -> str:
        begin = max(0.01, LEARNING * task)
        return animate("opacity", [0, 0, 1, 1], [0, begin, begin + 0.4, self.total], self.total)


def posteriors(film: Film, theme: Theme, *, moving: bool) -> str:
    """Bands, means and training points of all tasks; the strip of inferred tasks."""
    pieces = []
    for task, (points_x, points_y) in enumerate(film.train):
        colour, moments = PALETTE[task], film.moments(task)
        bands = animate("d", [band(film.x, *moment) for moment in moments], film.marks, film.total) if moving else ""
        lines = animate("d", [line(film.x, mean) for mean, _ in moments], film.marks, film.total) if moving else ""
        points = "".join(
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.4"/>'
            for a, b in zip(across(points_x), down(points_y), strict=True)
        )
        pieces.append(
            f"<g>{film.appears(task) if moving else ''}"
            f'<path d="{band(film.x, *moments[-1])}" fill="{colour}" fill-opacity=".22">{bands}</path>'
            f'<path d="{line(film.x, moments[-1][0])}" fill="none" stroke="{colour}" stroke-width="2">{lines}</path>'
            f'<g fill="{colour}" stroke="{theme.paper}" stroke-width="1">{points}</g></g>'
        )
    return f'<g clip-path="url(#plot)">{"".join(pieces)}</g>{strip(film, moving=moving)}'


def strip(film: Film, *, moving: bool) -> str:
    """The task that each input is given to, in its colour."""
    width, chosen = WIDTH / (POINTS - 1), film.choices()
    cells = []
    for place, x in enumerate(across(film.x)):
        colours = [PALETTE[moment[place]] for moment in chosen]
        changes = (
            animate("fill", colours, film.marks, film.total, jump=True) if moving and len(set(colours)) > 1 else ""
        )
        cells.append(
            f'<rect x="{x - width / 2:.1f}" y="{STRIP}" width="{width + 0.4:.1f}" height="12" fill="{colours[-1]}">'
            f"{changes}</rect>"
        )
    return f'<g clip-path="url(#strip)" shape-rendering="crispEdges">{"".join(cells)}</g>'


def question(film: Film, theme: Theme) -> str:
    """At the end an input wanders over the axis, and the most certain posterior answers."""
    chosen = np.argmin(film.std, axis=0)  # (T, N) -> (N,)
    inside = [n for n in range(POINTS) if -4.6 <= film.x[n] <= 4.6]
    times = [0.0, *np.linspace(film.learned + 0.3, film.learned + SWEEP, len(inside)), film.total]
    places = [inside[0], *inside, inside[-1]]
    x = [f"{across(film.x[n]):.1f}" for n in places]
    y = [f"{float(down(film.mean[chosen[n], n])):.1f}" for n in places]
    colours = [PALETTE[chosen[n]] for n in places]
    shown = animate(
        "opacity", [0, 0, 1, 1, 0], [0, film.learned, film.learned + 0.3, film.total - 0.5, film.total], film.total
    )
    return (
        f'<g opacity="0">{shown}<line y1="{TOP}" y2="{STRIP + 12}" x1="{x[0]}" x2="{x[0]}" stroke="{theme.muted}" '
        f'stroke-dasharray="3 4">{animate("x1", x, times, film.total)}{animate("x2", x, times, film.total)}</line>'
        f'<circle r="7.5" cx="{x[0]}" cy="{y[0]}" fill="{colours[0]}" stroke="{theme.ink}" stroke-width="2">'
        f"{animate('cx', x, times, film.total)}{animate('cy', y, times, film.total, jump=False)}"
        f"{animate('fill', colours, times, film.total, jump=True)}</circle></g>"
    )


def words(film: Film) -> str:
    """What happens now."""
    texts = []
    for number, text in enumerate(WORDS):
        begin, end = LEARNING * number, film.total if number == len(WORDS) - 1 else LEARNING * (number + 1)
        seen = animate(
            "opacity",
            [int(number == 0), 1, 0],
            [0, max(begin, 0.001), min(end, film.total - 0.001)],
            film.total,
            jump=True,
        )
        texts.append(f'<text x="{LEFT}" y="30" class="words" opacity="0">{text}{seen}</text>')
    return "".join(texts)


def legend(theme: Theme) -> str:
    pieces = []
    for task, name in enumerate(TASKS):
        x = LEFT + 12 + task * 108
        pieces.append(
            f'<circle cx="{x}" cy="{STRIP + 33}" r="5" fill="{PALETTE[task]}"/>'
            f'<text x="{x + 10}" y="{STRIP + 37}" class="small">{name}</text>'
        )
    right = LEFT + WIDTH
    pieces.append(f'<text x="{right}" y="{STRIP + 37}" class="small" text-anchor="end">strip: the inferred task</text>')
    return "".join(pieces)


def drawing(film: Film, theme: Theme) -> str:
    """The whole picture in one theme."""
    height = STRIP + 50
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * LEFT + WIDTH}" height="{height}" '
        f'viewBox="0 0 {2 * LEFT + WIDTH} {height}" role="img" '
        f'aria-label="Three tasks are learned one after another; old posteriors stay; tasks are inferred">'
        "<style>text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}"
        f".words{{font-size:19px;font-weight:600;fill:{theme.ink}}}.small{{font-size:13px;fill:{theme.muted}}}"
        ".still{display:none}@media (prefers-reduced-motion:reduce){.still{display:inline}.moving{display:none}}"
        "</style>"
        f'<defs><clipPath id="plot"><rect x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}"/></clipPath>'
        f'<clipPath id="strip"><rect x="{LEFT}" y="{STRIP}" width="{WIDTH}" height="12" rx="6"/></clipPath></defs>'
        f'<rect width="100%" height="100%" rx="10" fill="{theme.paper}"/>'
        f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{TOP + HEIGHT}" y2="{TOP + HEIGHT}" stroke="{theme.line}"/>'
        f'<g class="moving">{posteriors(film, theme, moving=True)}{question(film, theme)}{words(film)}</g>'
        f'<g class="still">{posteriors(film, theme, moving=False)}<text x="{LEFT}" y="30" class="words">{WORDS[-1]}'
        f"</text></g>{legend(theme)}</svg>\n"
    )


def main(stem: str) -> None:
    """Both themes."""
    film = Film(*record())
    for name, theme in (("light", LIGHT), ("dark", DARK)):
        target = Path(f"{stem}-{name}.svg")
        write_atomically(target, drawing(film, theme))
        print(target)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
