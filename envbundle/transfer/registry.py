"""The requests of an OCI registry: blobs, uploads, manifests, tags, and the way to be let in.

* Credentials are those that skopeo, podman and docker keep; they and tokens go to the registry and to its
  token server over https alone (or to this machine itself).
* A blob above 8 MiB goes in pieces; where one is cut, the registry is asked how far it came.
* What the registry says of its state is believed only where a hash of ours follows.

Source: OCI Distribution Specification 1.1; Docker Registry v2 token authentication.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urljoin, urlsplit

from envbundle.errors import TransferError, UserInputError
from envbundle.spec.digest import Digest
from envbundle.store.oci import MAX_MANIFEST, MEDIA_MANIFEST

from .http import TRIES, get_blob, refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envbundle.host.fetch import Answer, Web

PIECE = 8 * 1024 * 1024
MAX_TAGS = 10_000
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_REGISTRY = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_PARAMETER = re.compile(r'([A-Za-z]+)="([^"]*)"')
_LINK = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """``registry/repository``, with a ``tag`` or a manifest's ``digest`` where one was said."""

    registry: str
    repository: str
    tag: str = ""
    digest: Digest | None = None

    @property
    def base(self) -> str:
        """The URL below which everything of the repository lies; http on this very machine alone."""
        host = self.registry.rpartition(":")[0] if re.search(r":\d+$", self.registry) else self.registry
        near = host in ("localhost", "[::1]") or host.startswith("127.")
        return f"{'http' if near else 'https'}://{self.registry}/v2/{self.repository}"

    def __str__(self) -> str:
        tail = f":{self.tag}" if self.tag else f"@{self.digest}" if self.digest else ""
        return f"oci://{self.registry}/{self.repository}{tail}"


def parse_reference(text: str) -> Reference:
    """Return what ``text``, which stands after ``oci://``, names; raises ``UserInputError`` (E-LOCATION)."""
    registry, _, rest = text.partition("/")
    rest, at, digest = rest.partition("@")
    repository, colon, tag = rest.partition(":")
    sound = _REGISTRY.fullmatch(registry) and _REPOSITORY.fullmatch(repository) and len(repository) < 256
    if (
        not sound
        or (colon and not TAG.fullmatch(tag))
        or (at and not re.fullmatch("sha256:[0-9a-f]{64}", digest))
    ):
        raise UserInputError(
            "E-LOCATION",
            ascii(f"oci://{text}")[1:-1][:200],
            expected="oci://registry/repository[:tag]",
            found="another form",
        )
    return Reference(
        registry=registry, repository=repository, tag=tag, digest=Digest.parse(digest) if at else None
    )


def credentials_of(registry: str, environment: Mapping[str, str]) -> str | None:
    """Return ``user:password`` in base64 as a login left it in one of the usual files, or None."""
    places = [
        environment.get("REGISTRY_AUTH_FILE"),
        environment.get("XDG_RUNTIME_DIR", "") + "/containers/auth.json",
        (environment.get("DOCKER_CONFIG") or environment.get("HOME", "") + "/.docker") + "/config.json",
    ]
    for place in places:
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            auths = json.loads(Path(place or "").read_bytes())["auths"]
            for name in (registry, f"https://{registry}", f"https://{registry}/v2/"):
                found = auths.get(name, {}).get("auth") if isinstance(auths, dict) else None
                if isinstance(found, str) and found:
                    base64.b64decode(found, validate=True)
                    return found
    return None


