"""Settings of a client: from arguments, otherwise from the environment, otherwise defaults.

======================== ============================= ============================================
argument                 environment                   value
======================== ============================= ============================================
hosts                    DISTSYNC_HOSTS                ``host:port,host:port/chroot``; by default
                                                       the embedded server
namespace                DISTSYNC_NAMESPACE            path of all objects, ``/distsync``
session_timeout          DISTSYNC_SESSION_TIMEOUT      seconds, as requested from the server, 10
connect_timeout          DISTSYNC_CONNECT_TIMEOUT      seconds for the first connection, 10
timeout                  DISTSYNC_TIMEOUT              seconds that a call waits for replies of the
                                                       server if it has or was given no timeout;
                                                       by default, it waits forever
auth                     DISTSYNC_AUTH                 ``digest:user:password``; ``x509:``, the
                                                       identity of tls_cert;
                                                       ``sasl:user:password``, DIGEST-MD5, with the
                                                       extra ``sasl``; several separated by commas
authkey                  DISTSYNC_AUTHKEY              secret that signs the contents of objects
authkeys_accepted        DISTSYNC_AUTHKEYS_ACCEPTED    further secrets, separated by commas, whose
                                                       signatures are accepted
codec                    DISTSYNC_CODEC                ``pickle`` or ``json``; as an argument also a
                                                       codec object
acl                                                    kazoo ACLs for all created znodes; by default
                                                       for the identities in auth only, or open to
                                                       all users without auth
tls                      DISTSYNC_TLS                  1 or 0; 1 if tls_ca, tls_cert or tls_key is
                                                       given
tls_ca                   DISTSYNC_TLS_CA               file of the trusted authorities
tls_cert, tls_key        DISTSYNC_TLS_CERT, _KEY       files of the client's certificate and its key
tls_key_password         DISTSYNC_TLS_KEY_PASSWORD     password of that key
tls_verify               DISTSYNC_TLS_VERIFY           0 accepts any certificate of the server
fast_wire                DISTSYNC_FAST_WIRE            0 uses kazoo's I/O, which is slower
linger                   DISTSYNC_LINGER               seconds for which a released lock stays
                                                       cached, 0.1; 0 disables caching
require_hosts            DISTSYNC_REQUIRE_HOSTS        1 refuses to use the embedded server
======================== ============================= ============================================

An empty variable counts as not set, except for DISTSYNC_AUTH, _AUTHKEY, _TLS, _TLS_CA and
_TLS_CERT: an empty one is an error, because ignoring it would disable a protection.

Any other variable that begins with ``DISTSYNC_`` causes a ConfigurationWarning, unless it is one of
OTHER_VARIABLES or begins with ``DISTSYNC_TEST_``.

An accepted key that contains a comma must be an argument: ``authkeys_accepted=[b"a,b"]``. In
DISTSYNC_AUTH a comma begins another entry only if ``word:`` follows. A password that contains such
text must be an argument: ``auth=[("digest", "user:password")]``.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from typing import Any

from distsync._client.naming.inference import UNNAMED
from distsync._client.naming.paths import check_namespace, check_path
from distsync._client.payload_codec import LIMIT_BYTES, Codec, ItemCodec, check_codec
from distsync._import_gate import importing
from distsync._signal_handlers import raise_if_from_handler
from distsync.errors import ConfigurationError, ConfigurationWarning

MAX_TIMEOUT = 2_000_000.0  # seconds; in ms it must fit the protocol's 32 bits
HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:/,\[\]@]+)(?::(\d{1,5}))?")
ANOTHER_ENTRY = re.compile(r",(?=[A-Za-z0-9]+:)")
SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
SECRETS = ("auth", "authkey", "authkeys_accepted", "tls_key_password")
HIDDEN = "***"
TLS_FILES = ("tls_ca", "tls_cert", "tls_key")
GUARDS = ("auth", "authkey", "tls", "tls_ca", "tls_cert")
"""Settings that protect the data: an empty variable must not disable them."""
PREFIX = "DISTSYNC_"
OTHER_VARIABLES = frozenset(("DISTSYNC_RUNTIME_DIR", "DISTSYNC_STATE_DIR", "DISTSYNC_IDLE_EXIT", UNNAMED))
"""Variables that are not settings of a client: those of the embedded server that starts by itself, and UNNAMED, which
is needed before there is a client."""
TEST_PREFIX = "DISTSYNC_TEST_"
EMBEDDED = object()
"""As ``hosts``: the embedded server, even if DISTSYNC_HOSTS is set."""


@dataclass(frozen=True)
class Settings:
    """Checked settings of a client, made by `read_settings`. Secrets are not in the repr."""

    hosts: str | None = None
    namespace: str = "/distsync"
    session_timeout: float = 10.0
    connect_timeout: float = 10.0
    timeout: float | None = None
    auth: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    authkey: bytes | None = field(default=None, repr=False)
    authkeys_accepted: tuple[bytes, ...] = field(default=(), repr=False)
    codec: str | ItemCodec = "pickle"
    acl: tuple[Any, ...] | None = None
    tls: bool = False
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_key_password: str | None = field(default=None, repr=False)
    tls_verify: bool = True
    fast_wire: bool = True
    linger: float = 0.1
    require_hosts: bool = False

    def payload_codec(self, limit_bytes: int = LIMIT_BYTES) -> Codec:
        return Codec(self.codec, self.authkey, limit_bytes, self.authkeys_accepted)


NAMES = tuple(each.name for each in fields(Settings))


def read_settings(environment: Mapping[str, str] | None = None, **arguments: Any) -> Settings:
    """Return the settings from arguments (unless None), then ``environment``, then defaults.

    Raise ConfigurationError, with the setting, its value unless secret, and what is allowed. Raise
    TypeError for an argument that is not a setting.
    """
    unknown = set(arguments) - set(NAMES)
    if unknown:
        raise TypeError(f"unknown setting {', '.join(sorted(unknown))}: there are {', '.join(NAMES)}")
    if environment is None:
        environment = os.environ
        _warn_of_unknown_variables(environment)
    found = _found(environment, arguments)
    values = {name: _checked(name, setting, value) for name, (setting, value) in found.items()}
    if any(values.get(name) for name in TLS_FILES):
        values.setdefault("tls", True)
    _check_together(values, found)
    return Settings(**values)


def _warn_of_unknown_variables(environment: Mapping[str, str]) -> None:
    known = {PREFIX + name.upper() for name in NAMES if name != "acl"} | OTHER_VARIABLES
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and not variable.startswith(TEST_PREFIX) and variable not in known:
            with importing():
                import difflib

            similar = difflib.get_close_matches(variable, known, 1, cutoff=0.8)
            hint = f"did you mean {similar[0]}?" if similar else f"the variables are {', '.join(sorted(known))}"
            warnings.warn(f"{variable} is not a setting of distsync: {hint}", ConfigurationWarning, stacklevel=2)


def _found(environment: Mapping[str, str], arguments: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return, for each setting found, the name of the argument or variable, and the value."""
    found = {}
    for name in NAMES:
        variable = PREFIX + name.upper()
        if arguments.get(name) is EMBEDDED:
            continue
        if arguments.get(name) is not None:
            found[name] = (name, arguments[name])
        elif name != "acl" and (environment.get(variable) or (name in GUARDS and variable in environment)):
            found[name] = (variable, environment[variable])
    return found


