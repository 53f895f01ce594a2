"""Refuses somebody else's module that has the name of one of our packages, and names its path.

Rule: this module imports nothing else of ours, and runs before the first such import. Our packages have general names,
so a program's own coordinator.py would otherwise cause an error that names neither."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec

INSIDE = ("coordinator", "share_consumer", "share_sink", "share_source", "share_spark")


class PackageShadowed(ImportError):
    """Python finds another module under the name of one of our packages."""

    def __init__(self, name: str, found: str, ours: str) -> None:
        super().__init__(
            f"sharegroup needs its package {name}, in {ours}, and Python finds another one first: {found}. Rename that "
            "one, or take its folder out of the path (the program's folder, PYTHONPATH), or install sharegroup in a "
            "virtual environment of its own.",
            name=name,
            path=found,
        )


def check_packages() -> None:
    """Check that Python finds our packages. Then import the one that checks how Python runs.

    Raises:
        PackageShadowed: a package is somebody else's, or is missing.
        ImportError: Python drops docstrings."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in ("sharegroup", *INSIDE):
        found = _path_of(name)
        if not found or os.path.realpath(os.path.dirname(found)) != os.path.realpath(ours):
            raise PackageShadowed(name, found or "none at all", ours)
    import_module(INSIDE[0])


def found_before_pythons() -> list[str]:
    """Returns the files and folders of loaded modules that have the name of one of Python's own modules, and that
    Python found first: sys.path has their folder, usually the program's, before the standard library's."""
    own = os.path.dirname(os.__file__)
    before = sys.path[: sys.path.index(own)] if own in sys.path else sys.path
    folders = {os.path.abspath(each) for each in before}
    paths = map(_path_of, sorted(sys.stdlib_module_names & sys.modules.keys()))
    return [path for path in paths if path and os.path.dirname(path) in folders]


def _path_of(name: str) -> str:
    """Returns the folder or file of a top-level module, loaded or not; empty if there is none."""
    loaded = sys.modules.get(name)
    spec = find_spec(name) if loaded is None else loaded.__spec__
    if spec is None:
        return getattr(loaded, "__file__", None) or ""
    places = list(spec.submodule_search_locations or [])
    return os.path.abspath(places[0]) if places else spec.origin or ""
