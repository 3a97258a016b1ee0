"""The verdict: what was learned, how accurate it is, what was forgotten, whether unknown inputs are recognised."""

from collections.abc import Sequence
from html import escape
from math import floor
from typing import Literal, NamedTuple

from metareplay.evaluation.strangers import AMBIGUOUS
from metareplay.experiments.results import Results
from metareplay.report.base import MSE, TASK_GIVEN, Number, estimate, explained, mean_matrix, task_names
from metareplay.report.criteria import headline_criterion, headline_number, needs_no_task
from metareplay.report.reliance import aurocs, clear_aurocs, interval_coverage
from metareplay.report.runs import Group
from metareplay.report.yardsticks import yardsticks

Grade = Literal["good", "mixed", "poor"]

NO_SKILL = 0.1
"""Of the way from guessing to perfect: what is below is called no better than guessing."""
CERTAIN = 99.999
"""Tasks in which guessing is right more often than this have a single class."""
FAR, CLOSE = 10.0, 2.0
"""Points by which a figure falls behind noticeably, and by which it hardly does."""
RECOGNISED, UNRELIABLE = 0.95, 0.8
"""AUROC from which unknown inputs count as recognised, and below which they do not."""


_EITHER_WAY = "whether or not the task is known"


class Finding(NamedTuple):
    """A part of the verdict, and how good it is."""

    words: str
    grade: Grade = "good"


def verdict(group: Group) -> str:
    """The box at the top of the page, with what to be warned of."""
    findings = _regression(group) if group.regression else _classification(group)
    if not findings:
        return ""
    grade = next((g for g in ("poor", "mixed") if any(finding.grade == g for finding in findings)), "good")
    low = _at_chance(group)
    if grade == "good" and (low or any(warning.kind == "chance" for run in group.results for warning in run.warnings)):
        grade = "mixed"
    words = "; ".join(finding.words for finding in findings)
    sentence = f"{words[0].upper()}{words[1:]}."
    warnings = "".join(f"<li>{escape(text)}</li>" for text in (*_warnings(group), *low))
    warned = f'<ul class="warning">{warnings}</ul>' if warnings else ""
    return f'<p class="verdict {grade}">{escape(sentence)}</p>{warned}'


def _value(runs: Sequence[Results], number: Number) -> float | None:
    value = estimate(runs, number)
    return None if value is None else value.mean


def _skill(value: float, chance: float) -> float:
    """How far a percentage is on the way from guessing to perfect."""
    return (value - chance) / max(100.0 - chance, 1e-9)


def _tasks(group: Group) -> str:
    count = group.first.num_tasks
    return "1 task" if count == 1 else f"{count} tasks"


def _classification(group: Group) -> list[Finding]:
    runs, name = group.results, headline_criterion(group.results)
    known, inferred = _value(runs, TASK_GIVEN[1].number), _value(runs, headline_number(name))
    guess_known = _value(runs, lambda run: run.chance.known if run.chance else None)
    guess = _value(runs, lambda run: run.chance.inferred if run.chance else None)
    parts: list[Finding] = []
    if guess_known is not None and guess_known > CERTAIN:  # a single class each: there is no right or wrong
        each = " each" if group.first.num_tasks > 1 else ""
        parts.append(Finding(f"learned {_tasks(group)} with a single class{each}"))
        if inferred is not None and guess is not None and guess <= CERTAIN:
            parts.append(_inferred(runs, inferred, None, guess, "right if the task is inferred"))
        return [*parts, *_strangers(runs)]
    if known is not None:
        hardly = guess_known is not None and _skill(known, guess_known) < NO_SKILL
        what = f"has hardly learned its {_tasks(group)}" if hardly else f"learned {_tasks(group)}"
        beside = f", where guessing reaches {guess_known:.1f} %" if hardly else ""
        parts.append(Finding(f"{what}: {known:.1f} % right if the task is known{beside}", "poor" if hardly else "good"))
    if inferred is not None and name is None:
        found = _inferred(runs, inferred, None, guess, f"right {_EITHER_WAY}")
        verb = "has hardly learned its" if found.grade == "poor" else "learned"
        parts = [Finding(f"{verb} {_tasks(group)}"), found]
    elif inferred is not None:
        parts.append(_inferred(runs, inferred, known, guess))
    return [*parts, *_forgotten(group), *_strangers(runs)]


def _inferred(
    runs: Sequence[Results], inferred: float, known: float | None, guess: float | None, how: str = "if it is inferred"
) -> Finding:
    """Accuracy with the task inferred, compared with guessing and the joint model."""
    joint = next((stick for stick in yardsticks(runs) if stick.short == "All at once"), None)
    reached = None if joint is None else _value(runs, joint.inferred)
    beside = [] if guess is None else [f"guessing: {guess:.1f} %"]
    if joint is not None and reached is not None:
        beside.append(f"{joint.label[0].lower()}{joint.label[1:]}: {reached:.1f} %")
    remark = f" ({', '.join(beside)})" if beside else ""
    if guess is not None and _skill(inferred, guess) < NO_SKILL:
        word = "but " if known is not None and known - inferred > CLOSE else ""
        return Finding(f"{word}{inferred:.1f} % {how}, hardly better than guessing{remark}", "poor")
    behind = max((other - inferred for other in (known, reached) if other is not None), default=0.0)
    but = known is not None and known - inferred > FAR
    grade: Grade = "mixed" if behind > FAR else "good"
    return Finding(f"{'but only ' if but else ''}{inferred:.1f} % {how}{remark}", grade)