def _checked(name: str, setting: str, value: Any) -> Any:
    try:
        return CHECKS[name](value)
    except (ValueError, TypeError) as error:
        raise_if_from_handler(error)
        reason = error.args[-1] if isinstance(error, ConfigurationError) else str(error)
        shown = HIDDEN if name in SECRETS else value
    raise ConfigurationError(setting, shown, reason)  # outside of the handler: its context could show the secret


def _check_together(values: Mapping[str, Any], found: Mapping[str, tuple[str, Any]]) -> None:
    if values.get("require_hosts") and "hosts" not in values:
        setting, value = found["require_hosts"]
        raise ConfigurationError(setting, value, "it refuses the embedded server: give hosts, or set DISTSYNC_HOSTS")
    if values.get("tls") and "hosts" not in values:
        name = next(name for name in ("tls", *TLS_FILES) if name in found)
        raise ConfigurationError(*found[name], "it needs hosts: the embedded server is used without TLS")
    if "tls_key" in values and "tls_cert" not in values:
        raise ConfigurationError(*found["tls_key"], "it needs tls_cert, the certificate of this key")
    if values.get("authkeys_accepted") and "authkey" not in values:
        raise ConfigurationError(found["authkeys_accepted"][0], HIDDEN, "it needs authkey, which signs")
    schemes = [scheme for scheme, _ in values.get("auth", ())]
    for scheme, is_met, needs in (
        ("x509", "tls_cert" in values, "x509 needs tls_cert, the certificate of this identity"),
        ("sasl", "hosts" in values, "sasl needs hosts: an automatically started embedded server has no users"),
        ("sasl", schemes.count("sasl") < 2, "sasl may be given once"),
        ("sasl", find_spec("puresasl") is not None, 'sasl needs a package: pip install "distsync[sasl]"'),
    ):
        if scheme in schemes and not is_met:
            raise ConfigurationError(found["auth"][0], HIDDEN, needs)


