"""`--app module:name`: import a user's app; the current folder is on the import path."""

import importlib
import sys
from pathlib import Path

from penstock.app import Penstock
from penstock.cli.errors import BadApp


def load_app(spec: str) -> Penstock:
    """Import the module and return its application; raises BadApp with the reason."""
    module_name, found, name = spec.partition(":")
    if not (module_name and found and name):
        raise BadApp(spec, "must look like module:name")
    app = getattr(_import(spec, module_name), name, None)
    if app is None:
        raise BadApp(spec, f"module {module_name!r} has no {name!r}")
    if not isinstance(app, Penstock):
        raise BadApp(spec, f"{name!r} is of type {type(app).__qualname__}, not a Penstock")
    return app


def _import(spec: str, module_name: str) -> object:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name is not None and f"{module_name}.".startswith(f"{missing.name}."):
            raise BadApp(spec, f"module {missing.name!r} does not exist") from missing
        raise BadApp(spec, f"it imports {missing.name!r}, which is not installed") from missing
    except Exception as failure:
        # A user's module may raise anything; that is not a bug of Penstock and needs no traceback.
        text = " ".join(f"{type(failure).__qualname__}: {failure}".split())
        raise BadApp(spec, f"importing it failed: {text}") from failure
