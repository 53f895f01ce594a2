"""The version of sharegroup, as the installed package has it from setup.py."""

from __future__ import annotations

from importlib import metadata


def package_version() -> str:
    """The version of the installed package; empty in a bare checkout."""
    try:
        return metadata.version("sharegroup")
    except metadata.PackageNotFoundError:
        return ""