def _forgotten(group: Group) -> list[Finding]:
    lost = _value(group.results, TASK_GIVEN[2].number)
    if lost is None or group.first.num_tasks < 2:
        return []
    if lost >= FAR / 2:
        return [Finding(f"{lost:.1f} points were forgotten", "poor" if lost > 2 * FAR else "mixed")]
    if lost >= 0.05:
        return [Finding(f"{'little' if lost >= 1 else 'next to nothing'} was forgotten ({lost:.1f} points)")]
    return [Finding("nothing was forgotten")]


def _strangers(runs: Sequence[Results]) -> list[Finding]:
    by_kind, clear = aurocs(runs), {kind: value.mean for kind, value in clear_aurocs(runs).items()}
    if not clear:
        return []
    kind, lowest = min(clear.items(), key=lambda item: item[1])
    others = [
        f"{by_kind[name].mean:.2f} against {words}, which may be ordinary inputs"
        for name, words in AMBIGUOUS.items()
        if name in by_kind and by_kind[name].mean < min(lowest, RECOGNISED)
    ]
    if lowest >= RECOGNISED:
        figures = "; ".join([f"AUROC at least {floor(100 * lowest) / 100:.2f}", *others])
        return [Finding(f"unknown inputs are recognised ({figures})")]
    figures = "; ".join([f"AUROC {lowest:.2f} against {kind}", *others])
    if lowest >= UNRELIABLE:
        return [Finding(f"most unknown inputs are recognised ({figures})")]
    return [Finding(f"unknown inputs are not reliably recognised ({figures})", "mixed")]


def _regression(group: Group) -> list[Finding]:
    runs, name = group.results, headline_criterion(group.results)
    known = _value(runs, explained(MSE[1].number))
    if known is None:
        return _strangers(runs)
    hardly = known < NO_SKILL
    what = f"has hardly learned its {_tasks(group)}" if hardly else f"learned {_tasks(group)}"
    either = _EITHER_WAY if all(map(needs_no_task, runs)) else "if the task is known"
    parts = [Finding(f"{what}: R² {known:.2f} {either}", "poor" if hardly else "good")]
    inferred = _value(runs, explained(headline_number(name))) if name else None
    joint = next((stick for stick in yardsticks(runs) if stick.short == "All at once"), None)
    reached = None if joint is None else _value(runs, explained(joint.inferred))
    beside = f" ({joint.label[0].lower()}{joint.label[1:]}: {reached:.2f})" if joint and reached is not None else ""
    if inferred is not None:
        grade: Grade = "poor" if inferred < NO_SKILL else "mixed" if known - inferred > FAR / 100 else "good"
        but = "but " if grade != "good" else ""
        parts.append(Finding(f"{but}{inferred:.2f} if it is inferred{beside}", grade))
    elif beside:
        parts[0] = parts[0]._replace(words=parts[0].words + beside)
    before, after = _value(runs, MSE[0].number), _value(runs, MSE[1].number)
    if before is not None and after is not None and group.first.num_tasks > 1:
        lost = _value(runs, explained(MSE[0].number))
        much = lost is not None and lost - known > FAR / 100
        kept = after <= 1.05 * before
        said = f"R² was {lost:.2f} before later tasks" if much else "nothing" if kept else "little"
        parts.append(Finding(said if much else f"{said} was forgotten", "mixed" if much else "good"))
    inside = _value(runs, interval_coverage)
    if inside is not None:
        wide = inside > 98.5 and all(map(_too_wide, runs))
        remark = ", so they are too wide" if wide else ""
        grade = "good" if inside >= 90.0 and not wide else "mixed"
        digits = 1 if wide and inside < 100.0 else 0
        parts.append(Finding(f"95 % intervals contain {inside:.{digits}f} % of the targets{remark}", grade))
    return [*parts, *_strangers(runs)]


def _too_wide(run: Results) -> bool:
    """Whether 95 % intervals contain more of a run's test targets than by chance (one-sided, 1 %)."""
    inside, rows = interval_coverage(run), run.answers.rows if run.answers else None
    return inside is not None and rows is not None and inside / 100 - 0.95 > 2.33 * (0.95 * 0.05 / max(rows, 1)) ** 0.5


def _warnings(group: Group) -> list[str]:
    """What the runs warned of."""
    return list(dict.fromkeys(f"Task {w.task}: {w.text}" for run in group.results for w in run.warnings))


def _at_chance(group: Group) -> list[str]:
    """Tasks whose test inputs are answered hardly better than by one label, unless the run warned of them.

    A run looks at held-out training inputs and at the mean over classes, so that it may not.
    """
    runs, names = group.results, task_names(group.first)
    matrix = mean_matrix([run.tgiven_matrix for run in runs], len(names))
    guesses = next((run.chance.by_task for run in runs if run.chance), [])
    if group.regression or matrix is None or len(guesses) != len(names):
        return []
    warned = {warning.task for run in runs for warning in run.warnings if warning.kind == "chance"}
    poor = [
        name
        for name, value, guess in zip(names, matrix[-1], guesses, strict=True)
        if guess <= CERTAIN and _skill(float(value), guess) < NO_SKILL and name not in warned
    ]
    if not poor:
        return []
    listed = ", ".join(poor[:5]) + (f" and {len(poor) - 5} more" if len(poor) > 5 else "")
    return [f"At the end, task known, hardly better than always giving the most frequent label: {listed}."]
