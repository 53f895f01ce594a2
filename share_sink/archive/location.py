"""The location of an archive: a path, or a URI that pyarrow's file systems know.

Rule: a URI may have secrets in its user part or its query, so no error and no ``repr`` shows these parts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import pyarrow as pa
from pyarrow.fs import FileSelector, FileSystem, FileType

from share_sink.errors import ArchiveNotFound, ArchiveNotWritable

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
# Hadoop's names for the scheme that pyarrow calls s3.
_S3 = re.compile(r"^s3[an]://", re.IGNORECASE)
# In these schemes the part before the @ is the name of a user or a container; in others it may be a key.
_NAMES_BEFORE_AT = frozenset({"hdfs", "viewfs", "abfs", "abfss"})
_OF_A_SINK = ("date=", "_staging", "_journal", "_compacting", "_probe-")
# The beginnings of the names in an archive's folder.
_REASON_LENGTH = 300
"""An error quotes up to this many characters of a file system's message."""


@dataclass(frozen=True)
class ArchiveLocation:
    """A folder of a file system. The paths of its files are relative to the folder, with slashes."""

    location: str = field(repr=False)
    """The absolute path or URI with which another process finds the same folder."""
    files: FileSystem = field(repr=False)
    root: str

    def at(self, path: str) -> str:
        return f"{self.root.rstrip('/')}/{path}"

    def files_in(self, folder: str) -> list[str]:
        """Returns the files in a folder, sorted; none if there is no such folder."""
        return self._entries(folder, FileType.File)

    def folders_in(self, folder: str) -> list[str]:
        """Returns the folders in a folder ("" is the archive itself), sorted."""
        return self._entries(folder, FileType.Directory)

    def _entries(self, folder: str, kind: FileType) -> list[str]:
        infos = self.files.get_file_info(FileSelector(self.at(folder).rstrip("/"), allow_not_found=True))
        prefix_length = len(self.at(""))
        return sorted(info.path[prefix_length:] for info in infos if info.type == kind)

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Turn errors of the file system inside the ``with`` block into ArchiveNotWritable."""
        try:
            yield
        except (OSError, ValueError, pa.ArrowException) as error:
            raise _not_writable(self.location, error) from None


def archive_location(path: str) -> ArchiveLocation:
    """Returns the location that ``archive.path`` names; creates nothing. Raises ArchiveNotWritable if pyarrow knows no
    such file system, or refuses the URI, or if a URI lacks its second slash, and TypeError for a path that is no
    text."""
    if not isinstance(path, str):
        raise TypeError(f"the path of an archive is a text, and {path!r} is of type {type(path).__name__}")
    if _SCHEME.match(path) and not _URI.match(path):
        problem = ValueError(f"a URI has two slashes after {path.partition('/')[0]}")
        raise _not_writable(path.replace(":/", "://", 1), problem)
    location = _S3.sub("s3://", path) if _URI.match(path) else os.path.abspath(path)
    try:
        files, root = FileSystem.from_uri(location)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _not_writable(location, error) from None
    return ArchiveLocation(location, files, root)


def check_exists(archive: ArchiveLocation) -> None:
    """Check that a sink has made the archive, which may still be empty.

    Raises:
        ArchiveNotFound: there is no such folder, or no sink has written what is in it.
        ArchiveNotWritable: the file system refuses."""
    with archive.named_errors():
        kind = archive.files.get_file_info(archive.root).type
        selector = FileSelector(archive.root, allow_not_found=True)
        infos = [] if kind == FileType.File else archive.files.get_file_info(selector)
        reason = ""
        if kind != FileType.Directory and not infos:
            reason = "it is a file" if kind == FileType.File else "no such folder"
        elif infos and not any(info.base_name.startswith(_OF_A_SINK) for info in infos):
            reason = f"the folder has no rows of a sink; it has {infos[0].base_name}, for example"
    if reason:
        raise ArchiveNotFound(path=without_secrets(archive.location), reason=reason)


def without_secrets(location: str) -> str:
    """Returns the location as errors and logs may show it."""
    if not _URI.match(location):
        return location
    parts = urlsplit(location)
    name = parts.netloc.rpartition("@")[2]
    if parts.scheme in _NAMES_BEFORE_AT and parts.password is None:
        name = parts.netloc
    return f"{parts.scheme}://{name}{parts.path}"


def _not_writable(location: str, error: Exception) -> ArchiveNotWritable:
    reason = str(error).strip().partition("\n")[0]
    if _URI.match(location):
        reason = reason.replace(location, without_secrets(location))
        for secret in sorted(_secrets(urlsplit(location)), key=len, reverse=True):
            reason = reason.replace(secret, "***")
    return ArchiveNotWritable(path=without_secrets(location), reason=reason[:_REASON_LENGTH].rstrip("."))


def _secrets(parts: SplitResult) -> set[str]:
    before_at = parts.netloc.rpartition("@")[0]
    texts = {parts.query, before_at, *before_at.split(":"), *(value for _, value in parse_qsl(parts.query))}
    return {form for text in texts for form in (text, unquote(text)) if len(form) > 3}
