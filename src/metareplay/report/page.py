"""One self-contained HTML page about one run or many: no server, no network, no model."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from metareplay.errors import DataError
from metareplay.files import write_atomically
from metareplay.report import html
from metareplay.report.comparison import comparison
from metareplay.report.inferred import known_or_unknown, which_task
from metareplay.report.labels import which_label
from metareplay.report.pictures import pictures, predictive_pictures
from metareplay.report.runs import Group, find_runs, group_runs
from metareplay.report.sections import description, headline, how_to_repeat, results_table
from metareplay.report.verdict import verdict
from metareplay.report.yardsticks import beside_simple_models

_FOOTER = (
    "Written by metareplay. In grey the paper's names: TGiven, the task is known at test time; TInfer, it is inferred. "
    "The page is self-contained and loads nothing."
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
    return write_atomically(path, page)


def _single(group: Group) -> tuple[str, str, str]:
    title = f"{group.label} on {group.first.benchmark}"
    return title, description(group), _method(group, "m0")


def _method(group: Group, prefix: str) -> str:
    parts = (
        verdict(group),
        headline(group),
        beside_simple_models(group),
        predictive_pictures([group], prefix),
        which_label(group, prefix),
        which_task(group, prefix),
        known_or_unknown(group, prefix),
        results_table(group),
        pictures(group, prefix),
        how_to_repeat(group),
    )
    return "\n".join(parts)


def _several(groups: Sequence[Group]) -> tuple[str, str, str]:
    benchmarks = list(dict.fromkeys(group.first.benchmark for group in groups))
    labels = list(dict.fromkeys(group.label for group in groups))
    where = ", ".join(benchmarks) if len(benchmarks) < 4 else f"{len(benchmarks)} benchmarks"
    title = f"{labels[0] if len(labels) == 1 else f'{len(labels)} methods'} on {where}"
    parts = []
    for number, benchmark in enumerate(benchmarks):
        members = [group for group in groups if group.first.benchmark == benchmark]
        parts.append(f"<h2>{escape(benchmark)}</h2>" if len(benchmarks) > 1 else "")
        parts.append(comparison(members, f"c{number}"))
    parts.append("<h2>Each method</h2>")
    for number, group in enumerate(groups):
        remark = f"{group.first.benchmark}, {group.first.network}"
        content = f'<div><p class="note">{description(group)}</p>{_method(group, f"m{number}")}</div>'
        parts.append(html.details(group.label, content, css="panel method", remark=remark))
    runs = sum(len(group.runs) for group in groups)
    lead = f"{runs} runs. Figures are means over the seeds of a method ± standard error; "
    lead += "click a heading to sort, a method for its details."
    return title, escape(lead), "\n".join(parts)
