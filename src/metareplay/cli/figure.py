"""``metareplay figure``: one figure of finished runs, as files for a paper."""

import re
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metareplay.cli.trust import TrustNetwork
from metareplay.errors import ConfigError, DataError

if TYPE_CHECKING:
    from metareplay.report.figures.base import Drawing, Kind
    from metareplay.report.runs import FinishedRun, Group

HELP = """Draw a figure of finished runs as SVG, PDF and PNG (metareplay list figures); all draws those that apply.

Seeds of one method are combined. With several methods, the figures of the toy problems are drawn side by side.

[bold]Examples[/]

  metareplay figure all runs/demo

  metareplay figure regression runs/pr-avb runs/vcl --out regression.pdf

  metareplay figure weights runs/pr-avb --out figures
"""

ALL = "all"
FORMATS = ("svg", "pdf", "png")


class ThemeName(StrEnum):
    """Colours of everything that is not data."""

    LIGHT = "light"
    DARK = "dark"


def figure(
    name: Annotated[str, typer.Argument(help="Name of the figure (metareplay list figures), or all.")],
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs, or folders with seed-0, seed-1, ... inside.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="A file ending in .svg, .pdf or .png, or a folder for all three. Default: figures in the first folder."
        ),
    ] = None,
    trust_network: TrustNetwork = None,
    theme: Annotated[ThemeName, typer.Option(help="Colours of text and axes.")] = ThemeName.LIGHT,
) -> None:
    """Write the files and say where they are."""
    from metareplay.files import refuse_special
    from metareplay.report.figures.canvas import DARK, LIGHT, save_figure
    from metareplay.report.figures.drawings import DRAWINGS
    from metareplay.report.runs import find_runs, group_runs

    if out is not None:
        refuse_special(out)
    if name != ALL and name not in DRAWINGS:
        raise ConfigError(f"figure {name!r} is unknown; choose one of {', '.join([ALL, *DRAWINGS])}")
    runs, unfinished = find_runs(folders)
    if unfinished:
        typer.echo(f"left out, not finished: {', '.join(map(str, unfinished))}", err=True)
    groups, colours = group_runs(runs), DARK if theme is ThemeName.DARK else LIGHT
    drawings: dict[str, Drawing] = {}
    for kind in DRAWINGS.values() if name == ALL else [DRAWINGS[name]]:
        for part in [groups] if kind.together else [[group] for group in groups]:
            members = _with_arrays(part, kind, must=name != ALL)
            label = "" if len(part) == len(groups) else f"{_slug(part[0].label)}-"
            drawings |= {f"{label}{_slug(drawing.name)}": drawing for drawing in kind.draw(members, colours)}
    if not drawings:
        advice = "see metareplay list figures for what each figure needs"
        raise DataError(f"these runs have nothing that figure {name!r} could show; {advice}")
    for path, drawing in _targets(drawings, out or folders[0] / "figures"):
        drawing.figure.patch.set(facecolor=colours.paper, alpha=1.0)
        typer.echo(f"figure: {save_figure(drawing.figure, path)}")


def _targets(drawings: "dict[str, Drawing]", out: Path) -> "Iterator[tuple[Path, Drawing]]":
    """The files of each drawing."""
    if out.suffix.lower().removeprefix(".") in FORMATS:
        if len(drawings) > 1:
            names = ", ".join(drawings)
            raise ConfigError(
                f"--out {out} is one file, but there are {len(drawings)} figures ({names}); give a folder"
            )
        yield from ((out, drawing) for drawing in drawings.values())
    elif re.fullmatch(r"\.[a-z]{3,4}", out.suffix.lower()) and not out.is_dir():
        raise ConfigError(
            f"--out {out}: figures are written as {', '.join(FORMATS)}; end the name in one of these, or give a folder"
        )
    else:
        yield from ((out / f"{stem}.{ending}", drawing) for stem, drawing in drawings.items() for ending in FORMATS)


def _with_arrays(groups: "list[Group]", kind: "Kind", *, must: bool) -> "list[Group]":
    """The groups with the arrays that this kind of figure needs, from their folders or, with ``must``, their models."""
    if not must or not kind.needs:
        return groups
    return [
        group if _keeps(group, kind) else replace(group, runs=(_computed(group, kind), *group.runs[1:]))
        for group in groups
    ]


def _keeps(group: "Group", kind: "Kind") -> bool:
    return any((arrays := run.predictive()) is not None and set(kind.needs) <= set(arrays) for run in group.runs)


def _computed(group: "Group", kind: "Kind") -> "FinishedRun":
    from metareplay.experiments.redraw import predictions_of, weights_of

    run = group.runs[0]
    arrays = weights_of(run.folder) if kind.needs == ("weights",) else predictions_of(run.folder)
    return replace(run, computed={key: tensor.double().numpy() for key, tensor in arrays.items()})


def _slug(text: str) -> str:
    return re.sub(r"[^\w.=-]+", "-", text).strip("-")
