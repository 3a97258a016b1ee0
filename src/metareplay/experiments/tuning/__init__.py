"""Settings chosen by a search: what is searched, by which protocol, and who searches."""

from metareplay.experiments.tuning.definition import Definition
from metareplay.experiments.tuning.space import Range, Space, Values, read_space, space_for
from metareplay.experiments.tuning.study import Study

__all__ = ["Definition", "Range", "Space", "Study", "Values", "read_space", "space_for"]
