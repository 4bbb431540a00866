"""uvicorn's internals are used in two modules, whose version cap covers all of them."""

from pathlib import Path

import penstock

SOURCE = Path(penstock.__file__).parent


def test_only_two_modules_use_internals_of_uvicorn() -> None:
    """A new version of uvicorn may change them: then these are to be read again."""
    users = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if "from uvicorn." in path.read_text(encoding="utf-8")
    }

    assert users == {"web/fast_path.py", "web/protocol.py"}
