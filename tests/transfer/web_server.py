"""A static file server with Range, as any web server is one; it can be told to cut, to flip and to forbid."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote


@dataclass
class WebServer:
    """Serves ``root``. ``cuts``: how many answers end after half of their bytes; ``flip``: a byte is changed."""

    root: Path
    ranges: bool = True
    cuts: int = 0
    flip: bool = False
    authorization: str | None = None
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                outer.answer(self, body=False)

            def do_GET(self) -> None:
                outer.answer(self, body=True)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request: BaseHTTPRequestHandler, *, body: bool) -> None:
        self.asked.append(f"{request.command} {request.path} {request.headers.get('Range', '')}".strip())
        path = self.root / unquote(request.path).lstrip("/")
        if self.authorization is not None and request.headers.get("Authorization") != self.authorization:
            self._plain(request, 401)
            return
        if not path.is_file():
            self._plain(request, 404)
            return
        data = path.read_bytes()
        start = 0
        wanted = request.headers.get("Range")
        if wanted and self.ranges:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            request.send_response(200)
        rest = data[start:]
        if self.flip and len(rest) > 1000:
            rest = rest[:500] + bytes([rest[500] ^ 1]) + rest[501:]
        request.send_header("Content-Length", str(len(rest)))
        request.end_headers()
        if not body:
            return
        if self.cuts and len(rest) > 1000:
            self.cuts -= 1
            request.wfile.write(rest[: len(rest) // 2])
            request.close_connection = True
            return
        request.wfile.write(rest)

    def _plain(self, request: BaseHTTPRequestHandler, status: int) -> None:
        request.send_response(status)
        request.send_header("Content-Length", "0")
        request.end_headers()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
