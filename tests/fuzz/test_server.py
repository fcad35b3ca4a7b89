"""Fuzzes `evalloom serve`: raw bytes, odd JSON, uploads, ids and headers on every route of a running service.

EVALLOOM_FUZZ_EXAMPLES=2000 tries so many random examples of each test; a failure prints the seed, which
EVALLOOM_FUZZ_SEED repeats. Without it the examples are few and always the same.
"""

from __future__ import annotations

import encodings.aliases
import json
import os
import random
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import h11
import pytest
from hypothesis import HealthCheck, Phase, example, given, seed, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("EVALLOOM_FUZZ_EXAMPLES", "0"))
SEED = int(os.environ.get("EVALLOOM_FUZZ_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
Test = TypeVar("Test", bound=Callable[..., None])


def fuzz(examples: int) -> Callable[[Test], Test]:
    """So many examples, always the same ones; or as many random ones as the environment asks for."""
    chosen = settings(
        max_examples=EXAMPLES or examples,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.function_scoped_fixture,
        ],
    )
    return lambda test: seed(SEED)(chosen(test)) if EXAMPLES else chosen(test)


@pytest.fixture(autouse=True)
def shown_seed() -> None:
    """What a failure prints."""
    print(f"EVALLOOM_FUZZ_EXAMPLES={EXAMPLES} EVALLOOM_FUZZ_SEED={SEED}")


# -- the service, and a client that can send anything --------------------------------------------------


class Answer(NamedTuple):
    """One answer of the service."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.body)


class Service:
    """A running `evalloom serve`."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "evalloom", "serve", "--port", "0", "--data-dir", "data"]
        self.process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, encoding="utf-8")
        assert self.process.stderr
        found = re.search(r"http://127.0.0.1:(\d+) ", self.process.stderr.readline())
        assert found
        self.port = int(found[1])

    def send(self, data: bytes, wait_s: float = 10, method: bytes = b"GET") -> list[Answer]:
        """Every answer to some bytes, until one closes the connection or nothing comes for a while."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait_s) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with suppress(ConnectionError):  # it may refuse them before it has read all
                connection.sendall(data)
            return list(_answers(connection, method, wait_s))

    def ask(self, method: str, path: str, body: bytes = b"", *headers: str) -> Answer:
        """One request, which gets one answer of the kind that the documentation promises."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Connection: close", *headers]
        head = "\r\n".join([*lines, f"Content-Length: {len(body)}"]) + "\r\n\r\n"
        [answer] = self.send(head.encode("latin-1") + body, method=method.encode())
        check(answer)
        return answer

    def stop(self, with_signal: int = 15) -> str:
        """End it; what it has written to stderr."""
        self.process.send_signal(with_signal)
        _, said = self.process.communicate(timeout=60)
        return said


def _answers(connection: socket.socket, method: bytes, wait_s: float) -> Iterator[Answer]:
    peer = h11.Connection(h11.CLIENT, max_incomplete_event_size=10**8)
    peer.send(h11.Request(method=method, target="/", headers=[("Host", "h")]))
    peer.send(h11.EndOfMessage())
    status, headers, parts = 0, {}, b""
    while True:
        event = peer.next_event()
        if event is h11.NEED_DATA:
            try:
                peer.receive_data(connection.recv(1 << 20))
            except TimeoutError:
                assert not status, "an answer without its end"
                return
            except ConnectionResetError:
                return
        elif isinstance(event, h11.Response):
            status = event.status_code
            headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
        elif isinstance(event, h11.Data):
            parts += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            yield Answer(status, headers, parts)
            status, headers, parts = 0, {}, b""
            if peer.their_state is not h11.DONE:
                return
            peer.start_next_cycle()
            connection.settimeout(min(wait_s, 0.05))
            peer.send(h11.Request(method=method, target="/", headers=[("Host", "h")]))
            peer.send(h11.EndOfMessage())
        elif isinstance(event, h11.ConnectionClosed):
            return


