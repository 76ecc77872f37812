"""A bundle taken apart and put together again by somebody who holds a trusted key and means harm.

Reads and writes by the text of docs/format.md alone: JSON, sha256, zstandard. Whatever is changed, every
digest, size and count around it is made right again, and the signature is good.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from envbundle.trust.key_files import read_private_key
from envbundle.trust.sshsig import sign

LIST = "application/vnd.envbundle.layer.v1+json"
CHUNK = "application/vnd.envbundle.chunk.v1"
SIGNATURE = "application/vnd.envbundle.signature.v1.sshsig"
LOCK = "application/vnd.envbundle.lock.v1+toml"
MANIFEST = "application/vnd.envbundle.manifest.v1+toml"


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass
class Forgery:
    """One bundle of a store, open for changes; ``write`` closes it."""

    store: Path
    descriptor: dict[str, Any]
    layers: list[dict[str, Any]]
    image: dict[str, Any]

    @classmethod
    def of(cls, store: Path) -> Forgery:
        index = json.loads((store / "index.json").read_bytes())
        image = json.loads(_blob(store, index["manifests"][0]["digest"]))
        descriptor = json.loads(_blob(store, image["config"]["digest"]))
        forgery = cls(store, descriptor, [], image)
        forgery.layers = [json.loads(forgery.plain(ref["list"])) for ref in forgery.content["layers"]]
        return forgery

    @property
    def content(self) -> dict[str, Any]:
        value: dict[str, Any] = self.descriptor["content"]
        return value

    @property
    def blobs(self) -> dict[str, Any]:
        value: dict[str, Any] = self.descriptor["blobs"]
        return value

    def plain(self, name: str) -> bytes:
        blob = self.blobs[name]
        data = _blob(self.store, blob["blob"])
        return data if blob["encoding"] == "raw" else zstandard.ZstdDecompressor().decompress(data, blob["plain_size"])

    def entry(self, path: str) -> dict[str, Any]:
        """Return the entry at a scheme path."""
        found: dict[str, Any] = next(e for layer in self.layers for e in layer["entries"] if e["path"] == path)
        return found

    def rename(self, path: str, new: str) -> None:
        self.entry(path)["path"] = new

    def add(self, entry: dict[str, Any], layer: int = 0) -> None:
        self.layers[layer]["entries"].append(entry)

    def add_file(self, path: str, data: bytes, layer: int = 0) -> None:
        """Add a file that carries its bytes."""
        import base64

        self.add(
            {"path": path, "mode": 0o644, "size": len(data), "sha256": digest(data), "role": "script", "inline": base64.b64encode(data).decode()},
            layer,
        )  # fmt: skip

    def put(self, plain: bytes, *, stored: bytes | None = None, encoding: str = "raw", **changes: Any) -> str:
        """Name a blob for ``plain``; ``stored`` and ``changes`` lie about it."""
        data = plain if stored is None else stored
        self._write(data)
        name = changes.pop("name", digest(plain))
        self.blobs[name] = {"blob": digest(data), "size": len(data), "plain_size": len(plain), "encoding": encoding, **changes}
        return str(name)

    def _write(self, data: bytes) -> str:
        path = self.store / "blobs/sha256" / hashlib.sha256(data).hexdigest()
        path.write_bytes(data)
        return digest(data)

    def write(self, key: Path, *, ordered: bool = True, counted: bool = True) -> None:
        """Make all digests right, sign, and replace the bundle in the index."""
        media = {self.content.get("lock", ""): LOCK, self.descriptor["manifest"]: MANIFEST}
        for layer, ref in zip(self.layers, self.content["layers"], strict=True):
            if ordered:
                layer["entries"].sort(key=lambda e: e["path"].encode("utf-8", "surrogatepass"))
            data = canonical(layer)
            self.blobs.pop(ref["list"], None)
            ref["list"] = self.put(data)
            ref["list_size"] = len(data)
            if counted:
                ref["files"] = len(layer["entries"])
                ref["bytes"] = sum(e.get("size", 0) for e in layer["entries"])
            media[ref["list"]] = LIST
        self.descriptor["content_id"] = digest(canonical(self.content))
        self.seal(key, media)

    def seal(self, key: Path, media: dict[str, str]) -> None:
        data = canonical(self.descriptor)
        self.image["config"] |= {"digest": self._write(data), "size": len(data)}
        items: dict[str, dict[str, Any]] = {}
        for plain, blob in self.blobs.items():
            kind = media.get(plain, CHUNK)
            items[blob["blob"]] = {"mediaType": kind, "digest": blob["blob"], "size": blob["size"]}
        signature = sign(data, read_private_key(key.read_bytes()), namespace="envbundle")
        items["signature"] = {"mediaType": SIGNATURE, "digest": self._write(signature), "size": len(signature)}
        order = [LOCK, MANIFEST, LIST, CHUNK, SIGNATURE]
        self.image["layers"] = sorted(items.values(), key=lambda i: (order.index(i["mediaType"]), i["digest"]))
        image = canonical(self.image)
        index = json.loads((self.store / "index.json").read_bytes())
        content = self.content
        tag = f"{content['name']}-{content['version']}-{content['target']['name']}"
        index["manifests"][0] |= {"digest": self._write(image), "size": len(image)}
        index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"] = tag
        (self.store / "index.json").write_bytes(canonical(index))


def _blob(store: Path, name: str) -> bytes:
    return (store / "blobs/sha256" / name.removeprefix("sha256:")).read_bytes()
