"""What a command may answer: success, or a refusal in one sentence; anything else is a failure."""

from torture.processes import CRASHED, Ended

LAST_LINE = ("an unexpected error (",)
"""Words of the last line of defence: nobody foresaw this."""
USAGE = "╭─ Error ─"
"""How mistakes in options are shown, which the parser of command lines finds."""
LONGEST = 4000
"""Characters of a refusal: what was given may be repeated in it, but not without end."""


def refused(ended: Ended) -> bool:
    """Whether the command refused what it was given, in one sentence."""
    lines = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    return ended.code == 2 and (len(lines) == 1 or USAGE in ended.err)


def problem_of(ended: Ended) -> str | None:
    """What must never be seen; None if all is well."""
    if ended.hung:
        return "hung"
    if ended.code < 0:
        return f"ended by signal {-ended.code}"
    if ended.code == CRASHED or "Traceback (most recent call last)" in ended.err:
        return "traceback"
    if any(words in ended.err for words in LAST_LINE):
        return "last line of defence"
    if ended.code not in (0, 1, 2):
        return f"exit code {ended.code}"
    if ended.code == 2 and not refused(ended):
        return "refused without a sentence"
    if ended.code == 2 and len(ended.err) > LONGEST:
        return "refused at great length"
    return None
