"""`--app` finds an application in the current folder, or reports what is wrong with it."""

from pathlib import Path

import pytest

from penstock.cli.errors import BadApp
from penstock.cli.load import load_app


def write(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(text)


def test_an_app_in_the_current_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write(tmp_path, "found_app", "from penstock import Penstock\napp = Penstock()\n")

    assert load_app("found_app:app").kinds == {}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("empty_app", "", "has no 'app'"),
        ("number_app", "app = 5", "is of type int, not a Penstock"),
        ("needy_app", "import not_installed_at_all", "imports 'not_installed_at_all'"),
        ("wrong_app", "app = = 5", "SyntaxError"),
        ("raising_app", "raise RuntimeError('no\\nluck')", "RuntimeError: no luck"),
    ],
)
def test_a_bad_app_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, name: str, text: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write(tmp_path, name, text)

    with pytest.raises(BadApp) as refused:
        load_app(f"{name}:app")

    assert reason in refused.value.reason


@pytest.mark.parametrize("spec", ["", "app", ":app", "module:", "no_such_module_here:app"])
def test_a_bad_spec_is_refused(spec: str) -> None:
    with pytest.raises(BadApp):
        load_app(spec)
