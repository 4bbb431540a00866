"""The mails of the bench: the same sender, recipients and texts for everybody.

Standard library only: this runs in the peers' environments.
"""

import random
import string

SENDER = "shop@example.com"
RECIPIENT = "ada@example.org"
SUBJECT = "Your order has been sent"
LINE = 70  # Characters of text per line.


def text(size: int) -> str:
    """Return a text of `size` bytes, as wide as people write, that compresses badly."""
    chance = random.Random(size)
    letters = "".join(chance.choices(string.ascii_letters + " ", k=size))
    lines = [letters[at : at + LINE - 1] for at in range(0, size, LINE)]
    return ("\n".join(lines) + "\n")[:size]
