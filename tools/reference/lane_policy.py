"""docs/reference/lane-policy.md: the table of fields."""

from penstock.kernel.lane import lane_policy_table


def blocks(_page: str) -> dict[str, str]:
    """Return the table of a policy's fields."""
    return {"lane-policy": lane_policy_table()}
