"""The page of an audit: how far every task of a model has moved since it was learned."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from metareplay.files import write_atomically
from metareplay.report import html
from metareplay.report.base import MISSING

_FOOTER = (
    "Written by metareplay. Probes are inputs drawn from what the model stores about each task, never examples. The "
    "page holds everything it shows and fetches nothing."
)
_HEADERS = (
    "Task",
    "Predictions moved",
    "Worst probe",
    "Labels changed",
    "Posterior",
    "Shift of means",
    "Accuracy then",
)


def write_audit(tasks: Sequence[Mapping[str, Any]], out: Path, *, model: str, limit: float | None = None) -> Path:
    """Write the page of an audit's entries (``TaskAudit.as_dict``); returns its path."""
    moved = [task["task"] for task in tasks if limit is not None and (task["change"] or 0) > limit]
    title = f"Audit of {Path(model).name or model}"
    if limit is None:
        lead = "How far the predictions of every task have moved since it was learned or last updated."
    elif moved:
        lead = f"Beyond the limit of {_percent(limit)}: {', '.join(map(escape, moved))}."
    else:
        lead = f"No task's predictions have moved further than the limit of {_percent(limit)}."
    warning = f'<p class="warning">{lead}</p>' if moved else f'<p class="lead">{lead}</p>'
    header = f'<div class="tag">metareplay audit</div><h1>{escape(title)}</h1>{warning}'
    now = any(task["score"] is not None for task in tasks)
    rows = [_row(task, limit, now) for task in tasks]
    table = html.table([*_HEADERS, *(["Now"] if now else [])], rows, sortable=True)
    page = html.document(title, header, f"{_headline(tasks, limit)}<h2>Tasks</h2>{table}{_NOTE}", escape(_FOOTER))
    return write_atomically(out / "audit.html" if out.is_dir() else out, page)


_NOTE = (
    '<p class="note">Predictions moved: the mean total variation distance between the predictions for a task\'s probes '
    "when it was learned and now; 0 % means the same answers, 100 % a different answer with certainty for every probe. "
    "Posterior: the KL divergence from then to now in nats, over all weights (for point estimates the squared "
    "distance); with ~ it is estimated from weights chosen at random. Shift of means: in standard deviations at that "
    "time.</p>"
)


def _headline(tasks: Sequence[Mapping[str, Any]], limit: float | None) -> str:
    known = [task for task in tasks if task["change"] is not None]
    if not known:
        return ""
    worst = max(known, key=lambda task: float(task["change"]))
    mean = sum(float(task["change"]) for task in known) / len(known)
    cards = [
        html.Card("Largest change", f"{100 * worst['change']:.2f}", "%", f"of predictions, in task {worst['task']}"),
        html.Card("Mean change", f"{100 * mean:.2f}", "%", f"over {len(known)} tasks"),
    ]
    if limit is not None:
        count = sum(float(task["change"]) > limit for task in known)
        cards.append(html.Card("Past the limit", str(count), "", f"tasks that moved further than {_percent(limit)}"))
    return html.cards(cards)


def _row(task: Mapping[str, Any], limit: float | None, now: bool) -> list[html.Cell]:
    past = limit is not None and (task["change"] or 0) > limit
    cells = [html.text_cell(task["task"], badge="past the limit" if past else "")]
    cells += [_percent_cell(task[key]) for key in ("change", "worst", "labels")]
    divergence = task["divergence"]
    if divergence is None:
        cells += [html.Cell(MISSING), html.Cell(MISSING)]
    else:
        about, error = ("", "") if divergence["exact"] else ("~", f"{divergence['error']:.2g}")
        cells.append(html.Cell(f"{about}{divergence['total']:.3g}", repr(divergence["total"]), error))
        cells.append(html.Cell(f"{divergence['relative']:.3g}", repr(divergence["relative"])))
    classes = task["labels"] is not None
    return cells + [_score_cell(task[key], classes) for key in ("held_out", *(("score",) if now else ()))]


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _percent_cell(value: float | None) -> html.Cell:
    return html.Cell(MISSING) if value is None else html.Cell(_percent(value), repr(value))


def _score_cell(value: float | None, classes: bool) -> html.Cell:
    if value is None:
        return html.Cell(MISSING)
    return html.Cell(f"{100 * value:.1f} %" if classes else f"{value:.3g}", repr(value))
