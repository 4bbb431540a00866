"""A package with migrations and functions whose files a test writes: one release after another."""

from pathlib import Path

from penstock.postgres.functions import read_functions
from penstock.postgres.history import record_history
from penstock.postgres.steps import read_steps


class MigrationPackage:
    """A package named `name` inside `folder`, which is on the path."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.steps = folder / name / "migrations"
        self.functions = folder / name / "functions"
        self.steps.mkdir(parents=True)
        self.functions.mkdir()
        (folder / name / "__init__.py").write_text("")

    def write(self, file: str, sql: str) -> None:
        """Ship a step."""
        (self.steps / file).write_text(sql)
        forget_files()

    def remove(self, file: str) -> None:
        """Ship a step no longer."""
        (self.steps / file).unlink()
        forget_files()

    def define(self, name: str, sql: str, *, is_recorded: bool = True) -> None:
        """Ship a function, a view or a trigger, as a release does: with its history."""
        (self.functions / f"{name}.sql").write_text(sql)
        forget_files()
        if is_recorded:
            record_history(self.name)
            forget_files()

    def release(self) -> dict[Path, str]:
        """Return all files as they are, to go back to this release with `install`."""
        folders = (self.steps, self.functions)
        return {file: file.read_text() for folder in folders for file in folder.iterdir()}

    def install(self, release: dict[Path, str]) -> None:
        """Replace all files by those of another release."""
        for file in self.release().keys() - release.keys():
            file.unlink()
        for file, text in release.items():
            file.write_text(text)
        forget_files()


def forget_files() -> None:
    """Have the files of packages read again, as another process does."""
    read_functions.cache_clear()
    read_steps.cache_clear()
