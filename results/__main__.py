"""Make the tables, figures and plots of the documents from the records: ``python -m results``."""

import sys

from metareplay.files import write_atomically
from results.pages import ROOT, generated, pages
from results.tables import definitions
from results.values import all_records


def main() -> None:
    """Write the pages whose content has changed."""
    records, tables = all_records(), definitions()
    for page in pages():
        text = page.read_text(encoding="utf-8")
        try:
            made = generated(text, records, tables)
        except LookupError as error:
            sys.exit(f"{page.relative_to(ROOT)}: {error.args[0]}")
        if made != text:
            write_atomically(page, made)
            print(f"written: {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
