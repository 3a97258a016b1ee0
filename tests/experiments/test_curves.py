"""How fine the maps of a run are."""

import pytest

from metareplay.experiments.curves import COARSEST, FINEST, MAP_BYTES, map_points


@pytest.mark.parametrize(("tasks", "classes"), [(3, 2), (5, 2), (5, 10), (2, 3)])
def test_maps_are_as_fine_as_their_size_allows(tasks: int, classes: int) -> None:
    points = map_points(tasks, classes, 4)
    each = tasks * (6 + 2 * classes + 4 * (2 + 2 * classes))
    assert each * points**2 <= MAP_BYTES
    assert points == FINEST or each * (points + 1) ** 2 > MAP_BYTES


def test_very_many_maps_stay_readable() -> None:
    assert map_points(1000, 10, 4) == COARSEST
