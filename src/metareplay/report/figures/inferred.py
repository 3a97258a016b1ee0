"""Drawings of inferred tasks: which task was taken for which, and which inputs were taken for unknown."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from metareplay.evaluation.assess import HIGHEST
from metareplay.report.base import estimate, mean_matrix, task_names
from metareplay.report.criteria import TITLES, stated_default
from metareplay.report.figures.base import Drawing, mean_remark
from metareplay.report.figures.canvas import Theme
from metareplay.report.figures.results import confusion_figure
from metareplay.report.figures.uncertainty import share_below, strangeness_figure
from metareplay.report.runs import Group

KNOWN = "known"
MOST_LABELS = 60
"""More labels are not drawn."""
_PREFIX = "strangeness."


def confusion(groups: Sequence[Group], theme: Theme) -> Iterator[Drawing]:
    """True task against inferred task, one drawing per criterion, the default first."""
    group = groups[0]
    names = task_names(group.first)
    caption = f"Share in % of each task's inputs (rows) given to each task (columns).{mean_remark(group)}"
    for name, shares in task_confusions(group):
        drawn = confusion_figure(shares, names, criterion=name, theme=theme)
        yield Drawing(f"confusion-{name}", f"Tasks inferred by {name}", caption, drawn)


def task_confusions(group: Group) -> Iterator[tuple[str, NDArray[np.floating]]]:
    """Criteria and their shares in percent (true task, inferred task), the mean over seeds; the default first."""
    confusions = [run.task_confusion or {} for run in group.results]
    default = stated_default(group.results)
    others = sorted({key for by_name in confusions for key in by_name} - set(TITLES))
    for name in sorted([*TITLES, *others], key=lambda name: name != default):
        shares = mean_matrix([by_name.get(name) for by_name in confusions], group.first.num_tasks)
        if shares is not None:
            yield name, shares


def labels(groups: Sequence[Group], theme: Theme) -> Iterator[Drawing]:
    """True label against the answer, all seeds together."""
    group = groups[0]
    known = [run.labels for run in group.results if run.labels is not None and run.labels.confusion]
    if not known or len(known[0].labels) > MOST_LABELS or any(found.labels != known[0].labels for found in known):
        return
    counts = np.sum([np.array(found.confusion, dtype=np.float64) for found in known], axis=0)  # (seeds, C, C) -> (C, C)
    shares = 100.0 * counts / np.maximum(counts.sum(1, keepdims=True), 1.0)
    how = "task known" if known[0].task_known else "task inferred"
    caption = f"Share in % of each label's inputs (rows) that got each label (columns), {how}."
    drawn = confusion_figure(shares, known[0].labels, of="label", theme=theme)
    yield Drawing("labels", "Labels", caption, drawn)


def strangeness(groups: Sequence[Group], theme: Theme) -> Iterator[Drawing]:
    """How strange test inputs and unknown inputs are to the inferred task, one panel per kind."""
    group = groups[0]
    counts = _strangeness_counts(group)
    known = counts.pop(KNOWN, None)
    if known is None or not counts:
        return
    kinds = {kind: (values, _auroc(group, kind, known, values)) for kind, values in counts.items()}
    caption = "How poorly an input fits the task that it is assigned to, for test inputs and unknown inputs made from "
    caption += "them, as shares of the inputs. Right of the line they are taken for unknown; the last bar also has "
    caption += f"what is beyond {HIGHEST:g}. AUROC: how often an unknown input is to the right of a test input."
    caption += " All seeds together." if len(group.runs) > 1 else ""
    drawn = strangeness_figure(np.linspace(0, HIGHEST, len(known) + 1), known, kinds, theme=theme)
    yield Drawing("strangeness", "Known and unknown inputs", caption, drawn, wide=True)


def _strangeness_counts(group: Group) -> dict[str, NDArray[np.floating]]:
    """The histograms (bins,) of test inputs and of each kind of unknown input, all seeds added up."""
    total: dict[str, NDArray[np.floating]] = {}
    for run in group.runs:
        for key, values in (run.uncertainty() or {}).items():
            if key.startswith(_PREFIX) and values.sum() > 0:
                kind = key.removeprefix(_PREFIX)
                total[kind] = total[kind] + values if kind in total else values
    order = [kind for run in group.results for kind in (run.unknown.auroc if run.unknown else {})]
    return {kind: total[kind] for kind in dict.fromkeys((*order, *sorted(total))) if kind in total}


def _auroc(group: Group, kind: str, known: NDArray[np.floating], strange: NDArray[np.floating]) -> float:
    """As the runs computed it, else from the bins."""
    stored = estimate(group.results, lambda run: run.unknown.auroc.get(kind) if run.unknown else None)
    return share_below(np.stack([known, strange])) if stored is None else stored.mean
