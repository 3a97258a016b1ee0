import numpy as np
import pytest

from benchmarks import data_sets


def test_there_are_enough_streams_of_every_kind() -> None:
    assert len(data_sets.names()) >= 12
    assert len(data_sets.names("classification")) >= 8
    assert len(data_sets.names("regression")) >= 4
    changes = {stream.change for stream in data_sets.streams()}
    assert changes == {"drift", "new classes", "old and new classes", "none"}


@pytest.mark.parametrize("name", data_sets.names())
def test_stream_is_small_and_the_same_each_time(name: str) -> None:
    first, second = data_sets.stream(name), data_sets.stream(name)
    assert 100 <= first.rows <= 1500
    for month, again in zip(first.months, second.months, strict=True):
        for part, same in zip(month, again, strict=True):
            assert np.isfinite(part.x).all()
            assert len(part.x) == len(part.y)
            np.testing.assert_array_equal(part.x, same.x)
            np.testing.assert_array_equal(part.y, same.y)
        if first.kind == "classification":
            assert set(month.test.y) <= set(month.train.y)
