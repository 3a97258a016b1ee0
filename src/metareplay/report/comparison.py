"""The methods of one benchmark side by side: cards, a figure and tables, all by the same criterion."""

from collections.abc import Iterator, Sequence
from html import escape

from metareplay.report import html
from metareplay.report.base import (
    KEPT,
    MISSING,
    RMSE,
    TASK_GIVEN,
    Estimate,
    Kind,
    Measure,
    Number,
    estimate,
    mean_and_error,
    right_label,
    right_task,
    root,
    tinfer,
)
from metareplay.report.continual import continual_table
from metareplay.report.criteria import (
    TITLES,
    criteria_of,
    headline_criterion,
    headline_measure,
    inferred,
    needs_no_task,
)
from metareplay.report.figures.canvas import PAGE, inline_svg
from metareplay.report.figures.comparison import comparison_figure
from metareplay.report.pictures import predictive_pictures
from metareplay.report.runs import Group
from metareplay.report.yardsticks import reference_rows

REFERENCE = "pca"
"""Shown next to every method: what inputs alone tell, without any network."""
_REFERENCE = "Inputs alone"
_SAME = "same answer with and without the task"


def comparison(groups: Sequence[Group], name: str) -> str:
    """The best methods as cards, a figure of the headline numbers, and tables of all of them."""
    common = _common(groups)
    parts = (_winners(groups, common), _drawing(groups, common, name), _table(groups, common))
    folded = (_criteria_table(groups), continual_table(groups))
    return "".join((*parts, *folded, predictive_pictures(groups, name)))


def _common(groups: Sequence[Group]) -> str | None:
    """The criterion of the headline: the default of most runs."""
    return headline_criterion([run for group in groups for run in group.results])


def _regression(groups: Sequence[Group]) -> bool:
    return all(group.regression for group in groups)


def _exception(group: Group, common: str | None) -> str | None:
    """The criterion that a method shows in the headline because it has no figure by the common one."""
    if common is None or estimate(group.results, inferred(common, regression=group.regression)) is not None:
        return None
    return headline_criterion(group.results)


def _how_inferred(groups: Sequence[Group], common: str | None) -> str:
    """How tasks are inferred in the headline, and for which methods it is done otherwise."""
    if common is None:
        return ""
    others: dict[str, list[str]] = {}
    for group in groups:
        if (own := _exception(group, common)) is not None:
            others.setdefault(own, []).append(group.label)
    words = f" The task is inferred by {common}{f' ({TITLES[common]})' if common in TITLES else ''}"
    if others:
        listed = " or ".join(f"{own} ({', '.join(labels)})" for own, labels in others.items())
        words += f", or, where a run has no such figure, by {listed}"
    free = list(dict.fromkeys(group.label for group in groups if _free(group)))
    remark = f" {_SAME[0].upper()}{_SAME[1:]}: {', '.join(free)}." if free else ""
    return f"{words}.{remark}"


def _free(group: Group) -> bool:
    return all(map(needs_no_task, group.results))


