"""One self-contained HTML page about one run or many: no server, no network, no model."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from metareplay.errors import DataError
from metareplay.files import write_atomically
from metareplay.report import html
from metareplay.report.base import (
    MISSING,
    MSE,
    TASK_GIVEN,
    Estimate,
    Measure,
    criteria_of,
    estimate,
    mean_and_error,
    right_task,
    tinfer,
)
from metareplay.report.figures.canvas import PAGE, inline_svg
from metareplay.report.figures.results import comparison_figure
from metareplay.report.pictures import pictures, predictive_pictures
from metareplay.report.runs import Group, find_runs, group_runs
from metareplay.report.sections import (
    description,
    headline,
    headline_criterion,
    how_to_repeat,
    results_table,
    tasks_table,
)

_FOOTER = (
    "Written by metareplay. TGiven: the task is known at test time; TInfer: it is inferred from the uncertainty of the "
    "predictions. The page holds everything it shows and fetches nothing."
)


def write_report(folders: Sequence[Path], out: Path) -> Path:
    """Write one page about all runs in the folders; seeds of one method are combined. Returns the page's path.

    A folder is a run, or holds runs (``seed-0/``, ``seed-1/``, ...). In a folder ``out`` the page is report.html.
    """
    if not folders:
        raise DataError("no folder was given to report on; give at least one folder that metareplay run has written")
    search = find_runs(folders)
    groups = group_runs(search.runs)
    if len(groups) == 1:
        title, lead, main = _single(groups[0])
    else:
        title, lead, main = _several(groups)
    warning = ""
    if search.unfinished:
        names = ", ".join(str(path) for path in search.unfinished)
        words = f"Left out, because they have not finished (results.json is missing): {escape(names)}."
        warning = f'<p class="warning">{words}</p>'
    header = f'<div class="tag">metareplay report</div><h1>{escape(title)}</h1><p class="lead">{lead}</p>{warning}'
    page = html.document(title, header, main, escape(_FOOTER))
    path = out / "report.html" if out.is_dir() else out
    return write_atomically(path, page.encode("utf-8"))


def _single(group: Group) -> tuple[str, str, str]:
    title = f"{group.label} on {group.first.benchmark}"
    return title, description(group), _method(group, "m0")


def _method(group: Group, prefix: str) -> str:
    numbers = headline(group), predictive_pictures([group], prefix), results_table(group), tasks_table(group)
    return "\n".join((*numbers, pictures(group, prefix), how_to_repeat(group)))


def _several(groups: Sequence[Group]) -> tuple[str, str, str]:
    benchmarks = list(dict.fromkeys(group.first.benchmark for group in groups))
    title = (
        f"{len(groups)} methods on {', '.join(benchmarks) if len(benchmarks) < 4 else f'{len(benchmarks)} benchmarks'}"
    )
    parts = []
    for number, benchmark in enumerate(benchmarks):
        members = [group for group in groups if group.first.benchmark == benchmark]
        parts.append(f"<h2>{escape(benchmark)}</h2>" if len(benchmarks) > 1 else "")
        parts.append(_comparison(members, f"c{number}"))
    parts.append("<h2>Each method</h2>")
    for number, group in enumerate(groups):
        remark = f"{group.first.benchmark}, {group.first.network}"
        content = f'<div><p class="note">{description(group)}</p>{_method(group, f"m{number}")}</div>'
        parts.append(html.details(group.label, content, css="panel method", remark=remark))
    runs = sum(len(group.runs) for group in groups)
    lead = f"{runs} runs. Figures are means over the seeds of a method ± standard error; "
    lead += "click a heading to sort, a method for its details."
    return title, escape(lead), "\n".join(parts)


def _comparison(groups: Sequence[Group], name: str) -> str:
    """The methods of one benchmark side by side: a figure of the headline numbers and a table of all of them."""
    measures = _measures(groups)
    columns = [
        (m, values := [estimate(group.results, m.number) for group in groups], _best(values, m)) for m in measures
    ]
    networks = len({group.first.network for group in groups}) > 1
    rows = []
    for i, group in enumerate(groups):
        cells = [html.estimate_cell(values[i], m.kind, best=i in best) for m, values, best in columns]
        names = [html.text_cell(group.label), html.Cell(str(len(group.runs)), str(len(group.runs)))]
        rows.append([*names, *cells, _memory(group), *([html.text_cell(group.first.network)] if networks else [])])
    headers = ("Method", "Seeds", *(m.label for m in measures), "Memory ×", *(["Network"] if networks else []))
    note = "Percentages. " if not all(group.regression for group in groups) else ""
    note += (
        "Blue: the best mean of a column. Memory: numbers trained for all tasks, as a multiple of one task's posterior."
    )
    table = f'{html.table(headers, rows, sortable=True)}<p class="note">{escape(note)}</p>'
    return "".join((_winners(groups), _comparison_drawing(groups, name), table, predictive_pictures(groups, name)))


def _winners(groups: Sequence[Group]) -> str:
    """The best methods, as cards."""
    cards = []
    for measure in _headline_measures(groups):
        values = [estimate(group.results, measure.number) for group in groups]
        best = sorted(_best(values, measure))
        if best and (value := values[best[0]]) is not None:
            mean, error = mean_and_error(value, measure.kind)
            unit = (f"± {error} " if error else "") + ("%" if measure.kind == "percent" else "")
            names = ", ".join(groups[i].label for i in best[:3]) + (
                f" and {len(best) - 3} more" if len(best) > 3 else ""
            )
            order = "Highest" if measure.higher_is_better else "Lowest"
            cards.append(html.Card(f"{order} {measure.label}", mean, unit.strip(), names))
    return html.cards(cards) if cards else ""


def _headline_measures(groups: Sequence[Group]) -> list[Measure]:
    if all(group.regression for group in groups):
        return list(MSE[1:])
    every = [run for group in groups for run in group.results]
    criterion = headline_criterion(every)
    inferred = [Measure(tinfer(criterion), f"TInfer-Final ({criterion})", "percent", "")] if criterion else []
    return [TASK_GIVEN[1], *inferred, TASK_GIVEN[2]]


def _measures(groups: Sequence[Group]) -> list[Measure]:
    every = [run for group in groups for run in group.results]
    if all(group.regression for group in groups):
        return [*MSE, Measure(right_task("variance"), "Right task, %", "percent", "")]
    inferred = [Measure(tinfer(name), f"TInfer {name}", "percent", "") for name in criteria_of(every)]
    return [
        measure
        for measure in (*TASK_GIVEN[:3], *inferred)
        if any(estimate(group.results, measure.number) for group in groups)
    ]


def _comparison_drawing(groups: Sequence[Group], name: str) -> str:
    regression = all(group.regression for group in groups)
    rows: dict[str, dict[str, Estimate | None]] = {}
    for group in groups:
        label = group.label if group.label not in rows else f"{group.label}, {group.first.network}"
        if regression:
            rows[label] = {m.label: estimate(group.results, m.number) for m in MSE[1:]}
        else:
            criterion = headline_criterion(group.results)
            inferred = estimate(group.results, tinfer(criterion)) if criterion else None
            rows[label] = {"TGiven-Final": estimate(group.results, TASK_GIVEN[1].number), "TInfer-Final": inferred}
    drawing = comparison_figure(
        rows, label="mean squared error" if regression else "accuracy in %", log=regression, theme=PAGE
    )
    caption = "After the last task, with the task known (TGiven) and inferred (TInfer)."
    caption += (
        "" if regression else " The task is inferred by entropy; methods without task inference use their one softmax."
    )
    return html.figure(inline_svg(drawing, name, escape(caption)), "Comparison", caption, wide=True)


def _best(values: Sequence[Estimate | None], measure: Measure) -> set[int]:
    means = {i: value.mean for i, value in enumerate(values) if value is not None}
    if len(means) < 2:
        return set()
    target = (max if measure.higher_is_better else min)(means.values())
    return {i for i, mean in means.items() if mean == target}


def _memory(group: Group) -> html.Cell:
    counts = group.first.parameters
    if counts is None or not counts.trained or not counts.posterior:
        return html.Cell(MISSING)
    return html.Cell(f"{counts.trained / counts.posterior:.2f}", repr(counts.trained / counts.posterior))
