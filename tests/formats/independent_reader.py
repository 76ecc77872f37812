"""A bundle's reader written from docs/format.md alone: the standard library and zstandard, nothing of envbundle.

    python independent_reader.py STORE TAG             list what the bundle installs
    python independent_reader.py STORE TAG FOLDER      extract it there (contents only: no scripts are written)
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from pathlib import Path

import zstandard


class Bundle:
    def __init__(self, store, tag):
        self.blobs = Path(store) / "blobs" / "sha256"
        index = json.loads((Path(store) / "index.json").read_bytes())
        name = "org.opencontainers.image.ref.name"
        entry = next(e for e in index["manifests"] if e.get("annotations", {}).get(name) == tag)
        image = json.loads(self.blob(entry["digest"], entry["size"]))
        assert image["artifactType"] == "application/vnd.envbundle.bundle.v1"
        data = self.blob(image["config"]["digest"], image["config"]["size"])
        self.descriptor = json.loads(data)
        assert data == self.canonical(self.descriptor), "not canonical"
        self.content = self.descriptor["content"]
        assert self.descriptor["format"] == "envbundle.descriptor.v1"
        assert self.content["format"] == "envbundle.content.v1"
        assert self.descriptor["content_id"] == self.digest(self.canonical(self.content))
        signature = "application/vnd.envbundle.signature.v1.sshsig"
        listed = {(x["digest"], x["size"]) for x in image["layers"] if x["mediaType"] != signature}
        assert listed == {(b["blob"], b["size"]) for b in self.descriptor["blobs"].values()}

    @staticmethod
    def canonical(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    @staticmethod
    def digest(data):
        return "sha256:" + hashlib.sha256(data).hexdigest()

    def blob(self, digest, size):
        data = (self.blobs / digest.removeprefix("sha256:")).read_bytes()
        assert len(data) == size, digest
        assert self.digest(data) == digest, digest
        return data

    def plain(self, digest):
        where = self.descriptor["blobs"][digest]
        data = self.blob(where["blob"], where["size"])
        if where["encoding"] == "zstd":
            assert zstandard.get_frame_parameters(data).content_size == where["plain_size"]
            data = zstandard.ZstdDecompressor(max_window_size=1 << 25).decompress(data)
        assert len(data) == where["plain_size"], digest
        assert self.digest(data) == digest, digest
        return data

    def installed(self, layer, path):
        scheme, _, rest = path.partition("/")
        python = self.content["target"]["python"]
        site = f"lib/python{python}/site-packages/{rest}"
        headers = f"include/site/python{python}/{layer['distribution']}/{rest}"
        return {"purelib": site, "platlib": site, "scripts": f"bin/{rest}", "headers": headers, "data": rest}[scheme]

    def files(self):
        """Yield (path below the prefix, mode, bytes), or bytes None for scripts that the installer writes."""
        for number, ref in enumerate(self.content["layers"]):
            layer = json.loads(self.plain(ref["list"]))
            assert layer["format"] == "envbundle.layer.v1"
            chunks = {digest: self.plain(digest) for digest, _ in layer["chunks"]}
            for entry in layer["entries"]:
                path = self.installed(layer, entry["path"])
                if self.content["provides"].get(path, number) != number:
                    continue
                if entry.get("type") == "entry-point":
                    yield path, 0o755, None
                    continue
                if "inline" in entry:
                    data = base64.b64decode(entry["inline"])
                else:
                    data = b"".join(chunks[c][o : o + n] for c, o, n in entry.get("segments", []))
                assert len(data) == entry["size"], path
                assert self.digest(data) == entry["sha256"], path
                yield path, entry["mode"], data


def main(store, tag, folder=None):
    for path, mode, data in Bundle(store, tag).files():
        print(f"{mode:o} {'-' if data is None else len(data)} {path}")
        if folder is not None and data is not None:
            place = Path(folder) / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            place.chmod(mode)


if __name__ == "__main__":
    main(*sys.argv[1:])
