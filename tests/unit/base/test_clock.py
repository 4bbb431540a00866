"""Clocks."""

from datetime import UTC, timedelta

from penstock.base.clock import Clock, FakeClock, SystemClock


def test_a_fake_clock_moves_only_when_told(clock: FakeClock) -> None:
    before = clock.now()

    moved = clock.advance(timedelta(seconds=5))

    assert clock.now() == moved == before + timedelta(seconds=5)


def test_clocks_tell_aware_instants(clock: FakeClock) -> None:
    """A naive instant compares wrongly with what the database returns."""
    clocks: list[Clock] = [clock, SystemClock()]

    assert all(each.now().tzinfo is UTC for each in clocks)
