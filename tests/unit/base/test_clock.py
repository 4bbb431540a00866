"""Clocks."""

from datetime import UTC, datetime, timedelta

from penstock.base.clock import EPOCH, MICROSECOND, Clock, FakeClock, SystemClock


def test_a_fake_clock_moves_only_when_advanced(clock: FakeClock) -> None:
    before = clock.now()

    moved = clock.advance(timedelta(seconds=5))

    assert clock.now() == moved == before + timedelta(seconds=5)


def test_clocks_count_microseconds_since_1970(clock: FakeClock) -> None:
    system: Clock = SystemClock()

    before, told, after = datetime.now(UTC), system.microseconds(), datetime.now(UTC)

    assert before - MICROSECOND <= EPOCH + told * MICROSECOND <= after
    assert EPOCH + clock.microseconds() * MICROSECOND == clock.now()
