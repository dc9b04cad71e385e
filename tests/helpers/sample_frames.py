"""Valid frames of all kinds, to be mutated."""

from __future__ import annotations

from distsync._wire import records as r
from distsync._wire.frames import framed
from distsync._wire.message_codec import encode_connect, encode_request

MIXED = r.MultiRequest(
    (r.CreateRequest("/fuzz-m", b"", flags=1), r.CheckVersionRequest("/", -1), r.DeleteRequest("/no", -1))
)
REQUESTS: list[r.Request] = [
    r.CreateRequest("/fuzz-", b"data", flags=3),
    r.CreateRequest("/fuzz", b"data" * 100),
    r.DeleteRequest("/fuzz", -1),
    r.ExistsRequest("/fuzz", True),
    r.GetDataRequest("/zookeeper", True),
    r.SetDataRequest("/fuzz", b"x", -1),
    r.GetChildrenRequest("/", True),
    r.GetChildren2Request("/", False),
    r.GetAclRequest("/"),
    r.SetAclRequest("/fuzz", r.OPEN_ACL, -1),
    r.SyncRequest("/"),
    MIXED,
    r.SetWatchesRequest(0, ("/a",), ("/b",), ("/c",)),
    r.AuthRequest(0, "digest", b"a:b"),
    r.SaslRequest(b""),
    r.PingRequest(),
    r.Create2Request("/fuzz/two", None, (r.Acl(31, "auth", ""), r.Acl(1, "ip", "127.0.0.0/8"))),
    r.CreateContainerRequest("/fuzz-container"),
    r.CreateTtlRequest("/fuzz-ttl", ttl=50),
    r.MultiReadRequest((r.GetDataRequest("/fuzz"), r.GetChildrenRequest("/"))),
    r.CheckVersionRequest("/fuzz", 0),
    r.GetEphemeralsRequest("/"),
    r.GetAllChildrenNumberRequest("/"),
    r.SetWatches2Request(0, ("/a",), ("/b",), ("/c",), ("/d",), ("/e",)),
    r.AddWatchRequest("/fuzz", 1),
    r.CheckWatchesRequest("/fuzz", 3),
    r.RemoveWatchesRequest("/fuzz", 3),
    r.WhoAmIRequest(),
    r.ReconfigRequest(),
    r.CreateRequest("/zookeeper/quota/fuzz"),
    r.CreateRequest("/zookeeper/quota/fuzz/zookeeper_limits", b"count=2,bytes=9=;byteHardLimit=9;countHardLimit=3"),
    r.CreateRequest("/zookeeper/quota/fuzz/zookeeper_stats", b"count=0,bytes=0"),
    r.CloseSessionRequest(),
]
FRAMES = [framed(encode_request(number, request)) for number, request in enumerate(REQUESTS, 1)]
HELLO = framed(encode_connect(r.ConnectRequest(timeout_ms=1000)))
