"""Steps that the tests of gates share."""

from datetime import timedelta

from penstock.limits.gate import Gate, Permit, Refusal, RefusalReason, Rules, Verdict

KEY = "sub-123"
RULES = Rules()
SECOND = timedelta(seconds=1)
PATIENT = 30 * SECOND  # For a server that is frozen on purpose, or on a busy machine.
MILLISECOND = timedelta(milliseconds=1)


async def enter(gate: Gate, rules: Rules = RULES, *, key: str = KEY) -> Permit:
    """Return the permit of a call that must be admitted."""
    answer = await gate.enter(key, rules)
    assert isinstance(answer, Permit), answer
    return answer


async def refused(
    gate: Gate, reason: RefusalReason, rules: Rules = RULES, *, key: str = KEY
) -> timedelta:
    """Return for how long a call is refused, which must be for this reason."""
    answer = await gate.enter(key, rules)
    assert isinstance(answer, Refusal), answer
    assert answer.reason == reason
    return answer.after


async def call(
    gate: Gate, verdict: Verdict, rules: Rules = RULES, *, key: str = KEY, times: int = 1
) -> None:
    """Make calls one after another."""
    for _ in range(times):
        permit = await enter(gate, rules, key=key)
        await gate.leave(permit, rules, verdict=verdict)
