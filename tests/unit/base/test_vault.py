"""Secrets at rest cannot be read, changed or moved without the key."""

import os
import stat
import subprocess
import sys
import threading
from base64 import b64decode, b64encode, urlsafe_b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import BadSetting
from penstock.base.vault import (
    KEY_FILE,
    MARK_BYTES,
    SealBroken,
    Vault,
    load_or_make_key,
    make_key,
    parse_keys,
)

KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
SUBSCRIPTION = "webhooks.subscription:sub_1"


@given(plain=st.binary(max_size=300), about=st.text(st.characters(exclude_categories=["Cs"])))
def test_what_was_sealed_can_be_opened(plain: bytes, about: str) -> None:
    vault = Vault(KEY)

    assert vault.open(vault.seal(plain, about=about), about=about) == plain


def test_a_seal_hides_its_secret_and_two_seals_of_it_differ() -> None:
    """A reader of the table must not even see that two subscriptions share a secret."""
    vault = Vault(KEY)

    first = vault.seal(b"whsec_secret", about=SUBSCRIPTION)
    second = vault.seal(b"whsec_secret", about=SUBSCRIPTION)

    assert b"whsec" not in first
    assert first != second


def test_a_seal_with_any_bit_changed_is_broken() -> None:
    vault = Vault(KEY)
    sealed = vault.seal(b"secret", about=SUBSCRIPTION)

    for place in range(len(sealed) * 8):
        changed = bytearray(sealed)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(SealBroken):
            vault.open(bytes(changed), about=SUBSCRIPTION)


def test_a_truncated_seal_is_broken() -> None:
    vault = Vault(KEY)
    sealed = vault.seal(b"secret", about=SUBSCRIPTION)

    for length in range(len(sealed)):
        with pytest.raises(SealBroken):
            vault.open(sealed[:length], about=SUBSCRIPTION)


def test_a_secret_cannot_be_moved_to_another_row() -> None:
    """Otherwise write access to the table would allow signing with another one's secret."""
    vault = Vault(KEY)
    sealed = vault.seal(b"secret", about=SUBSCRIPTION)

    with pytest.raises(SealBroken) as caught:
        vault.open(sealed, about="webhooks.subscription:sub_2")

    assert caught.value.about == "webhooks.subscription:sub_2"
    assert "sealed for something else" in str(caught.value)


def test_without_its_key_a_seal_is_broken_and_says_which_key_is_missing() -> None:
    sealed = Vault(OTHER_KEY).seal(b"secret", about=SUBSCRIPTION)

    with pytest.raises(SealBroken, match=rf"key {sealed[1:5].hex()} is not in PENSTOCK_SECRET_KEY"):
        Vault(KEY).open(sealed, about=SUBSCRIPTION)


def test_an_older_key_opens_and_the_current_one_seals() -> None:
    """A key is rotated by putting a new one first; nothing has to be sealed again at once."""
    before = Vault(OTHER_KEY).seal(b"secret", about=SUBSCRIPTION)
    vault = Vault(KEY, OTHER_KEY)

    plain = vault.open(before, about=SUBSCRIPTION)
    after = vault.seal(plain, about=SUBSCRIPTION)

    assert (before.startswith(vault.mark), after.startswith(vault.mark)) == (False, True)
    assert all(vault.knows(sealed[:MARK_BYTES]) for sealed in (before, after))
    assert not Vault(KEY).knows(before[:MARK_BYTES])
    assert Vault(KEY).open(after, about=SUBSCRIPTION) == b"secret"


def test_a_key_given_twice_is_one_key() -> None:
    vault = Vault(KEY, OTHER_KEY, KEY)

    assert vault.open(vault.seal(b"secret", about="x"), about="x") == b"secret"


# ----------------------------------------------------------------------------------- keys as text


@pytest.mark.parametrize(
    "text",
    [
        b64encode(b"\xfb\xff" * 16).decode(),
        urlsafe_b64encode(b"\xfb\xff" * 16).decode(),
        b64encode(b"\xfb\xff" * 16).decode().rstrip("="),
        "  " + b64encode(b"\xfb\xff" * 16).decode() + "\n",
    ],
    ids=["standard", "urlsafe", "unpadded", "with blanks around it"],
)
def test_a_key_may_be_in_either_alphabet_of_base64(text: str) -> None:
    assert parse_keys(text) == (b"\xfb\xff" * 16,)


