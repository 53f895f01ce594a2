"""Reads configuration files as Kafka's are: Java properties; ``${env:NAME}`` in a value is an environment variable.

Rule: values may be secrets, so errors name keys and lines and never a value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import javaproperties

from coordinator.protocol.errors import InvalidPropertiesFile

_VARIABLE = re.compile(r"\$\{env:([^}]*)\}")


def read_properties(path: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The values of the file by key.

    Raises:
        InvalidPropertiesFile: the file can't be read, or a value names a variable that is not set.
    """
    try:
        found = javaproperties.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidPropertiesFile(path=path, reason=f"{error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InvalidPropertiesFile(path=path, reason=f"it is not UTF-8 (byte {error.start}).") from None
    except javaproperties.InvalidUEscapeError as error:
        raise InvalidPropertiesFile(path=path, reason=f"invalid escape {error.escape}.") from None
    return {key: _with_variables(path, key, value, environ) for key, value in found.items()}


def _with_variables(path: str, key: str, value: str, environ: Mapping[str, str]) -> str:
    def variable(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in environ:
            reason = f"{key} names the environment variable {name}, which is not set."
            raise InvalidPropertiesFile(path=path, reason=reason)
        return environ[name]

    return _VARIABLE.sub(variable, value)
