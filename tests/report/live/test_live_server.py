"""The live page's server: the loopback address, a token, two paths, no file, no other host, and nothing to change."""

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from counterpoint.core.errors import UsageError
from counterpoint.core.rundir import RunFolder
from counterpoint.report.live.live_page import Watched
from counterpoint.report.live.live_server import LiveServer

SECRET = "what stands in a file of the run"


@pytest.fixture
def run(begin: Callable[..., RunFolder]) -> RunFolder:
    folder = begin()
    (folder.path / "secret.txt").write_text(SECRET, encoding="utf-8")
    (folder.path / "link").symlink_to(folder.path / "secret.txt")
    return folder


@pytest.fixture
def server(run: RunFolder) -> Iterator[LiveServer]:
    with LiveServer(Watched(run.path, None)) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield found
        found.shutdown()


def asked(
    server: LiveServer, path: str, *, method: str = "GET", host: str | None = ""
) -> tuple[http.client.HTTPResponse, bytes]:
    """Answer and content; ``host`` None sends none."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    if host is not None:
        connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def test_the_address_shows_the_page_and_its_words(server: LiveServer) -> None:
    assert server.address == f"http://127.0.0.1:{server.server_port}/{server.token}/"
    answer, page = asked(server, f"/{server.token}/")
    assert (answer.status, answer.getheader("Content-Type")) == (200, "text/html; charset=utf-8")
    assert page.startswith(b"<!DOCTYPE html>")
    answer, words = asked(server, f"/{server.token}/state.json", host=f"localhost:{server.server_port}")
    assert answer.status == 200
    assert json.loads(words)["state"] == "killed"


def test_it_listens_on_the_loopback_address_alone(server: LiveServer) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"


def test_tokens_are_long_and_never_the_same(run: RunFolder) -> None:
    tokens = set()
    for _ in range(3):
        with LiveServer(Watched(run.path, None)) as server:
            tokens.add(server.token)
    assert len(tokens) == 3
    assert min(map(len, tokens)) >= 32


@pytest.mark.parametrize(
    "path",
    [
        "/", "//", "/TOKEN", "/TOKEN//", "/TOKEN/secret.txt", "/TOKEN/link", "/TOKEN/run.json", "/TOKEN/../secret.txt",
        "/TOKEN/..%2fsecret.txt", "/TOKEN/%2e%2e/secret.txt", "/TOKEN/%73tate.json", "/TOKEN/state.json/", "/TOKEN/?x",
        "/TOKEN/checkpoints/", "/wrong/", "/wrong/state.json", "/TOKENx/", "/%C3%A4/", "/state.json", "/secret.txt",
        "TOKEN/", "http://127.0.0.1/TOKEN/", "/TOKEN/\\..\\secret.txt", "/TOKEN/state.json%00",
    ],
)  # fmt: skip
def test_every_other_path_is_unknown_and_no_file(server: LiveServer, path: str) -> None:
    answer, content = asked(server, path.replace("TOKEN", server.token))
    assert (answer.status, content) == (404, b"not found\n")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost", "evil.example:PORT", None])
def test_another_host_is_refused_even_with_the_token(server: LiveServer, host: str | None) -> None:
    named = None if host is None else host.replace("PORT", str(server.server_port))
    answer, content = asked(server, f"/{server.token}/", host=named)
    assert (answer.status, content) == (403, b"wrong host\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(server: LiveServer, method: str) -> None:
    answer, _ = asked(server, f"/{server.token}/", method=method)
    assert (answer.status, answer.getheader("Allow")) == (405, "GET, HEAD")


def test_head_says_how_long_the_page_is(server: LiveServer) -> None:
    _, page = asked(server, f"/{server.token}/")
    answer, content = asked(server, f"/{server.token}/", method="HEAD")
    assert (answer.status, content) == (200, b"")
    assert answer.getheader("Content-Length") == str(len(page))


def test_nothing_is_kept_framed_or_told_to_others(server: LiveServer) -> None:
    answer, _ = asked(server, f"/{server.token}/")
    assert answer.getheader("Cache-Control") == "no-store"
    assert answer.getheader("Referrer-Policy") == "no-referrer"
    assert answer.getheader("X-Frame-Options") == "DENY"
    assert answer.getheader("Access-Control-Allow-Origin") is None


def test_a_port_in_use_is_one_line_and_another_is_found_where_none_was_asked_for(run: RunFolder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"^port {port}: Address already in use; choose another --port"):
            LiveServer(Watched(run.path, None), port)
    with LiveServer(Watched(run.path, None)) as one, LiveServer(Watched(run.path, None)) as other:
        assert one.server_port != other.server_port


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_that_is_none_is_refused(run: RunFolder, port: int) -> None:
    with pytest.raises(UsageError, match="--port must be between 1 and 65535"):
        LiveServer(Watched(run.path, None), port)


def test_a_reader_that_leaves_or_talks_nonsense_ends_nothing(server: LiveServer) -> None:
    for said in (b"", b"GET", b"\x00\xff\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n"):
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as reader:
            reader.sendall(said)
    assert asked(server, f"/{server.token}/")[0].status == 200
