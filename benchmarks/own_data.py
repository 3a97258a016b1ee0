"""How good, fast and honest answers are on small data sets of one's own, beside other ways to learn them.

python -m benchmarks.own_data [--group fresh] [--ways default,joint,...] [--seeds 3] [--out FOLDER] [STREAM ...]

Learns every stream in every way with every seed and writes one file for each; what has been written is not done again,
so it can be interrupted. Then it prints the tables of what there is (``--print``: only that). A seed also chooses other
test rows; figures are over all test rows of all seeds together. Seconds are processor time.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import torch

import benchmarks.fresh_sets
import benchmarks.image_sets
import benchmarks.lone_sets
import benchmarks.pooled_sets
import benchmarks.wide_sets  # noqa: F401 (they register their streams)
from benchmarks.data_sets import Group, Kind, names, stream
from benchmarks.own_ways import WAYS, Record
from metareplay.errors import MetaReplayError
from metareplay.evaluation.uncertainty import calibration_error, reliability
from metareplay.files import write_atomically

STRANGERS = ("noise", "mixed", "far")
CLASSES = (
    "stream", "rows", "given", "inferred", "right task", "ECE given", "ECE inferred", "of a perfect model",
    "AUROC noise, mixed, far", "isolation forest", "s/task",
)  # fmt: skip
OTHERS = (
    "stream", "default: given / inferred", "joint: linear, forest", "`partial_fit`", "`exp-replay`",
    "before: given / inferred", "right task", "ECE", "AUROC", "s/task",
)  # fmt: skip
TARGETS = (
    "stream", "rows", "R² given / inferred", "joint: ridge, forest", "right task", "95 % cover: given", "inferred",
    "AUROC noise, mixed, far", "isolation forest", "s/task", "`partial_fit`",
    "before: R² given / inferred", "cover given", "s/task",
)  # fmt: skip


def ece(found: Record, name: str) -> float:
    """Expected calibration error in percent of confidence NAME and correctness ``NAME right``."""
    confidence = torch.tensor(found[name], dtype=torch.float64)
    return calibration_error(reliability(confidence, torch.tensor(found[f"{name} right"]).bool()))


def least_ece(found: Record, name: str) -> tuple[float, float]:
    """What perfectly calibrated confidences like these would show by chance: the mean, and what 1 in 20 exceeds."""
    random, confidence = np.random.default_rng(0), torch.tensor(found[name], dtype=torch.float64)
    draws = (torch.tensor(random.random(len(confidence))) < confidence for _ in range(200))
    errors = [calibration_error(reliability(confidence, drawn)) for drawn in draws]
    return float(np.mean(errors)), float(np.quantile(errors, 0.95))


def r2(found: Record, name: str) -> str:
    """The share of the targets' variance that is explained."""
    if name not in found:
        return "–"
    target, answers = np.array(found["y"]), np.array(found[name])
    return f"{1 - np.mean((answers - target) ** 2) / target.var():.2f}"


def percent(found: Record, name: str) -> str:
    """A mean of yes and no."""
    return f"{100 * np.mean(found[name]):.1f}" if name in found else "–"


def covered(found: Record, name: str) -> str:
    """A share with the standard error that as many rows leave."""
    share, count = float(np.mean(found[name])), len(found[name])
    return f"{100 * share:.1f} ± {100 * (share * (1 - share) / count) ** 0.5:.1f}"


def unknown(found: Record) -> str:
    """AUROC by kind of stranger."""
    return ", ".join(f"{np.mean(found['auroc'][name]):.2f}" for name in STRANGERS) if "auroc" in found else "–"


def together(records: Sequence[Record]) -> Record:
    """One record of all seeds: lists joined, figures as lists."""
    found: Record = {}
    for record in records:
        for name, value in record.items():
            if isinstance(value, dict):
                of_kinds = found.setdefault(name, {})
                for key, single in value.items():
                    of_kinds.setdefault(key, []).append(single)
            else:
                found.setdefault(name, []).extend(value if isinstance(value, list) else [value])
    return found


