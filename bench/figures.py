"""What a run yields: measurements, and rows that hold one of them against a bar."""

from dataclasses import dataclass, field
from typing import Final, Literal

Verdict = Literal["met", "missed", "skipped", "failed", "shown"]
OTHERS: Final = "others_cpu_percent"  # the detail that says how noisy a measurement was


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One thing that was measured once, or the reason why it was not."""

    subject: str
    what: str
    value: float | None
    unit: str
    reason: str = ""
    detail: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What must hold: a number and the side of it that is good."""

    text: str
    limit: float
    side: Literal["at least", "at most"]

    def holds(self, value: float) -> bool:
        """Return whether the value is on the good side."""
        return value >= self.limit if self.side == "at least" else value <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    name: str
    unit: str
    ours: float | None
    against: str
    theirs: float | None
    ratio: float | None
    bar: str
    verdict: Verdict
    note: str = ""
    case: str = ""


def at_least(limit: float, text: str | None = None) -> Bar:
    """Return a bar that is met from `limit` upward."""
    return Bar(text=text or f"≥ {limit:g} times", limit=limit, side="at least")


def at_most(limit: float, text: str | None = None) -> Bar:
    """Return a bar that is met up to `limit`."""
    return Bar(text=text or f"≤ {limit:g} times", limit=limit, side="at most")


def ratio_row(name: str, ours: Measurement, theirs: Measurement, *, bar: Bar | None) -> Row:
    """Hold the ratio of two measurements of one run against a bar; without one, only show it."""
    ratio = ours.value / theirs.value if ours.value is not None and theirs.value else None
    verdict, note = _verdict(ratio, bar, (ours, theirs))
    return Row(
        name=name,
        unit=ours.unit or theirs.unit,
        ours=ours.value,
        against=theirs.subject,
        theirs=theirs.value,
        ratio=ratio,
        bar=bar.text if bar else "—",
        verdict=verdict,
        note=note,
    )


def limit_row(name: str, ours: Measurement, *, bar: Bar) -> Row:
    """Hold one measurement against a fixed limit; the ratio says how much of it is used."""
    verdict, note = _verdict(ours.value, bar, (ours,))
    return Row(
        name=name,
        unit=ours.unit,
        ours=ours.value,
        against="the bar",
        theirs=bar.limit,
        ratio=ours.value / bar.limit if ours.value is not None and bar.limit else None,
        bar=bar.text,
        verdict=verdict,
        note=note,
    )


def best(measurements: list[Measurement], *, lowest: bool = False) -> Measurement:
    """Return the best measurement of several peers, or one that carries all the reasons."""
    known = [m for m in measurements if m.value is not None]
    if not known:
        reasons = "; ".join(f"{m.subject}: {m.reason}" for m in measurements)
        return Measurement(
            subject="best peer",
            what="",
            value=None,
            unit="",
            reason=reasons or "no peer was chosen",
        )
    choose = min if lowest else max
    return choose(known, key=lambda m: m.value or 0.0)


def middle_turn(
    own: list[Measurement], theirs: list[Measurement]
) -> tuple[Measurement, Measurement]:
    """Return the turn with the median ratio of two that were measured in turns.

    The machine is faster at one time than at another, by a half and for longer than a turn: only
    what was measured in one turn has met the same machine. A turn that failed goes first.
    """
    turns = list(zip(own, theirs, strict=True))
    for turn in turns:
        if None in (turn[0].value, turn[1].value):
            return turn
    turns.sort(key=lambda turn: (turn[0].value or 0.0) / (turn[1].value or 1.0))
    return turns[(len(turns) - 1) // 2]


def detail(of: Measurement, key: str, unit: str) -> Measurement:
    """Return one detail of a measurement as a measurement of its own."""
    return Measurement(
        subject=of.subject, what=key, value=of.detail.get(key), unit=unit, reason=of.reason
    )


def named(of: Measurement, subject: str) -> Measurement:
    """Return a measurement under another name, for a row that compares two of Penstock."""
    return Measurement(
        subject=subject, what=of.what, value=of.value, unit=of.unit, reason=of.reason
    )


def _verdict(
    value: float | None, bar: Bar | None, of: tuple[Measurement, ...]
) -> tuple[Verdict, str]:
    if value is None:
        missing = next((m for m in of if m.value is None), of[0])
        failed = missing.reason.startswith("failed")
        return ("failed" if failed else "skipped", missing.reason)
    if bar is None:
        return "shown", ""
    return ("met" if bar.holds(value) else "missed"), ""