def check(answer: Answer) -> None:
    """A success, or a refusal in our form; never a failure of the service."""
    assert 200 <= answer.status < 500, answer
    assert answer.headers["x-content-type-options"] == "nosniff"
    if answer.status >= 400 and answer.body:
        error = answer.value
        assert isinstance(error["error"], str) and error["message"] and "Traceback" not in error["message"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running = Service(tmp_path_factory.mktemp("fuzz"))
    try:
        yield running
        assert running.ask("GET", "/healthz").status == 200
        said = running.stop()
        assert said == "", said
    finally:
        running.process.kill()
        running.process.communicate()


STATE = {
    "nodes": [
        {"id": "n1", "data": {"label": "System", "type": "system_prompt", "content": "Hello {{name}}"}},
        {"id": "n2", "data": {"label": "User", "type": "user_input", "content": "Ask: {{q}}", "variables": []}},
    ],
    "edges": [{"source": "n1", "target": "n2"}],
    "variables": [
        {"id": "v1", "name": "name", "type": "static", "value": "Alice"},
        {"id": "v2", "name": "x", "type": "dynamic", "value": "a.txt", "resolver": "file://a.txt"},
    ],
}
ROWS = [{"q": "hi", "_expected": {"contains": "x"}}, {"q": 1, "n": [1.5, None, True, {"a": "é"}]}]


@pytest.fixture(scope="module")
def ids(service: Service) -> dict[str, str]:
    """One thing of each kind, by its path parameter."""
    project = service.ask("POST", "/api/projects", to_json({"name": "p", "state": STATE})).value["id"]
    dataset = service.ask("POST", "/api/datasets", to_json({"name": "d", "rows": ROWS})).value["id"]
    runs = service.ask("POST", f"/api/datasets/{dataset}/replay", to_json({"projectId": project})).value
    run = runs[0]["runId"]
    return {"projectId": project, "datasetId": dataset, "runId": run, "a": run, "b": run}


def to_json(value: Any) -> bytes:
    return json.dumps(value).encode()


# -- bodies ----------------------------------------------------------------------------------------------

DEEP = ["[" * depth + "]" * depth for depth in (100, 300, 900, 990, 1000, 1020, 1100, 50_000)]
ODD = [
    *("null", "true", "0", "-1", "1.5", "2.0", "1e308", "1e400", "-0.0", "NaN", "9" * 20, "9" * 400, "9" * 4301, '""'),
    *('" "', "[]", "{}", '"\\ud800"', '{"\\ud800":1}', '"\\u0000"', '"\\u001b[2J"', "[null]", '[["a"]]', '{"a":1,"a":2}'),
    *('"../../etc/passwd"', '"{{name}}{{q}}{{"', '"{{' + "x" * 5000 + '}}"', '"%s"' % ("y" * 5000), '"n1"', '"dynamic"'),
    *('"sqlite://x.db"', '"file:///etc/passwd"', '"env://HOME"', '"http://127.0.0.1:1/"', '"echo"', '"openai:gpt-4"'),
    *('{"regex":"(a+)+$"}', '{"contains":["a",1]}', "18446744073709551616", "-9223372036854775809", *DEEP),
]  # fmt: skip


@st.composite
def odd_json(draw: st.DrawFn, sample: Any) -> bytes:
    """The sample as JSON with some of its values replaced, removed or given twice."""
    marks: dict[str, str] = {}

    def change(value: Any) -> Any:
        if draw(st.integers(0, 14)) == 0:
            mark = f"mark-{len(marks)}-"
            marks[mark] = draw(st.sampled_from(ODD))
            return mark
        if isinstance(value, dict):
            return {name: change(inner) for name, inner in value.items() if draw(st.integers(0, 19))}
        if isinstance(value, list):
            return [change(inner) for inner in value for _ in range(draw(st.sampled_from([1] * 8 + [0, 2])))]
        return value

    text = json.dumps(change(sample))
    for mark, odd in marks.items():
        text = text.replace(json.dumps(mark), odd)
    if draw(st.integers(0, 19)) == 0:
        text = draw(st.sampled_from([text[: len(text) // 2], text + text, "\ufeff" + text, "<a>", "", "\0"]))
    return text.encode()


def listed(service: Service) -> list[Any]:
    return [service.ask("GET", f"/api/{kind}?limit=10000").value for kind in ("projects", "datasets")]


@fuzz(80)
@given(odd_json({"name": "p", "state": STATE}))
def test_a_project_is_kept_as_it_was_sent_or_refused(service: Service, body: bytes) -> None:
    before = listed(service)
    made = service.ask("POST", "/api/projects", body)
    if made.status == 201:
        kept = service.ask("GET", made.headers["location"]).value
        assert kept == made.value and kept["state"] == json.loads(body)["state"]
        ran = service.ask("POST", "/api/execute", to_json({"projectId": kept["id"], "row": {"q": "x"}}))
        assert ran.status in (200, 400)
        replaced = service.ask("PUT", made.headers["location"], to_json({"name": "new", "state": STATE}))
        assert replaced.status == 200
        assert service.ask("DELETE", made.headers["location"]).status == 204
    assert listed(service) == before


@fuzz(80)
@given(odd_json({"name": "d", "rows": ROWS}))
def test_a_dataset_is_kept_as_it_was_sent_or_refused(service: Service, ids: dict[str, str], body: bytes) -> None:
    before = listed(service)
    made = service.ask("POST", "/api/datasets", body)
    if made.status == 201:
        path = made.headers["location"]
        kept = service.ask("GET", path).value
        assert kept["rows"] == json.loads(body)["rows"] and kept["rowCount"] == len(kept["rows"])
        for query in ("", "?stream=true"):
            ran = service.ask("POST", f"{path}/replay{query}", to_json({"projectId": ids["projectId"]}))
            assert ran.status == 200 and (query or len(ran.value) == len(kept["rows"]))
        runs = service.ask("GET", f"{path}/runs").value
        assert len(runs) == 2 * len(kept["rows"])
        for run in runs:
            assert service.ask("GET", f"/api/runs/{run['runId']}").status == 200
        assert service.ask("DELETE", f"{path}?withRuns=true").status == 204
        assert all(service.ask("GET", f"/api/runs/{run['runId']}").status == 404 for run in runs)
    assert listed(service) == before


@fuzz(80)
@given(
    odd_json({"projectId": "ID", "limit": 2, "offset": 0, "profile": "echo"}) | odd_json({"projectId": "ID"}),
    odd_json({"state": STATE, "row": ROWS[0], "profile": "echo"}) | odd_json({"projectId": "ID", "row": ROWS[1]}),
    st.booleans(),
)
def test_no_replay_or_execution_makes_it_fail(
    service: Service, ids: dict[str, str], replay: bytes, execution: bytes, is_stream: bool
) -> None:
    path = f"/api/datasets/{ids['datasetId']}"
    before = service.ask("GET", f"{path}/replays?limit=1").value
    query = "?stream=true" if is_stream else ""
    ran = service.ask("POST", f"{path}/replay{query}", replay.replace(b'"ID"', to_json(ids["projectId"])))
    after = service.ask("GET", f"{path}/replays?limit=1").value
    # Rows past the end are answered by an empty list, and nothing is stored for them.
    is_stored = ran.status == 200 and b"runId" in ran.body
    assert (after != before) == is_stored
    service.ask("POST", "/api/execute", execution.replace(b'"ID"', to_json(ids["projectId"])))
    assert service.ask("GET", f"{path}/replays?limit=1").value == after


CHARSETS = sorted({*encodings.aliases.aliases, *encodings.aliases.aliases.values()})
CHARSETS += ["idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape", "mbcs", "oem", "../x", "x" * 300]
FILES = [
    b'{"q":"hi"}\n{"q":2}\n',
    b"q,n\nhi,1\n",
    b"a\n",
    b'"a\n',
    b"q,q\n1,2\n",
    b"{}\n[]\n",
    b'{"q":"\xff"}\n',
    b"\xff\xfe",
]


@fuzz(80)
@given(
    st.sampled_from(["application/x-ndjson", "application/jsonl", "text/csv"]),
    st.sampled_from(["", *CHARSETS]),
    st.lists(st.sampled_from(FILES) | st.binary(max_size=40), max_size=4).map(b"".join),
)
@example("text/csv", "utf-16", b"q\n")
@example("text/csv", "idna", b"xn--\n.\n")
@example("text/csv", "utf-7", b"+/////\n")
def test_an_uploaded_file_is_a_dataset_or_refused(service: Service, kind: str, charset: str, body: bytes) -> None:
    before = listed(service)
    content_type = f"Content-Type: {kind}; charset={charset}" if charset else f"Content-Type: {kind}"
    made = service.ask("POST", "/api/datasets?name=u", body, content_type)
    if made.status == 201:
        kept = service.ask("GET", made.headers["location"]).value
        assert kept["rowCount"] == len(kept["rows"]) == made.value["rowCount"]
        assert service.ask("DELETE", made.headers["location"]).status == 204
    else:
        assert made.status == 400
    assert listed(service) == before


# -- paths, queries, headers -----------------------------------------------------------------------------

PATHS = (
    "/api/projects/{projectId}",
    "/api/datasets/{datasetId}",
    "/api/datasets/{datasetId}/replays",
    "/api/datasets/{datasetId}/runs",
    "/api/datasets/{datasetId}/compare",
    "/api/runs/{runId}",
    "/api/runs/{a}/compare/{b}",
)
IDS = st.text(max_size=70) | st.sampled_from(
    ["..", "../..", "..%2f..%2fetc%2fpasswd", ".", "/", "\\", "a/b", "\0", "\n", "é", "%", "%zz", "r-0", "r-007", "r-²", "-", "-1"]
)  # fmt: skip


@fuzz(80)
@given(st.sampled_from(PATHS), IDS, st.sampled_from(["GET", "DELETE", "PUT", "POST", "HEAD", "PATCH"]), st.booleans())
def test_what_is_no_id_reaches_nothing(service: Service, path: str, id: str, method: str, is_double: bool) -> None:
    safe = quote(id.encode("utf-8", "surrogatepass"), safe="")
    wanted = re.sub(r"\{\w+\}", quote(safe) if is_double else safe, path)
    answer = service.ask(method, wanted, to_json({"name": "x", "state": STATE, "projectId": "x"}))
    # Without an id, or with one that leads elsewhere, the path may be that of another resource, which only lists.
    assert answer.status in (404, 405) or not id.strip("./\\")


TEXTS = st.text(max_size=12) | st.sampled_from(
    ["0", "-1", "1", "10000", "10001", "9" * 19, "9" * 999, "9" * 5000, "1e3", "٣", " 1", "true", "false", "passed", "x" * 501, "\0"]
)  # fmt: skip
NAMES = st.sampled_from(
    ["limit", "offset", "rowIndex", "status", "projectId", "check", "a", "b", "stream", "withRuns", "name", "other"]
)


@fuzz(80)
@given(
    st.sampled_from((*PATHS, "/api/projects", "/api/datasets")),
    st.lists(st.tuples(NAMES, TEXTS), max_size=4),
    st.binary(max_size=6),
)
def test_no_query_makes_it_fail(
    service: Service, ids: dict[str, str], path: str, fields: list[tuple[str, str]], more: bytes
) -> None:
    query = "&".join(f"{name}={quote(text.encode('utf-8', 'surrogatepass'))}" for name, text in fields)
    answer = service.ask("GET", f"{path.format(**ids)}?{query}&{quote(more, safe='=&%+;')}")
    assert answer.status in (200, 400, 404)


HOSTS = st.sampled_from(
    [
        *("127.0.0.1", "localhost", "LOCALHOST", "[::1]", "127.0.0.1:PORT", "localhost:1", "[::1]:80", "localhost:"),
        *("evil.example", "evil.example:PORT", "127.0.0.1.evil.example", "localhost.evil.example", "", "0.0.0.0"),
        *("[::1]evil.example", "[::1].evil.example", "localhost:80@evil.example", "localhost:x", "evil@localhost"),
        *("127.0.0.2", "0x7f.1", "[::]", "[", "localhost evil.example", "localhost,evil.example", "localhost/"),
    ]
)
ORIGINS = st.sampled_from(
    [
        *("http://127.0.0.1", "http://127.0.0.1:PORT", "https://localhost:1", "http://localhost", "HTTP://LOCALHOST"),
        *("null", "", "http://evil.example", "http://127.0.0.1.evil.example", "file://", "http://localhost:2"),
    ]
)
GOOD_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]*)?", re.IGNORECASE)


@fuzz(100)
@given(
    st.lists(HOSTS, max_size=2),
    st.lists(ORIGINS, max_size=2),
    st.sampled_from(["", "cross-site", "same-site", "none"]),
    st.sampled_from(["", "Host: localhost", "Origin: http://localhost"]),
)
@example(["evil.example"], [], "", "Host: localhost")
def test_only_this_machine_and_its_own_pages_are_answered(
    service: Service, hosts: list[str], origins: list[str], site: str, trailer: str
) -> None:
    """The rules of docs/security.md, as a second implementation says them."""
    hosts, origins = ([text.replace("PORT", str(service.port)) for text in texts] for texts in (hosts, origins))
    lines = [*(f"Host: {host}" for host in hosts), *(f"Origin: {origin}" for origin in origins)]
    lines += [f"Sec-Fetch-Site: {site}"] if site else []
    framing = ["Content-Type: application/json", "Transfer-Encoding: chunked", "Connection: close"]
    head = "\r\n".join(["POST /api/datasets HTTP/1.1", *lines, *framing])
    body = to_json({"name": "x"})  # without rows, so that nothing is ever stored
    data = f"{head}\r\n\r\n{len(body):x}\r\n{body.decode()}\r\n0\r\n{trailer}{chr(13) + chr(10) if trailer else ''}\r\n"
    [answer] = service.send(data.encode())
    check(answer)
    is_host_good = len(hosts) == 1 and GOOD_HOST.fullmatch(hosts[0])
    own = (f"http://{hosts[0]}".lower(), f"https://{hosts[0]}".lower()) if hosts else ()
    is_page_good = site != "cross-site" and all(origin.lower() in own for origin in origins)
    if not is_host_good or not is_page_good or len(origins) > 1:
        assert answer.status in (400, 403, 421), answer
        assert answer.value["error"] in ("unknown_host", "foreign_origin", "not_http"), answer
    else:
        assert (answer.status, answer.value["error"]) == (400, "validation_failed")


@pytest.mark.parametrize("path", ["/api/projects", "/api/datasets", "/api/datasets/d/replay", "/api/execute"])
@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"])
def test_a_form_of_a_page_is_refused_on_every_route(service: Service, path: str, kind: str) -> None:
    answer = service.ask("POST", path, b"{}", f"Content-Type: {kind}", "Sec-Fetch-Site: same-origin")
    assert (answer.status, answer.value["error"]) == (415, "unsupported_media_type")


# -- raw bytes -------------------------------------------------------------------------------------------

NASTY = [
    *(b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b"\xff", b":", b"\r\n\r\n", b"GET / HTTP/1.1\r\n", b"Host: evil\r\n"),
    *(b"Content-Length: -1\r\n", b"Content-Length: 0\r\n", b"Content-Length: 99999999999999999999\r\n", b"Content-Length: 1\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding: gzip\r\n", b"0\r\n\r\n"),
    *(b"Expect: 100-continue\r\n", b"Upgrade: websocket\r\nConnection: Upgrade\r\n", b"Upgrade: h2c\r\nConnection: upgrade\r\n"),
    *(b"Connection: close\r\n", b"X: " + b"y" * 9000 + b"\r\n", b"X: y\r\n" * 1000, b"Content-Encoding: gzip\r\n", b" fold\r\n"),
    *(b"/../../etc/passwd", b"?", b"#", b"%", b"%00", b"//", b"http://evil/", b"*", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    *(b"HTTP/1.0", b"HTTP/9.9", b"CONNECT a:1 HTTP/1.1\r\n\r\n", b"Content-Type: text/csv; charset=\xff\r\n", b"ffffffffffffffff\r\n"),
]  # fmt: skip


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """One or two requests, in which pieces are removed, doubled, replaced or added."""
    wire = b""
    for _ in range(draw(st.integers(1, 2))):
        method, path = draw(
            st.sampled_from([("GET", "/healthz"), ("GET", "/api/projects"), ("POST", "/api/execute"), ("PUT", "/api/projects/p"), ("POST", "/api/datasets/d/replay?stream=true")])
        )  # fmt: skip
        body = to_json({"state": STATE}) if method != "GET" else b""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        wire += head.encode() + body
    for _ in range(draw(st.integers(0, 4))):
        lines = [at + 2 for at in range(len(wire)) if wire[at : at + 2] == b"\r\n"]
        start = draw(st.sampled_from([0, *lines]) | st.integers(0, len(wire)))
        stop = min(len(wire), start + draw(st.integers(0, 20)))
        kind = draw(st.sampled_from(["insert", "insert", "delete", "double", "replace"]))
        piece = draw(st.sampled_from(NASTY) | st.binary(max_size=8))
        middle = {"insert": piece + wire[start:stop], "delete": b"", "double": wire[start:stop] * 2, "replace": piece}
        wire = wire[:start] + middle[kind] + wire[stop:]
    return wire


@fuzz(80)
@given(requests())
def test_no_bytes_make_it_fail(service: Service, wire: bytes) -> None:
    for answer in service.send(wire, wait_s=0.05):
        check(answer)


def test_many_connections_that_say_nothing_keep_nobody_out(service: Service) -> None:
    with ExitStack() as stack:
        for number in range(300):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=30))
            connection.sendall(
                (
                    b"",
                    b"POST /api/data",
                    b"POST /api/datasets HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
                )[number % 3]
            )
        assert service.ask("GET", "/healthz").status == 200
        assert service.ask("POST", "/api/execute", to_json({"state": STATE, "row": {}})).status == 200
    assert service.ask("GET", "/healthz").status == 200


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    running = Service(tmp_path)
    kept: dict[str, Any] = {}

    @fuzz(30)
    @given(odd_json({"name": "p", "state": STATE}), odd_json({"name": "d", "rows": ROWS}))
    def send(project: bytes, dataset: bytes) -> None:
        for path, body, part in (("/api/projects", project, "state"), ("/api/datasets", dataset, "rows")):
            made = running.ask("POST", path, body)
            if made.status == 201:
                kept[made.headers["location"]] = (part, json.loads(body)[part])

    try:
        send()
        assert "Traceback" not in running.stop(with_signal=9)
        running = Service(tmp_path)
        assert len(kept) == sum(map(len, listed(running))) > 0
        for path, (part, value) in kept.items():
            assert running.ask("GET", path).value[part] == value
    finally:
        running.process.kill()
        running.process.communicate()