def _table(groups: Sequence[Group], common: str | None) -> str:
    """The headline figures of every method."""
    measures = _measures(groups, common)
    columns = [
        (m, values := [estimate(group.results, m.number) for group in groups], _best(values, m)) for m in measures
    ]
    networks = len({group.first.network for group in groups}) > 1
    rows = []
    for i, group in enumerate(groups):
        own = _exception(group, common) or ""
        cells = [html.estimate_cell(values[i], m.kind, best=i in best) for m, values, best in columns]
        cells = [
            cell._replace(meaning=f"by {own}") if own and "TInfer-Final" in m.gloss and cell.sort else cell
            for cell, m in zip(cells, measures, strict=True)
        ]
        if _free(group):
            cells = [
                cell._replace(meaning="needs no task") if "TInfer-Final" in m.gloss and cell.sort else cell
                for cell, m in zip(cells, measures, strict=True)
            ]
        names = [html.text_cell(group.label), html.Cell(str(len(group.runs)), str(len(group.runs)))]
        rows.append([*names, *cells, _memory(group), *([html.text_cell(group.first.network)] if networks else [])])
    memory = any(_saves(group) for group in groups)
    rows = [row if memory else [*row[: 2 + len(measures)], *row[3 + len(measures) :]] for row in rows]
    labels = [m.label for m in measures]
    headers = ("Method", "Seeds", *labels, *(["Memory ×"] if memory else []), *(["Network"] if networks else []))
    note = "" if _regression(groups) else "Percentages. "
    note += "Blue: the best mean of a column. "
    note += "; ".join(f"{m.label}: the paper's {m.gloss}" for m in measures if m.gloss and m.label != _REFERENCE) + "."
    if common and any(estimate(group.results, right_label(common)) for group in groups):
        note += " Task inferred, where tasks share labels: right labels, whichever task they came from."
    note += " Inputs alone: by pca, no network." if _REFERENCE in labels else ""
    if memory:
        note += f" Memory: numbers trained or kept ({KEPT}) for all tasks, as a multiple of one task's posterior"
        note += "; none where rows of old tasks were not counted." if any(g.keeps_rows for g in groups) else "."
    simple = [*_simple_rows(groups, measures, len(headers))]
    content = html.grouped_table(
        headers, [("", rows), *([("For comparison", simple)] if simple else [])], sortable=True, css="dense"
    )
    return f'{content}<p class="note">{escape(note)}</p>'


def _simple(groups: Sequence[Group]) -> list[tuple[str, Estimate | None, Estimate | None]]:
    """What simple models reach on these data, from the method whose runs know most of them."""
    return max((reference_rows(group.results) for group in groups), key=len)


def _simple_rows(groups: Sequence[Group], measures: Sequence[Measure], width: int) -> Iterator[list[html.Cell]]:
    """Simple models and guessing, in the columns of the headline."""
    for label, inferred_figure, known_figure in _simple(groups):
        cells = [html.text_cell(label), html.Cell("")]
        for measure in measures:
            value = None
            if "TInfer-Final" in measure.gloss:
                value = inferred_figure
            elif measure in (TASK_GIVEN[1], RMSE[1]):
                value = known_figure
            cells.append(html.estimate_cell(value, measure.kind) if value is not None else html.Cell(""))
        yield [*cells, *[html.Cell("")] * (width - len(cells))]


def _criteria_table(groups: Sequence[Group]) -> str:
    """Figures of every method with the task inferred by every criterion (TInfer-Final), folded away."""
    regression = _regression(groups)
    names = criteria_of([run for group in groups for run in group.results])
    if len(names) < 2:
        return ""
    kind: Kind = "mse" if regression else "percent"
    columns = []
    for name in names:
        values = [estimate(group.results, _inferred(name, regression)) for group in groups]
        columns.append((values, _best(values, Measure(tinfer(name), name, kind, "", not regression))))
    rows = [
        [
            html.text_cell(group.label),
            *(html.estimate_cell(values[i], kind, best=i in best) for values, best in columns),
        ]
        for i, group in enumerate(groups)
    ]
    headers = ("Method", *names)
    table = html.inside(html.table(headers, rows, sortable=True, css="dense"))
    meanings = "; ".join(f"{name}: {TITLES[name]}" for name in names if name in TITLES)
    title = f"{'RMSE' if regression else 'Accuracy'} with the task inferred, by every criterion"
    return html.details(title, f'{table}<p class="note">{escape(meanings)}.</p>' if meanings else table)


