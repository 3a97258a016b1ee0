"""Figures that pages state, and whether a record has them.

A measured figure is what looks like one: in text, a number with decimals, or one that a unit of measurement follows
(%, points, times, seconds, MiB, ...), also in lists such as "97 and 98 %"; in a table that is not made from records,
every number, unless it is one of settings or options. Not looked at are code, links, headings, years of cited work, and
what is made from records. A figure is known if a record has it, rounded as it is stated. Which records count is said
section by section (level 2), so that a number is not excused by one that has nothing to do with it: those of the
section's tables, those of its figures in the text, and those that ``<!-- figures: NAME, PATTERN -->`` names. The
paper's own figures count where the sentence speaks of the paper.

What looks like a measurement and is none is listed in not_measured.yaml, with the reason.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from metareplay.paper.tables import paper_tables
from metareplay.report.records import Record
from metareplay.texts import read_yaml
from results.marks import marked_rows
from results.pages import BLOCK, FIGURE, MARKS, ROOT, ROW, SELECTED
from results.tables import Table, render
from results.values import FOLDER, Line, lines_of, matching

NUMBER = r"(?<![\w.,:/#^*-])[-+]?\d(?:[\d,]*\d)?(?:\.\d+)?(?![\w:/-]|\.\d|,\d)"
UNIT = r"(?: ?%| percent| points?\b| times\b| MiB\b| GiB\b| MB\b| kB\b| ms\b| s\b| seconds\b| minutes\b| hours\b)"
LISTED = re.compile(rf"{NUMBER}(?:(?:, | and | to | or |, then | against | instead of ){NUMBER})*(?={UNIT})")
DECIMAL = re.compile(NUMBER.replace(r"(?:\.\d+)?", r"\.\d+"))
ANY = re.compile(NUMBER)
SCOPE = re.compile(r"<!-- figures: (.*?) -->", re.DOTALL)
FENCE = re.compile(r"(<!-- figures: [^\n]* -->\n)?^(`{3,}).*?^\2[ \t]*$", re.MULTILINE | re.DOTALL)
ASIDE = (
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"<[^>\n]+>"),
    re.compile(r"(?<!`)`(?!`)[^`]*`(?!`)"),
    re.compile(r"!\[[^\]]*\]"),
    re.compile(r"\]\([^)]*\)"),
    re.compile(r"^#.*$", re.MULTILINE),
    re.compile(r"et al\.,? \d{4}"),
)
"""Comments, tags, code, what pictures show in words, links, headings and citations."""
SETTINGS = re.compile(r"\| *(?:(?:setting|option|limit)s? *\||\w+ *\| *(?:what|what it is|content|meaning|tasks) *\|)")
"""The beginning of a table of settings, or of one that says what things are."""
CHECKED = (
    *("index", "quickstart", "choosing", "concepts", "gallery", "results", "performance", "paper_map", "own_data"),
    *("streams", "living_model", "backbones", "tuning", "integrations", "limits", "design"),
)
"""Pages of docs/ whose figures have to be in records, besides the tutorials and the appendix."""
OF_PAPER = re.compile(r"\b(paper|published|supplement)", re.IGNORECASE)


@dataclass(frozen=True)
class Stated:
    """A figure as a page states it."""

    line: int
    text: str
    sentence: str

    def is_like(self, value: float) -> bool:
        """Whether a value, rounded as the figure is, is the figure."""
        plain = self.text.replace(",", "").lstrip("+")
        decimals = len(plain.partition(".")[2])
        return abs(float(plain) - value) <= 0.5 * 10**-decimals + 1e-9


def checked_pages() -> list[Path]:
    """The pages whose figures have to be in records."""
    named = ["README.md", *(f"docs/{name}.md" for name in CHECKED)]
    folders = [path for name in ("tutorials", "appendix") for path in sorted((ROOT / "docs" / name).rglob("*.md"))]
    return [path for path in (*(ROOT / name for name in named), *folders) if path.exists()]


def unknown_figures(
    text: str, records: Mapping[str, Record], tables: Mapping[str, Table], exempt: Iterable[str] = ()
) -> list[Stated]:
    """The figures of a page that no record has."""
    found = []
    rows = [row for table in paper_tables().values() for row in table.rows]
    paper = {value for row in rows for pair in row.figures.values() for value in pair if value is not None}
    for start, section in sections(text):
        known = _values_of(section, records, tables)
        for figure in stated_in(section, start, exempt):
            values = known | paper if OF_PAPER.search(figure.sentence) else known
            if not any(figure.is_like(value) for value in values):
                found.append(figure)
    return found


def sections(text: str) -> Iterator[tuple[int, str]]:
    """Parts of a page from one heading of the second level to the next, each with its first line's number."""
    plain = _without_fences(BLOCK.sub(_blank, text))  # a table of records may have headings of its own
    starts = [0, *(match.start() for match in re.finditer(r"^## ", plain, re.MULTILINE))]
    for begin, end in zip(starts, [*starts[1:], len(text)], strict=True):
        yield text.count("\n", 0, begin) + 1, text[begin:end]


