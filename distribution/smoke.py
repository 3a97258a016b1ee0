"""A short use of what each extra brings: ``python smoke.py EXTRA`` in an empty folder, by the Python that has it.

Nothing here may come from the repository: this file is copied out of it before it is run.
"""

import subprocess
import sys
import sysconfig
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

METAREPLAY = Path(sysconfig.get_path("scripts")) / "metareplay"
QUICK = ("--set", "training.iterations=10", "--set", "inference.samples=3", "--set", "report.references=false")


def command(*words: object) -> str:
    """Call the installed command; what it printed."""
    done = subprocess.run([str(METAREPLAY), *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"metareplay {' '.join(map(str, words))}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def learned() -> Any:
    """A classifier that has learned two tasks, in few steps."""
    import numpy as np

    from metareplay import ContinualClassifier

    model = ContinualClassifier("pr-bbb", "mlp-10", seed=0, settings={"training.iterations": 20})
    random = np.random.default_rng(0)
    for name, shift in (("march", 0), ("april", 4)):
        y = np.array(["no", "yes"] * 30)
        model.learn_task(random.normal(size=(60, 3)) + shift + 2 * (y == "yes")[:, None], y, name=name)
    return model


def nothing() -> str:
    """The package alone."""
    version = command("--version").split()[1]
    command("run", "split-digits", *QUICK, "--out", "run")
    assert Path("run/report.html").is_file()
    command("tasks", "run")
    learned()
    return f"metareplay {version}: a run, its report, its tasks"


def data() -> str:
    """A folder of images, and a data set of the hub's library on disk."""
    import datasets
    import numpy as np
    from PIL import Image

    random, images, labels = np.random.default_rng(0), [], []
    for task in ("one", "two"):
        for label in ("circle", "square"):
            folder = Path("images", task, label)
            folder.mkdir(parents=True)
            for number in range(12):
                image = Image.fromarray(random.integers(0, 255, (16, 16, 3), dtype=np.uint8))
                image.save(folder / f"{number}.png")
                images.append(image)
                labels.append(label)
    command("run", "--data", "images", *QUICK, "--network", "mlp-10", "--out", "folders")
    datasets.Dataset.from_dict({"image": images, "label": labels}).to_parquet("images.parquet")
    command(
        "run", "--data", "images.parquet", "--tasks-by", "classes:1", *QUICK, "--network", "mlp-10", "--out", "parquet"
    )
    return "a folder of images and a parquet file are learned"


def tensorboard() -> str:
    command("run", "split-digits", *QUICK, "--tensorboard", "--out", "run")
    assert list(Path("run/tensorboard").glob("events*"))
    return "a run writes its events"


def flow() -> str:
    command("run", "split-digits", "--method", "pr-flow", *QUICK, "--network", "mlp-10", "--out", "run")
    return "pr-flow learns"


def backbones() -> str:
    """The network whose weights are a package, and one of transformers from a folder, since nothing is downloaded."""
    import torch
    import transformers

    from metareplay import ContinualClassifier

    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=8
    )
    transformers.ViTModel(config).save_pretrained("tiny-vit")
    X, y = torch.rand(24, 3, 32, 32), torch.tensor([0, 1] * 12)
    for backbone in ("efficientnet-lite0", "./tiny-vit"):
        settings = {"training.iterations": 10}
        model = ContinualClassifier("pr-bbb", f"features:{backbone}+mlp-10", seed=0, settings=settings)
        model.learn_task(X, y, name="photos")
        model.predict(X[:2])
    return "EfficientNet-Lite0 and a transformer of a folder give features"


def hub() -> str:
    model = learned()
    model.save_pretrained("months")
    assert len(type(model).from_pretrained("months").task_names) == 2
    return "a model is written and read by the hub's mixin"


def onnx() -> str:
    import numpy as np
    import onnxruntime

    learned().export_onnx("months.onnx")
    session = onnxruntime.InferenceSession("months.onnx", providers=["CPUExecutionProvider"])
    session.run(None, {session.get_inputs()[0].name: np.zeros((1, 3), np.float32)})
    return "a graph is exported, and answers in onnxruntime"


def mlflow() -> str:
    import numpy as np

    pyfunc, ours = import_module("mlflow.pyfunc"), import_module("metareplay.integrations.mlflow")
    model = learned()
    ours.save_model(model, "months")
    answer = pyfunc.load_model("months").predict(np.zeros((1, 3), np.float32))
    assert len(answer) == 1
    return "a model is saved and loaded as pyfunc, and answers"


def serve() -> str:
    """A server in a process of its own answers over HTTP, with its compiled parts."""
    import json
    import socket
    import time
    from urllib.request import Request, urlopen

    for module in ("uvloop", "httptools", "multipart"):
        import_module(module)
    learned().save("model")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(
        [str(METAREPLAY), "serve", "model", "--port", str(port)], stdout=subprocess.DEVNULL
    ) as server:
        try:
            for _ in range(240):
                try:
                    urlopen(f"http://127.0.0.1:{port}/health", timeout=5).read()
                    break
                except OSError:
                    time.sleep(0.5)
            body = json.dumps({"rows": [[0.0, 0.0, 0.0]]}).encode()
            asked = Request(f"http://127.0.0.1:{port}/predict", body, {"Content-Type": "application/json"})
            assert "predictions" in json.load(urlopen(asked, timeout=30))
            assert b"metareplay" in urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read()
        finally:
            server.terminate()
    return "a server answers, and tells its metrics"


def stream() -> str:
    """A stream that changes, watched by river's detector."""
    import numpy as np

    from metareplay import ContinualClassifier

    random, y = np.random.default_rng(0), np.array([0, 1] * 60)
    batches = [(random.normal(size=(120, 3)) + shift + 2 * (y == 1)[:, None], y) for shift in (0, 9)]
    model = ContinualClassifier("pr-bbb", "mlp-10", seed=0, settings={"training.iterations": 60})
    report = model.learn_stream(batches, settings={"grace": 80, "detector": "adwin"})
    assert [event.kind for event in report.events][:2] == ["learned", "boundary"]
    return "ADWIN notices a change"


def tune() -> str:
    command("tune", "split-digits", "--trials", "2", "--first-tasks", "2", *QUICK, "--out", "study")
    return "two trials of a search"


def ray() -> str:
    command("run", "split-digits", *QUICK, "--seeds", "2", "--on", "ray", "--out", "runs")
    return "two seeds on Ray"


def fabric() -> str:
    command(
        "run",
        "split-digits",
        *QUICK,
        "--set",
        "posterior.local_reparametrisation=false",
        "--devices",
        "2",
        "--out",
        "run",
    )
    return "two processes learn one run"


def docs() -> str:
    """A site with the plugins of ours, of one page that documents a class."""
    Path("docs").mkdir()
    Path("docs/index.md").write_text("# One page\n\n::: metareplay.ContinualClassifier\n")
    plugins = "plugins:\n- search\n- offline\n- mkdocstrings\n"
    Path("mkdocs.yml").write_text(f"site_name: x\ntheme: {{name: material, font: false}}\n{plugins}")
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "-q"], check=True)
    import_module("markdown_it")
    assert "learn_task" in Path("site/index.html").read_text()
    return "a page of the interface is built"


def test() -> str:
    """The tools of the tests."""
    Path("test_x.py").write_text("def test_x():\n    import metareplay\n\n    assert metareplay.ContinualClassifier\n")
    for words in (["pytest", "-q", "-n", "1", "test_x.py"], ["ruff", "check", "test_x.py"], ["mypy", "--version"]):
        subprocess.run([sys.executable, "-m", *words], check=True, stdout=subprocess.DEVNULL)
    for module in ("selenium", "pandas", "polars", "yaml"):
        import_module(module)
    return "pytest, ruff and mypy work; selenium, pandas and polars are there"


USES: dict[str, Callable[[], str]] = {
    **{use.__name__: use for use in (nothing, data, tensorboard, flow, backbones, hub, onnx, mlflow, serve, stream)},
    **{use.__name__: use for use in (tune, ray, fabric, docs, test)},
    "dev": test,
}

if __name__ == "__main__":
    import metareplay

    place = Path(metareplay.__file__).resolve()
    if not place.is_relative_to(Path(sys.prefix).resolve()):
        raise SystemExit(f"metareplay comes from {place}, not from the environment {sys.prefix}")
    print(USES[sys.argv[1]]())