def class_row(name: str, ways: dict[str, Record]) -> list[str]:
    """A row of the first table."""
    found = ways["default"]
    shares = [percent(found, key) for key in ("given right", "inferred right", "right task")]
    mean, most = least_ece(found, "inferred")
    errors = [f"{ece(found, key):.1f}" for key in ("given", "inferred")]
    forest = unknown(ways.get("joint", {}))
    return [*shares, *errors, f"{mean:.1f} (to {most:.1f})", unknown(found), forest, _seconds(found)]


def other_row(name: str, ways: dict[str, Record]) -> list[str]:
    """A row of the second table."""

    def pair(way: str) -> str:
        found = ways.get(way, {})
        return f"{percent(found, 'given right')} / {percent(found, 'inferred right')}"

    joint, old = ways.get("joint", {}), ways.get("before", {})
    both = f"{percent(joint, 'linear right')}, {percent(joint, 'forest right')}"
    error = f"{ece(old, 'inferred'):.1f}" if "inferred" in old else "–"
    cells = [pair("default"), both, percent(ways.get("partial_fit", {}), "sgd right"), pair("exp-replay")]
    return [*cells, pair("before"), percent(old, "right task"), error, unknown(old), _seconds(old)]


def target_row(name: str, ways: dict[str, Record]) -> list[str]:
    """A row of the table of regressions."""
    found, joint, old = ways["default"], ways.get("joint", {}), ways.get("before", {})
    cells = [
        f"{r2(found, 'given')} / {r2(found, 'inferred')}",
        f"{r2(joint, 'linear')}, {r2(joint, 'forest')}",
    ]
    cells += [percent(found, "right task"), covered(found, "given inside"), covered(found, "inferred inside")]
    cells += [unknown(found), unknown(joint), _seconds(found), r2(ways.get("partial_fit", {}), "sgd")]
    return [*cells, f"{r2(old, 'given')} / {r2(old, 'inferred')}", percent(old, "given inside"), _seconds(old)]


TABLES: Sequence[tuple[Kind, Sequence[str], Callable[[str, dict[str, Record]], list[str]]]] = (
    ("classification", CLASSES, class_row),
    ("classification", OTHERS, other_row),
    ("regression", TARGETS, target_row),
)


def _seconds(found: Record) -> str:
    return f"{np.mean(found['seconds']):.1f}" if "seconds" in found else "–"


def print_tables(folder: Path, chosen: Sequence[str], group: Group) -> None:
    """Of what the folder holds."""
    for kind, columns, row in TABLES:
        lines = []
        for name in (name for name in names(kind, group) if name in chosen):
            ways = {way: found for way in WAYS if (found := _read(folder, way, name))}
            if "default" in ways:
                head = [name] if columns is OTHERS else [name, f"{stream(name).rows:,}"]
                lines.append([*head, *row(name, ways)])
        for cells in (columns, ["---"] * len(columns), *lines) if lines else ():
            print(f"| {' | '.join(cells)} |")
        print()


def _read(folder: Path, way: str, name: str) -> Record:
    """All seeds of one way, with the targets of their test rows; empty if it was refused."""
    files = sorted(folder.glob(f"{way}/{_slug(name)}.*.json"))
    found = together([json.loads(file.read_text()) for file in files])
    if "refused" in found:
        return {}
    tests = [month.test.y for file in files for month in stream(name, int(file.suffixes[-2][1:])).months]
    return {**found, "y": np.concatenate(tests).reshape(-1)} if found else found


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)


def main() -> None:
    """Measure what is missing, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("streams", nargs="*", metavar="STREAM")
    parser.add_argument("--group", choices=get_args(Group), default="fresh")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/own-data"))
    parser.add_argument("--print", action="store_true", help="measure nothing")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    chosen = asked.streams or names(group=asked.group)
    todo = [(way, name, seed) for way in asked.ways.split(",") for name in chosen for seed in range(asked.seeds)]
    for way, name, seed in () if asked.print else todo:
        file = asked.out / way / f"{_slug(name)}.{seed}.json"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                found = WAYS[way](stream(name, seed), seed)
            except MetaReplayError as error:
                found = {"refused": str(error)}
            write_atomically(file, json.dumps(found))
            print(f"{way}: {name}, seed {seed}", flush=True)
    print_tables(asked.out, chosen, asked.group)


if __name__ == "__main__":
    main()