def _without_fences(text: str) -> str:
    """The text with fenced code made blank, unless the line before names its records; its length stays."""
    return FENCE.sub(lambda match: match[0] if match[1] else _blank(match), text)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def stated_in(section: str, start: int = 1, exempt: Iterable[str] = ()) -> list[Stated]:
    """All that looks like a measured figure, but for exempt fragments of text."""
    plain = _without_fences(ROW.sub(_blank, BLOCK.sub(_blank, FIGURE.sub(_blank, section))))
    for pattern in ASIDE:
        plain = pattern.sub(_blank, plain)
    for fragment in exempt:
        words = r"\s+".join(map(re.escape, fragment.split()))
        plain = re.sub(words, _blank, plain)
    found = {}
    for match in _numbers(plain):
        line = start + plain.count("\n", 0, match[0])
        found[match[0]] = Stated(line, match[1], _sentence(section, match[0]))
    return [found[place] for place in sorted(found)]


def _numbers(plain: str) -> Iterator[tuple[int, str]]:
    """Places and texts of numbers that are figures."""
    for table in re.finditer(r"(?:^\|.*\n?)+", plain, re.MULTILINE):
        if not SETTINGS.match(table[0]):
            yield from ((table.start() + match.start(), match[0]) for match in ANY.finditer(table[0]))
    text = re.sub(r"(?:^\|.*\n?)+", _blank, plain, flags=re.MULTILINE)
    for match in DECIMAL.finditer(text):
        yield match.start(), match[0]
    for listed in LISTED.finditer(text):
        yield from ((listed.start() + match.start(), match[0]) for match in ANY.finditer(listed[0]))


def _sentence(section: str, place: int) -> str:
    """The sentence around a place, or the row of a table with its heading."""
    first = section.rfind("\n", 0, place) + 1
    if section.startswith("|", first):
        heading = re.findall(r"^(\|.*)\n\|[-:| ]+\|$", section[:place], re.MULTILINE)
        return " ".join([*heading[-1:], section[first : section.find("\n", place)]])
    ends = [match.end() for match in re.finditer(r"[.:;](?=\s)|\n\n|\n(?=[|#-])", section)]
    begin = max((end for end in ends if end <= place), default=0)
    return " ".join(section[begin : min((end for end in ends if end > place), default=len(section))].split())


def _values_of(section: str, records: Mapping[str, Record], tables: Mapping[str, Table]) -> set[float]:
    """What the records that a section speaks of hold."""
    lines: list[Line] = []
    for match in BLOCK.finditer(section):
        if match[1] in MARKS:
            lines += [row.line for row in marked_rows(records) if row.line is not None]
        else:
            lines += lines_of(matching(records, [line.name for line in render(tables[match[1]], records).lines]))
    names = [name.strip() for match in SCOPE.finditer(section) for name in match[1].split(",")]
    names += [found[1] for match in FIGURE.finditer(section) if (found := SELECTED.match(match[1]))]
    lines += lines_of(matching(records, names))
    return {value for line in lines for value in _numbers_of(line)}


def _numbers_of(line: Line) -> Iterator[float]:
    for key, figures in line.figures.items():
        estimate = line.estimate(key)
        yield from (value for value in estimate or () if value is not None)
        for figure in figures:
            yield from (value for value in (figure.value, figure.error) if value is not None)


def exempt_fragments() -> dict[str, list[str]]:
    """Fragments of each page that state settings, limits or other things that nobody measured."""
    content = read_yaml((FOLDER / "not_measured.yaml").read_text(encoding="utf-8")) or {}
    return {page: [text for texts in reasons.values() for text in texts] for page, reasons in content.items()}
