"""Checks of single strings that a person writes in a manifest: each returns the string or says what is wrong.

Every function raises ``UserInputError`` with what was expected, what was found and what to write instead; the
manifest's reader adds file, line, column and key.

* Requirements are PEP 508 or the bare path or URL of a wheel; versions are PEP 440; distribution names are
  normalised as PyPA says.
* No URL may hold credentials: the manifest travels inside the bundle.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from envbundle.errors import UserInputError

from .names import RelPath, check_bundle_name, check_version, normalise_name
from .prefix import check_prefix
from .target import Arch, check_driver, check_platform, check_python

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INDEX_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_GLIBC = re.compile(r"2\.[0-9]{1,3}")
_PATCH_PYTHON = re.compile(r"3\.[0-9]{1,2}(\.[0-9]{1,3})?")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_FILE_SUFFIXES = (".txt", ".in")


def refuse(expected: str, found: str, hint: str = "", code: str = "E-VALUE") -> UserInputError:
    """Return the error of a check; the caller raises it."""
    return UserInputError(code, "value", expected=expected, found=found, hint=hint)


def plain_text(text: str) -> str:
    """Not empty, one line, no control characters."""
    if not text or any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise refuse("text of one line without control characters", _shown(text))
    return text


def distribution(text: str) -> str:
    """Return a distribution's normalised name."""
    return normalise_name(text)


def bundle_name(text: str) -> str:
    """Return the name of a bundle."""
    return check_bundle_name(text)


def bundle_version(text: str) -> str:
    """Return the version of a bundle: any text that may stand in a tag."""
    return check_version(text)


def python_version(text: str) -> str:
    """Return ``3.N``."""
    return check_python(text)


def source_python(text: str) -> str:
    """Return ``3.N`` or ``3.N.M``."""
    if not _PATCH_PYTHON.fullmatch(text):
        raise refuse('"3.12" or "3.12.3"', _shown(text))
    return text


def gpu(text: str) -> str:
    """Return a GPU's architecture; one with a suffix names code and no GPU."""
    arch = Arch.parse(text)
    if arch.suffix:
        raise refuse(
            f"sm_{arch.number}",
            _shown(text),
            f"a suffix names code; the GPU that runs it is sm_{arch.number}",
        )
    return text


def platform(text: str) -> str:
    """Return ``<machine>-manylinux_<major>_<minor>``."""
    return check_platform(text)


def driver(text: str) -> str:
    """Return a driver version or branch."""
    return check_driver(text)


def glibc(text: str) -> str:
    """Return ``2.N``."""
    if not _GLIBC.fullmatch(text):
        raise refuse('"2.N", as in "2.39"', _shown(text))
    return text


def pep440(text: str) -> str:
    """Return a PEP 440 version as it is written."""
    try:
        Version(text)
    except InvalidVersion:
        raise refuse("a PEP 440 version, as in 0.5.9 or 2.9.0+cu130", _shown(text)) from None
    return plain_text(text)


def requirement(text: str) -> str:
    """Return a PEP 508 requirement as it is written."""
    parse_requirement(text)
    return text


def parse_requirement(text: str) -> Requirement:
    """Return ``text`` as ``packaging`` reads it; raises ``UserInputError`` with a hint for common slips."""
    expected = 'a PEP 508 requirement, as in "numpy>=2,<3" or "name @ https://..."'
    plain_text(text)
    try:
        parsed = Requirement(_as_reference(text))
    except InvalidRequirement as fault:
        reason = str(fault).splitlines()[0]
        raise refuse(expected, f"{_shown(text)} ({reason})", _requirement_hint(text)) from None
    if parsed.url is not None:
        _no_credentials(parsed.url)
    return parsed


def _as_reference(text: str) -> str:
    """Return ``name @ path`` for the bare path or URL of a wheel, other texts as they are."""
    place, semicolon, marker = text.partition(" ;")
    if " @ " in place or not place.strip().endswith(".whl"):
        return text
    place = place.strip()
    try:
        name = parse_wheel_filename(unquote(place.rpartition("/")[2]))[0]
    except InvalidWheelFilename as fault:
        raise refuse("the path of a wheel", f"{_shown(place)} ({fault})") from None
    return f"{name} @ {place}{semicolon}{marker}"


def constraint(text: str) -> str:
    """Return a constraint: a PEP 508 requirement without extras, or a file of them (see ``is_file``)."""
    if is_file(text):
        return local_path(text)
    if parse_requirement(text).extras:
        raise refuse("a constraint without extras", _shown(text))
    return text


