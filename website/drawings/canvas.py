"""Boxes, arrows, curves and words of one style, as SVG whose colours follow light and dark."""

from html import escape
from itertools import pairwise
from math import exp
from xml.sax.saxutils import quoteattr

WIDTH = 480
STYLE = """<style>
svg{--ink:#1f2733;--muted:#596473;--line:#8793a3;--box:#eef1f6;--one:#2563ab;--two:#bd5510;--three:#2c7a4b}
@media(prefers-color-scheme:dark){
svg{--ink:#e3e7ee;--muted:#a3adbb;--line:#7c899b;--box:#232c3b;--one:#7fb2f5;--two:#f2a45f;--three:#7fcf9d}}
</style>"""
TASKS = ("one", "two", "three")
"""A colour for each task."""


class Canvas:
    """A drawing that is added to, and then written."""

    def __init__(self, height: int, title: str) -> None:
        self.height, self.title = height, title
        self.parts: list[str] = []

    def add(self, tag: str, **attributes: object) -> None:
        """An element; underscores in names become hyphens."""
        words = " ".join(f"{name.replace('_', '-')}={quoteattr(str(value))}" for name, value in attributes.items())
        self.parts.append(f"<{tag} {words}/>")

    def text(self, x: float, y: float, words: str, *, at: str = "middle", size: int = 14, colour: str = "ink",
             bold: bool = False) -> None:  # fmt: skip
        """Words with their baseline at (x, y)."""
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{at}" font-size="{size}"{weight} fill="var(--{colour})">'
            f"{escape(words)}</text>"
        )

    def box(self, x: float, y: float, width: float, height: float, *words: str, colour: str = "line",
            fill: str = "box", dashed: bool = False) -> None:  # fmt: skip
        """A box with lines of words in its middle."""
        dash = {"stroke_dasharray": "5 4"} if dashed else {}
        fill = "none" if fill == "none" else f"var(--{fill})"
        self.add("rect", x=x, y=y, width=width, height=height, rx=6, fill=fill, stroke=f"var(--{colour})",
                 stroke_width=1.5, **dash)  # fmt: skip
        top = y + height / 2 + 5 - 9 * (len(words) - 1)
        for number, line in enumerate(words):
            self.text(x + width / 2, top + 18 * number, line, bold=number == 0)

    def line(self, *points: tuple[float, float], colour: str = "line", dashed: bool = False, arrow: bool = True,
             bend: tuple[float, float] | None = None) -> None:  # fmt: skip
        """A line through points, with a head at its end; or a curve between two of them, bent towards a third."""
        (x, y), *others = points
        if bend is not None:
            path = f"M{x:g} {y:g}Q{bend[0]:g} {bend[1]:g} {others[-1][0]:g} {others[-1][1]:g}"
            before = bend
        else:
            path = f"M{x:g} {y:g}" + "".join(f"L{a:g} {b:g}" for a, b in others)
            before = points[-2]
        dash = {"stroke_dasharray": "5 4"} if dashed else {}
        self.add("path", d=path, fill="none", stroke=f"var(--{colour})", stroke_width=1.5, **dash)
        if arrow:
            self._head(before, others[-1], colour)

    def _head(self, before: tuple[float, float], tip: tuple[float, float], colour: str) -> None:
        along = (tip[0] - before[0], tip[1] - before[1])
        length = (along[0] ** 2 + along[1] ** 2) ** 0.5 or 1.0
        u, v = along[0] / length, along[1] / length
        corners = [
            tip,
            (tip[0] - 8 * u - 4 * v, tip[1] - 8 * v + 4 * u),
            (tip[0] - 8 * u + 4 * v, tip[1] - 8 * v - 4 * u),
        ]
        self.add("polygon", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in corners), fill=f"var(--{colour})")

    def dot(self, x: float, y: float, colour: str, radius: float = 3, opacity: float = 1) -> None:
        """A point."""
        self.add("circle", cx=x, cy=y, r=radius, fill=f"var(--{colour})", opacity=opacity)

    def ellipse(self, x: float, y: float, width: float, height: float, colour: str, *, turned: float = 0,
                dashed: bool = False) -> None:  # fmt: skip
        """A Gaussian in the plane."""
        dash = {"stroke_dasharray": "5 4"} if dashed else {}
        self.add("ellipse", cx=x, cy=y, rx=width / 2, ry=height / 2, transform=f"rotate({turned:g} {x:g} {y:g})",
                 fill=f"var(--{colour})", fill_opacity=0 if dashed else 0.15, stroke=f"var(--{colour})",
                 stroke_width=1.5, **dash)  # fmt: skip

    def bell(self, x: float, y: float, width: float, height: float, colour: str, *, centre: float = 0.5,
             spread: float = 0.14, dashed: bool = False, axis: bool = True) -> None:  # fmt: skip
        """A Gaussian over one weight, on a base line from (x, y)."""
        steps = [i / 40 for i in range(41)]
        points = [(x + width * s, y - height * exp(-(((s - centre) / spread) ** 2) / 2)) for s in steps]
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
        dash = {"stroke_dasharray": "4 4"} if dashed else {}
        if not dashed:
            self.add("path", d=f"{path}Z", fill=f"var(--{colour})", fill_opacity=0.15, stroke="none")
        self.add("path", d=path, fill="none", stroke=f"var(--{colour})", stroke_width=1.8, **dash)
        if axis:
            self.line((x, y), (x + width, y), arrow=False)

    def cells(self, x: float, y: float, colour: str, heights: tuple[float, ...]) -> None:
        """A short vector: cells, the fuller the darker."""
        for number, value in enumerate(heights):
            self.add("rect", x=x + 13 * number, y=y, width=13, height=18, fill=f"var(--{colour})", fill_opacity=value,
                     stroke=f"var(--{colour})", stroke_width=1)  # fmt: skip

    def bar(self, x: float, y: float, length: float, colour: str, height: float = 10) -> None:
        """A bar."""
        self.add("rect", x=x, y=y, width=length, height=height, rx=2, fill=f"var(--{colour})")

    def network(self, x: float, y: float, colour: str, layers: tuple[int, ...] = (2, 3, 2), step: float = 22) -> None:
        """A small network with its middle at the height y."""
        places = [
            [(x + step * column, y + 14 * (row - (number - 1) / 2)) for row in range(number)]
            for column, number in enumerate(layers)
        ]
        for left, right in pairwise(places):
            for a in left:
                for b in right:
                    self.add("path", d=f"M{a[0]:g} {a[1]:g}L{b[0]:g} {b[1]:g}", stroke=f"var(--{colour})",
                             stroke_width=0.8, opacity=0.6)  # fmt: skip
        for layer in places:
            for place in layer:
                self.dot(*place, colour, 4)

    def svg(self) -> str:
        """The file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" '
            f'height="{self.height}" font-family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif">'
        )
        return "\n".join([head, f"<title>{escape(self.title)}</title>", STYLE, *self.parts, "</svg>", ""])
