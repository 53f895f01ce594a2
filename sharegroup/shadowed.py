"""Refuses a module of somebody else's that has the name of one of our packages, by its path.

Rule: this module imports nothing else of ours, and is asked before the first import of the inside: its packages have
general names, and a program's own coordinator.py would otherwise end in an error that names neither.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec

INSIDE = ("coordinator", "share_consumer", "share_sink", "share_source", "share_spark")


class PackageShadowed(ImportError):
    """Python finds another module by the name of a package of ours."""

    def __init__(self, name: str, found: str, ours: str) -> None:
        super().__init__(
            f"sharegroup needs its package {name}, in {ours}, and Python finds another one first: {found}. Rename that "
            "one, or take its folder out of the path (the program's folder, PYTHONPATH), or install sharegroup in a "
            "virtual environment of its own.",
            name=name,
            path=found,
        )


def check_packages() -> None:
    """Look where Python finds our packages, and import the one that checks how Python runs.

    Raises:
        PackageShadowed: one of them is somebody else's, or is missing.
        ImportError: Python drops docstrings.
    """
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in INSIDE:
        found = _path_of(name)
        if not found or os.path.realpath(os.path.dirname(found)) != os.path.realpath(ours):
            raise PackageShadowed(name, found or "none at all", ours)
    import_module(INSIDE[0])


def _path_of(name: str) -> str:
    """The folder or file of the top-level module, loaded or not; empty if there is none."""
    loaded = sys.modules.get(name)
    spec = find_spec(name) if loaded is None else loaded.__spec__
    if spec is None:
        return getattr(loaded, "__file__", None) or ""
    places = list(spec.submodule_search_locations or [])
    return os.path.abspath(places[0]) if places else spec.origin or ""
