"""Markdown as code hosts read it (CommonMark), rewritten so that Python-Markdown reads the same.

The two differ about lists: CommonMark takes the indentation of an item from its marker and lets a list follow a
paragraph at once, Python-Markdown wants four columns and an empty line.
"""

from markdown_it import MarkdownIt
from markdown_it.token import Token

INDENT = 4
BLOCKS = MarkdownIt("commonmark").enable("table").disable("inline")


def lists_for_python_markdown(text: str) -> str:
    """The same document with lists indented by four columns and empty lines around them."""
    lines = text.split("\n")
    tokens = BLOCKS.parse(text)
    before = [0] * len(lines)  # columns that lists take from each line
    depth = [0] * len(lines)
    first: set[int] = set()  # lines before which an empty one is wanted
    for token in tokens:
        if token.map is None:
            continue
        start, end = token.map
        if token.type in ("bullet_list_open", "ordered_list_open"):
            first |= {start, end}
        elif token.type == "list_item_open":
            content = _content_column(lines[start], token)
            for line in range(start, end):
                before[line], depth[line] = content, depth[line] + 1
    return "\n".join(_rewritten(lines, before, depth, first, _item_starts(tokens)))


def _content_column(line: str, item: Token) -> int:
    """The column at which an item's content begins."""
    marker = item.info + item.markup
    after = line.index(marker) + len(marker)
    text = line[after:]
    spaces = len(text) - len(text.lstrip())
    return after + (spaces if 1 <= spaces <= 4 and text.strip() else 1)


def _item_starts(tokens: list[Token]) -> dict[int, str]:
    """Marker of the item that begins on a line."""
    return {token.map[0]: token.info + token.markup for token in tokens if token.type == "list_item_open" and token.map}


def _rewritten(
    lines: list[str], before: list[int], depth: list[int], first: set[int], starts: dict[int, str]
) -> list[str]:
    written: list[str] = []
    loose = False  # an empty line since the last item began
    for number, line in enumerate(lines):
        apart = number in first and not (depth[number] and depth[number - 1])
        if (apart or (loose and number in starts)) and written and written[-1].strip():
            written.append("")
        loose = (loose or not line.strip()) and number not in starts
        if not depth[number] or not line.strip():
            written.append(line)
        elif number in starts:
            marker = starts[number].ljust(INDENT - 1)
            written.append(" " * INDENT * (depth[number] - 1) + f"{marker} {line[before[number] :]}")
        else:
            own = len(line) - len(line.lstrip())
            written.append(" " * INDENT * depth[number] + line[min(own, before[number]) :])
    return written
