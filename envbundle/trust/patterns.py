"""Pattern lists as OpenSSH has them in ssh_config(5), PATTERNS: ``*@example.org,!mallory@example.org``.

* ``*`` is any run of characters, also none; ``?`` is any one character; nothing else is special.
* A list matches if one of its patterns does and no pattern behind ``!`` does; the order means nothing.
"""

from __future__ import annotations


def matches(text: str, pattern: str) -> bool:
    """Say whether ``pattern`` fits the whole of ``text``; time grows at most with the product of lengths."""
    at = want = 0
    star, resume = -1, 0
    while at < len(text):
        if want < len(pattern) and pattern[want] == "*":
            star, resume = want, at
            want += 1
        elif want < len(pattern) and pattern[want] in ("?", text[at]):
            at += 1
            want += 1
        elif star >= 0:
            # Let the last star swallow one character more; an earlier star never needs to change.
            resume += 1
            at, want = resume, star + 1
        else:
            return False
    return all(character == "*" for character in pattern[want:])


def matches_list(text: str, patterns: str) -> bool:
    """Say whether the comma-separated list ``patterns`` accepts ``text``."""
    accepted = False
    for pattern in patterns.split(","):
        if pattern.startswith("!"):
            if matches(text, pattern[1:]):
                return False
        elif matches(text, pattern):
            accepted = True
    return accepted


def accepts_anyone(patterns: str) -> bool:
    """Say whether the list has a pattern that is not a negation, without which it accepts nothing."""
    return any(pattern and not pattern.startswith("!") for pattern in patterns.split(","))
