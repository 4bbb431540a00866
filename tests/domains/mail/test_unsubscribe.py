"""The link with which a recipient unsubscribes, and nobody unsubscribes another."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import InvalidInput
from penstock.domains.mail.unsubscribe import (
    Unsubscription,
    check_public_url,
    is_one_click,
    make_token,
    make_url,
    read_token,
)

KEY, OLD_KEY, OTHER_KEY = b"k" * 32, b"o" * 32, b"x" * 32
TOKEN = make_token(KEY, mail_id=4711, recipient_no=2)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**16 - 1))
def test_a_token_leads_back_to_mail_and_recipient(mail_id: int, recipient_no: int) -> None:
    token = make_token(KEY, mail_id=mail_id, recipient_no=recipient_no)

    assert read_token([KEY], token) == Unsubscription(mail_id=mail_id, recipient_no=recipient_no)
    assert token.replace("-", "a").replace("_", "a").isalnum()


def test_a_token_is_known_to_the_byte() -> None:
    """Links in mails that were sent years ago must stay valid."""
    assert make_token(KEY, mail_id=1, recipient_no=0) == "AQAAAAAAAAABAABpCMSf0P8Z2IlhDpisxuW5"


def test_a_token_stays_valid_while_its_key_is_kept() -> None:
    token = make_token(OLD_KEY, mail_id=1, recipient_no=0)

    assert read_token([KEY, OLD_KEY], token).mail_id == 1


@pytest.mark.parametrize("position", range(len(TOKEN)))
def test_a_changed_token_is_refused(position: int) -> None:
    changed = "A" if TOKEN[position] != "A" else "B"

    with pytest.raises(InvalidInput, match="token"):
        read_token([KEY], TOKEN[:position] + changed + TOKEN[position + 1 :])


def test_a_token_of_another_key_is_refused() -> None:
    with pytest.raises(InvalidInput, match="token"):
        read_token([OTHER_KEY], TOKEN)


@given(
    st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: base64.b64encode(raw).decode())
)
def test_no_text_but_a_token_is_accepted(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_token([KEY], text)


def test_a_link_is_below_the_public_url() -> None:
    url = f"https://mail.example.org/mails/unsubscribe/{TOKEN}"

    assert make_url("https://mail.example.org", TOKEN) == url
    assert make_url("https://mail.example.org/", TOKEN) == url


@pytest.mark.parametrize(
    "url", ["https://mail.example.org", "https://example.org/penstock/", "http://127.0.0.1:8080"]
)
def test_a_public_url_is_accepted(url: str) -> None:
    check_public_url(url, field="PENSTOCK_PUBLIC_URL")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mail.example.org",
        "http://mail.example.org",
        "ftp://mail.example.org",
        "https://",
        "https://[::1",
        "https://mail.example.org/?a=1",
        "https://mail.example.org/#a",
        "https://ada:secret@mail.example.org",
        "https://mail.example.org/a b",
        "https://mail.example.org\r\n",
        "https://mäil.example.org",
    ],
)
def test_a_public_url_that_mail_programs_would_not_call_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="PENSTOCK_PUBLIC_URL"):
        check_public_url(url, field="PENSTOCK_PUBLIC_URL")


@pytest.mark.parametrize(
    ("body", "is_valid"),
    [
        (b"List-Unsubscribe=One-Click", True),
        (
            b'--x\nContent-Disposition: form-data; name="List-Unsubscribe"\n\nOne-Click\n--x--',
            True,
        ),
        (b"", False),
        (b"confirm=yes", False),
    ],
)
def test_a_one_click_request_is_recognised_in_both_encodings(body: bytes, is_valid: bool) -> None:
    assert is_one_click(body) is is_valid
