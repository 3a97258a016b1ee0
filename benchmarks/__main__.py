"""Measure speed and memory into records, for docs/performance.md: ``python -m benchmarks [PART ...]``."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import auxiliary, compiled, growth, penalties, processes, profiles, serving, statistics, steps
from results.__main__ import make_pages
from results.adding import add
from results.values import FOLDER

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


TABLES = {"lenet": ("steps-lenet",), "statistics": ("statistics-cost", "statistics-accuracy")}
"""The tables of a part, if they are not named like it (results/tables/)."""


def main(arguments: list[str]) -> None:
    """Measure the requested parts, by default all, and record them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; by default all")
    parser.add_argument("--record", type=Path, default=FOLDER, help="folder of the records, by default results/")
    asked = parser.parse_args(arguments)
    if unknown := [name for name in asked.parts if name not in PARTS]:
        sys.exit(f"there is no part {unknown[0]!r} of the measurements; choose from {', '.join(PARTS)}")
    for name in asked.parts or PARTS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        measured = PARTS[name]()
        print(measured, flush=True)
        for table in TABLES.get(name, (name,)):
            add(table, measured, f"make bench PARTS={name}", asked.record)
    if asked.record.resolve() == FOLDER.resolve():
        make_pages()


if __name__ == "__main__":
    main(sys.argv[1:])