def _winners(groups: Sequence[Group], common: str | None) -> str:
    """The best methods, as cards."""
    cards = []
    for measure in _headline_measures(groups, common):
        values = [estimate(group.results, measure.number) for group in groups]
        best = sorted(_best(values, measure))
        if best and (value := values[best[0]]) is not None:
            mean, error = mean_and_error(value, measure.kind)
            unit = (f"± {error} " if error else "") + ("%" if measure.kind == "percent" else "")
            names = ", ".join(groups[i].label for i in best[:3]) + (
                f" and {len(best) - 3} more" if len(best) > 3 else ""
            )
            order = "Highest" if measure.higher_is_better else "Lowest"
            label = f"{order}: {measure.label[0].lower() if measure.label[1].islower() else measure.label[0]}"
            cards.append(html.Card(label + measure.label[1:], mean, unit.strip(), names, measure.gloss))
    return html.cards(cards) if cards else ""


def _headline_measures(groups: Sequence[Group], common: str | None) -> list[Measure]:
    regression = _regression(groups)
    by_default = [headline_measure(common, regression=regression)] if common else []
    return [*by_default, RMSE[1]] if regression else [*by_default, *TASK_GIVEN[1:3]]


def _measures(groups: Sequence[Group], common: str | None) -> list[Measure]:
    """The columns of the table that any method has a figure for."""
    regression = _regression(groups)
    by_default = [headline_measure(common, regression=regression)] if common else []
    kind: Kind = "mse" if regression else "percent"
    inputs_alone = Measure(_inferred(REFERENCE, regression), _REFERENCE, kind, "", not regression)
    measures = by_default if common == REFERENCE else [*by_default, inputs_alone]
    if regression:
        right = [Measure(right_task(common), "Right task, %", "percent", "")] if common else []
        measures = [*measures, *right, *RMSE[:2]]
    else:
        measures = [*measures, *TASK_GIVEN[:3]]
    return [m for m in measures if any(estimate(group.results, m.number) for group in groups)]


def _inferred(name: str, regression: bool) -> Number:
    number = inferred(name, regression=regression)
    return root(number) if regression else number


def _drawing(groups: Sequence[Group], common: str | None, prefix: str) -> str:
    """The same figures as in the cards and the table, with lines for the joint model and for guessing."""
    regression = _regression(groups)
    given, by_default = (RMSE if regression else TASK_GIVEN)[1], headline_measure(common, regression=regression)
    names = {given: "task known (TGiven)", by_default: "task inferred (TInfer)"}
    rows: dict[str, dict[str, Estimate | None]] = {}
    for group in groups:
        own = _exception(group, common)
        name = f"{group.label} by {own}" if own else group.label
        label = name if name not in rows else f"{name}, {group.first.network}"
        rows[label] = {names[m]: estimate(group.results, m.number) for m in (given, by_default)}
    lines = {label: figure.mean for label, figure, _ in _simple(groups) if figure is not None}
    drawn = comparison_figure(
        rows, label="RMSE" if regression else "accuracy in %", log=regression, lines=lines, theme=PAGE
    )
    caption = f"After the last task, with the task known and with the task inferred.{_how_inferred(groups, common)}"
    caption += " Dotted: simple models and guessing, task unknown." if lines else ""
    return html.figure(inline_svg(drawn, prefix, escape(caption)), "Comparison", caption, wide=True)


def _best(values: Sequence[Estimate | None], measure: Measure) -> set[int]:
    means = {i: value.mean for i, value in enumerate(values) if value is not None}
    if len(means) < 2:
        return set()
    target = (max if measure.higher_is_better else min)(means.values())
    return {i for i, mean in means.items() if mean == target}


def _saves(group: Group) -> bool:
    """Whether a method stores less than a posterior for each task."""
    counts = group.first.parameters
    whole = counts.posterior if counts else None
    return not group.keeps_rows and bool(
        counts and counts.trained and whole and counts.trained / whole <= group.first.num_tasks
    )


def _memory(group: Group) -> html.Cell:
    counts = group.first.parameters
    if counts is None or not counts.trained or not counts.posterior or group.keeps_rows:
        return html.Cell(MISSING)
    share = (counts.trained + (counts.kept or 0)) / counts.posterior
    return html.Cell(f"{share:.2f}", repr(share))
