"""Measure everything and write it to docs/performance.md, between markers: ``python -m benchmarks [PART ...]``."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import auxiliary, compiled, growth, penalties, processes, profiles, serving, statistics, steps
from benchmarks.plot import draw

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
PAGES = {"serving": PAGE.with_name("serve.md")}
"""Parts that have a page of their own."""
ROUNDS = int(os.environ.get("ROUNDS", "15"))
PARTS: dict[str, Callable[[], str]] = {
    "steps": lambda: steps.table(ROUNDS, os.cpu_count() or 1),
    "lenet": lambda: steps.lenet_table(ROUNDS),
    "profiles": lambda: profiles.table(ROUNDS),
    "growth": lambda: growth.table(ROUNDS),
    "auxiliary": lambda: auxiliary.table(ROUNDS),
    "penalties": lambda: penalties.table(os.environ.get("METAREPLAY_DATA")),
    "prediction": lambda: processes.prediction_table(os.environ.get("METAREPLAY_DATA")),
    "statistics": statistics.table,
    "memory": lambda: processes.memory_table(os.environ.get("METAREPLAY_DATA")),
    "start": processes.start_table,
    "small": processes.small_table,
    "serving": serving.table,
    "compile": lambda: compiled.table(ROUNDS),
}


def main(wanted: list[str]) -> None:
    """Measure the requested parts, by default all."""
    if unknown := [name for name in wanted if name not in PARTS]:
        sys.exit(f"there is no part {unknown[0]!r} of the measurements; choose from {', '.join(PARTS)}")
    for name in wanted or PARTS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        measured = PARTS[name]()
        print(measured, flush=True)
        place = PAGES.get(name, PAGE)
        page = place.read_text()
        begin, end = f"<!-- {name}: measured -->", f"<!-- {name}: end -->"
        page = re.sub(f"{begin}.*?{end}", lambda _, text=f"{begin}\n{measured}\n{end}": text, page, flags=re.DOTALL)
        place.write_text(page)
        if name == "steps":
            draw(measured)


if __name__ == "__main__":
    main(sys.argv[1:])
