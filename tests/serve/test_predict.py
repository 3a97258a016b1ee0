"""Predictions over HTTP are those of the estimator."""

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metareplay.estimators import ContinualClassifier, ContinualRegressor

from .conftest import NASTY, Client

ROWS = [
    {"petal length": 2.1, "petal width": 1.0, "colour": "red"},
    {"petal length": 9.7, "petal width": 7.9, "colour": "white"},
    {"petal length": 30.0, "petal width": -3.0, "colour": "blue"},
]


@pytest.fixture(scope="module")
def expected(table_model: Path) -> Any:
    import pandas as pd

    return ContinualClassifier.load(table_model).predict_full(pd.DataFrame(ROWS))


def check(predictions: list[dict[str, Any]], expected: Any, classes: list[str]) -> None:
    """The answers are the estimator's, to rounding."""
    assert [row["label"] for row in predictions] == expected.labels.tolist()
    assert [row["task"] for row in predictions] == expected.task
    assert [row["known"] for row in predictions] == expected.known.tolist()
    for name in ("total", "aleatoric", "epistemic"):
        np.testing.assert_allclose([row[name] for row in predictions], getattr(expected, name), rtol=1e-4, atol=1e-6)
    assert list(predictions[0]["probabilities"]) == classes
    np.testing.assert_allclose(
        [list(row["probabilities"].values()) for row in predictions], expected.probabilities, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        [list(row["task_probabilities"].values()) for row in predictions], expected.task_probabilities, atol=1e-5
    )
    assert list(predictions[0]["task_probabilities"]) == [NASTY, "summer"]


CLASSES = ["crocus", "tulip", "<b>lily</b>", "rose"]


def test_rows_by_name(client: Client, expected: Any) -> None:
    reply = client.post("/predict", {"rows": ROWS})
    assert reply.status == 200
    assert reply.json["generation"] == 1
    assert reply.json["warnings"] == []
    check(reply.json["predictions"], expected, CLASSES)


def test_rows_in_order_and_csv_say_the_same(client: Client, expected: Any) -> None:
    check(client.post("/predict", [list(row.values()) for row in ROWS]).json["predictions"], expected, CLASSES)
    lines = [";".join(ROWS[0]), *(";".join(map(str, row.values())) for row in ROWS)]
    check(client.post("/predict", "\n".join(lines).encode(), "text/csv").json["predictions"], expected, CLASSES)


def test_a_form_with_a_csv_file(client: Client, expected: Any) -> None:
    lines = [",".join(ROWS[0]), *(",".join(map(str, row.values())) for row in ROWS)]
    form = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n'
    form += "\n".join(lines).encode() + b"\r\n--x--\r\n"
    reply = client.post("/predict", form, "multipart/form-data; boundary=x")
    check(reply.json["predictions"], expected, CLASSES)


def test_a_given_task_and_a_criterion(client: Client) -> None:
    given = client.post("/predict", {"rows": ROWS, "task": "summer"}).json["predictions"]
    assert {row["task"] for row in given} == {"summer"}
    assert given[0]["task_probabilities"] is None
    assert client.post("/predict?criterion=ent", {"rows": ROWS}).status == 200
    named = client.post("/predict?task=summer", {"rows": ROWS}).json["predictions"]
    assert named == given


def test_a_value_never_seen_is_a_warning(client: Client) -> None:
    reply = client.post("/predict", {"rows": [{**ROWS[0], "colour": "green"}]})
    assert reply.status == 200
    assert "'green'" in reply.json["warnings"][0]


def test_regression(serving: Callable[..., Any], regression_model: Path) -> None:
    model = ContinualRegressor.load(regression_model)
    full = model.predict_full([[0.5], [6.0]])
    with serving(regression_model) as client:
        rows = client.post("/predict", [[0.5], [6.0]]).json["predictions"]
        assert client.get("/model").json["classes"] is None
        wrong = client.post("/predict", [0.5, 6.0])
    np.testing.assert_allclose([row["mean"] for row in rows], full.mean, rtol=1e-4)
    np.testing.assert_allclose([row["std"] for row in rows], full.std, rtol=1e-4)
    assert full.lower is not None
    assert full.upper is not None
    np.testing.assert_allclose([row["lower"] for row in rows], full.lower, rtol=1e-4)
    np.testing.assert_allclose([row["upper"] for row in rows], full.upper, rtol=1e-4)
    assert all(row["lower"] < row["mean"] < row["upper"] for row in rows)
    assert [row["task"] for row in rows] == full.task
    assert wrong.status == 422
    assert "[[1.5], [2.0]]" in wrong.json["error"]