def is_file(text: str) -> bool:
    """Say whether a constraint names a file: ends in .txt or .in, holds no space, ``@`` or comparison."""
    return text.endswith(_FILE_SUFFIXES) and not any(c in text for c in " @<>=!~;[")


def local_path(text: str) -> str:
    """Return a path, absolute or relative to the manifest; it must not look like an option."""
    plain_text(text)
    if text.startswith("-"):
        raise refuse("a path", _shown(text), f"write ./{text}")
    return text


def contained_path(text: str) -> str:
    """Return a relative path that stays inside its root."""
    return RelPath(text)


def absolute_path(text: str) -> str:
    """Return an absolute path without ``.``, ``..`` and control characters."""
    if not text.startswith("/"):
        raise refuse("an absolute path", _shown(text))
    if text != "/":
        RelPath(text.strip("/"))
    return text


def interpreter_path(text: str) -> str:
    """Return the absolute path of an interpreter, fit for a shebang."""
    return check_prefix(text, subject="interpreter-path")


def glob(text: str) -> str:
    """Return a glob over a wheel's member paths: relative, no ``..``."""
    plain_text(text)
    if text.startswith("/") or ".." in text.split("/") or "\\" in text:
        raise refuse("a glob over the wheel's paths, as in sgl_kernel/flash_ops*.so", _shown(text))
    return text


def index_name(text: str) -> str:
    """Return the name of an index."""
    if not _INDEX_NAME.fullmatch(text):
        raise refuse("letters, digits, . _ -", _shown(text))
    return text


def index_url(text: str) -> str:
    """Return the place of an index: an https, http or file URL, or a path that begins with ``/`` or ``.``."""
    plain_text(text)
    if text.startswith(("/", "./", "../")):
        return text
    parts = _split(text)
    if parts.scheme not in ("https", "http", "file"):
        raise refuse("an https://, http:// or file:// URL, or a path that begins with / or ./", _shown(text))
    if parts.scheme != "file" and not parts.hostname:
        raise refuse("a URL with a host", _shown(text))
    _no_credentials(text)
    return text


def find_links(text: str) -> str:
    """Return a folder of wheels, or the URL of a page that links them."""
    if "://" in text:
        return index_url(text)
    return local_path(text)


def build_source(text: str) -> str:
    """Return the source of a build: a folder, an sdist's path, or ``git+URL@REVISION``."""
    if not text.startswith("git+"):
        return local_path(text)
    plain_text(text)
    address, at, revision = text.rpartition("@")
    if not at or "/" not in address[len("git+https://") :] or not _REVISION.fullmatch(revision):
        raise refuse(
            "git+https://host/project@REVISION", _shown(text), "a build needs a revision: add @COMMIT"
        )
    _no_credentials(text[len("git+") :])
    return text


def variable(text: str) -> str:
    """Return the name of an environment variable."""
    if not _VARIABLE.fullmatch(text):
        raise refuse("the name of an environment variable: letters, digits, _", _shown(text))
    return text


def variable_value(text: str) -> str:
    """Return a variable's value; ``env.conf`` and ``env.sh`` hold one line each."""
    return plain_text(text) if text else text


def module_name(text: str) -> str:
    """Return the dotted name of an importable module."""
    if not all(part.isidentifier() for part in text.split(".")):
        raise refuse("the name of a module, as in torch.cuda", _shown(text))
    return text


def argument(text: str) -> str:
    """Return one argument of a command: anything but NUL."""
    if "\0" in text:
        raise refuse("text without NUL", _shown(text))
    return text


def file_name(text: str) -> str:
    """Return one plain file name."""
    plain_text(text)
    if "/" in text or text in (".", ".."):
        raise refuse("one file name without /", _shown(text))
    return text


def _requirement_hint(text: str) -> str:
    if text.startswith(("-r", "--requirement")):
        return "put the file's name into requirement-files"
    if text.startswith("-"):
        return "options do not belong here: index, find-links, constraints have their own keys"
    if text.endswith((".tar.gz", ".zip")) or text.startswith((".", "/")) or "://" in text:
        return "write NAME @ PATH-OR-URL"
    return ""


def _no_credentials(url: str) -> None:
    if "://" not in url:
        return
    parts = _split(url)
    secret = parts.password is not None or (parts.username and not parts.scheme.endswith("ssh"))
    if secret:
        raise refuse(
            "a URL without user and password",
            f"credentials for {parts.hostname}",
            "the manifest travels with the bundle: keep them in netrc or the keyring",
            code="E-CREDENTIALS",
        )


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # reading it is what checks it
    except ValueError as fault:
        raise refuse("a URL", f"{_shown(url)} ({fault})") from None
    return parts


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 120 else f"{text[:117]}...")
