"""The bytes of a message on the wire: line ends, doubled dots, and the final dot."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.integrations.smtp.transaction import encode_message

messages = st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b".", b"x", b"\xc3"])).map(b"".join)


@given(message=messages)
@example(message=b"\rx\n")
@example(message=b"x\n\r")
@example(message=b"\r\r\n\n")
@example(message=b"x\r\n" * 3)
def test_a_server_reads_back_every_line_and_no_second_message(message: bytes) -> None:
    """A bare line end or a single dot would end the message early, for some servers."""
    wire = encode_message(message)

    *lines, end, rest = wire.split(b"\r\n")
    assert not any(b"\r" in line or b"\n" in line for line in lines)
    assert (end, rest) == (b".", b"")
    assert all(line.startswith(b"..") for line in lines if line.startswith(b"."))
    given_lines = re.split(rb"\r\n|\r|\n", message)
    if not given_lines[-1]:
        del given_lines[-1]  # The message ends with a line end, or is empty.
    assert [line.removeprefix(b".") for line in lines] == given_lines
