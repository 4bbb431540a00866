"""docs/reference/smtp-replies.md: the table of replies, in the order of its file."""

from penstock.domains.mail.classify import rows
from tools.reference.blocks import code, plain, table


def blocks(_page: str) -> dict[str, str]:
    """Return the rows with a hint, which decide first, and the others."""
    heads = ("phase", "code", "enhanced", "hint", "class", "reason")
    cells = [
        (
            " ".join(row.phases),
            " ".join(row.codes),
            " ".join(row.enhanced),
            row.hint,
            code(row.reply_class),
            plain(row.reason),
        )
        for row in rows()
    ]
    hinted = [each for each in cells if each[3]]
    others = [(*each[:3], *each[4:]) for each in cells if not each[3]]
    return {
        "smtp-replies": table((*heads[:3], *heads[4:]), others),
        "smtp-hints": table(heads, hinted),
    }
