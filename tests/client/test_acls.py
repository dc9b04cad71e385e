"""Access control: with credentials, other users cannot do anything with our znodes, whatever the kind
of object.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.all_object_kinds import KINDS, PROCESSES, one_of_each, public_kinds
from helpers.leak_census import Observer, nothing_more, open_links
from helpers.servers import EmbeddedProcess, ServerProcess
from helpers.timing import PATIENCE, eventually
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NotEmptyError
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id, Permissions, make_digest_acl

import distsync
from distsync import AccessDeniedError
from distsync._client import default_client
from distsync._client.client import Client
from distsync._client.lease.holds import GUARD_AFTER_S
from distsync.multiprocessing import Pool

MakeClient = Callable[..., Client]

ALICE, BOB = "alice:in wonderland", "bob:the builder"
DIGEST_OF_ALICE = make_digest_acl(*ALICE.split(":"), all=True)
MANAGED = {"ArrayProxy", "DictProxy", "ListProxy", "NamespaceProxy", "ValueProxy"}
"""A manager makes them."""

pytestmark = pytest.mark.usefixtures("nothing_kept")  # the stored items are read one by one

EVERY_KIND = KINDS | PROCESSES


@pytest.fixture
def alice(make_client: MakeClient, observer: Observer) -> Iterator[Client]:
    """A client of alice, which the observer uses too."""
    observer.kazoo.add_auth("digest", ALICE)
    made = make_client(auth=f"digest:{ALICE}")
    default_client.set_default(made)
    yield made
    default_client.set_default(None)
    made.close()  # entries of a registry, and sites of a transaction, stay as long as their client


@pytest.fixture
def mallory(server: ServerProcess) -> Iterator[KazooClient]:
    """Another user, through kazoo."""
    made = KazooClient(server.hosts, timeout=4.0, auth_data=[("digest", BOB)])
    made.start(PATIENCE)
    yield made
    made.stop()
    made.close()


def tree(client: KazooClient, path: str) -> Iterator[str]:
    yield path
    for name in client.get_children(path):
        yield from tree(client, f"{path}/{name}")


def refused(attempt: Callable[..., Any], *args: Any) -> bool:
    try:
        attempt(*args)
    except NoAuthError:
        return True
    except NotEmptyError:  # the namespace's own parent is the root, which is open to all
        return attempt.__name__ == "delete" and args[0].count("/") == 1
    return False


def test_every_kind_is_tried() -> None:
    tried = {kind.partition("(")[0].removeprefix("multiprocessing.") for kind in EVERY_KIND}
    assert public_kinds() <= tried | MANAGED


@pytest.mark.slow
def test_all_znodes_of_all_kinds_are_their_creators_alone(
    alice: Client, observer: Observer, mallory: KazooClient, namespace: str
) -> None:
    eyes = observer.kazoo
    with one_of_each(alice, EVERY_KIND):
        paths = list(tree(eyes, namespace))
        assert len(paths) > 150
        assert {path: eyes.get_acls(path)[0] for path in paths} == {path: [DIGEST_OF_ALICE] for path in paths}
        for path in paths:
            attempts: list[tuple[Any, ...]] = [
                (mallory.get, path),
                (mallory.get_children, path),
                (mallory.set, path, b"forged"),
                (mallory.delete, path),
                (mallory.create, f"{path}/forged-0000000000"),
                (mallory.set_acls, path, OPEN_ACL_UNSAFE),
            ]
            allowed = [attempt.__name__ for attempt, *args in attempts if not refused(attempt, *args)]
            assert not allowed, f"another user may {allowed} {path}"


#: What reports its error elsewhere: a feeder thread's hook; a pool's workers.
ELSEWHERE = {"multiprocessing.Queue", "multiprocessing.JoinableQueue"}


def refusal(client: Client, kind: str) -> str:
    """What it says. It is not kept: its traceback holds what was made."""
    try:
        with one_of_each(client, {kind: EVERY_KIND[kind]}):
            pytest.fail(f"{kind} is not refused")
    except AccessDeniedError as error:
        return str(error.args[0])


@pytest.mark.slow_on("zookeeper")
def test_another_user_is_refused_at_once_by_every_kind(alice: Client, make_client: MakeClient) -> None:
    bob = make_client(auth=f"digest:{BOB}")
    with one_of_each(alice, EVERY_KIND):
        for kind in EVERY_KIND.keys() - ELSEWHERE:
            assert refusal(bob, kind).startswith(alice.namespace)


#: Which kinds do all of this without the right; of all others it says who may not do what. ADMIN is needed by none.
NEEDLESS = {
    "read": set[str](),
    "write": {"Lock", "Election", "Gate", "Group"},
    "create": {"RateLimiter", "IdGenerator"},
    "delete": {"Counter", "Value", "Config", "Event"},
    "admin": KINDS.keys(),
}
#: Its site is refused; the decider waits for it as long as it wants.
WAITS = {"delete": {"Transaction"}}


@pytest.mark.slow_on("zookeeper")
@pytest.mark.parametrize("missing", NEEDLESS)
def test_client_that_lacks_one_permission_gets_an_error_or_does_without_for_every_kind(
    missing: str, alice: Client, make_client: MakeClient
) -> None:
    rights = {each: each != missing for each in NEEDLESS}
    both = [DIGEST_OF_ALICE, make_digest_acl(*BOB.split(":"), **rights)]
    owner, bob = make_client(auth=f"digest:{ALICE}", acl=both), make_client(auth=f"digest:{BOB}", acl=both)
    with one_of_each(owner, KINDS):
        pass
    owner.close()
    served = set()
    for kind in KINDS.keys() - WAITS.get(missing, set()):
        try:
            with one_of_each(bob, {kind: KINDS[kind]}):
                served.add(kind)
        except AccessDeniedError as error:
            assert str(error.args[0]).startswith(owner.namespace)
    assert served >= NEEDLESS[missing]
    bob.close()
    assert bob.closed


def test_pool_that_is_refused_leaves_no_pipe_though_its_error_is_kept(alice: Client, make_client: MakeClient) -> None:
    bob, kind = make_client(auth=f"digest:{BOB}"), "multiprocessing.Pool"
    with one_of_each(alice, {kind: EVERY_KIND[kind]}):
        refusal(bob, kind)  # bob is connected
        before = frozenset(open_links())
        with pytest.raises(AccessDeniedError) as kept:
            Pool(1, name=f"the {kind}", client=bob)
        assert nothing_more(lambda: frozenset(open_links()) - before) == []
        del kept


@pytest.mark.slow_on("zookeeper")
def test_who_shows_nothing_is_refused(alice: Client, make_client: MakeClient) -> None:
    nobody = make_client()
    with distsync.Lock(name="a", client=alice):
        with pytest.raises(AccessDeniedError):
            distsync.Lock(name="a", client=nobody).acquire(timeout=1)
        with pytest.raises(AccessDeniedError):
            distsync.Lock(name="a", client=nobody).holders()


@pytest.mark.slow_on("zookeeper")
def test_two_users_share_a_namespace_whose_acl_names_both(alice: Client, make_client: MakeClient) -> None:
    both = [make_digest_acl(*ALICE.split(":"), all=True), make_digest_acl(*BOB.split(":"), all=True)]
    mine, yours = (make_client(auth=f"digest:{user}", acl=both) for user in (ALICE, BOB))
    queue = distsync.Queue(name="q", client=mine)
    queue.put("from alice")
    assert distsync.Queue(name="q", client=yours).get() == "from alice"
    with distsync.Lock(name="l", client=yours):
        assert not distsync.Lock(name="l", client=mine).acquire(blocking=False)


FOR_BOTH = [make_digest_acl(*ALICE.split(":"), all=True), make_digest_acl(*BOB.split(":"), all=True)]


def test_one_object_is_shared_by_its_own_acl_and_nothing_else_is(
    alice: Client, make_client: MakeClient, namespace: str, observer: Observer
) -> None:
    observer.kazoo.add_auth("digest", BOB)
    shared, own = distsync.Queue(name="shared", acl=FOR_BOTH), distsync.Queue(name="own")
    shared.put("for bob")
    own.put("for alice")
    bob = make_client(namespace=f"{namespace}-of-bob", auth=f"digest:{BOB}")
    with pytest.raises(AccessDeniedError):
        distsync.Queue(path=own.path, client=bob).get(timeout=1)
    assert distsync.Queue(path=shared.path, client=bob, acl=FOR_BOTH).get(timeout=20) == "for bob"
    distsync.Queue(path=shared.path, client=bob, acl=FOR_BOTH).put("for alice")
    assert shared.get(timeout=20) == "for alice"
    bob.close()
    observer.wipe(f"{namespace}-of-bob")


@pytest.mark.slow_on("zookeeper")
def test_every_kind_takes_an_acl_of_its_own_for_all_that_it_is_made_of(
    alice: Client, observer: Observer, namespace: str
) -> None:
    with one_of_each(alice, KINDS, acl=FOR_BOTH) as made:
        tops = tuple(each.path for each in made.values())
        found = {
            path: set(observer.kazoo.get_acls(path)[0])
            for path in tree(observer.kazoo, namespace)
            if path.startswith(tops)
        }
        assert set(tops) <= set(found)
        assert found == {path: set(FOR_BOTH) for path in found}


def test_deletion_of_a_held_znode_that_its_creator_may_not_read_is_noticed(
    make_client: MakeClient, observer: Observer
) -> None:
    observer.kazoo.add_auth("digest", ALICE)
    alice, bob = (make_client(auth=f"digest:{user}", acl=FOR_BOTH) for user in (ALICE, BOB))
    with distsync.Lock(name="a", client=alice):
        pass
    unreadable = [DIGEST_OF_ALICE, make_digest_acl(*BOB.split(":"), write=True, create=True, delete=True)]
    losses: list[distsync.LockLostError] = []
    lock = distsync.Lock(name="a", client=bob, acl=unreadable, on_lost=losses.append)
    lock.acquire(timeout=PATIENCE)
    time.sleep(2 * GUARD_AFTER_S)  # by then its watch was refused
    observer.kazoo.delete(distsync.Lock(name="a", client=alice).holders()[0].path)
    eventually(lambda: losses)
    assert losses[0].args == (lock.path, "znode deleted")
    with pytest.raises(distsync.LockLostError):
        lock.release()


def test_acl_of_an_object_travels_with_it(alice: Client) -> None:
    lock = pickle.loads(pickle.dumps(distsync.Lock(name="a", acl=FOR_BOTH)))
    assert lock._acl == tuple(FOR_BOTH)


def test_others_may_make_namespaces_beside_ours_and_take_nothing_away(
    make_client: MakeClient, observer: Observer, namespace: str
) -> None:
    """The first client creates their common parent."""
    for user in (ALICE, BOB):
        observer.kazoo.add_auth("digest", user)
    alice = make_client(namespace=f"{namespace}/team/alice", auth=f"digest:{ALICE}")
    bob = make_client(namespace=f"{namespace}/team/bob", auth=f"digest:{BOB}")
    with distsync.Lock(name="a", client=alice), distsync.Lock(name="a", client=bob) as held:
        assert held
        mine = [DIGEST_OF_ALICE, ACL(Permissions.READ | Permissions.CREATE, Id("world", "anyone"))]
        assert observer.kazoo.get_acls(f"{namespace}/team")[0] == mine
        assert observer.kazoo.get_acls(f"{namespace}/team/alice")[0] == [DIGEST_OF_ALICE]
    with pytest.raises(AccessDeniedError):
        distsync.Lock(name="a", client=make_client(namespace=alice.namespace, auth=f"digest:{BOB}")).acquire()


def test_acl_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(distsync.ConfigurationError, match="list of ACLs"):
        distsync.Lock(name="a", acl="alice")


def test_without_credentials_all_is_open(client: Client, observer: Observer, namespace: str) -> None:
    with distsync.Lock(name="a"):
        assert all(observer.kazoo.get_acls(path)[0] == OPEN_ACL_UNSAFE for path in tree(observer.kazoo, namespace))


def test_another_user_may_ask_whether_a_path_is_there(
    alice: Client, mallory: KazooClient, server: ServerProcess
) -> None:
    """ZooKeeper gives that away, and how long the data are; nothing keeps it off, but a later version (3.9.5 does)."""
    distsync.Value("secret", name="v").set("secret")
    try:
        stat = mallory.exists(f"{alice.namespace}/value/v")
    except NoAuthError:
        assert not server.figures()["zk_version"].startswith("3.8.")
    else:
        assert stat is not None
        assert stat.dataLength > 0


SECRET = "0123456789abcdef0123456789abcdef"


class SecretProcess(EmbeddedProcess):
    """A server that is for those who know its secret."""

    def command(self) -> list[str]:
        (self.folder / "secret").write_text(SECRET)
        (self.folder / "secret").chmod(0o600)
        return [*super().command(), "--secret-file", str(self.folder / "secret")]


def test_secret_that_all_users_of_a_server_show_makes_no_owner(tmp_path: Path) -> None:
    own = SecretProcess(tmp_path)
    own.start()
    try:
        shown = ("digest", f"distsync:{SECRET}")
        mine, yours, nobodys = (
            Client(own.hosts, auth=[shown, *more], session_timeout=4.0)
            for more in ([("digest", ALICE)], [("digest", BOB)], [])
        )
        with mine, yours, nobodys, distsync.Lock(name="a", client=mine):
            for other in (yours, nobodys):
                with pytest.raises(AccessDeniedError):
                    distsync.Lock(name="a", client=other).acquire(timeout=1)
    finally:
        own.stop()


LIMITS, STATS = "/zookeeper/quota/alice/zookeeper_limits", "/zookeeper/quota/alice/zookeeper_stats"
OPEN_TO_ALL: list[tuple[str, Any]] = [
    ("create", "/zookeeper/quota/alice"),
    ("create", (LIMITS, b"count=1,bytes=-1")),
    ("create", (STATS, b"")),
    ("get", STATS),
    ("set", (STATS, b"no numbers")),
    ("set_acls", ("/", [make_digest_acl(*BOB.split(":"), all=True)])),
]
"""What anybody can do who reaches a server, unless its administrator was there first."""


@contextmanager
def user(server: ServerProcess, *credentials: str) -> Iterator[KazooClient]:
    made = KazooClient(server.hosts, timeout=4.0, auth_data=[("digest", each) for each in credentials])
    made.start(PATIENCE)
    try:
        yield made
    finally:
        made.stop()
        made.close()


def attempt(client: KazooClient, what: str, how: Any) -> bool:
    """Whether it is refused."""
    return refused(getattr(client, what), *(how if isinstance(how, tuple) else (how,)))


@pytest.mark.slow
def test_root_and_quotas_are_open_to_unauthenticated_clients(own_server: ServerProcess) -> None:
    with Client(own_server.hosts, namespace="/alice", auth=f"digest:{ALICE}") as alice:
        queue = distsync.Queue(name="q", client=alice)
        queue.put(1)
        with user(own_server) as nobody:
            assert not any(attempt(nobody, *each) for each in OPEN_TO_ALL)
        with Client(own_server.hosts, namespace="/carol") as carol, pytest.raises(AccessDeniedError):
            distsync.Queue(name="q", client=carol).put(1)
        if own_server.name == "embedded":
            queue.put(2)
            assert queue.get_many(2) == [1, 2]
            return
        with pytest.raises(distsync.DistsyncError):  # it ends as it counts
            queue.put(2, timeout=2)
    with pytest.raises(AssertionError, match="server exited"):  # and does not start again
        own_server.restart(kill=True)


@pytest.mark.slow_on("zookeeper")
def test_root_and_quotas_secured_by_their_administrator_stay_so(own_server: ServerProcess) -> None:
    his = make_digest_acl("admin", "of all", all=True)
    with user(own_server, "admin:of all") as admin:
        admin.set_acls("/zookeeper/quota", [his])
        admin.set_acls("/", [his, ACL(Permissions.READ | Permissions.CREATE, Id("world", "anyone"))])
    with Client(own_server.hosts, namespace="/alice", auth=f"digest:{ALICE}") as alice:
        distsync.Queue(name="q", client=alice).put(1)
        with user(own_server) as nobody:
            assert attempt(nobody, *OPEN_TO_ALL[0])
            assert attempt(nobody, *OPEN_TO_ALL[-1])
