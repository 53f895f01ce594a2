"""Reads configuration files in Kafka's form, Java properties. ``${env:NAME}`` in a value stands for an environment
variable.

Rule: values may be secrets, so errors and warnings name keys and lines, and never a value."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import javaproperties

from coordinator.kafka.properties import SECRETS
from coordinator.protocol.errors import InvalidPropertiesFile

_log = logging.getLogger(__name__)

_JSON = re.compile(r"\s*[\[{]")
_YAML = re.compile(r"^(?:---\s*$|- |[^\s#!][^=:]*:[ \t]*\n[ \t]+\S)", re.MULTILINE)
"""The start of a YAML document, an entry of a list, or a key with indented lines below it."""
PUBLIC = frozenset(
    (
        "https.ca.pem",
        "sasl.kerberos.kinit.cmd",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.username",
        "ssl.ca.pem",
        "ssl.certificate.pem",
        "ssl.keystore.certificate.chain",
        "ssl.truststore.certificates",
    )
)
"""Keys of SECRETS whose values may nevertheless be in a file that everybody can read."""
_VARIABLE = re.compile(r"\$\{env:([^}]*)\}")


def read_properties(path: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The values of the file by key. Logs a WARNING if a key stands twice, or others may read a secret. Raises
    InvalidPropertiesFile if the file can't be read, has another form, or a value names a variable that is not set."""
    return parsed(path, text_of(path), environ)


def text_of(path: str) -> str:
    """Returns the file's text. Raises InvalidPropertiesFile if the file can't be read."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")  # some editors begin a file with a byte order mark
    except OSError as error:
        raise InvalidPropertiesFile(path=path, reason=f"{error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InvalidPropertiesFile(path=path, reason=f"it is not UTF-8 (byte {error.start}).") from None


def parsed(path: str, text: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """As read_properties, for the text of the file."""
    try:
        parts = list(javaproperties.parse(text))
    except javaproperties.InvalidUEscapeError as error:
        raise InvalidPropertiesFile(path=path, reason=f"invalid escape {error.escape}.") from None
    for form, named in ((_JSON.match(text), "JSON"), (_YAML.search(text), "YAML")):
        if form:
            reason = f"it is {named}, and has to have a line KEY=VALUE for each value."
            raise InvalidPropertiesFile(path=path, reason=reason)
    found = once(path, _pairs(path, parts))
    secrets = [
        key
        for key, value in found.items()
        if key.removeprefix("kafka.") in SECRETS - PUBLIC and not _VARIABLE.search(value)
    ]
    if secrets and Path(path).stat().st_mode & stat.S_IROTH:
        _log.warning("%s holds a secret (%s), and others may read it: chmod 600 %s", path, ", ".join(secrets), path)
    return {key: _with_variables(path, key, value, environ) for key, value in found.items()}


def _pairs(path: str, parts: Iterable[javaproperties.PropertiesElement]) -> Iterator[tuple[str, str]]:
    """Yields the keys with their values. Refuses a line that is one word, which Java reads as a key without a value: it
    may be a token."""
    number = 1
    for part in parts:
        if isinstance(part, javaproperties.KeyValue):
            if not re.search(r"[=:\s]", part.source.strip()):
                raise InvalidPropertiesFile(path=path, reason=f"line {number} is not KEY=VALUE.")
            yield part.key, part.value
        number += part.source.count("\n")


def once(path: str, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The values of the file by key; the last value of a key counts. Logs a WARNING if a key stands twice."""
    found: dict[str, str] = {}
    for key, value in pairs:
        if key in found:
            _log.warning("%s has %s more than once: the last one counts", path, key)
        found[key] = value
    return found


def _with_variables(path: str, key: str, value: str, environ: Mapping[str, str]) -> str:
    def variable(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in environ:
            reason = f"{key} names the environment variable {name}, which is not set."
            raise InvalidPropertiesFile(path=path, reason=reason)
        return environ[name]

    return _VARIABLE.sub(variable, value)