class Registry:
    """One repository, spoken to by ``web``; ``credentials`` as ``credentials_of`` gives them."""

    def __init__(self, reference: Reference, web: Web, credentials: str | None = None) -> None:
        self.reference, self._web, self._credentials = reference, web, credentials
        self.name = f"oci://{reference.registry}/{reference.repository}"
        self._authorization = ""
        self._lock = threading.Lock()

    def ask(
        self,
        method: str,
        url: str,
        *,
        headers: dict[str, str] | None = None,
        body: bytes | memoryview = b"",
        limit: int = MAX_MANIFEST,
        into: bytearray | None = None,
        scopes: tuple[str, ...] = (),
    ) -> Answer:
        """Ask, and once more with a token where the registry wants one; see ``Web.ask``."""
        for again in (False, True):
            with self._lock:
                held = self._authorization
            sent = dict(headers or {})
            if held and urlsplit(url).netloc == self.reference.registry:
                sent["Authorization"] = held
            answer = self._web.ask(method, url, headers=sent, body=body, limit=limit, into=into)
            if answer.status != 401 or again:
                return answer
            self._let_in(answer, held, scopes)
        raise RuntimeError("unreachable")

    def _let_in(self, answer: Answer, used: str, scopes: tuple[str, ...]) -> None:
        """Get what the answer's challenge asks for."""
        with self._lock:
            if self._authorization != used:
                return  # another thread was first
            challenge = answer.headers.get("www-authenticate", "")
            kind = challenge.partition(" ")[0].lower()
            if kind == "basic" and self._credentials is not None:
                self._guard(answer.url)
                self._authorization = f"Basic {self._credentials}"
            elif kind == "bearer":
                self._authorization = f"Bearer {self._token(dict(_PARAMETER.findall(challenge)), scopes)}"

    def _token(self, challenge: dict[str, str], scopes: tuple[str, ...]) -> str:
        realm = challenge.get("realm", "")
        own = f"repository:{self.reference.repository}:pull,push"
        asked = [("service", challenge["service"])] if "service" in challenge else []
        asked += [("scope", scope) for scope in (*scopes, own)]
        headers = {}
        if self._credentials is not None:
            self._guard(realm)
            headers["Authorization"] = f"Basic {self._credentials}"
        url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(asked)}"
        answer = self._web.ask("GET", url, headers=headers, limit=1024 * 1024)
        if answer.status != 200:
            raise refused(answer, self.name)
        try:
            value = json.loads(answer.body)
            token = value.get("token") or value["access_token"]
        except (ValueError, KeyError, AttributeError) as fault:
            raise TransferError(
                "E-REGISTRY", self.name, expected="a token", found="another answer"
            ) from fault
        return str(token)

    def _guard(self, url: str) -> None:
        """Raise where credentials would go in the open over a network."""
        parts = urlsplit(url)
        near = parts.hostname in ("localhost", "::1") or (parts.hostname or "").startswith("127.")
        if parts.scheme != "https" and not near:
            raise TransferError(
                "E-REGISTRY", self.name, expected="a token server with https", found=url[:200]
            )

    def blob_size(self, digest: Digest) -> int | None:
        """Return the size that the registry states of a blob, or None where it has none."""
        answer = self.ask("HEAD", f"{self.reference.base}/blobs/{digest}", limit=0)
        if answer.status in (404, 410):
            return None
        if answer.status != 200:
            raise refused(answer, self.name)
        length = answer.headers.get("content-length", "")
        return int(length) if length.isdecimal() else -1

    def get_blob(self, digest: Digest, size: int) -> bytes:
        """Return a blob, its size and hash found right."""
        return get_blob(self.ask, f"{self.reference.base}/blobs/{digest}", digest, size, self.name)

    def mount(self, digest: Digest, repository: str) -> bool:
        """Have a blob of another repository of the same registry here too; False where that did not work."""
        query = urlencode({"mount": str(digest), "from": repository})
        scopes = (f"repository:{repository}:pull",)
        answer = self.ask("POST", f"{self.reference.base}/blobs/uploads/?{query}", scopes=scopes)
        if answer.status == 202:  # an upload was begun instead
            self.ask("DELETE", self._location(answer))
        return answer.status == 201

    def put_blob(self, digest: Digest, data: bytes) -> None:
        """Upload a blob: in one piece, or in several that go on after a cut where the registry can."""
        for left in reversed(range(TRIES)):
            answer = self._upload(digest, memoryview(data))
            if answer.status == 201:
                return
            if not left or answer.status not in (404, 416):  # else it forgot the upload: begin anew
                raise refused(answer, self.name)

    def _upload(self, digest: Digest, data: memoryview) -> Answer:
        answer = self.ask("POST", f"{self.reference.base}/blobs/uploads/")
        if answer.status != 202:
            return answer
        place, position, cuts = self._location(answer), 0, 0
        while len(data) > PIECE and position < len(data):
            piece = data[position : position + PIECE]
            bounds = f"{position}-{position + len(piece) - 1}"
            headers = {"Content-Type": "application/octet-stream", "Content-Range": bounds}
            try:
                answer = self.ask("PATCH", place, headers=headers, body=piece)
            except TransferError as fault:
                cuts += 1
                if fault.code != "E-HTTP-CUT" or cuts >= TRIES:
                    raise
                answer = self.ask("GET", place)
                if answer.status != 204:
                    return answer
                position = self._reached(answer)
            else:
                if answer.status != 202:
                    return answer
                position += len(piece)
            place = self._location(answer)
        tail = data if len(data) <= PIECE else data[:0]
        joint = "&" if "?" in place else "?"
        headers = {"Content-Type": "application/octet-stream"}
        query = urlencode({"digest": str(digest)})
        return self.ask("PUT", f"{place}{joint}{query}", headers=headers, body=tail)

    def _reached(self, answer: Answer) -> int:
        match = re.fullmatch(r"(?:bytes=)?0-([0-9]+)", answer.headers.get("range", ""))
        # Of an empty upload registries say 0-0 as well; a piece is never of one byte.
        return int(match[1]) + 1 if match and match[1] != "0" else 0

    def _location(self, answer: Answer) -> str:
        return urljoin(answer.url, answer.headers.get("location", ""))

    def delete(self, what: str) -> None:
        """Delete ``blobs/<digest>`` or ``manifests/<digest>``; registries may refuse."""
        answer = self.ask("DELETE", f"{self.reference.base}/{what}")
        if answer.status not in (200, 202, 404):
            raise refused(answer, f"{self.name}: DELETE")

    def tags(self) -> tuple[str, ...]:
        """Return all tags of the repository; none where there is no such repository yet."""
        found: list[str] = []
        url = f"{self.reference.base}/tags/list?n=1000"
        while url and len(found) < MAX_TAGS:
            answer = self.ask("GET", url)
            if answer.status == 404:
                break
            if answer.status != 200:
                raise refused(answer, self.name)
            try:
                found += [str(tag) for tag in json.loads(answer.body)["tags"] or []]
            except (ValueError, KeyError, TypeError) as fault:
                raise TransferError("E-REGISTRY", self.name, expected="tags", found="no list") from fault
            link = _LINK.search(answer.headers.get("link", ""))
            url = urljoin(url, link[1]) if link else ""
        return tuple(found)

    def get_manifest(self, reference: str) -> bytes | None:
        """Return the manifest under a tag or digest, or None; nothing of it was judged."""
        answer = self.ask(
            "GET", f"{self.reference.base}/manifests/{reference}", headers={"Accept": MEDIA_MANIFEST}
        )
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise refused(answer, self.name)
        return answer.body

    def put_manifest(self, reference: str, data: bytes) -> None:
        """Put a manifest under a tag, or under its digest."""
        headers = {"Content-Type": MEDIA_MANIFEST}
        answer = self.ask("PUT", f"{self.reference.base}/manifests/{reference}", headers=headers, body=data)
        if answer.status != 201:
            raise refused(answer, self.name)
