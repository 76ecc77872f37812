"""PTX text: its target and ISA version, and the names of its kernels.

The first ``.version M.m`` and ``.target sm_NN[a|f]`` at a line's start count; comments and blank lines may
come first. A kernel is an ``.entry`` directive.
"""

from __future__ import annotations

import re

from envbundle.spec.coverage import Image

HEAD = 1 << 16
_VERSION = re.compile(rb"^[ \t]*\.version[ \t]+([0-9]{1,3})\.([0-9]{1,3})\b", re.MULTILINE)
_TARGET = re.compile(rb"^[ \t]*\.target[ \t]+sm_([1-9][0-9]{1,3})([af]?)\b", re.MULTILINE)
_LINKAGE = rb"(?:\.(?:visible|weak|extern)[ \t]+)*"
_ENTRY = re.compile(rb"^[ \t]*" + _LINKAGE + rb"\.entry[ \t\r\n]+([^\s(]{1,4096})", re.MULTILINE)


def read_ptx(head: bytes) -> Image | None:
    """Return the image that a PTX text is, from its first ``HEAD`` bytes; None where it is no PTX."""
    version, target = _VERSION.search(head), _TARGET.search(head)
    if version is None or target is None:
        return None
    isa = f"{int(version[1])}.{int(version[2])}"
    return Image("ptx", target[1].decode() + target[2].decode(), isa)


def has_entry(text: bytes) -> bool:
    """Whether a PTX text, or the beginning of one, defines a kernel."""
    return b".entry" in text and _ENTRY.search(text) is not None


def entry_names(text: bytes) -> tuple[str, ...]:
    """Return the names of the kernels that a PTX text defines, sorted."""
    return tuple(sorted({match[1].decode("ascii", "replace") for match in _ENTRY.finditer(text)}))
