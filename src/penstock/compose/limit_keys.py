"""The limits per key of the kernel's lanes, on the gate of the process."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from penstock.kernel.limit_key import LimitKey, StartRefused
from penstock.limits.admit import admit
from penstock.limits.gate import Admission, KeyGate, Limit, Refusal

# The place of a key must outlive the longest attempt, or it would expire and be given to another.
PERMIT_MARGIN = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class LimitKeyGate:
    """The kernel's StartGate: each value of a key of a lane is a key of the process's gate."""

    gate: KeyGate

    async def admit(
        self, lane: str, keys: Sequence[LimitKey], *, timeout: timedelta
    ) -> Admission | StartRefused:
        """Wait until an item may start under the limits of all its keys."""
        limits = [
            Limit(
                key=f"limit:{lane}:{key.name}:{key.value}",
                rate=key.limit.rate,
                concurrency=key.limit.concurrency,
                permit_ttl=timeout + PERMIT_MARGIN,
            )
            for key in keys
        ]
        answer = await admit(
            lambda: self.gate.enter_all(limits),
            self.gate.leave_all,
            rate=max((limit.rate for limit in limits if limit.rate is not None), default=None),
        )
        if not isinstance(answer, Refusal):
            return answer
        refusing = next(
            key for key, limit in zip(keys, limits, strict=True) if limit.key == answer.key
        )
        limit = "rate" if answer.reason == "rate_limited" else "concurrency"
        return StartRefused(key=refusing, limit=limit, after=answer.after)

    async def leave(self, admitted: Sequence[object]) -> None:
        """Return the permits of items whose attempts have ended."""
        admissions = [each for each in admitted if isinstance(each, Admission)]
        permits = tuple(permit for admission in admissions for permit in admission.permits)
        if permits:
            await self.gate.leave_all(Admission(wait=0, permits=permits))
