"""Memory of reading a large CSV file: ``python benchmarks/csv_memory.py 40`` makes one of 40 MB and measures.

Each way is measured in a process of its own: the peak of its memory beyond what it had before, and processor time.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

COLUMNS, ROWS = 20, 5000


def write(path: Path, megabytes: float) -> None:
    """Numbers, a word, a date and a label in each row."""
    rng, size = np.random.default_rng(0), 0
    with path.open("w") as file:
        file.write(",".join([*(f"x{index}" for index in range(COLUMNS)), "colour", "when", "label"]) + "\n")
        while size < megabytes * 1e6:
            numbers, words = rng.normal(size=(ROWS, COLUMNS)), rng.integers(0, 5, ROWS)
            days = (np.datetime64("2020-01-01") + rng.integers(0, 700, ROWS)).astype(str)
            rows = zip(numbers, words, days, strict=True)
            size += file.write(
                "".join(
                    f"{','.join(map('{:.6g}'.format, row))},{'abcde'[word]},{day},{'yes' if row[0] > 0 else 'no'}\n"
                    for row, word, day in rows
                )
            )


def measure(path: str, way: str) -> None:
    """Read the file at once or in pieces, and print what it took."""
    from metareplay.data import reading
    from metareplay.data.settings import DataSettings

    reading.LARGE = 0 if way == "pieces" else 10**18
    before, clock = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    examples = reading.read_examples(DataSettings(path=path))
    added = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    decoded = examples.x.numel() * 4 + examples.y.numel() * 8
    print(
        f"{way}: {len(examples.x):,} rows, decoded {decoded / 1e6:.0f} MB, peak {added / 1e6:.0f} MB, "
        f"ratio {added / decoded:.2f}, {time.process_time() - clock:.1f} s of the processor"
    )


def main(megabytes: float) -> None:
    """Measure both ways."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.csv"
        write(path, megabytes)
        for way in ("whole", "pieces"):
            environment = {**os.environ, "METAREPLAY_CACHE": f"{folder}/{way}"}
            subprocess.run([sys.executable, __file__, str(path), way], env=environment, check=True)


if __name__ == "__main__":
    measure(*sys.argv[1:]) if len(sys.argv) == 3 else main(float(sys.argv[1]))
