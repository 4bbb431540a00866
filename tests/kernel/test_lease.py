"""The leases that a process holds: when they are settled, renewed and lost, without a database."""

import ast
import dataclasses
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import penstock
from penstock.kernel.claim import Lease
from penstock.kernel.item import DONE
from penstock.kernel.lease import SETTLE_DELAY, EndedBatch, HeldLease, HeldLeases
from penstock.kernel.settle import Ended
from tests.kernel.scene import NOON, SECOND, claimed

DELAY = SETTLE_DELAY.total_seconds()
SOURCE = Path(penstock.__file__).parent
OWNER = SOURCE / "kernel" / "lease.py"
FIELDS = {each.name for cls in (HeldLease, HeldLeases) for each in dataclasses.fields(cls)}


def lease(token: int, *, items: int, began_at: float = 10.0, suspended: float = 0.0) -> Lease:
    held = [claimed(n) for n in range(items)]
    return Lease(token=token, claimed_at=NOON, items=held, began_at=began_at, suspended=suspended)


def end(held: HeldLease, number: int, *, now: float) -> bool:
    return held.end(Ended(held.lease.items[number], DONE, 0), now)


def taken(leases: HeldLeases, *, now: float) -> EndedBatch:
    batch = leases.take_ended(now)
    assert isinstance(batch, EndedBatch)
    return batch


def ids(batch: EndedBatch) -> list[int]:
    return [each.claimed.id for each in batch.ended]


def test_nothing_is_taken_before_an_item_has_ended() -> None:
    leases = HeldLeases()
    leases.add(lease(1, items=2))

    assert leases.take_ended(100.0) is None
    assert not leases.is_empty()


def test_a_lease_whose_items_have_all_ended_is_taken_at_once() -> None:
    leases = HeldLeases()
    held = leases.add(lease(1, items=2))
    end(held, 0, now=11.0)
    end(held, 1, now=11.0)

    batch = taken(leases, now=11.0)

    assert (ids(batch), batch.closes) == ([0, 1], True)


def test_part_of_a_lease_waits_for_the_settle_delay() -> None:
    """Settling part of a lease rewrites its row: one rewrite for many results."""
    leases = HeldLeases()
    held = leases.add(lease(1, items=3))
    end(held, 0, now=11.0)
    end(held, 1, now=11.01)

    early = leases.take_ended(11.01)
    batch = taken(leases, now=11.0 + DELAY)

    assert early == 11.0 + DELAY
    assert (ids(batch), batch.closes) == ([0, 1], False)


def test_the_lease_that_is_due_first_is_taken_first() -> None:
    leases = HeldLeases()
    partly, whole = (leases.add(lease(n, items=2)) for n in (1, 2))
    end(partly, 0, now=11.0)
    end(whole, 0, now=11.01)
    end(whole, 1, now=11.01)

    first, second = taken(leases, now=12.0), taken(leases, now=12.0)

    assert [first.held, second.held] == [whole, partly]
    assert leases.take_ended(12.0) is None


def test_only_the_first_and_the_last_result_make_a_lease_due_sooner() -> None:
    """The settle loop is woken for these two; in between its timer is enough."""
    held = HeldLeases().add(lease(1, items=4))

    assert [end(held, n, now=11.0) for n in range(4)] == [True, False, False, True]


def test_a_batch_that_was_put_back_is_taken_again_with_what_ended_since() -> None:
    leases = HeldLeases()
    held = leases.add(lease(1, items=3))
    end(held, 0, now=11.0)
    failed = taken(leases, now=12.0)
    end(held, 1, now=12.0)
    end(held, 2, now=12.0)

    leases.put_back(failed)
    batch = taken(leases, now=12.0)

    assert (ids(batch), batch.closes) == ([0, 1, 2], True)


def test_a_lease_is_held_until_its_last_item_is_settled() -> None:
    leases = HeldLeases()
    held = leases.add(lease(1, items=2))
    end(held, 0, now=11.0)
    leases.mark_settled(taken(leases, now=12.0))
    is_held_after_the_first = not leases.is_empty()
    end(held, 1, now=12.0)
    leases.mark_settled(taken(leases, now=12.0))

    assert is_held_after_the_first
    assert leases.is_empty()


def test_a_lease_counts_its_age_from_the_claim() -> None:
    """The answer of a slow claim comes when part of the lease is over."""
    held = HeldLeases().add(lease(1, items=1, began_at=6.0))

    assert held.may_be_lost(3 * SECOND, now=10.0)
    assert not held.may_be_lost(5 * SECOND, now=10.0)


def test_a_lease_ages_while_the_machine_is_suspended() -> None:
    """The monotonic clock stops, the boot clock does not: also between the claim and its answer."""
    before = HeldLeases().add(lease(1, items=1, began_at=6.0, suspended=100.0))
    meanwhile = HeldLeases().add(lease(2, items=1, began_at=6.0, suspended=0.0))

    assert not before.may_be_lost(5 * SECOND, now=110.0)
    assert meanwhile.may_be_lost(5 * SECOND, now=110.0)


def test_a_renewed_lease_is_renewed_again_only_when_it_has_aged() -> None:
    leases = HeldLeases()
    held = leases.add(lease(1, items=1))
    leases.add(lease(2, items=1, began_at=15.0))

    aged = leases.to_renew(4 * SECOND, now=15.0)
    held.renew(15.0)

    assert aged == {1: held}
    assert leases.to_renew(4 * SECOND, now=15.0) == {}
    assert not held.may_be_lost(5 * SECOND, now=19.0)
    assert held.may_be_lost(5 * SECOND, now=21.0)


def test_a_lost_lease_is_not_renewed_but_its_results_are_still_taken() -> None:
    """They are recorded as late."""
    leases = HeldLeases()
    held = leases.add(lease(1, items=1))

    held.lose()

    assert held.may_be_lost(timedelta.max, now=10.0)
    assert leases.to_renew(SECOND, now=100.0) == {}
    end(held, 0, now=11.0)
    assert ids(taken(leases, now=11.0)) == [0]


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(SOURCE.rglob("*.py")) if path != OWNER],
    ids=lambda path: path.relative_to(SOURCE).as_posix(),
)
def test_only_the_owner_of_leases_writes_their_fields(path: Path) -> None:
    """Three modules once did, and no reader could say when a lease was lost or settled."""
    assert not list(writes(path.read_text(encoding="utf-8")))


def test_a_write_from_outside_is_found() -> None:
    """The test above must be able to fail."""
    outside = "held._is_lost = True\ndel self.leases._by_token[1]\nheld.lease, x = 1, 2"

    assert sorted(writes(outside)) == ["_by_token", "_is_lost", "lease"]


def writes(source: str) -> Iterator[str]:
    """Yield the fields of held leases that code writes to, other than to its own object's."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute) or node.attr not in FIELDS:
            continue
        is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
        # Any use of a private field counts: a list or dict behind it is changed without a write.
        is_write = node.attr.startswith("_") or not isinstance(node.ctx, ast.Load)
        if is_write and not is_own:
            yield node.attr
