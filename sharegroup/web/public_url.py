"""The page's address in browsers, if it is behind a proxy: links, cookie and checks use it.

Rule: only the command sets the address. No header of a request (X-Forwarded-*, Forwarded) changes it, since anybody may
send one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from coordinator.protocol.addresses import is_loopback
from sharegroup.web.errors import WebNotAvailable

_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)*")


@dataclass(frozen=True, kw_only=True)
class PublicUrl:
    """An address as https://ops.example/groups. ``origin``: the part before the path, in lower case; empty: each
    request's own. ``prefix``: the path, without a slash at its end."""

    origin: str = ""
    prefix: str = ""

    @classmethod
    def parse(cls, text: str, named: str = "--public-url") -> PublicUrl:
        """Parse an address; an empty text means none. ``named``: the option or key that has it. Raises WebNotAvailable
        if it is no address of a page, or if other hosts would send tokens to it without TLS."""
        if not text:
            return cls()
        try:
            parts = urlsplit(text)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            host = ""
        if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment or "@" in parts.netloc:
            raise WebNotAvailable(listener=text, reason=f"{named} must be like https://ops.example/groups")
        prefix = parts.path.rstrip("/")
        if not _PATH.fullmatch(prefix):
            raise WebNotAvailable(listener=text, reason=f"the path of {named} has a-z, A-Z, 0-9 and ._~- only")
        if parts.scheme == "http" and not is_loopback(host):
            raise WebNotAvailable(listener=text, reason=f"{named} has to begin with https:// if other hosts use it")
        shown = f"[{host}]" if ":" in host else host
        is_default = port in (None, 443 if parts.scheme == "https" else 80)
        return cls(origin=f"{parts.scheme}://{shown}{'' if is_default else f':{port}'}", prefix=prefix)

    @property
    def is_tls(self) -> bool:
        return self.origin.startswith("https:")

    @property
    def host(self) -> str:
        return urlsplit(self.origin).hostname or ""

    def inside(self, path: str) -> str:
        """Returns the path without the prefix, which a proxy may have removed already."""
        if self.prefix and (path == self.prefix or path.startswith(f"{self.prefix}/")):
            return path[len(self.prefix) :] or "/"
        return path
