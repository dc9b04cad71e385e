"""Settings from arguments, the environment, and defaults; errors state how to correct a bad one."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from kazoo.security import make_digest_acl

from distsync._client.settings import GUARDS, NAMES, Settings, read_settings
from distsync.errors import ConfigurationError, ConfigurationWarning


class OwnCodec:
    def encode(self, item: Any) -> bytes:
        return bytes(item)

    def decode(self, data: bytes) -> Any:
        return data


def test_defaults_apply_without_settings() -> None:
    assert read_settings({}) == Settings()
    assert Settings().hosts is None
    assert Settings().namespace == "/distsync"


def test_environment_supplies_missing_arguments() -> None:
    environment = {
        "DISTSYNC_HOSTS": "a:2181, b:2182/app",
        "DISTSYNC_NAMESPACE": "/team",
        "DISTSYNC_SESSION_TIMEOUT": "2.5",
        "DISTSYNC_CONNECT_TIMEOUT": "3",
        "DISTSYNC_TIMEOUT": "4.5",
        "DISTSYNC_AUTH": "digest:me:secret",
        "DISTSYNC_AUTHKEY": "schlüssel",
        "DISTSYNC_CODEC": "json",
    }
    settings = read_settings(environment, namespace="/mine", connect_timeout=None)
    assert settings == Settings(
        hosts="a:2181,b:2182/app",
        namespace="/mine",
        session_timeout=2.5,
        connect_timeout=3.0,
        timeout=4.5,
        auth=(("digest", "me:secret"),),
        authkey="schlüssel".encode(),
        codec="json",
    )


def test_process_environment_is_used_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTSYNC_NAMESPACE", "/from/environment")
    assert read_settings().namespace == "/from/environment"


def test_an_empty_variable_counts_as_not_set() -> None:
    assert read_settings({f"DISTSYNC_{name.upper()}": "" for name in NAMES if name not in GUARDS}) == Settings()


@pytest.mark.parametrize("name", GUARDS)
def test_empty_variable_does_not_disable_a_protection(name: str) -> None:
    variable = f"DISTSYNC_{name.upper()}"
    with pytest.raises(ConfigurationError, match=variable):
        read_settings({"DISTSYNC_HOSTS": "h:1", variable: ""})
    assert read_settings({"DISTSYNC_HOSTS": "h:1"}) == Settings(hosts="h:1")


def test_an_empty_authkey_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="not empty"):
        read_settings({}, authkey=b"")


@pytest.mark.parametrize("hosts", ["h", "h:1", "h:65535", "[::1]:2181", "127.0.0.1:2181,h2:2182", "h:2181/a/b"])
def test_hosts_are_accepted(hosts: str) -> None:
    assert read_settings({}, hosts=hosts).hosts == hosts


def test_hosts_may_be_a_list() -> None:
    assert read_settings({}, hosts=["a:1", "b:2"]).hosts == "a:1,b:2"
    assert read_settings({}, hosts=" a:1, b:2 ").hosts == "a:1,b:2"


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("digest:me:secret", (("digest", "me:secret"),)),
        ("digest:me:a,b", (("digest", "me:a,b"),)),
        ("digest:me:a:b", (("digest", "me:a:b"),)),
        ("digest:me:a,digest:you:b", (("digest", "me:a"), ("digest", "you:b"))),
        ("ip:10.0.0.1", (("ip", "10.0.0.1"),)),
        ("digest:me:a,ip:10.0.0.1", (("digest", "me:a"), ("ip", "10.0.0.1"))),
    ],
)
def test_auth_is_read_from_text(text: str, pairs: tuple[tuple[str, str], ...]) -> None:
    assert read_settings({"DISTSYNC_AUTH": text}).auth == pairs
    assert read_settings({}, auth=text).auth == pairs
    assert read_settings({}, auth=list(pairs)).auth == pairs


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("hosts", "h:port", "host:port"),
        ("hosts", "h:0", "host:port"),
        ("hosts", "h:65536", "host:port"),
        ("hosts", "a,,b", "host:port"),
        ("hosts", "zk://h:2181", "host:port"),
        ("hosts", ",", "host:port"),
        ("hosts", "::1", "host:port"),
        ("hosts", "h:1/a//b", "empty part"),
        ("hosts", "h:1/app,h:2/app", "once, at the end"),
        ("hosts", "a b:2181", "host:port"),
        ("namespace", "distsync", "begin with"),
        ("namespace", "/a/", "empty part"),
        ("namespace", "/zookeeper", "ZooKeeper itself"),
        ("session_timeout", "0", "seconds"),
        ("session_timeout", "-1", "seconds"),
        ("session_timeout", "nan", "seconds"),
        ("session_timeout", "inf", "seconds"),
        ("session_timeout", "3e6", "at most 2000000"),
        ("connect_timeout", "ten", "seconds"),
        ("timeout", "0", "seconds"),
        ("timeout", "-1", "seconds"),
        ("timeout", "inf", "seconds"),
        ("timeout", "nan", "seconds"),
        ("codec", "yaml", '"json"'),
        ("tls", "maybe", "true or false"),
        ("tls_verify", "2", "true or false"),
        ("tls_ca", "/no/such/file", "must be a file"),
        ("tls_cert", "/", "must be a file"),
    ],
)
def test_bad_value_raises_an_error_with_setting_value_and_allowed_values(name: str, value: str, allowed: str) -> None:
    variable = f"DISTSYNC_{name.upper()}"
    for setting, environment, given in ((variable, {variable: value}, {}), (name, {}, {name: value})):
        with pytest.raises(ConfigurationError, match=allowed) as caught:
            read_settings(environment, **given)
        assert str(caught.value).startswith(f"{setting}={value!r} cannot be used: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hosts", 3),
        ("hosts", ""),
        ("hosts", []),
        ("hosts", [1]),
        ("namespace", b"/a"),
        ("session_timeout", True),
        ("session_timeout", "" ),
        ("session_timeout", [1]),
        ("connect_timeout", 0),
        ("timeout", False),
        ("codec", OwnCodec),
        ("codec", 3),
        ("acl", "world"),
        ("acl", []),
        ("acl", 3),
        ("acl", ["r"]),
        ("tls", 1),
        ("tls_ca", b"/etc/passwd"),
        ("tls_ca", 3),
    ],
)  # fmt: skip
def test_an_argument_of_a_wrong_type_is_a_configuration_error(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name}="):
        read_settings({}, **{name: value})


@pytest.mark.parametrize("name", ["session_timeout", "connect_timeout", "timeout", "linger"])
def test_an_integer_that_no_float_can_hold_is_a_configuration_error(name: str) -> None:
    """It raised a bare OverflowError."""
    with pytest.raises(ConfigurationError, match=f"^{name}=.*at most|^{name}=.* to "):
        read_settings({}, **{name: 10**400})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auth", "sesame"),
        ("auth", "digest:sesame"),
        ("auth", "digest::sesame"),
        ("auth", "digest:sesame:"),
        ("auth", ("digest", "me:sesame")),
        ("auth", [("digest", "me:sesame", 3)]),
        ("auth", [("digest", b"me:sesame")]),
        ("auth", 3),
        ("authkey", ["sesame"]),
        ("tls_key_password", b"sesame"),
    ],
)
def test_an_error_about_a_secret_does_not_show_it(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_settings({}, **{name: value})
    error: BaseException | None = caught.value
    assert str(error).startswith(f"{name}='***' cannot be used: it must be ")
    while error is not None:
        assert "sesame" not in repr(error)
        error = error.__cause__ or error.__context__


def test_secrets_are_not_in_the_repr() -> None:
    settings = read_settings({}, auth="digest:me:sesame", authkey="sesame", tls_key_password="sesame")
    assert "sesame" not in repr(settings)
    assert "sesame" not in repr(settings.payload_codec())
    assert settings.payload_codec().signed


def test_an_unknown_setting_is_a_type_error_that_lists_the_known_ones() -> None:
    with pytest.raises(TypeError, match=r"unknown setting host: there are hosts, namespace"):
        read_settings({}, host="h")


def test_codec_and_acls_are_accepted_as_objects() -> None:
    codec, acl = OwnCodec(), make_digest_acl("me", "secret", all=True)
    settings = read_settings({}, codec=codec, acl=[acl])
    assert settings.codec is codec
    assert settings.acl == (acl,)
    assert read_settings({}, acl=acl).acl == (acl,)


def test_a_tls_file_turns_tls_on_unless_it_is_turned_off(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("x")
    assert read_settings({"DISTSYNC_TLS_CA": os.fspath(file)}, hosts="h").tls
    assert read_settings({}, hosts="h", tls_ca=file).tls_ca == str(file)
    assert not read_settings({"DISTSYNC_TLS_CA": os.fspath(file)}, hosts="h", tls=False).tls


def test_tls_without_hosts_or_a_key_without_its_certificate_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_text("x")
    with pytest.raises(ConfigurationError, match=r"DISTSYNC_TLS='1'.*needs hosts"):
        read_settings({"DISTSYNC_TLS": "1"})
    with pytest.raises(ConfigurationError, match=r"tls_ca=.*needs hosts"):
        read_settings({}, tls_ca=file)
    with pytest.raises(ConfigurationError, match=r"tls_key=.*needs tls_cert"):
        read_settings({}, hosts="h", tls_key=file)


@pytest.mark.parametrize("text", ["digest:me", "sasl:me", "digest::secret", "sasl::x", "ip:", "", ":x"])
def test_half_a_credential_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        read_settings({}, auth=[tuple(text.partition(":")[::2])])
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("text", ["x509", "x509:"])
def test_x509_has_no_credential_but_the_certificate(text: str) -> None:
    assert read_settings({}, auth=text, hosts="h:1", tls_cert=__file__).auth == (("x509", ""),)
    with pytest.raises(ConfigurationError, match="tls_cert"):
        read_settings({}, auth=text, hosts="h:1")


def test_sasl_is_for_one_user_of_a_real_server() -> None:
    for given in ({"auth": "sasl:a:b"}, {"auth": "sasl:a:b,sasl:c:d", "hosts": "h:1"}):
        with pytest.raises(ConfigurationError, match="sasl") as refusal:
            read_settings({}, **given)
        assert "a:b" not in str(refusal.value)


@pytest.mark.parametrize("value", ["new,newer", [b"new", "newer"], ("new", b"newer")])
def test_further_keys_are_accepted_in_addition_to_the_signing_key(value: Any) -> None:
    settings = read_settings({}, authkey="old", authkeys_accepted=value)
    assert settings.authkeys_accepted == (b"new", b"newer")
    assert "new" not in repr(settings)
    with pytest.raises(ConfigurationError, match="needs authkey") as refusal:
        read_settings({}, authkeys_accepted=value)
    assert "newer" not in str(refusal.value)


def test_require_hosts_refuses_the_embedded_server() -> None:
    with pytest.raises(ConfigurationError, match="DISTSYNC_REQUIRE_HOSTS='1'.*set DISTSYNC_HOSTS"):
        read_settings({"DISTSYNC_REQUIRE_HOSTS": "1"})
    with pytest.raises(ConfigurationError, match="require_hosts=True"):
        read_settings({}, require_hosts=True)
    assert read_settings({"DISTSYNC_REQUIRE_HOSTS": "1", "DISTSYNC_HOSTS": "h:1"}).hosts == "h:1"
    assert read_settings({"DISTSYNC_REQUIRE_HOSTS": "1"}, require_hosts=False).hosts is None


@pytest.mark.parametrize(
    ("variable", "hint"), [("DISTSYNC_HOST", "did you mean DISTSYNC_HOSTS?"), ("DISTSYNC_QQQQ", "the variables are")]
)
def test_unknown_variable_warns(monkeypatch: pytest.MonkeyPatch, variable: str, hint: str) -> None:
    monkeypatch.setenv(variable, "zk:2181")
    with pytest.warns(ConfigurationWarning, match=f"{variable} is not a setting of distsync: {re.escape(hint)}"):
        read_settings()


@pytest.mark.parametrize("variable", ["DISTSYNC_LINGER", "DISTSYNC_STATE_DIR", "DISTSYNC_TEST_MANY"])
def test_known_variable_does_not_warn(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_settings()
