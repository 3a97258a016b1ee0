"""What a request is refused with: a status and one sentence."""

from metareplay.errors import CheckpointError, ConfigError, DataError, MetaReplayError, NotTrainedError


class RequestError(MetaReplayError):
    """A request that is not answered, with the HTTP status that says why."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}


STATUS: dict[type[MetaReplayError], int] = {
    DataError: 422,
    ConfigError: 422,
    NotTrainedError: 409,
    CheckpointError: 500,
}
"""For errors that do not know their own."""


def status_of(error: MetaReplayError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, RequestError):
        return error.status
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)
