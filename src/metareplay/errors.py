"""Every error a user can cause. The command line shows the message alone and exits with code 2."""

from collections.abc import Sequence


class MetaReplayError(Exception):
    """Base class of all errors with a message for the user: what was wrong, what is allowed, what to do."""


class ConfigError(MetaReplayError):
    """A setting is unknown, has an invalid value or cannot be combined with the others."""


class DataError(MetaReplayError):
    """Data is missing, corrupt or has the wrong shape, size or labels."""


class CheckpointError(MetaReplayError):
    """A checkpoint or a saved model is missing, truncated, or belongs to something else."""


class NotTrainedError(MetaReplayError):
    """A prediction was requested from a model that has not learned any task yet."""


class TrainingDiverged(MetaReplayError):  # noqa: N818 (a name others rely on)
    """The loss became NaN or infinite; the last good state is kept."""


class MetaReplayWarning(UserWarning):
    """Base class of all warnings."""


class TrainingWarning(MetaReplayWarning):
    """A task was learned poorly: its loss jumped or did not fall, or it does no better than chance."""


class DataWarning(MetaReplayWarning):
    """Data was used although something about it is unusual, such as a category that no task had."""


def listed(names: Sequence[str], conjunction: str = "or") -> str:
    """Names in a sentence: ``a``, ``a or b``, ``a, b or c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {conjunction} {names[-1]}"
