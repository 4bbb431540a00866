"""Makes the environments that the peers run in, and says why when one cannot be made.

Each lives under `bench/.peers/` with a stamp of its pins, so a second run installs nothing.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import pins

HOME: Final = Path(__file__).parent / ".peers"
ROOT: Final = Path(__file__).parent.parent
INSTALL_SECONDS_MAX: Final = 600
PROBE_SECONDS_MAX: Final = 10
NEWEST_PYTHON_MINOR: Final = 20  # how far up `python3.N` is looked for

Command = tuple[str, ...]


class Unavailable(Exception):
    """An environment cannot be made on this machine; the text is the reason shown in the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start one peer."""

    command: Command
    variables: dict[str, str]


def python_peer(module: str) -> Callable[[], Launch]:
    """Return what prepares the shared Python environment and launches one adapter in it."""

    def prepare() -> Launch:
        python = _venv(HOME / "py", sys.executable, pins.PYTHON_PEERS)
        return _module(python, module)

    return prepare


def oban_peer(module: str) -> Callable[[], Launch]:
    """Return what prepares Oban's own environment, with a Python that is new enough."""

    def prepare() -> Launch:
        wanted = ".".join(map(str, pins.OBAN_PYTHON))
        python = find_python(pins.OBAN_PYTHON)
        if python is None:
            raise Unavailable(f"needs Python >= {wanted}, none found on this machine")
        return _module(_venv(HOME / "oban", python, pins.OBAN), module)

    return prepare


def aiohttp_peer(module: str) -> Callable[[], Launch]:
    """Return what prepares an environment with aiohttp and launches one module in it."""

    def prepare() -> Launch:
        return _module(_venv(HOME / "aiohttp", sys.executable, pins.AIOHTTP), module)

    return prepare


def httpcore_peer(module: str) -> Callable[[], Launch]:
    """Return what prepares an environment with httpcore and launches one module in it."""

    def prepare() -> Launch:
        return _module(_venv(HOME / "httpcore", sys.executable, pins.HTTPCORE), module)

    return prepare


def aiosmtplib_peer(module: str) -> Callable[[], Launch]:
    """Return what prepares an environment with aiosmtplib and launches one module in it."""

    def prepare() -> Launch:
        return _module(_venv(HOME / "aiosmtplib", sys.executable, pins.AIOSMTPLIB), module)

    return prepare


def post_office_peer(module: str) -> Callable[[], Launch]:
    """Return what prepares an environment with django-post_office and launches one module in it."""

    def prepare() -> Launch:
        return _module(_venv(HOME / "post_office", sys.executable, pins.POST_OFFICE), module)

    return prepare


def node_peer(script: str) -> Callable[[], Launch]:
    """Return what prepares the Node environment and launches one adapter in it."""

    def prepare() -> Launch:
        folder = HOME / "node"
        _npm_install(folder)
        return Launch(
            command=(_find_node(folder), str(Path(__file__).parent / "peers" / script)),
            variables={"BENCH_NODE_DIR": str(folder), "NODE_ENV": "production"},
        )

    return prepare


def go_peer() -> Path:
    """Build the server of Temporal and the tool for its schema; return their folder."""
    go = shutil.which("go")
    if go is None:
        raise Unavailable("needs go to build the server, not found on this machine")
    folder = HOME / "temporal"
    stamp = _Stamp(folder, list(pins.TEMPORAL))
    if not stamp.is_current():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for package in pins.TEMPORAL:
            run_command((go, "install", package), variables={"GOBIN": str(folder)})
        stamp.write()
    return folder


def find_python(least: tuple[int, int]) -> str | None:
    """Return an interpreter that is at least this new and really runs, or None."""
    return next((path for path in _pythons() if _version(path) >= least), None)


def _pythons() -> Iterator[str]:
    yield sys.executable
    names = ["python3", *(f"python3.{minor}" for minor in range(NEWEST_PYTHON_MINOR, 10, -1))]
    yield from filter(None, map(shutil.which, names))
    # A pyenv shim on the PATH refuses to run versions that are installed but not chosen.
    if pyenv := shutil.which("pyenv"):
        root = Path(output((pyenv, "root")).strip() or "/nonexistent")
        yield from map(str, sorted(root.glob("versions/3.*/bin/python3"), reverse=True))
    if uv := shutil.which("uv"):
        yield from filter(None, [output((uv, "python", "find", ">=3.12")).strip()])


def _version(python: str) -> tuple[int, ...]:
    text = output((python, "-c", "import sys; print(*sys.version_info[:2])"))
    return tuple(map(int, text.split()))


def _module(python: str, module: str) -> Launch:
    # As a module from the root, so that `bench.peers.pgqueuer` does not shadow `pgqueuer`.
    return Launch(command=(python, "-m", module), variables={"PYTHONPATH": str(ROOT)})


def _venv(folder: Path, python: str, requirements: Iterable[str]) -> str:
    inside = folder / "bin" / "python"
    stamp = _Stamp(folder, [python, *requirements])
    if not stamp.is_current():
        shutil.rmtree(folder, ignore_errors=True)
        run_command((python, "-m", "venv", str(folder)))
        run_command((str(inside), "-m", "pip", "install", "--quiet", *requirements))
        stamp.write()
    return str(inside)


def _npm_install(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise Unavailable("needs node and npm, not found on this machine")
    stamp = _Stamp(folder, list(pins.NODE_PEERS))
    if not stamp.is_current():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text('{"private": true}\n')
        quiet = ("--no-fund", "--no-audit", "--loglevel=error", "--save-exact")
        run_command((npm, "install", *quiet, *pins.NODE_PEERS), cwd=folder)
        stamp.write()


def _find_node(folder: Path) -> str:
    own = folder / "node_modules" / "node" / "bin" / "node"
    candidates = [str(own), shutil.which("node") or ""]
    for node in filter(None, candidates):
        if _numbers(output((node, "--version"))) >= pins.NODE:
            return node
    raise Unavailable(f"needs Node >= {'.'.join(map(str, pins.NODE))}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def output(command: Command) -> str:
    """Return what a command prints, or nothing when it does not run."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=PROBE_SECONDS_MAX
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def run_command(
    command: Command, cwd: Path | None = None, variables: Mapping[str, str] | None = None
) -> None:
    """Run a command; raises Unavailable with the last line of its errors."""
    try:
        subprocess.run(
            command,
            cwd=cwd,
            check=True,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS_MAX,
            env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"} | dict(variables or {}),
        )
    except subprocess.CalledProcessError as exc:
        last = (exc.stderr.strip() or "no output").splitlines()[-1]
        raise Unavailable(f"{Path(command[0]).name} failed: {last}") from exc
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise Unavailable(f"{Path(command[0]).name} failed: {exc}") from exc


@dataclass(frozen=True, slots=True)
class _Stamp:
    """A file that says what was installed, written last."""

    folder: Path
    content: list[str]

    def is_current(self) -> bool:
        try:
            return json.loads((self.folder / "stamp.json").read_text()) == self.content
        except (OSError, ValueError):
            return False

    def write(self) -> None:
        (self.folder / "stamp.json").write_text(json.dumps(self.content))
