"""The command line ``sharegroup``, and the admin client: one module for each subcommand.

Rule: an error is one line on standard error, never a traceback; the exit status is then 1, or 2 if the command line is
wrong.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """The class ``sharegroup.Admin``, the function ``sharegroup.offsets_from_file``, or the value of
    ``sharegroup.__version__``: loaded on demand, since the class imports Arrow."""
    if name == "Admin":
        from coordinator.admin.admin import Admin

        return Admin
    if name == "offsets_from_file":
        from coordinator.client.offset_resets import offsets_from_file

        return offsets_from_file
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from coordinator.protocol.package_version import package_version

    return package_version()
