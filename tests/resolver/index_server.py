"""A real package index on loopback: PEP 503 and PEP 691 pages, ranges, yanked files, and faults on demand."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(slots=True)
class Listed:
    """One file as the index lists it."""

    path: Path
    yanked: str | None = None
    sha256: str | None = None
    size: int | None = None


@dataclass(slots=True)
class Index:
    """What the server serves and how badly. ``cut_after`` ends the next download after so many bytes,
    with ``cut_always`` every one."""

    files: dict[str, Listed] = field(default_factory=dict)
    json: bool = True
    ranges: bool = True
    cut_after: int | None = None
    cut_always: bool = False
    status: int | None = None
    user: tuple[str, str] | None = None
    hashes: bool = True
    log: list[str] = field(default_factory=list)
    seen_auth: list[str | None] = field(default_factory=list)
    url: str = ""

    @property
    def simple(self) -> str:
        """The URL of the index."""
        return f"{self.url}/simple"

    def add(self, path: Path, **more: object) -> Listed:
        """List a file."""
        listed = Listed(path, **more)  # type: ignore[arg-type]
        self.files[path.name] = listed
        return listed

    def asked(self, part: str) -> list[str]:
        """The requests whose line holds ``part``."""
        return [line for line in self.log if part in line]

    def project(self, name: str) -> dict[str, Listed]:
        """The files of a normalised name."""
        return {
            file: listed
            for file, listed in self.files.items()
            if re.sub(r"[-_.]+", "-", file.split("-")[0]).lower() == name
        }


class _Answering(BaseHTTPRequestHandler):
    index: Index

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        index = self.index
        index.log.append(f"{self.command} {self.path} {self.headers.get('Range', '')}".strip())
        index.seen_auth.append(self.headers.get("Authorization"))
        if index.user is not None:
            wanted = "Basic " + base64.b64encode(":".join(index.user).encode()).decode()
            if self.headers.get("Authorization") != wanted:
                self._send(
                    401, "text/plain", b"who are you", {"WWW-Authenticate": 'Basic realm="index"'}, body=body
                )
                return
        if index.status is not None:
            self._send(index.status, "text/plain", b"no", {}, body=body)
            return
        parts = [part for part in self.path.split("?")[0].split("/") if part]
        if parts[:1] == ["simple"] and len(parts) == 2:
            self._page(parts[1], body=body)
        elif parts[:1] == ["files"] and len(parts) == 2 and parts[1].replace("%2B", "+") in index.files:
            self._file(index.files[parts[1].replace("%2B", "+")], body=body)
        else:
            self._send(404, "text/plain", b"nothing here", {}, body=body)

    def _page(self, name: str, *, body: bool) -> None:
        index, files = self.index, self.index.project(name)
        if not files:
            self._send(404, "text/plain", b"no such project", {}, body=body)
            return
        rows = []
        for file, listed in files.items():
            digest = listed.sha256 or hashlib.sha256(listed.path.read_bytes()).hexdigest()
            size = listed.path.stat().st_size if listed.size is None else listed.size
            rows.append((file, f"../../files/{file.replace('+', '%2B')}", digest, size, listed.yanked))
        if index.json and "json" in (self.headers.get("Accept") or ""):
            value = {
                "meta": {"api-version": "1.1"},
                "name": name,
                "files": [
                    {
                        "filename": file,
                        "url": url,
                        "hashes": {"sha256": digest} if index.hashes else {},
                        "size": size,
                        "yanked": False if yanked is None else (yanked or True),
                    }
                    for file, url, digest, size, yanked in rows
                ],
            }
            self._send(200, "application/vnd.pypi.simple.v1+json", json.dumps(value).encode(), {}, body=body)
            return
        lines = [
            f'<a href="{url}{f"#sha256={digest}" if index.hashes else ""}"'
            + ("" if yanked is None else f' data-yanked="{yanked}"')
            + f">{file}</a><br>"
            for file, url, digest, size, yanked in rows
        ]
        text = "<!DOCTYPE html><html><body>" + "\n".join(lines) + "</body></html>"
        self._send(200, "text/html", text.encode(), {}, body=body)

    def _file(self, listed: Listed, *, body: bool) -> None:
        data = listed.path.read_bytes()
        match = re.fullmatch(r"bytes=([0-9]+)-([0-9]*)", self.headers.get("Range", ""))
        if match is None or not self.index.ranges:
            self._send(200, "application/octet-stream", data, {}, body=body)
            return
        start = int(match[1])
        if start >= len(data):
            self._send(416, "text/plain", b"", {"Content-Range": f"bytes */{len(data)}"}, body=body)
            return
        end = min(int(match[2]) if match[2] else len(data) - 1, len(data) - 1)
        headers = {"Content-Range": f"bytes {start}-{end}/{len(data)}"}
        self._send(206, "application/octet-stream", data[start : end + 1], headers, body=body)

    def _send(self, status: int, kind: str, data: bytes, headers: dict[str, str], *, body: bool) -> None:
        self.send_response(status)
        for key, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if not body:
            return
        cut = self.index.cut_after
        if cut is not None and kind == "application/octet-stream" and self.command == "GET":
            if not self.index.cut_always:
                self.index.cut_after = None
            self.wfile.write(data[:cut])
            self.wfile.flush()
            self.close_connection = True
            return
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing on standard error."""


@contextmanager
def serving() -> Iterator[Index]:
    """Serve an index until the block ends."""
    index = Index()
    answering = type("Answering", (_Answering,), {"index": index})
    server = ThreadingHTTPServer(("127.0.0.1", 0), answering)
    index.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
