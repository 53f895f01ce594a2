"""Named errors of the page."""

from __future__ import annotations

from coordinator.protocol.errors import ShareGroupError


class WebTlsRequired(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """The page at {listener} could be reached from other hosts, and so needs TLS: name --tls-certificate and --tls-key,
    or listen on loopback (127.0.0.1) only."""


class WebNotAvailable(ShareGroupError):
    """The page can't be shown at {listener}: {reason}"""


class WebNotInstalled(ShareGroupError):
    """The page needs {package}, which is missing: pip install 'sharegroup[web]' brings it."""


class BadRequest(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """{what}"""


class Away(ShareGroupError, kafka_error="COORDINATOR_NOT_AVAILABLE"):
    """{what} Until the answer comes, this can't be shown or done; nothing was changed."""


class NotSignedIn(ShareGroupError):
    """The session is over, or there is none: sign in with a token."""


class Forged(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """The request did not come from a form of this page ({reason}), and nothing was changed. Load the page anew, and
    try again."""


class TooManyOpen(ShareGroupError):
    """{what}: {most} at most. Close some, or wait a while."""
