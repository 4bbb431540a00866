"""docs/reference/rail-codes.md: the shipped code sets, in the order of their files."""

from penstock.domains.outbox.rails.codes import SHIPPED, shipped_codes
from tools.reference.blocks import code, plain, table


def blocks(_page: str) -> dict[str, str]:
    """Return one table for each set."""
    shipped = list(shipped_codes())
    return {
        f"rail-codes-{name}": table(
            ("code", "class", "meaning", "source"),
            [
                (code(each.code), code(each.code_class), plain(each.meaning), plain(each.source))
                for each in shipped
                if each.code_set == name
            ],
        )
        for name in SHIPPED
    }
