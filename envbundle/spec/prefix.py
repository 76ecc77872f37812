"""Where an environment may live: the rule for prefixes, the manifest's and the command line's.

* Absolute, no ``.`` or ``..``, not the root itself.
* No quote, colon, backslash or control character: the prefix is written into shebangs, activate scripts, PATH
  and LD_LIBRARY_PATH; a colon splits the last two and ``python -m venv`` refuses it too. Spaces and non-ASCII
  letters are fine.
"""

from __future__ import annotations

from envbundle.errors import EnvbundleError, UserInputError

from .names import RelPath

_FORBIDDEN = {
    "\n": "a newline",
    "\0": "a NUL",
    "'": "a quote",
    '"': "a quote",
    ":": "a colon",
    "\\": "a backslash",
}


def check_prefix(text: str, *, subject: str = "prefix") -> str:
    """Return ``text`` without trailing slashes if an environment may live there.

    Raises ``UserInputError``: E-PREFIX-CHARS for a forbidden character, E-VALUE for a path that is relative,
    is the root, or holds ``.`` or ``..``.
    """
    for character in text:
        named = _FORBIDDEN.get(character)
        if named is None and (ord(character) < 32 or ord(character) == 127):
            named = "a control character"
        if named:
            raise UserInputError(
                "E-PREFIX-CHARS",
                subject,
                expected="a path without quotes, colons, backslashes and control characters",
                found=f"{named} in {text[:120]!a}",
                hint="scripts, PATH and LD_LIBRARY_PATH cannot hold such a path: choose another",
            )
    if not text.startswith("/"):
        raise UserInputError(
            "E-VALUE",
            subject,
            expected="an absolute path",
            found=repr(text[:120]),
            hint="write the path from / on",
        )
    plain = text.rstrip("/")
    try:
        RelPath(plain[1:])
    except EnvbundleError as fault:
        found = "the root itself" if not plain else f"{fault.found} in {text[:120]!a}"
        raise UserInputError(
            "E-VALUE", subject, expected="an absolute path without . and ..", found=found
        ) from fault
    return plain
