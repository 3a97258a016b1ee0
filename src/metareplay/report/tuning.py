"""The page of a study: what was searched by which protocol, what was found, and every trial. Reads study.json alone."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from metareplay.files import write_atomically
from metareplay.report import html
from metareplay.report.base import MISSING, show_duration
from metareplay.report.figures.canvas import PAGE, inline_svg
from metareplay.report.figures.tuning import after_tasks_figure, history_figure, settings_figure

_FOOTER = "Written by metareplay. The page is self-contained and loads nothing."
Content = Mapping[str, Any]


def write_study_page(content: Content, out: Path) -> Path:
    """Write the page of a study's summary (study.json); returns its path."""
    title = f"Settings of {content['method']} on {content['subject']}"
    trials = "one trial" if len(content["trials"]) == 1 else f"{len(content['trials'])} trials"
    lead = f"A search over {trials}. Compared: {content['figure']}. Protocol: {content['protocol']}."
    kind = "warning" if content["test_set"] else "lead"
    header = f'<div class="tag">metareplay tune</div><h1>{escape(title)}</h1><p class="{kind}">{escape(lead)}</p>'
    parts = (
        _cards(content),
        _pictures(content),
        _importances(content),
        _table(content),
        _recipe(content),
        _how(content),
    )
    page = html.document(title, header, "\n".join(parts), escape(_FOOTER))
    return write_atomically(out, page)


def _best(content: Content) -> Mapping[str, Any] | None:
    return None if content["best"] is None else content["trials"][content["best"]]


def _searched(content: Content) -> dict[str, Any]:
    """The part of the space that has more than one value."""
    return {key: entry for key, entry in content["space"].items() if len(entry.get("values", (0, 0))) > 1}


def _number(content: Content, value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{value:.3g}" if content["lower_is_better"] else f"{value:.2f}"


def _cards(content: Content) -> str:
    best, trials = _best(content), content["trials"]
    if best is None:
        return '<p class="warning">No trial has finished yet.</p>'
    unit = "" if content["lower_is_better"] else "%"
    cards = [
        html.Card("Best trial", _number(content, best["value"]), unit, f"trial {best['number']}; {content['figure']}")
    ]
    start = next((trial for trial in trials if trial["recipe"] and trial["value"] is not None), None)
    if start is not None:
        why = f"the settings it started from ({content['source']}), by the same protocol"
        cards.append(html.Card("At the start", _number(content, start["value"]), unit, why))
    ended = {state: sum(trial["state"] == state for trial in trials) for state in ("finished", "pruned", "failed")}
    seconds = sum(trial["seconds"] or 0 for trial in trials)
    others = [f"{ended[state]} {state}" for state in ("pruned", "failed") if ended[state]]
    why = "; ".join([*([", ".join(others)] if others else []), f"the finished ones took {show_duration(seconds)}"])
    cards.append(html.Card("Finished trials", str(ended["finished"]), "", why))
    note = "The best of many trials is a little too good, even on held-out examples: it was chosen among them. "
    note += "Run the recipe to see what it reaches on the test set."
    return html.cards(cards) + f'<p class="note">{escape(note)}</p>'


def _pictures(content: Content) -> str:
    best, trials = _best(content), content["trials"]
    if best is None:
        return ""
    unit = "mean squared error" if content["lower_is_better"] else "accuracy in %"
    searched = _searched(content)
    ticks = " Small ticks at the bottom are trials that were pruned."
    pruning = " Trials are pruned by it: one that is worse than three quarters of the finished ones after the same "
    pruning += "task, in the second half of the tasks, ends there."
    drawings = [
        (
            history_figure(trials, lower_is_better=content["lower_is_better"], figure=unit, theme=PAGE),
            "History",
            f"What each trial reached: {content['figure']}."
            + (ticks if any(trial["state"] == "pruned" for trial in trials) else ""),
        )
    ]
    if searched:  # otherwise every setting has a single value, and there is nothing to compare
        drawings.append(
            (
                settings_figure(trials, searched, content["best"], unit, theme=PAGE),
                "Settings",
                "Each finished trial, by the value of one setting; orange is the best.",
            )
        )
    drawings.append(
        (
            after_tasks_figure(trials, content["best"], unit, theme=PAGE),
            "After each task",
            "The mean over the tasks learned so far, with the task given." + (pruning if content["pruning"] else ""),
        )
    )
    figures = "".join(_picture(figure, title, words) for figure, title, words in drawings)
    return f"<h2>Pictures</h2>{figures}"


def _picture(figure: Figure, title: str, words: str) -> str:
    svg = inline_svg(figure, title.lower().replace(" ", "-"), escape(f"{title}. {words}"))
    return html.figure(svg, title, words, wide=True)


def _importances(content: Content) -> str:
    found: Mapping[str, float] = content["importances"]
    if not found:
        return ""
    searched = _searched(content)
    bars = [html.Bar(key, 100 * share, f"{100 * share:.0f} %") for key, share in found.items() if key in searched]
    unit = "Shares of the differences between trials that a setting explains (fANOVA); rough for few trials."
    return "<h2>What mattered</h2>" + html.bars("Importance", unit, bars)


def _table(content: Content) -> str:
    keys = list(_searched(content))
    rows = [_row(content, trial, keys) for trial in content["trials"]]
    names = [key.replace(".", ".\u200b").replace("_", "_\u200b") for key in keys]  # they may be broken there
    headers = ["Trial", content["figure"].split(",")[0].capitalize(), *names, "Time"]
    table = html.table(headers, rows, sortable=True, css="dense")
    failed = [trial for trial in content["trials"] if trial["problem"]]
    words = "".join(f"<li>trial {trial['number']}: {escape(trial['problem'])}</li>" for trial in failed)
    note = html.details(f"Why {len(failed)} trials failed", f"<ul>{words}</ul>") if failed else ""
    return f"<h2>Trials</h2>{table}{note}"


def _row(content: Content, trial: Mapping[str, Any], keys: Sequence[str]) -> list[html.Cell]:
    badge = "best" if trial["number"] == content["best"] else "start" if trial["recipe"] else ""
    first = html.Cell(str(trial["number"]), str(trial["number"]), badge=badge)
    if trial["value"] is None:
        value = html.Cell(MISSING, meaning=trial["state"])
    else:
        value = html.Cell(
            _number(content, trial["value"]), repr(trial["value"]), best=trial["number"] == content["best"]
        )
    cells = [_setting(trial["settings"].get(key)) for key in keys]
    seconds = trial["seconds"]
    return [
        first,
        value,
        *cells,
        html.Cell(MISSING) if seconds is None else html.Cell(show_duration(seconds), repr(seconds)),
    ]


def _setting(value: Any) -> html.Cell:
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = value if isinstance(value, str) else json.dumps(value)
        return html.text_cell(text)
    return html.Cell(f"{value:.3g}" if isinstance(value, float) else str(value), repr(float(value)))


def _recipe(content: Content) -> str:
    if content["recipe"] is None:
        return ""
    return "<h2>Recipe</h2>" + html.details(
        "The best settings, for metareplay run --config", html.code(content["recipe"])
    )


def _how(content: Content) -> str:
    words = (
        f"Settings that are not searched: {content['source']}. Space: {content['space_source']}. Sampler: "
        f"{content['sampler']}, seed {content['seed']}; pruning {'on' if content['pruning'] else 'off'}. "
        f"Every figure on this page: {content['protocol']}."
    )
    return f'<p class="note">{escape(words)}</p>'