def png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def test_images(serving: Callable[..., Any], image_model: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 255, (8, 8)).astype(np.uint8)
    full = ContinualClassifier.load(image_model).predict_full(pixels[None, None] / np.float32(255))
    with serving(image_model) as client:
        refused = client.post("/predict", png(pixels), "image/png")
    assert refused.status == 415
    assert "--pixel-max" in refused.json["error"]
    with serving(image_model, pixel_max=1.0, max_pixels=100) as client:
        one = client.post("/predict", png(pixels), "image/png").json["predictions"][0]
        arrays = client.post("/predict", [(pixels / 255).tolist()]).json
        flat = client.post("/predict", [(pixels / 255).reshape(-1).tolist()]).json["predictions"][0]
        parts = b"".join(
            b'--x\r\nContent-Disposition: form-data; name="file"; filename="%d.png"\r\n\r\n%s\r\n' % (n, png(pixels))
            for n in range(2)
        )
        two = client.post("/predict", parts + b"--x--\r\n", "multipart/form-data; boundary=x").json["predictions"]
        large = client.post("/predict", png(np.zeros((11, 10), np.uint8)), "image/png")
        other = client.post("/predict", png(np.zeros((9, 9), np.uint8)), "image/png")
        broken = client.post("/predict", png(pixels)[:40], "image/png")
        disguised = client.post("/predict", b"GIF89a", "image/png")
    assert one["label"] == full.labels[0]
    assert one["total"] == pytest.approx(full.total[0], rel=1e-4)
    assert flat["total"] == pytest.approx(full.total[0], rel=1e-4)
    assert "shape (8, 8)" in arrays["error"]
    assert [row["file"] for row in two] == ["0.png", "1.png"]
    assert two[1]["total"] == pytest.approx(full.total[0], rel=1e-4)
    assert (large.status, other.status, broken.status, disguised.status) == (413, 422, 422, 415)
    assert "--max-pixels" in large.json["error"]
    assert "8 x 8" in other.json["error"]


def test_many_at_once_are_predicted_together(serving: Callable[..., Any], table_model: Path) -> None:
    rng = np.random.default_rng(3)
    rows = [[float(a), float(b), "red"] for a, b in rng.uniform(0, 10, (60, 2))]
    with serving(table_model) as client, ThreadPoolExecutor(12) as pool:
        alone = client.post("/predict", rows).json["predictions"]
        together = list(pool.map(lambda row: client.post("/predict", [row]).json["predictions"][0], rows))
        text = client.get("/metrics").content.decode()
    counts = dict(line.split(" ") for line in text.splitlines() if line.startswith("metareplay_batch"))
    assert float(counts["metareplay_batch_rows_sum"]) == 120
    assert float(counts["metareplay_batch_rows_count"]) < 61  # fewer predictions than requests
    assert [row["label"] for row in together] == [row["label"] for row in alone]
    np.testing.assert_allclose([row["total"] for row in together], [row["total"] for row in alone], atol=1e-5)


@pytest.mark.parametrize(
    ("content", "kind", "status", "words"),
    [
        (b'{"rows": [', "application/json", 400, "not JSON"),
        (b"[" * 100_000, "application/json", 400, "not JSON"),
        (b'{"row": []}', "application/json", 422, '{"rows": [...]}'),
        (b'{"rows": []}', "application/json", 422, "at least one row"),
        (b'{"rows": [[1, 2]]}', "application/json", 422, "'petal length', 'petal width', 'colour', in this order"),
        (b'{"rows": [{"petal length": 1}]}', "application/json", 422, "'petal width', 'colour'"),
        (b'{"rows": [[1, 2, "red"], {}]}', "application/json", 422, "same form"),
        (b'{"rows": [[1, NaN, "red"]]}', "application/json", 422, "petal width"),
        (b'{"rows": [[1, 1e400, "red"]]}', "application/json", 422, "infinite"),
        (b'{"rows": [[1, 1' + b"0" * 400 + b', "red"]]}', "application/json", 422, "too large"),
        (b'{"rows": [[1, [2], "red"]]}', "application/json", 422, "petal width"),
        (b'{"rows": [[1, 2, "red"]], "task": 3}', "application/json", 422, "'task' must be a name"),
        (b'{"rows": [[1, 2, "red"]], "tasks": "x"}', "application/json", 422, "'tasks' is unknown"),
        (b'{"rows": [[1, 2, "red"]], "task": "x"}', "application/json", 404, "'x' is unknown"),
        (b'{"rows": [[1, 2, "red"]], "criterion": "x"}', "application/json", 422, "'x'"),
        (b"petal length,petal width\n1,2\n", "text/csv", 422, "colour"),
        (b"\x00\x01", "text/csv", 422, "not text"),
        (b"hello", "text/plain", 415, "text/csv"),
        (b"\x89PNG\r\n\x1a\n", "image/png", 415, "not images"),
        (b"--x--\r\n", "multipart/form-data; boundary=x", 422, "no file"),
        (b"hello", "multipart/form-data", 400, "boundary"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_one_sentence(
    client: Client, content: bytes, kind: str, status: int, words: str
) -> None:
    reply = client.post("/predict", content, kind)
    assert reply.status == status, reply.content
    assert reply.headers["content-type"] == "application/json"
    assert words in reply.json["error"]
    assert "Traceback" not in reply.json["error"]
    assert "\n" not in reply.json["error"]
