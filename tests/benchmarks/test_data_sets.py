import numpy as np
import pytest

import benchmarks.fresh_sets
import benchmarks.image_sets
import benchmarks.wide_sets  # noqa: F401 (they register their streams)
from benchmarks import data_sets, image_sets

TABLES = [*data_sets.names(), *data_sets.names(group="fresh"), *data_sets.names(group="wide")]


@pytest.mark.parametrize("group", ["development", "fresh"])
def test_there_are_enough_streams_of_every_kind(group: data_sets.Group) -> None:
    assert len(data_sets.names("classification", group)) >= 8
    assert len(data_sets.names("regression", group)) >= 4
    changes = {data_sets.stream(name).change for name in data_sets.names(group=group)}
    assert changes == {"drift", "new classes", "old and new classes", "none"}


def test_there_are_four_sets_of_images() -> None:
    assert len(data_sets.names(group="images")) >= 4
    shapes = [image_sets.drawn(shape, np.random.default_rng(0)) for shape in image_sets.SHAPES]
    assert all(image.shape == (28, 28) and image.min() >= 0 and image.max() <= 255 for image in shapes)
    assert len({image.tobytes() for image in shapes}) == len(shapes)


@pytest.mark.parametrize("name", TABLES)
def test_stream_is_small_and_the_same_each_time(name: str) -> None:
    first, second = data_sets.stream(name), data_sets.stream(name)
    assert 80 <= first.rows <= (1500 if len(first.months) < 10 else 6000)
    for month, again in zip(first.months, second.months, strict=True):
        for part, same in zip(month, again, strict=True):
            assert np.isfinite(part.x).all()
            assert len(part.x) == len(part.y)
            np.testing.assert_array_equal(part.x, same.x)
            np.testing.assert_array_equal(part.y, same.y)
        if first.kind == "classification":
            assert set(month.test.y) <= set(month.train.y)
