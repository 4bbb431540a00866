"""What tests of gates do again and again."""

from datetime import timedelta

from penstock.limits.gate import Gate, Pass, Reason, Refusal, Rules, Verdict

KEY = "sub-123"
RULES = Rules()
SECOND = timedelta(seconds=1)
MILLISECOND = timedelta(milliseconds=1)


async def let_in(gate: Gate, rules: Rules = RULES, *, key: str = KEY) -> Pass:
    """Enter, which must succeed."""
    answer = await gate.enter(key, rules)
    assert isinstance(answer, Pass), answer
    return answer


async def refused(gate: Gate, reason: Reason, rules: Rules = RULES, *, key: str = KEY) -> timedelta:
    """Enter, which must be refused for this reason; return for how long."""
    answer = await gate.enter(key, rules)
    assert isinstance(answer, Refusal), answer
    assert answer.reason == reason
    return answer.after


async def call(
    gate: Gate, verdict: Verdict, rules: Rules = RULES, *, key: str = KEY, times: int = 1
) -> None:
    """Enter and leave, one call after the other."""
    for _ in range(times):
        passed = await let_in(gate, rules, key=key)
        await gate.leave(passed, rules, verdict=verdict)
