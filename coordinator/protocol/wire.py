"""Encodes messages between processes: requests and replies as tagged JSON, errors by their class names, and endpoint
files.

A request is one Flight action: its type is the message's class name, its body the message, with Arrow rows after it in
the requests ``WITH_ROWS``. The body of the answer is the reply, or :class:`Failed`."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Annotated, Any, TypeAlias, get_args

import msgspec

from coordinator.protocol import host_errors, option_errors
from coordinator.protocol.admin_messages import AnyAdminReply, AnyAdminRequest
from coordinator.protocol.errors import InvalidRequest, ShareGroupError, by_name, error_from_wire
from coordinator.protocol.messages import AcknowledgeRows, AnyReply, AnyRequest, Done, Message, Request, StageOutcomes
from coordinator.protocol.topic_names import EVERYTHING


class Healthy(Message, frozen=True):
    """The coordinator serves, in process ``pid``. ``protocol``: 0 if the coordinator did not name its version."""

    pid: int
    protocol: int = 0
    version: str = ""
    ready: bool = True
    """Whether the coordinator takes requests: all its parts have started, and it is not about to leave."""


class Health(Request[Healthy], frozen=True):
    """Asks whether the coordinator serves."""


class StepDown(Request[Done], frozen=True):
    """Asks a coordinator on demand to leave, because another one takes its place for this ``reason``."""

    reason: str


class TokenHolder(Message, frozen=True):
    """The holder of a token.

    name: empty if the token has none. rights: named as in a token file.
    open_keys: see :meth:`coordinator.protocol.rights.Tokens.open_keys`.
    groups, topics, dead_letters: the token's own allow lists, which are patterns."""

    name: str
    rights: tuple[str, ...]
    open_keys: tuple[str, ...] = ()
    groups: str = EVERYTHING
    topics: str = EVERYTHING
    dead_letters: str = EVERYTHING


class WhoAmI(Request[TokenHolder], frozen=True):
    """Asks whose token the call has. Coordinators of earlier versions refuse this request with a named error."""


class Failed(Message, frozen=True):
    """A ShareGroupError as an answer: its class name, its fields, and its text for a client without that class."""

    error: str
    fields: dict[str, Any]
    text: str


class Endpoint(Message, frozen=True, tag=False):
    """The content of the endpoint file (mode 0600) by which clients find a coordinator on demand. ``protocol``: 0 if
    the file does not name it. ``configs``, ``brokers``: the configs, without secrets, and the bootstrap servers of the
    query that started the coordinator."""

    host: Annotated[str, msgspec.Meta(pattern=r"^[\w.:-]+\Z")]
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)]
    token: Annotated[str, msgspec.Meta(pattern=r"^[!-~]+\Z")]
    pid: int
    protocol: int = 0
    version: str = ""
    configs: dict[str, str] = msgspec.field(default_factory=dict)
    brokers: str = ""

    def __repr__(self) -> str:
        return f"<Endpoint {self.host}:{self.port} pid={self.pid}>"


class LaunchSettings(Message, frozen=True, tag=False):
    """The settings of a coordinator process. A coordinator on demand reads them from its standard input, because
    ``kafka_config`` holds secrets, which must not be on a command line or in the environment. A standalone coordinator
    makes them from its properties file, and has no endpoint file and no log file. ``start_lock``: the file descriptor
    of the start lock, which the process closes once it serves; -1 if the process that started it holds the lock."""

    bootstrap_servers: str
    kafka_config: dict[str, str]
    state_store: str
    configs: dict[str, str]
    cluster_id: str = ""
    endpoint_path: str = ""
    log_path: str = ""
    start_lock: int = -1

    def __repr__(self) -> str:
        return f"<LaunchSettings {self.bootstrap_servers} {self.state_store}>"


class Started(Message, frozen=True):
    """The first line that a coordinator process writes to standard output, once it serves and has its endpoint file."""


DAMAGED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions that msgspec raises for bytes that are no JSON, or not of the expected form."""

_QUOTED = re.compile(r" '.*'", re.DOTALL)  # how the texts of msgspec's errors show a value
_NAME = re.compile(r"[A-Za-z]{1,64}")

_requests: dict[str, type[Request[Any]]] = {
    request.__name__: request
    for request in (*get_args(AnyRequest), *get_args(AnyAdminRequest), Health, StepDown, WhoAmI)
}
ERRORS = (host_errors, option_errors)
"""The modules of named errors, beside coordinator.protocol.errors: whoever decodes an answer knows their classes."""
WITH_ROWS = frozenset({AcknowledgeRows.__name__, StageOutcomes.__name__})
"""The requests that come with Arrow rows in their body (coordinator.protocol.request_rows)."""

_Answer: TypeAlias = AnyReply | AnyAdminReply | Healthy | TokenHolder | Failed | Started
_answers: msgspec.json.Decoder[_Answer] = msgspec.json.Decoder(_Answer)
_FAILED = b'{"type":"Failed"'


def request_name(name: str) -> str:
    """The name of a request for answers and log lines; a text that can't be a name is not repeated there."""
    return name if _NAME.fullmatch(name) else "of an unknown name"


def encode(message: Message) -> bytes:
    """A message as JSON."""
    return msgspec.json.encode(message, enc_hook=str)


def encode_error(error: ShareGroupError) -> bytes:
    """An error as the answer to a request."""
    return encode(Failed(error=type(error).__name__, fields=error.fields, text=str(error)))


def decode_request(name: str, body: bytes) -> Request[Any]:
    """The request of this name. Raises InvalidRequest if the name is unknown, or the body can't be decoded."""
    cls = _requests.get(name)
    if cls is None:
        raise InvalidRequest(what=f"This coordinator knows no request {request_name(name)}.")
    try:
        request: Request[Any] = msgspec.json.decode(body, type=cls)
        return request
    except DAMAGED as error:
        reason = _QUOTED.sub("", str(error))
        raise InvalidRequest(what=f"{name} can't be understood: {reason}") from None


def decode_endpoint(data: bytes) -> Endpoint | None:
    """Returns the endpoint in an endpoint file; None if the file holds none that can be read."""
    try:
        return msgspec.json.decode(data, type=Endpoint)
    except DAMAGED:
        return None


def decode_answer(body: bytes) -> Message:
    """The reply in an answer. Raises ShareGroupError if the answer is an error."""
    answer = _answers.decode(body)
    if isinstance(answer, Failed):
        raise error_from_wire(answer.error, answer.fields, answer.text)
    return answer


def asks_again(answer: bytes) -> bool:
    """Whether the answer is an error after which the client sends the same request again."""
    if not answer.startswith(_FAILED):
        return False
    failed = by_name().get(msgspec.json.decode(answer, type=Failed).error)
    return failed is not None and failed.retriable


def naming_host(answer: bytes, host: str) -> bytes:
    """The answer of a coordinator on another host. In an error about that coordinator, the host is named."""
    if not answer.startswith(_FAILED):
        return answer
    failed = msgspec.json.decode(answer, type=Failed)
    cls = by_name().get(failed.error)
    if cls is None or not cls.of_coordinator:
        return answer
    return encode(msgspec.structs.replace(failed, fields={**failed.fields, "on_host": host}))


def derived_topic_id(topic: str) -> str:
    """A topic id, of 22 characters, derived from the name, for clusters that give no topic ids."""
    digest = hashlib.sha256(topic.encode()).digest()[:16]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
