"""Run the command line in this process, on the test's own database."""

import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass

import pytest
import structlog

from penstock.base.settings import read_once
from penstock.cli import main


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


Cli = Callable[..., Ended]


@pytest.fixture
def bare_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Generator[Cli]:
    """Commands in an environment that names no database."""
    monkeypatch.delenv("PENSTOCK_DATABASE_URL", raising=False)
    read_once.cache_clear()

    def run(*arguments: str) -> Ended:
        codes: list[int] = []

        def run_main() -> None:
            try:
                main(arguments)
            except SystemExit as ended:
                codes.append(int(ended.code or 0))

        # In a thread: the command runs an event loop, and the test's loop runs in this one.
        thread = threading.Thread(target=run_main)
        thread.start()
        thread.join()
        printed = capsys.readouterr()
        (code,) = codes
        return Ended(code=code, out=printed.out, err=printed.err)

    yield run
    read_once.cache_clear()
    structlog.reset_defaults()


@pytest.fixture
def cli(bare_cli: Cli, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Commands on this test's own database."""
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", dsn)
    read_once.cache_clear()
    return bare_cli
