"""What is measured in separate processes: peak memory, start-up, whole runs of the toy problems."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

METHODS = (
    "fine-tuning",
    "pr-dirac",
    "pr-dirac-sr",
    "pr-bbb",
    "pr-bbb-sr",
    "pr-radial",
    "pr-ssge",
    "pf-ssge",
    "sp-bbb",
    "vcl",
    "ewc-multihead",
)
FAST = "pr-bbb, fast"


def run(*arguments: str, out: Path) -> dict[str, object]:
    """Results of one ``metareplay run`` on one core."""
    command = [
        sys.executable,
        "-m",
        "metareplay",
        "run",
        *arguments,
        "--set",
        "threads=1",
        "--out",
        str(out),
        "--quiet",
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    results: dict[str, object] = json.loads((out / "results.json").read_text())
    return results


def prediction_table(data_dir: str | None) -> str:
    """The output of ``python -m benchmarks.prediction``, which trains a model first."""
    given = () if data_dir is None else ("--data-dir", data_dir)
    command = [sys.executable, "-m", "benchmarks.prediction", *given]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ).stdout.strip()


def memory_table(data_dir: str | None) -> str:
    """Peak resident memory of all five tasks of split-mnist: few steps each, and tests with 100 weight samples."""
    if data_dir is None:
        return "Not measured: set METAREPLAY_DATA to the folder of MNIST."
    lines = ["| method | peak resident memory, MiB |", "|---|---|"]
    given = (
        "--network",
        "mlp-400-400",
        "--data-dir",
        data_dir,
        "--set",
        "training.iterations=20",
        "--set",
        "inference.test_inputs=1000",
    )
    for method in (*METHODS, FAST):
        with tempfile.TemporaryDirectory() as folder:
            which = () if method == FAST else ("--published",)
            results = run(
                "split-mnist", "--method", method.removesuffix(", fast"), *given, *which, out=Path(folder) / "run"
            )
            lines.append(f"| {method} | {results['peak_memory_mib']:.0f} |")
    return "\n".join(lines)


def small_table() -> str:
    """Seconds of one seed of the toy problems with published settings, all of it: start, training, tests, report."""
    lines = ["| run | the paper's code, s | here, s |", "|---|---|---|"]
    for benchmark, theirs in (("regression-1d", 166), ("modes-2d", 301)):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            run(benchmark, "--method", "pr-bbb", out=Path(folder) / "run")
            lines.append(f"| {benchmark} pr-bbb, one seed | {theirs} | {time.perf_counter() - began:.0f} |")
    return "\n".join(lines)


def start_table(rounds: int = 5) -> str:
    """Seconds until the command line prints its help and until the package is imported."""

    def seconds(*arguments: str) -> float:
        times = []
        for _ in range(rounds + 1):
            began = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - began)
        return median(times[1:])

    helped, torch_alone = seconds("-m", "metareplay", "--help"), seconds("-c", "import torch")
    package, classifier = (
        seconds("-c", "import metareplay"),
        seconds("-c", "import torch; from metareplay import ContinualClassifier"),
    )
    lines = [
        "| what | seconds |",
        "|---|---|",
        f"| `metareplay --help` | {helped:.2f} |",
        f"| `import torch` | {torch_alone:.2f} |",
    ]
    lines += [
        f"| `import metareplay` | {package:.2f} |",
        f"| `ContinualClassifier` beyond torch | {classifier - torch_alone:.2f} |",
    ]
    return "\n".join(lines)
