"""Real files to damage and folders to write to: small data in every format, models and runs made from them."""

import gzip
import os
import random
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

from torture.processes import Limits, command, forked

TINY = ("training.iterations=6", "training.checkpoint_every=2")
QUICK = (*TINY, "inference.samples=2", "inference.batch_wise=10", "report.references=false")
"""Settings of a run that takes a fraction of a second."""
FIRST_FORMAT = Path(__file__).parents[1] / "tests" / "learner" / "first_format"


def settings(pairs: Sequence[str]) -> list[str]:
    """As words of a command line."""
    return [word for pair in pairs for word in ("--set", pair)]


def run_words(data: str = "data/table.csv", *more: str) -> list[str]:
    """A run on the user's own table."""
    by = ["--label", "product", "--tasks-by", "month"] if data.endswith((".csv", ".parquet")) else []
    return ["run", "--data", data, *by, "--network", "mlp-4", "--quiet", *settings(QUICK), *more]


class Material:
    """A folder of undamaged things, each made once; cases work on copies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scratch = folder / "scratch"
        self.scratch.mkdir(parents=True, exist_ok=True)
        if not (folder / "data").is_dir():
            write_data(folder / "data")

    def do(self, *words: str) -> str:
        """Carry out a command that must succeed; returns what it printed."""
        ended = forked(command(words, self.folder), self.scratch, Limits(seconds=300))
        if ended.code != 0:
            raise RuntimeError(f"metareplay {' '.join(words)} ended with code {ended.code}: {ended.err}")
        return ended.out

    def new_model(self) -> Path:
        """A model without tasks."""
        if not (self.folder / "new").is_dir():
            self.do("new", "new", "--network", "mlp-4", *settings(TINY))
        return self.folder / "new"

    def model(self) -> Path:
        """A model with two tasks, a history and an earlier version."""
        if not (self.folder / "model").is_dir():
            shutil.copytree(self.new_model(), self.folder / "model")
            self.do("add-task", "model", "data/table.csv", "--tasks-by", "month", "--label", "product", "--quiet")
        return self.folder / "model"

    def other_model(self) -> Path:
        """A model of the same shape with other weights."""
        if not (self.folder / "other").is_dir():
            self.do("new", "other", "--network", "mlp-4", "--seed", "7", *settings(TINY))
            self.do("add-task", "other", "data/table.csv", "--tasks-by", "month", "--label", "product", "--quiet")
        return self.folder / "other"

    def image_model(self) -> Path:
        """A model of images."""
        if not (self.folder / "seen").is_dir():
            self.do("new", "seen", "--network", "mlp-4", *settings(TINY))
            self.do("add-task", "seen", "data/images", "--name", "first", "--quiet")
        return self.folder / "seen"

    def run(self) -> Path:
        """A finished run."""
        if not (self.folder / "run").is_dir():
            self.do(*run_words("data/table.csv", "--out", "run"))
        return self.folder / "run"

    def seeds(self) -> Path:
        """A finished run of two seeds, assembled from runs of one, since processes take long to start."""
        place = self.folder / "several"
        if not place.is_dir():
            for seed in (0, 1):
                self.do(*run_words("data/table.csv", "--seed", str(seed), "--out", f"several/seed-{seed}"))
            (place / "seeds.json").write_text('{"first": 0, "count": 2}')
        return place

    def interrupted(self) -> Path:
        """A run that was stopped in its second task."""
        place = self.folder / "interrupted"
        if not place.is_dir():
            shutil.copytree(self.run(), place)
            for name in ("results.json", "report.html", "uncertainty.safetensors"):
                (place / name).unlink(missing_ok=True)
            sorted((place / "checkpoint").iterdir())[-1].unlink()
        return place

    def pending(self) -> Path:
        """A model in which the training of a task is under way."""
        place = self.folder / "pending"
        if not place.is_dir():
            from torture.faults import KILL, Fault, install

            shutil.copytree(self.model(), place)
            words = ("add-task", "pending", "data/more.csv", "--name", "more", "--quiet")

            def killed() -> None:
                install(Fault(str(place / "model.safetensors"), 1, KILL))
                command(words, self.folder)()

            forked(killed, self.scratch)
            if not (place / ".work").is_dir():
                raise RuntimeError("no task is under way")
        return place


def write_data(folder: Path) -> None:
    """The same small problem in every format that can be read."""
    folder.mkdir(parents=True)
    rows = _rows(48, 0)
    (folder / "table.csv").write_text(_csv(rows))
    (folder / "more.csv").write_text(_csv(_rows(24, 1)))
    _write_arrays(folder, rows)
    _write_tables(folder, rows)
    _write_images(folder)


def _rows(count: int, seed: int) -> list[tuple[float, float, str, str]]:
    generator = random.Random(seed)
    rows = []
    for number in range(count):
        first, second = round(generator.gauss(0, 1), 3), round(generator.gauss(0, 1), 3)
        early = number % 2 == 0
        product = ("tea", "ham")[first > 0] if early else ("nut", "fig")[second > 0]
        rows.append((first, second, "jan" if early else "feb", product))
    return rows


def _csv(rows: Sequence[tuple[float, float, str, str]]) -> str:
    return "width,height,month,product\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)


def _write_arrays(folder: Path, rows: Sequence[tuple[float, float, str, str]]) -> None:
    import numpy as np

    x = np.array([row[:2] for row in rows], dtype=np.float32)
    y = np.array([("tea", "ham", "nut", "fig").index(row[3]) for row in rows])
    np.savez(folder / "arrays.npz", x=x, y=y, task=np.array([row[2] for row in rows]))
    np.savez_compressed(folder / "packed.npz", x_train=x, y_train=y, x_test=x[:9], y_test=y[:9])
    np.save(folder / "inputs.npy", x)
    pixels = np.random.default_rng(0).integers(0, 256, (24, 5, 4), dtype=np.uint8)
    labels = (np.arange(24) % 3).astype(np.uint8)
    for place, opened in ((folder / "idx", open), (folder / "idx-gz", gzip.open)):
        place.mkdir()
        end = ".gz" if opened is gzip.open else ""
        for split, part in (("train", slice(0, 16)), ("t10k", slice(16, 24))):
            for name, array in (("images-idx3", pixels[part]), ("labels-idx1", labels[part])):
                header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
                with opened(place / f"{split}-{name}-ubyte{end}", "wb") as file:
                    file.write(header + array.tobytes())


def _write_tables(folder: Path, rows: Sequence[tuple[float, float, str, str]]) -> None:
    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq

    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    names = ("width", "height", "month", "product")
    table = pa.table({name: [row[index] for row in rows] for index, name in enumerate(names)})
    pq.write_table(table, folder / "table.parquet")
    (folder / "tables").mkdir()
    pq.write_table(table, folder / "tables" / "train-00000.parquet")
    pq.write_table(table.slice(0, 12), folder / "tables" / "test-00000.parquet")
    parts = {"train": datasets.Dataset(table), "test": datasets.Dataset(table.slice(0, 12))}
    datasets.disable_progress_bars()
    datasets.DatasetDict(parts).save_to_disk(folder / "saved")


def _write_images(folder: Path) -> None:
    import numpy as np
    from PIL import Image

    generator = np.random.default_rng(1)
    for label in ("cat", "dog", "owl"):
        (folder / "images" / label).mkdir(parents=True)
        for number, end in enumerate((".png", ".png", ".jpg", ".gif", ".bmp")):
            pixels = generator.integers(0, 256, (6, 5, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "images" / label / f"{number}{end}")
