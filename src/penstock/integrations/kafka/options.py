"""Options for the connection to brokers: plaintext or TLS, with or without an account."""

from collections.abc import Mapping
from pathlib import Path

Options = Mapping[str, str | int | bool]  # By the library's option names.


def security_options(
    *, tls: bool, ca: Path | None, mechanism: str, username: str | None, password: str | None
) -> Options:
    """Return the library's options. With `tls`, certificate and name of a broker are verified.

    `ca` is a file of certificates in PEM; without it, the system's certificates are used.
    """
    options = {"security.protocol": "ssl" if tls else "plaintext"}
    if ca is not None:
        options["ssl.ca.location"] = str(ca)
    if username is not None and password is not None:
        options |= {
            "security.protocol": "sasl_ssl" if tls else "sasl_plaintext",
            "sasl.mechanism": mechanism,
            "sasl.username": username,
            "sasl.password": password,
        }
    return options
