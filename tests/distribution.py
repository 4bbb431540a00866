"""A distribution that offers a domain as an entry point, as `pip install` would leave it."""

from pathlib import Path


def install_domain(
    folder: Path, name: str, *, module: str, code: str, attribute: str = "DOMAIN"
) -> None:
    """Write a module and the metadata of its distribution into a folder of `sys.path`."""
    (folder / f"{module}.py").write_text(code)
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    point = f"{name} = {module}:{attribute}"
    (metadata / "entry_points.txt").write_text(f"[penstock.domains]\n{point}\n")
