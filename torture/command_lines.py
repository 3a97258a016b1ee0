"""Command lines: valid ones of every command, with words that are dropped, doubled, exchanged or nonsense."""

import os
import random
import shutil
from pathlib import Path

from torture.material import QUICK, Material, settings

FAST = settings(QUICK)
VALID: tuple[tuple[str, ...], ...] = (
    ("run", "--data", "table.csv", "--label", "product", "--tasks-by", "month", "--network", "mlp-4", "--seed", "3",
     "--out", "made", "--method", "pr-dirac", "--quiet", *FAST),
    ("run", "modes-2d", "--method", "pr-bbb", "--network", "mlp-4", "--out", "made", "--batch-wise", "5", *FAST),
    ("run", "--data", "table.csv", "--label", "product", "--tasks-by", "classes:2", "--test-share", "0.3", "--ignore",
     "month", "--task-order", "tea,ham,nut,fig", "--out", "made", "--quiet", "--network", "mlp-4", *FAST),
    ("run", "--out", "run", "--resume", "--quiet"),
    ("run", "--config", "run/config.yaml", "--out", "made", "--quiet"),
    ("report", "run", "--out", "page.html"),
    ("figure", "matrix", "run", "--out", "figure.svg"),
    ("list", "methods"), ("list", "settings", "pr-bbb"), ("list", "all", "--markdown"),
    ("predict", "model", "table.csv", "--task", "jan", "--out", "answers.csv", "--probabilities", "all"),
    ("predict", "model", "table.csv", "--criterion", "ent", "--batch-wise", "4", "--keep", "month", "--score"),
    ("new", "fresh", "--method", "pr-bbb", "--network", "mlp-4", "--seed", "1", *FAST[:4]),
    ("add-task", "model", "more.csv", "--name", "more", "--gate", "--max-change", "0.5", "--quiet"),
    ("update-task", "model", "more.csv", "--name", "jan", "--again", "--quiet"),
    ("remove-task", "model", "jan"), ("rename-task", "model", "jan", "june"),
    ("export", "model", "--out", "exported"), ("tasks", "model", "--data", "table.csv", "--tasks-by", "month"),
    ("audit", "model"), ("history", "model"), ("undo", "model"), ("compact", "model"),
    ("stream", "model", "more.csv", "--label", "product"),
    ("reproduce", "gmm", "--rows", "pr-dirac", "--dry-run", "--budget", "0.1"),
)  # fmt: skip
NASTY = (
    "", " ", "-", "--", "-1", "0", "1", "2", "99999999999999999999", "9" * 5000, "1e999", "nan", "inf", "-inf", "0x10",
    "true", "null", "[]", "{}", "[" * 2000, "[/x]0", "[bold]", "\x1b[31m", "\x07", "é", "名前", "\udcff", "x" * 300,
    "x" * 5000, "a\nb", "a/b", "../up", "./", "table.csv", "model", "run", "data", "none.csv", "/dev/null", "/dev/full",
    "/proc/nowhere/x", "model/model.safetensors", "run/config.yaml", "empty", "empty.csv", "loop", "hf:owner/name",
    "hf:", "classes:0", "classes:2", "classes:-1", "classes:2,2", "classes:999999999999", "pr-bbb", "split-digits",
    "modes-2d", "mlp-0", "mlp-100000000", "mlp-4-4", "mlp-" + "9-" * 200 + "9", "lenet", "resnet-32", "os:system",
    "json:loads", "cuda", "cuda:99", "mps", "%s", "=", "a=b", "seed=x", "seed=-1", "threads=100000", "threads=0",
    "jan", "product",
    "training.iterations=0", "training.iterations=-1", "training.iterations=1e9", "training.batch_size=0",
    "training.batch_size=999999999999", "training.learning_rate=nan", "training.learning_rate=-1",
    "training.learning_rate=1e300", "inference.samples=0", "inference.samples=10000000000", "strategy.strength=inf",
    "training={}", "data.path=/dev/zero", "data.missing=x", "a.b.c.d=1", "training.iterations=[1,2]", "data_dir=/proc",
    "posterior.initial_std=0", "posterior.initial_std=1e300", "report.references=maybe", "inference.batch_wise=0",
)  # fmt: skip
OPTIONS = (
    "--help", "--version", "--out", "--resume", "--overwrite", "--seeds", "--jobs", "--set", "--data", "--label", "-q",
    "--task", "--json", "--quiet", "--offline", "--device", "--tensorboard", "--published", "--trust-network",
    "--nothing",
)  # fmt: skip


def furnish(material: Material, stage: Path) -> None:
    """What the words of command lines name."""
    shutil.copytree(material.model(), stage / "model")
    shutil.copytree(material.run(), stage / "run")
    for name in ("table.csv", "more.csv"):
        shutil.copyfile(material.folder / "data" / name, stage / name)
    (stage / "empty").mkdir()
    (stage / "empty.csv").touch()
    os.symlink("loop", stage / "loop")


def mutated(generator: random.Random) -> tuple[str, ...]:
    """A valid command line with one to three faults."""
    words = list(generator.choice(VALID))
    for _ in range(generator.choice((1, 1, 2, 3))):
        _mutate(words, generator)
    if "--seeds" in words or "--jobs" in words:  # a process for each takes too long here
        words = [word for word in words if word not in ("--seeds", "--jobs")]
    return tuple(word.replace("\0", "") for word in words) or ("--help",)


def _mutate(words: list[str], generator: random.Random) -> None:
    at = generator.randrange(len(words)) if words else 0
    kind = generator.randrange(10)
    if kind < 5 and words:
        at = max(at, 1) if len(words) > 1 and generator.random() < 0.9 else at
        words[at] = generator.choice(NASTY)
    elif kind == 5 and words:
        del words[at]
    elif kind == 6 and words:
        words.insert(at, words[at])
    elif kind == 7 and len(words) > 2:
        other = generator.randrange(1, len(words))
        words[at], words[other] = words[other], words[at]
    elif kind == 8:
        words.insert(at, generator.choice((*OPTIONS, *NASTY)))
    elif words:
        option = generator.choice(OPTIONS)
        words += [option, generator.choice(NASTY)]
