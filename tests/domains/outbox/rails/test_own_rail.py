"""The example of a rail of one's own runs as it stands; tests/conformance has its promises."""

import pytest

from examples.own_rail import main


async def test_the_example_pays_once_although_an_answer_is_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await main()

    lost, paid, found, totals = capsys.readouterr().out.splitlines()
    assert lost.startswith("NoAnswer(")
    assert paid == found
    assert "code='PAID'" in paid
    assert totals == "Totals(bookings=1, instructions=1, repeated={})"
