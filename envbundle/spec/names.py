"""Small types for strings with a meaning: distribution names and relative paths.

* ``normalise_name``: PyPA name normalisation (lower case, runs of ``-_.`` become ``-``).
* ``RelPath``: a relative POSIX path that cannot leave its root: no empty, ``.`` or ``..`` component, no
  leading slash, no backslash, no NUL or control character, UTF-8, components of at most 255 bytes. Paths from
  bundles and wheels are hostile until they have been through it.
"""

from __future__ import annotations

import re

from envbundle.errors import IntegrityError

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
_BUNDLE = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,126}[a-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,127}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SCRIPT = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._+ -]{0,253}[A-Za-z0-9_+])?")


def normalise_name(text: str) -> str:
    """Return the normalised name; raises ``IntegrityError`` (E-NAME) for what is no distribution name."""
    if not _NAME.fullmatch(text):
        raise IntegrityError(
            "E-NAME", "distribution name", expected="letters, digits, . _ -", found=repr(text[:80])
        )
    return re.sub(r"[-_.]+", "-", text).lower()


def check_bundle_name(text: str) -> str:
    """Return ``text`` if it may name a bundle (it becomes part of a tag), else raise E-NAME."""
    if not _BUNDLE.fullmatch(text):
        raise IntegrityError(
            "E-NAME", "bundle name", expected="lower-case letters, digits, . _ -", found=repr(text[:80])
        )
    return text


def check_version(text: str) -> str:
    """Return ``text`` if it may be a version in a tag or file name, else raise E-NAME."""
    if not _VERSION.fullmatch(text):
        raise IntegrityError(
            "E-NAME", "version", expected="letters, digits, . _ + ! -", found=repr(text[:80])
        )
    return text


def check_script_name(text: str) -> str:
    """Return ``text`` if it may be the name of a console script, else raise E-NAME."""
    if not _SCRIPT.fullmatch(text):
        raise IntegrityError("E-NAME", "script name", expected="one plain file name", found=repr(text[:80]))
    return text


class RelPath(str):
    """A contained relative path; a ``str`` once it has been checked."""

    __slots__ = ()

    def __new__(cls, text: str) -> RelPath:  # noqa: PYI034 - a value type, never subclassed
        """Check ``text``; raises ``IntegrityError`` (E-PATH) naming it in escaped form."""
        fault = _fault(text)
        if fault:
            raise IntegrityError("E-PATH", ascii(text)[:300], expected="a path inside its root", found=fault)
        return super().__new__(cls, text)


def _fault(text: str) -> str:
    if not text:
        return "an empty path"
    if text.startswith("/"):
        return "an absolute path"
    if "\\" in text:
        return "a backslash"
    if _CONTROL.search(text):
        return "a control character"
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        return "characters that are no UTF-8"
    if size > 4000:
        return f"{size} bytes"
    for part in text.split("/"):
        if part in ("", ".", ".."):
            return f"a component {part!r}"
        if len(part) > 63 and len(part.encode("utf-8")) > 255:  # one character has at most four bytes
            return "a component of more than 255 bytes"
    return ""
