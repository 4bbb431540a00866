"""UUIDs of version 7: by the standard, all different, and sorted by their time."""

import time
from uuid import RFC_4122

from penstock.base.uuid_v7 import uuids_v7


def test_they_are_of_version_7_and_carry_the_time() -> None:
    before = time.time_ns() // 1_000_000

    made = uuids_v7(1_000)

    after = time.time_ns() // 1_000_000
    assert len(set(made)) == 1_000
    assert {(each.version, each.variant) for each in made} == {(7, RFC_4122)}
    assert all(before <= each.int >> 80 <= after for each in made)
    assert uuids_v7(0) == []
