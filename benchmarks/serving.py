"""Rows per second and latency of ``metareplay serve`` beside the bare predictor, and its memory over many requests.

python -m benchmarks.serving [--requests 400] [--soak 100000]

Server and clients are processes on this machine that speak over the loopback interface. A client sends its next request
when it has the answer to the last. Before and after each measurement the bare estimator, in this process, predicts as
many rows at once as clients and rows per request make together; ratios are to the mean of the two.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from metareplay.estimators import ContinualClassifier

COLUMNS, TASKS = 20, 5
SETTINGS = ((1, 1), (8, 1), (64, 1), (1, 64), (8, 64), (64, 64))
"""Clients, and rows of a request."""
MOST_SECONDS = 20.0
"""For one measurement."""


class Load(NamedTuple):
    """What clients saw."""

    rows_per_second: float
    p50: float
    p99: float
    """Seconds."""
    requests: int


def stored_model(folder: Path, *, small: bool = False) -> ContinualClassifier:
    """A pr-bbb model of a table with 20 columns: 5 tasks of 2 classes, K = 100 weight samples.

    A small one has two tasks and five samples of a small network: it answers soon, so that many requests can be made.
    """
    rng = np.random.default_rng(0)
    settings = {"training.iterations": 150, **({"inference.samples": 5} if small else {})}
    model = ContinualClassifier(seed=0, network="mlp-20" if small else "mlp-100-100", settings=settings)
    for task in range(2 if small else TASKS):
        x = rng.normal(3 * task, 1, (200, COLUMNS))
        model.learn_task(x, np.where(x[:, 0] > 3 * task, 2 * task, 2 * task + 1), name=f"month-{task}")
    model.save(folder)
    return model


def inputs(count: int) -> np.ndarray:
    """Rows of all tasks."""
    rng = np.random.default_rng(1)
    return np.round(rng.normal(3 * rng.integers(0, TASKS, (count, 1)), 1, (count, COLUMNS)), 3)


@contextmanager
def served(folder: Path) -> Iterator[int]:
    """The port of a server in a process of its own."""
    command = [sys.executable, "-m", "metareplay", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        if found is None:
            raise RuntimeError("the server did not start")
        yield int(found[1])
    finally:
        process.terminate()
        process.wait()


def request_bytes(rows: np.ndarray) -> bytes:
    """A whole HTTP request."""
    body = json.dumps({"rows": rows.tolist()}).encode()
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


async def _client(port: int, requests: list[bytes], counter: Iterator[int], times: list[float], until: float) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for number in counter:
            began = time.perf_counter()
            if began > until:
                return
            writer.write(requests[number % len(requests)])
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(head.decode())
            length = re.search(rb"content-length: (\d+)", head)
            assert length is not None
            await reader.readexactly(int(length[1]))
            times.append(time.perf_counter() - began)
    finally:
        writer.close()
        await writer.wait_closed()


def load(port: int, clients: int, rows: int, count: int, seconds: float = MOST_SECONDS) -> Load:
    """So many requests by so many clients, at most for so many seconds."""
    x = inputs(16 * rows)
    requests = [request_bytes(x[start : start + rows]) for start in range(0, len(x), rows)]
    times: list[float] = []
    counter = iter(range(count))

    async def every_client() -> float:
        began = time.perf_counter()
        await asyncio.gather(*(_client(port, requests, counter, times, began + seconds) for _ in range(clients)))
        return time.perf_counter() - began

    taken = asyncio.run(every_client())
    p50, p99 = np.quantile(times, (0.5, 0.99))
    return Load(len(times) * rows / taken, float(p50), float(p99), len(times))


def bare(model: ContinualClassifier, rows: int, seconds: float = 2.0) -> np.ndarray:
    """Rows per second of the estimator itself, so many at once; and per second of the processor."""
    x = inputs(rows)
    began, used, done = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < seconds:
        model.predict_full(x)
        done += rows
    return np.array([done / (time.perf_counter() - began), done / (time.process_time() - used)])


def table(count: int = 400) -> str:
    """Throughput and latency, with the ratio to the bare estimator."""
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    lines = [
        "| clients | rows per request | rows per second | p50 | p99 | bare estimator, as many at once | ratio | "
        "by processor time |",
        "|---|---|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        model = stored_model(Path(folder) / "model")
        with served(Path(folder) / "model") as port:
            load(port, 4, 8, 40)  # warm
            for clients, rows in SETTINGS:
                at_once = min(clients * rows, 2048)
                before = bare(model, at_once)
                used = server_figure(port, "process_cpu_seconds_total")
                seen = load(port, clients, rows, max(count, 12 * clients))
                used = server_figure(port, "process_cpu_seconds_total") - used
                reference, by_processor = (before + bare(model, at_once)) / 2
                ratio = seen.requests * rows / used / by_processor
                lines.append(
                    f"| {clients} | {rows} | {seen.rows_per_second:,.0f} | {1000 * seen.p50:.0f} ms | "
                    f"{1000 * seen.p99:.0f} ms | {reference:,.0f} | {seen.rows_per_second / reference:.2f} | "
                    f"{ratio:.2f} |"
                )
                print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


def memory(port: int) -> float:
    """The server's resident memory in MiB, as it says itself."""
    return server_figure(port, "process_resident_memory_bytes") / 2**20


def server_figure(port: int, name: str) -> float:
    """One of the figures in /metrics."""
    from urllib.request import urlopen

    with urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        text = response.read().decode()
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def soak(total: int, clients: int = 64) -> str:
    """The server's memory after each tenth of so many requests."""
    lines = ["| requests | resident memory |", "|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        stored_model(Path(folder) / "model", small=True)
        with served(Path(folder) / "model") as port:
            load(port, clients, 1, 500, 3600.0)
            lines.append(f"| 500 | {memory(port):.0f} MiB |")
            print(lines[-1], file=sys.stderr, flush=True)
            for tenth in range(1, 11):
                seen = load(port, clients, 1, total // 10, 3600.0)
                lines.append(f"| {500 + tenth * total // 10:,} | {memory(port):.0f} MiB |")
                print(lines[-1], f"{seen.rows_per_second:.0f} per second", file=sys.stderr, flush=True)
    return "\n".join(lines)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--soak", type=int)
    asked = parser.parse_args()
    print(table(asked.requests) if asked.soak is None else soak(asked.soak))


if __name__ == "__main__":
    main()
