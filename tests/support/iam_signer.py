"""Signs tokens in the client's own process, as the signer of Amazon MSK does: the function of ``oauth_cb``.

Its text is the path of a private key; beside it, ``calls`` gets a line for each token with the process that asked.
"""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from sharegroup import token_function

AUDIENCE = "sharegroup-tests"
LIFETIME_VARIABLE = "SIGNED_TOKENS_LIVE_S"


@token_function
def token(path: str) -> tuple[str, float]:
    """A token, and when it ends. It fails while the file ``away`` lies beside the key."""
    key, lifetime_s = Path(path), int(os.environ.get(LIFETIME_VARIABLE, "900"))
    with key.with_name("calls").open("a") as calls:
        calls.write(f"{os.getpid()}\n")
    if key.with_name("away").exists():
        raise ConnectionError("the signer has no credentials")
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    assert isinstance(private, rsa.RSAPrivateKey)
    return signed(private, AUDIENCE, lifetime_s), time.time() + lifetime_s


@token_function
def milliseconds(path: str) -> tuple[str, float]:
    """As MSK's signer gives it."""
    found, ends_s = token(path)
    return found, ends_s * 1000


@token_function
def nothing(path: str) -> None:
    """As a signer that forgets to return its token."""


@token_function
def raising(path: str) -> None:
    raise ConnectionError("the signer has no credentials")


def signed(key: rsa.RSAPrivateKey, audience: str, lifetime_s: int) -> str:
    """A JWT for alice."""
    now_s = int(time.time())
    # One that has expired was issued before that.
    claims = {"sub": "alice", "aud": audience, "iat": now_s - 7200, "exp": now_s + lifetime_s}
    head = {"alg": "RS256", "kid": "1", "typ": "JWT"}
    text = ".".join(base64_text(json.dumps(part).encode()) for part in (head, claims))
    return f"{text}.{base64_text(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def base64_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
