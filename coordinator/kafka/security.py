"""What each security protocol and each SASL mechanism needs: other settings can never connect.

Rule: pure. The error names the missing key, and no values but those of security.protocol and sasl.mechanism."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.kafka.java_values import JWT_BEARER, MSK
from coordinator.kafka.properties import TOKEN_FUNCTION
from coordinator.protocol.option_errors import InvalidOption, MissingOption, RefusedOption

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
_PASSWORDS = MECHANISMS[:3]
_OAUTH = "sasl.oauthbearer."
_CREDENTIALS = ("client.id", "client.secret")
_GRANT = f"{_OAUTH}grant.type"
_PRIVATE_KEYS = (f"{_OAUTH}assertion.private.key.file", f"{_OAUTH}assertion.private.key.pem")


def check_security(config: Mapping[str, str]) -> None:
    """Check librdkafka's properties for settings with which no broker can be reached. What librdkafka does not know at
    all (a protocol, say) is left to it.

    Raises:
        MissingOption: a key is missing that the protocol, or the mechanism, needs.
        RefusedOption, InvalidOption: librdkafka does not have the mechanism."""
    protocol = config.get("security.protocol", "PLAINTEXT").strip().upper()
    _check_token_function(config, protocol)
    if protocol.startswith("SASL_") and protocol in PROTOCOLS:
        _check_sasl(config, protocol)
    if protocol in ("SSL", "SASL_SSL"):
        _check_tls(config, protocol)


def _check_sasl(config: Mapping[str, str], protocol: str) -> None:
    named = [key for key in ("sasl.mechanism", "sasl.mechanisms") if config.get(key, "").strip()]
    if not named:
        if any(key.startswith("sasl.kerberos.") for key in config):
            return  # GSSAPI is the default
        raise MissingOption(
            option="kafka.sasl.mechanism",
            why=f"kafka.security.protocol={protocol} needs it. It is {_either(MECHANISMS)}.",
        )
    mechanism = config[named[0]].strip()
    if mechanism == "AWS_MSK_IAM":
        raise RefusedOption(option=f"kafka.{named[0]}", reason="librdkafka has no AWS_MSK_IAM.", instead=MSK)
    if mechanism not in MECHANISMS:
        problem = f'"{mechanism}" is no SASL mechanism of librdkafka; it is {_either(MECHANISMS)}.'
        raise InvalidOption(option=f"kafka.{named[0]}", problem=problem)
    why = f"kafka.{named[0]}={mechanism} needs it."
    if mechanism in _PASSWORDS:
        _need(config, why, "sasl.username", "sasl.password")
    if mechanism == "OAUTHBEARER":
        _check_oauth(config, why)
    if mechanism == "GSSAPI" and not _kinits(config):
        without = "Without one: kafka.sasl.kerberos.min.time.before.relogin=0, and a ticket from kinit."
        _need(config, f"{why} {without}", "sasl.kerberos.keytab")


def _kinits(config: Mapping[str, str]) -> bool:
    """Whether librdkafka needs no keytab: kinit.cmd is the user's own command, or librdkafka runs none."""
    own = config.get("sasl.kerberos.kinit.cmd", "")
    is_own = bool(own) and "%{sasl.kerberos.keytab}" not in own
    return is_own or config.get("sasl.kerberos.min.time.before.relogin", "").strip() == "0"


def _check_token_function(config: Mapping[str, str], protocol: str) -> None:
    if TOKEN_FUNCTION not in config:
        return
    problem = ""
    if not protocol.startswith("SASL_") or "OAUTHBEARER" not in map(config.get, ("sasl.mechanism", "sasl.mechanisms")):
        problem = "it goes with kafka.security.protocol=SASL_SSL and kafka.sasl.mechanism=OAUTHBEARER."
    elif config.get(f"{_OAUTH}method", "").strip().lower() == "oidc":
        problem = f"kafka.{_OAUTH}method=oidc gets tokens by itself; remove one."
    if problem:
        raise InvalidOption(option=f"kafka.{TOKEN_FUNCTION}", problem=problem)


def _check_oauth(config: Mapping[str, str], why: str) -> None:
    if TOKEN_FUNCTION in config:
        return
    if config.get(f"{_OAUTH}method", "").strip().lower() != "oidc":
        if config.get("enable.sasl.oauthbearer.unsecure.jwt", "").strip().lower() in ("true", "t", "1"):
            return
        raise MissingOption(
            option=f"kafka.{_OAUTH}method", why=f"{why} Set it to oidc, or kafka.{TOKEN_FUNCTION} to a function."
        )
    by_metadata = config.get(f"{_OAUTH}metadata.authentication.type", "none").strip().lower()
    if by_metadata == "azure_imds":
        return
    why = f"kafka.{_OAUTH}method=oidc needs it."
    if by_metadata == "aws_iam":
        _need(config, f"kafka.{_OAUTH}metadata.authentication.type=aws_iam needs it.", f"{_OAUTH}config")
        return
    _need(config, why, f"{_OAUTH}token.endpoint.url")
    if config.get(_GRANT, "").strip().lower() == JWT_BEARER:
        if not any(config.get(key, "").strip() for key in (*_PRIVATE_KEYS, f"{_OAUTH}assertion.file")):
            raise MissingOption(option=f"kafka.{_PRIVATE_KEYS[0]}", why=f"kafka.{_GRANT}={JWT_BEARER} needs it.")
        return
    for key in _CREDENTIALS:
        if not config.get(f"{_OAUTH}client.credentials.{key}", "").strip():  # librdkafka's other name
            _need(config, why, _OAUTH + key)


def _check_tls(config: Mapping[str, str], protocol: str) -> None:
    halves = {
        "certificate": ("ssl.certificate.location", "ssl.certificate.pem"),
        "key": ("ssl.key.location", "ssl.key.pem"),
    }
    has = {half: [key for key in keys if config.get(key, "").strip()] for half, keys in halves.items()}
    for half, other in (("certificate", "key"), ("key", "certificate")):
        if has[half] and not has[other]:
            form = has[half][0].rpartition(".")[2]
            raise MissingOption(
                option=f"kafka.ssl.{other}.{form}", why=f"kafka.{has[half][0]} is set, and goes with it."
            )
    if config.get("ssl.keystore.location", "").strip() and not config.get("ssl.keystore.password", "").strip():
        raise MissingOption(
            option="kafka.ssl.keystore.password", why="kafka.ssl.keystore.location is set, and goes with it."
        )


def _need(config: Mapping[str, str], why: str, *keys: str) -> None:
    for key in keys:
        if not config.get(key, "").strip():
            raise MissingOption(option=f"kafka.{key}", why=why)


def _either(choices: tuple[str, ...]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}"
