"""Measured figures of a method, from the records in results/."""

from functools import cache

from results.values import Line, all_records, lines_of, shown
from website.reference.text import code, table

INFERRED = ("stats", "softmax", "ent", "tinfer_final")
"""Figures with the task inferred, the first that a run has."""


@cache
def lines() -> list[Line]:
    """All measured rows that say how well a method learned."""
    wanted = {"tgiven_final", *INFERRED}
    return [line for line in lines_of(all_records()) if "method" in line.labels and wanted & line.figures.keys()]


def _shown(line: Line, key: str) -> str:
    figures = line.figures.get(key, ())
    return shown(key, "mse" if figures and figures[0].unit == "mse" else ".2f±", line) or ""


def _inferred(line: Line) -> str:
    name = next((key for key in INFERRED if key in line.figures), None)
    return "" if name is None else f"{_shown(line, name)} ({name.removeprefix('tinfer_').replace('final', 'variance')})"


def _row(line: Line) -> tuple[str, ...]:
    labels = line.labels
    what = ", ".join(labels[key] for key in ("recipe", "settings", "variant", "other") if labels.get(key))
    known = [labels[key] for key in ("benchmark", "network") if key in labels]
    where = ", ".join(known) if "benchmark" in labels else line.record.what if line.record is not None else ""
    given = _shown(line, "tgiven_final")
    return where, what, str(len(line.seeds) or ""), given, _inferred(line), code(f"results/{line.name}.json")


def figures_of(method: str) -> str:
    """A table of what was measured with a method; empty if nothing was."""
    found = [line for line in lines() if line.labels["method"] == method]
    if not found:
        return ""
    header = ("benchmark, network", "how", "seeds", "task known, at the end", "task inferred", "record")
    about = (
        "Accuracies in percent, for regression mean squared errors; ± standard error over seeds. The command is in the "
        "record; [results](../../results.md) says more."
    )
    return f"{about}\n\n{table(header, map(_row, found))}"