def test_the_first_of_several_keys_is_the_current_one() -> None:
    text = f"{b64encode(KEY).decode()}, {b64encode(OTHER_KEY).decode()}"

    assert parse_keys(text) == (KEY, OTHER_KEY)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "key 1 of 1 has 0 bytes and not 32"),
        (b64encode(KEY[:16]).decode(), "key 1 of 1 has 16 bytes and not 32"),
        (b64encode(KEY).decode() + ",", "key 2 of 2 has 0 bytes and not 32"),
        ("passwörter sind keine Schlüssel", "key 1 of 1 is not base64"),
        ("A" * 41, "key 1 of 1 is not base64"),
    ],
)
def test_an_invalid_key_is_refused_with_the_reason_and_a_hint(text: str, reason: str) -> None:
    with pytest.raises(BadSetting) as caught:
        parse_keys(text)

    assert str(caught.value).startswith(f"PENSTOCK_SECRET_KEY: {reason}")
    assert "openssl rand -base64 32" in caught.value.reason


def test_a_refused_key_is_not_repeated_in_the_message() -> None:
    """Messages go to logs, and the key may be right except for one letter."""
    text = b64encode(KEY).decode()[:-4] + "!!!!"

    with pytest.raises(BadSetting) as caught:
        parse_keys(text)

    assert text[:8] not in str(caught.value)


def test_a_generated_key_can_be_parsed() -> None:
    first, second = parse_keys(f"{make_key()},{make_key()}")

    assert first != second


# -------------------------------------------------------------------------- the key in the folder


def test_a_data_folder_keeps_its_key(tmp_path: Path) -> None:
    made = load_or_make_key(tmp_path)

    assert load_or_make_key(tmp_path) == made
    assert len(b64decode(made, altchars="-_")) == 32


def test_only_the_own_account_can_read_the_key(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        load_or_make_key(tmp_path)
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600


def test_nothing_but_the_key_is_left_in_the_folder(tmp_path: Path) -> None:
    load_or_make_key(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == [KEY_FILE]


def test_a_key_file_that_is_damaged_is_named_and_not_replaced(tmp_path: Path) -> None:
    """A new key in its place would make every sealed secret unreadable for good."""
    path = tmp_path / KEY_FILE
    path.write_bytes(b"\xff\xfe")

    with pytest.raises(BadSetting) as caught:
        load_or_make_key(tmp_path)

    assert caught.value.name == str(path)
    assert path.read_bytes() == b"\xff\xfe"


def test_concurrent_threads_get_one_key(tmp_path: Path) -> None:
    """Many rounds, because two threads seldom generate a key at the same moment."""
    for round_number in range(30):
        folder = tmp_path / str(round_number)
        folder.mkdir()

        keys = ask_in_threads(folder, count=8)

        assert len(keys) == 8
        assert set(keys) == {load_or_make_key(folder)}
        assert [path.name for path in folder.iterdir()] == [KEY_FILE]


def ask_in_threads(folder: Path, *, count: int) -> list[str]:
    keys: list[str] = []
    together = threading.Barrier(count)

    def ask() -> None:
        together.wait(timeout=60)
        keys.append(load_or_make_key(folder))

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return keys


ASK = """
import sys
from pathlib import Path
from penstock.base.vault import load_or_make_key
print("ready", flush=True)
sys.stdin.readline()
print(load_or_make_key(Path(sys.argv[1])), flush=True)
"""


def test_concurrent_processes_get_one_key(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ASK, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60)[0] for process in processes]

    assert [process.returncode for process in processes] == [0] * 4
    assert set(answers) == {load_or_make_key(tmp_path) + "\n"}


def test_derived_keys_differ_by_purpose_and_follow_the_order_of_the_keys() -> None:
    """A link that an old key has signed must stay valid after a rotation."""
    old, new = bytes(32), bytes([1] * 32)

    rotated = Vault(new, old)

    assert rotated.derive("links")[1] == Vault(old).derive("links")[0]
    assert rotated.derive("links")[0] != rotated.derive("other")[0]
    with pytest.raises(BadSetting):
        Vault().derive("links")
