"""The server of the live page: on the loopback address alone, read only, two paths behind a token, and never a file."""

import hmac
import json
import secrets
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from counterpoint.core.errors import UsageError
from counterpoint.report.live.live_page import Watched

HOST = "127.0.0.1"
FIRST_PORT, NUM_PORTS = 8765, 20  # tried one after the other where none was asked for
SECONDS_TO_ASK = 10  # who connects and says nothing is hung up on
# Beside the policy that stands in the page itself.
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",
}


class LiveServer(ThreadingHTTPServer):
    """Serves one page and the words on it.

    Args:
        watched: what is shown.
        port: 1 to 65535, or None for the first free one from ``FIRST_PORT`` on.

    Attributes:
        token: part of the address; without it every path is unknown.
        address: of the page.

    Raises:
        UsageError: the port is in use, or may not be taken.
    """

    daemon_threads = True

    def __init__(self, watched: Watched, port: int | None = None) -> None:
        self.watched, self.token = watched, secrets.token_urlsafe(24)
        if port is not None and not 1 <= port <= 65535:
            raise UsageError(f"--port must be between 1 and 65535, got {port}")
        wanted = range(FIRST_PORT, FIRST_PORT + NUM_PORTS) if port is None else [port]
        for each in [*wanted, *([0] if port is None else [])]:  # 0: any that is free
            try:
                super().__init__((HOST, each), _Handler)
                break
            except OSError as error:
                if port is not None:
                    why = error.strerror or error
                    raise UsageError(f"port {port}: {why}; choose another --port, or leave it out") from None
        self.address = f"http://{HOST}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that leaves in the middle of an answer is no error; anything else is said in one line."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            sys.stderr.write(f"counterpoint watch: {type(error).__name__}: {error}\n")


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of two paths."""

    server: LiveServer  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = SECONDS_TO_ASK
    server_version, sys_version = "counterpoint", ""

    def do_GET(self) -> None:
        """Give the page or the words."""
        self._answer(with_content=True)

    def do_HEAD(self) -> None:
        """Give what would come before them."""
        self._answer(with_content=False)

    def _refuse(self) -> None:
        """Nothing can be changed here."""
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"read only\n", extra={"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refuse

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: addresses hold the token."""

    def _answer(self, *, with_content: bool) -> None:
        """Look at host and path, in this order."""
        # A name that leads here by way of somebody's own DNS is another host to the browser, and is refused.
        port = self.server.server_port
        if self.headers.get_all("Host") not in ([f"{HOST}:{port}"], [f"localhost:{port}"]):
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"wrong host\n", with_content=with_content)
            return
        kind, content = self._found()
        status = HTTPStatus.NOT_FOUND if kind == "" else HTTPStatus.OK
        self._send(status, kind or "text/plain", content, with_content=with_content)

    def _found(self) -> tuple[str, bytes]:
        """Type and content of the path; an empty type where there is nothing."""
        # Never a file: the path is compared as it came, and nothing else is done with it.
        token, slash, rest = self.path.removeprefix("/").partition("/")
        is_known = hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode())
        if not (is_known and self.path.startswith("/") and slash):
            return "", b"not found\n"
        if rest == "":
            return "text/html", self.server.watched.page()
        if rest == "state.json":
            return "application/json", json.dumps(self.server.watched.state()).encode()
        return "", b"not found\n"

    def _send(
        self,
        status: HTTPStatus,
        kind: str,
        content: bytes,
        *,
        extra: dict[str, str] | None = None,
        with_content: bool = True,
    ) -> None:
        """Answer, and say nothing that a browser could keep."""
        self.send_response(status)
        head = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(content)), **HEADERS}
        for name, value in {**head, **(extra or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_content:
            self.wfile.write(content)
