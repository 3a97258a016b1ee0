"""``python -m torture``: the campaign; ``--case NAME`` repeats one case and shows what it does."""

import argparse
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from torture.inputs import Fuzzer
from torture.kills import Theatre
from torture.material import Material
from torture.outcomes import Outcome, Tally
from torture.processes import warm_up
from torture.together import Company

Case = tuple[str, str, Callable[[], Outcome]]
SHORT = {"kills": 4, "full": 1, "rounds": 3, "inputs": 8}


def main(given: list[str]) -> int:
    """Carry out the campaign, or one case; returns the exit code."""
    options = _parsed(given)
    if not hasattr(os, "pidfd_open"):
        sys.exit("the campaign needs Linux")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    place = Path(tempfile.mkdtemp(prefix="torture-", dir=options.scratch)).resolve()
    os.environ.update({"METAREPLAY_CACHE": str(place / "cache"), "HF_HOME": str(place / "hub"), "HF_HUB_OFFLINE": "1"})
    import metareplay

    os.environ["PYTHONPATH"] = str(Path(metareplay.__file__).resolve().parents[1])  # also for what commands start
    try:
        warm_up(exports=not (options.short or options.case))
        material = Material(place / "material")
        material.model()
        parts = (
            Theatre(material, place / "theatre"),
            Company(material, place / "company"),
            Fuzzer(material, place / "fuzz"),
        )
        return _one(options.case, *parts) if options.case else _campaign(options, *parts)
    finally:
        if options.keep:
            print(f"kept: {place}")
        else:
            shutil.rmtree(place, ignore_errors=True)


def _parsed(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0, help="stop after so long; 0: when all is done")
    parser.add_argument("--seed", type=int, default=0, help="of the fuzzer and of what is chosen")
    parser.add_argument("--kills", type=int, help="kills at file-system boundaries (600)")
    parser.add_argument("--full", type=int, help="full disks (150)")
    parser.add_argument("--rounds", type=int, help="rounds of savers, readers and overwriters (1000)")
    parser.add_argument("--inputs", type=int, help="damaged inputs (10000)")
    parser.add_argument("--only", default="", help="only cases whose name has this word")
    parser.add_argument("--short", action="store_true", help="a few of each, in less than a minute")
    parser.add_argument("--case", help="repeat one case, by its name")
    parser.add_argument("--keep", action="store_true", help="keep the folder in which the last case took place")
    parser.add_argument("--scratch", type=Path, help="where files are written; default: the temporary folder")
    parser.add_argument("--quiet", action="store_true", help="only failures and the table")
    options = parser.parse_args(given)
    usual = SHORT if options.short else {"kills": 600, "full": 150, "rounds": 1000, "inputs": 10_000}
    chosen = any(getattr(options, name) is not None for name in usual)
    for name, count in usual.items():
        if getattr(options, name) is None:
            setattr(options, name, 0 if chosen else count)
    return options


def _campaign(options: argparse.Namespace, theatre: Theatre, company: Company, fuzzer: Fuzzer) -> int:
    tally, end = Tally(options.quiet), time.monotonic() + 60 * (options.minutes or 10**6)
    for part, name, work in _cases(options, theatre, company, fuzzer):
        if time.monotonic() > end:
            print(f"stopped after {options.minutes:g} minutes")
            break
        tally.add(part, work(), f"python -m torture --case {shlex.quote(name)}")
    print(tally.table())
    return 1 if tally.failures else 0


def _cases(options: argparse.Namespace, theatre: Theatre, company: Company, fuzzer: Fuzzer) -> Iterator[Case]:
    """All cases in turn; those of long parts are not made before they are wanted."""
    for part, name, work in theatre.cases(options.kills, options.full, options.seed, short=options.short):
        if options.only in name:
            yield part, name, work
    if options.rounds and options.only in "together":
        yield from company.cases(options.rounds, options.seed)
    for number in range(options.inputs):
        name = fuzzer.name(options.seed, number, options.only)
        yield "damaged inputs", name, lambda name=name: fuzzer.case(name)  # type: ignore[misc]


def _one(name: str, theatre: Theatre, company: Company, fuzzer: Fuzzer) -> int:
    kind = name.split(":")[0]
    if kind in ("kill", "torn", "full"):
        outcome = theatre.case(name)
    elif kind == "together":
        outcome = company.case(name)
    else:
        outcome = fuzzer.case(name)
        print(fuzzer.last[:2000])
        for stream in ("stdout", "stderr"):
            print(f"--- {stream}\n{(fuzzer.folder / stream).read_text(errors='replace')[-6000:]}")
    print(f"--- {'FAILED: ' if outcome.failed else ''}{outcome.words}\n{outcome.details}")
    return int(outcome.failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
