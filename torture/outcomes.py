"""What came of the cases: counts by outcome, and every failing case as a command that repeats it."""

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class Outcome(NamedTuple):
    """What came of one case."""

    words: str
    """By which cases are counted."""
    failed: bool = False
    details: str = ""
    """Of a failure: what was seen."""
    cases: int = 1


@dataclass
class Tally:
    """Counts outcomes by part of the campaign."""

    quiet: bool = False
    counts: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    told: float = field(default_factory=time.monotonic)

    def add(self, part: str, outcome: Outcome, repeat: str) -> None:
        """Count an outcome; a failure is shown at once."""
        self.counts[part, outcome.words, outcome.failed] += outcome.cases
        if outcome.failed:
            lines = [line for line in outcome.details.strip().splitlines() if line.strip()][-6:]
            text = "\n".join(
                [f"FAILED {part}: {outcome.words}", f"  {repeat}", *(f"    {line[:300]}" for line in lines)]
            )
            self.failures.append(text)
            print(text, flush=True)
        elif not self.quiet and time.monotonic() - self.told > 20:
            self.told = time.monotonic()
            print(f"... {part}: {self.total(part)} cases", file=sys.stderr, flush=True)

    def total(self, part: str) -> int:
        """How many cases a part has had."""
        return sum(count for (name, _, _), count in self.counts.items() if name == part)

    def table(self) -> str:
        """Counts by part and outcome."""
        lines = []
        for part in dict.fromkeys(name for name, _, _ in self.counts):
            lines.append(f"{part}: {self.total(part)}")
            own = [(count, words, failed) for (name, words, failed), count in self.counts.items() if name == part]
            for count, words, failed in sorted(own, key=lambda row: (row[2], -row[0])):
                lines.append(f"  {count:6d}  {words}{'  <- FAILED' if failed else ''}")
        total = sum(self.counts.values())
        seconds = time.monotonic() - self.began
        lines.append(f"{total} cases in {seconds / 60:.1f} minutes, {len(self.failures)} failed")
        return "\n".join(lines)