def _hosts(value: Any) -> str:
    allowed = "it must be host:port,host:port or host:port/chroot"
    text = ",".join(value) if _is_list_of(str, value) else value
    if not isinstance(text, str):
        raise ValueError(allowed)
    hosts, slash, chroot = ",".join(each.strip() for each in text.split(",")).partition("/")
    for host in hosts.split(","):
        match = HOST.fullmatch(host)
        if not match or not 0 < int(match[1] or 1) < 65536:
            raise ValueError(f"{host!r} is not host:port, {allowed}")
    if "," in chroot:
        raise ValueError(f"a chroot is allowed once, at the end: {allowed}")
    return hosts + check_path(slash + chroot, "a chroot") if chroot else hosts


def _is_list_of(kind: type, value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(each, kind) for each in value)


def _seconds(value: Any) -> float:
    try:
        seconds = float(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise_if_from_handler(error)
        seconds = math.nan
    if isinstance(value, bool) or not 0 < seconds <= MAX_TIMEOUT:
        raise ValueError(f"it must be a number of seconds, greater than 0 and at most {MAX_TIMEOUT:.0f}")
    return seconds


def linger_seconds(value: Any) -> float:
    """Return the checked seconds for which a released lock stays cached; 0 disables caching."""
    try:
        seconds = float(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise_if_from_handler(error)
        seconds = math.nan
    if isinstance(value, bool) or not 0 <= seconds <= MAX_TIMEOUT:
        raise ValueError(f"it must be a number of seconds, from 0 to {MAX_TIMEOUT:.0f}")
    return seconds


def _auth(value: Any) -> tuple[tuple[str, str], ...]:
    entries = [entry.partition(":")[::2] for entry in ANOTHER_ENTRY.split(value)] if isinstance(value, str) else value
    if not isinstance(entries, (list, tuple)) or not all(_is_credential(entry) for entry in entries):
        raise ValueError(
            'it must be "digest:user:password", "sasl:user:password" or "x509:", or as an argument a list of pairs '
            '("digest", "user:password")'
        )
    return tuple((scheme, credential) for scheme, credential in entries)


def _is_credential(entry: Any) -> bool:
    if not _is_list_of(str, entry) or len(entry) != 2 or not entry[0]:
        return False
    if entry[0] in ("digest", "sasl"):
        return all(entry[1].partition(":"))
    return entry[0] == "x509" or bool(entry[1])


def _authkey(value: Any) -> bytes:
    key = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    if not isinstance(key, (bytes, bytearray)) or not key:
        raise ValueError("it must be bytes or text, and not empty")
    return bytes(key)


def _authkeys(value: Any) -> tuple[bytes, ...]:
    keys = value.split(",") if isinstance(value, str) else [value] if isinstance(value, (bytes, bytearray)) else value
    if not isinstance(keys, (list, tuple)):
        raise ValueError("it must be a list of keys")
    return tuple(_authkey(key) for key in keys)


def check_acl(acl: Any) -> tuple[Any, ...]:
    """Return ``acl`` as a tuple of entries; raise ConfigurationError if it is not an ACL."""
    checked: tuple[Any, ...] = _checked("acl", "acl", acl)
    return checked


def _acl(value: Any) -> tuple[Any, ...]:
    allowed = "it must be a list of ACLs, such as kazoo.security.make_digest_acl returns"
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ValueError(allowed)
    acl = (value,) if hasattr(value, "perms") else tuple(value)  # a single kazoo ACL is itself a tuple
    if not acl or not all(hasattr(each, "perms") and hasattr(each, "id") for each in acl):
        raise ValueError(allowed)
    return acl


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.lower() not in SWITCH:
        raise ValueError("it must be 1 or 0, true or false, yes or no, on or off")
    return SWITCH[value.lower()]


def _file(value: Any) -> str:
    path = os.fspath(value)
    if not isinstance(path, str) or not os.path.isfile(path):
        raise ValueError("it must be a file, but no such file exists")
    return path


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("it must be text")
    return value


CHECKS: dict[str, Callable[[Any], Any]] = {
    "hosts": _hosts,
    "namespace": check_namespace,
    "session_timeout": _seconds,
    "connect_timeout": _seconds,
    "timeout": _seconds,
    "auth": _auth,
    "authkey": _authkey,
    "authkeys_accepted": _authkeys,
    "codec": check_codec,
    "acl": _acl,
    "tls": _switch,
    "tls_ca": _file,
    "tls_cert": _file,
    "tls_key": _file,
    "tls_key_password": _text,
    "tls_verify": _switch,
    "fast_wire": _switch,
    "linger": linger_seconds,
    "require_hosts": _switch,
}
