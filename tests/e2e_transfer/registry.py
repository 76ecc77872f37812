"""A real docker-registry on loopback, and a proxy before it that asks for a token, flips a byte, or cuts."""

from __future__ import annotations

import base64
import http.client
import json
import re
import shutil
import subprocess
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from .hosts import free_port, wait_for

if TYPE_CHECKING:
    from pathlib import Path

LOGIN = base64.b64encode(b"me:pw").decode()


class DockerRegistry:
    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        (folder / "registry.yml").write_text(
            "version: 0.1\nlog: {level: error}\n"
            f"storage: {{filesystem: {{rootdirectory: {folder}/data}}, delete: {{enabled: true}}}}\n"
            f"http: {{addr: '127.0.0.1:{self.port}'}}\n"
        )
        program = shutil.which("docker-registry") or shutil.which("registry")
        assert program is not None
        self.process = subprocess.Popen(
            [program, "serve", folder / "registry.yml"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for("127.0.0.1", self.port)

    def blob_file(self, hexes: str) -> Path:
        return self.folder / "data/docker/registry/v2/blobs/sha256" / hexes[:2] / hexes / "data"

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


@dataclass
class Proxy:
    """Passes requests to ``port``. ``token``: everything needs one; ``cuts``: how many PATCHes
    are cut in the middle; with ``forwarding`` the registry gets their first half."""

    port: int
    token: bool = False
    flip: bool = False
    cuts: int = 0
    forwarding: bool = False
    received: int = 0
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

            def handle_one(self) -> None:
                outer.handle(self)

            do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = handle_one  # noqa: N815

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.server_port}"

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers.get("Content-Length") or 0)
        cut = request.command == "PATCH" and self.cuts > 0
        body = request.rfile.read(length // 2 if cut else length)
        self.received += len(body)
        self.asked.append(f"{request.command} {request.path}")
        if request.path.startswith("/token"):
            good = request.headers.get("Authorization") == f"Basic {LOGIN}"
            self._send(request, 200 if good else 401, json.dumps({"token": "t" * 20}).encode(), {})
            return
        if self.token and request.headers.get("Authorization") != f"Bearer {'t' * 20}":
            challenge = f'Bearer realm="http://{self.host}/token",service="here",scope="repository:a:pull"'
            self._send(request, 401, b"{}", {"WWW-Authenticate": challenge})
            return
        upstream = http.client.HTTPConnection("127.0.0.1", self.port)
        headers = {
            n: v for n, v in request.headers.items() if n.lower() not in ("authorization", "content-length")
        }
        headers["Host"] = self.host
        headers["Content-Length"] = str(len(body))
        if cut:
            self.cuts -= 1
            if not self.forwarding:
                request.close_connection = True
                return
            start = int(re.split("[-]", headers.get("Content-Range", "0-0"))[0])
            headers["Content-Range"] = f"{start}-{start + len(body) - 1}"
        upstream.request(request.command, request.path, body=body, headers=headers)
        answer = upstream.getresponse()
        data = answer.read()
        upstream.close()
        if cut:
            request.close_connection = True
            return
        if self.flip and "/blobs/sha256" in request.path and len(data) > 1000:
            data = data[:700] + bytes([data[700] ^ 1]) + data[701:]
        kept = {
            n: v
            for n, v in answer.getheaders()
            if n.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server")
        }
        self._send(request, answer.status, data, kept, length=answer.getheader("Content-Length"))

    def _send(
        self,
        request: BaseHTTPRequestHandler,
        status: int,
        data: bytes,
        headers: dict[str, str],
        length: str | None = None,
    ) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header(
            "Content-Length", (length or "0") if request.command == "HEAD" else str(len(data))
        )
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(data)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
