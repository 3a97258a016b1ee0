"""Drawings as parts of the page."""

from collections.abc import Sequence
from html import escape
from itertools import islice

from metareplay.report import html
from metareplay.report.base import task_names
from metareplay.report.figures.canvas import PAGE, inline_svg
from metareplay.report.figures.drawings import DRAWINGS, Drawing
from metareplay.report.figures.inferred import task_confusions
from metareplay.report.figures.results import MOST_NUMBERS
from metareplay.report.runs import Group

PREDICTIVE = ("regression", "boundaries", "maps", "samples")
INFERRED = ("confusion", "labels", "strangeness")


def pictures(group: Group, prefix: str) -> str:
    """The drawings for one method, small ones side by side in a grid."""
    names = [name for name in DRAWINGS if name not in (*PREDICTIVE, *INFERRED)]
    drawings = [drawing for name in names for drawing in DRAWINGS[name].draw([group], PAGE)]
    wide = [_picture(drawing, prefix) for drawing in drawings if drawing.wide]
    small = [_picture(drawing, prefix) for drawing in drawings if not drawing.wide]
    content = "".join(wide) + (f'<div class="figures">{"".join(small)}</div>' if small else "")
    return f"<h3>Pictures</h3>{content}" if content else ""


def confusion_pictures(group: Group, prefix: str) -> list[str]:
    """Which task was taken for which, by criterion: that of the headline drawn, the others as small tables."""
    drawings = DRAWINGS["confusion"].draw([group], PAGE)
    names = task_names(group.first)
    if len(names) > MOST_NUMBERS:
        return [_picture(drawing, prefix) for drawing in drawings]
    first = [_picture(drawing, prefix) for drawing in islice(drawings, 1)]
    others = islice(task_confusions(group), 1, None)
    return first + [
        html.figure(html.heat_table(names, shares.tolist()), f"Tasks inferred by {name}", "") for name, shares in others
    ]


def label_picture(group: Group, prefix: str) -> str:
    """Which label was taken for which."""
    return "".join(_picture(drawing, prefix) for drawing in DRAWINGS["labels"].draw([group], PAGE))


def strangeness_picture(group: Group, prefix: str) -> str:
    """Test inputs against unknown inputs."""
    return "".join(_picture(drawing, prefix) for drawing in DRAWINGS["strangeness"].draw([group], PAGE))


def predictive_pictures(groups: Sequence[Group], prefix: str) -> str:
    """The drawings of the toy problems: predictions over the input space, of one or more methods side by side."""
    names = PREDICTIVE if len(groups) == 1 else [name for name in PREDICTIVE if DRAWINGS[name].together]
    return "".join(_picture(drawing, prefix) for name in names for drawing in DRAWINGS[name].draw(groups, PAGE))


def _picture(drawing: Drawing, prefix: str) -> str:
    name = f"{prefix}-{drawing.name.encode('utf-8', 'surrogatepass').hex()}"  # a criterion may be called anything
    svg = inline_svg(drawing.figure, name, escape(f"{drawing.title}. {drawing.caption}"))
    return html.figure(svg, drawing.title, drawing.caption, wide=drawing.wide)
