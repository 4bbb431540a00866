"""A command for each domain that declares a hint; `penstock up` prints them."""

from collections.abc import Iterable

from penstock.contract import Domain


def commands(url: str, domains: Iterable[Domain]) -> list[tuple[str, str]]:
    """Return what to try and its command, in the order of the domains.

    The command takes the API key from the variable KEY of the shell.
    """
    return [
        (
            hint.what,
            f"""curl -s {url}{hint.path} -H "Authorization: Bearer $KEY" --json '{hint.body}'""",
        )
        for hint in (domain.hint for domain in domains)
        if hint is not None
    ]
