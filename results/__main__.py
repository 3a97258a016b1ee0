"""Make the tables, figures and plots of the documents from the records: ``python -m results``.

``python -m results add TABLE --command COMMAND`` records a table that a measurement printed (standard input).
"""

import argparse
import sys

from metareplay.files import write_atomically
from results.adding import add
from results.pages import ROOT, base_of, generated, pages
from results.plots import make_plots
from results.tables import definitions
from results.values import all_records


def make_pages() -> None:
    """Write the pages and plots whose content has changed."""
    records, tables = all_records(), definitions()
    for page in pages():
        text = page.read_text(encoding="utf-8")
        try:
            made = generated(text, records, tables, base_of(page))
        except LookupError as error:
            raise LookupError(f"{page.relative_to(ROOT)}: {error.args[0]}") from error
        if made != text:
            write_atomically(page, made)
            print(f"written: {page.relative_to(ROOT)}")
    for path in make_plots(records):
        print(f"written: {path.relative_to(ROOT)}")


def main(arguments: list[str]) -> None:
    """Make the pages, or add a table first."""
    parser = argparse.ArgumentParser(prog="python -m results", description=__doc__)
    parser.add_argument("verb", nargs="?", choices=["make", "add"], default="make")
    parser.add_argument("table", nargs="?", help="the table to add")
    parser.add_argument("--command", help="what measured it, as a reader would call it")
    parser.add_argument("--seeds", type=int, nargs="+", default=[])
    asked = parser.parse_args(arguments)
    try:
        if asked.verb == "add":
            if not asked.table or not asked.command:
                parser.error("add needs a table and its --command")
            print(f"recorded: {add(asked.table, sys.stdin.read(), asked.command, seeds=tuple(asked.seeds))}")
        make_pages()
    except LookupError as error:
        sys.exit(str(error.args[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
