"""``distsync serve``: run a server; its options are explained in _server/main.py."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from distsync._server import main as server_main
from distsync._server.admin.four_letter_words import ALL
from distsync._server.options import DEFAULT_OPTIONS, SCHEMES, WORDS, Options, Tls

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("serve", short_help="Run a server that speaks the ZooKeeper protocol.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=2181, show_default=True, type=click.IntRange(0, 65535), help="0: any free port.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder for znodes and sessions; created if necessary. Default: in the user's state folder.",
)
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path),
    help="File of mode 0600 with a secret. Clients without it, as digest identity distsync:SECRET, are refused.",
)
@click.option(
    "--idle-exit", type=click.FloatRange(0, min_open=True), help="Stop after this number of seconds without sessions."
)
@click.option(
    "--allow-remote",
    is_flag=True,
    help="Allow a --host that other machines can reach, without TLS or without a secret.",
)
@click.option(
    "--sync",
    type=click.Choice(["process", "full"]),
    default="process",
    show_default=True,
    help="What an acknowledged write survives: the end of the process, or also a power failure.",
)
@click.option("--tls-cert", type=FILE, help="Certificate (PEM) to speak TLS with; needs --tls-key.")
@click.option("--tls-key", type=FILE, help="Its key (PEM).")
@click.option(
    "--tls-ca",
    type=FILE,
    help="Clients must show a certificate that this authority (PEM) has signed; its subject is their identity (x509).",
)
@click.option(
    "--tls-client-auth",
    type=click.Choice(["need", "want"]),
    default="need",
    show_default=True,
    help="With --tls-ca: want also admits clients without a certificate.",
)
@click.option(
    "--sasl-users",
    type=click.Path(path_type=Path),
    help="File of mode 0600 with lines USER:PASSWORD, for authentication by SASL, DIGEST-MD5 (ACLs of sasl).",
)
@click.option(
    "--require-auth",
    default="",
    help="sasl, x509 or sasl,x509: refuse clients that have not authenticated by one of them.",
)
@click.option(
    "--words",
    default=",".join(sorted(WORDS)),
    show_default=True,
    help="Four-letter words to answer, separated by commas; * for all.",
)
@click.option(
    "--jute-maxbuffer",
    default=DEFAULT_OPTIONS.jute_maxbuffer,
    show_default=True,
    type=click.IntRange(1024, (1 << 31) - 1),
    help="Maximum size of a request in bytes.",
)
@click.option(
    "--super-digest",
    help="USER:BASE64(SHA1(USER:PASSWORD)) of the super user, which no ACL restricts. All users of this host can read "
    "it here, and guess passwords.",
)
@click.option("--super-file", type=click.Path(path_type=Path), help="The same from a file of mode 0600.")
@click.option("--enforce-quota", is_flag=True, help="Refuse writes beyond the hard limits of quotas.")
@click.option(
    "--reaping-interval",
    default=DEFAULT_OPTIONS.reaping_seconds,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Seconds between two searches for empty containers and expired TTL nodes.",
)
def serve_command(
    host: str,
    port: int,
    data_dir: Path | None,
    secret_file: Path | None,
    idle_exit: float | None,
    allow_remote: bool,
    sync: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_ca: Path | None,
    tls_client_auth: str,
    sasl_users: Path | None,
    require_auth: str,
    words: str,
    jute_maxbuffer: int,
    super_digest: str | None,
    super_file: Path | None,
    enforce_quota: bool,
    reaping_interval: float,
) -> None:
    """Run a server that speaks the ZooKeeper protocol, until SIGTERM or Ctrl-C."""
    options = Options(
        sync_full=sync == "full",
        tls=_tls(tls_cert, tls_key, tls_ca, tls_client_auth == "want"),
        required_schemes=_some_of(require_auth, SCHEMES, "--require-auth"),
        words=_some_of(words, ALL | {"*"}, "--words"),
        jute_maxbuffer=jute_maxbuffer,
        super_digest=super_digest,
        enforce_quota=enforce_quota,
        reaping_seconds=reaping_interval,
    )
    sys.exit(
        server_main.run(
            host=host,
            port=port,
            data_dir=data_dir,
            secret_file=secret_file,
            users_file=sasl_users,
            super_file=super_file,
            idle_exit=idle_exit,
            allow_remote=allow_remote,
            options=options,
        )
    )


def _tls(certificate: Path | None, key: Path | None, ca: Path | None, optional: bool) -> Tls | None:
    if optional and not ca:
        raise click.UsageError("--tls-client-auth needs --tls-ca")
    if certificate and key:
        return Tls(certificate, key, ca, optional)
    if certificate or key or ca:
        raise click.UsageError("TLS needs both --tls-cert and --tls-key")
    return None


def _some_of(text: str, allowed: frozenset[str], option: str) -> frozenset[str]:
    chosen = frozenset(filter(None, (word.strip() for word in text.split(","))))
    unknown = chosen - allowed
    if unknown:
        known = ", ".join(sorted(allowed - {"*"}))
        raise click.UsageError(f"{option}: there is no {', '.join(sorted(unknown))}; there are {known}")
    return chosen
