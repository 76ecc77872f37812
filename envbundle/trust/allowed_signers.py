"""Who is trusted: the ``allowed_signers`` file of OpenSSH (ssh-keygen(1), ALLOWED SIGNERS).

    # principals [options] key-type base64-key [comment]
    alice@example.org namespaces="envbundle*",valid-before="20271231Z" ssh-ed25519 AAAA...

* Principals are a pattern list. Options: ``namespaces``, ``valid-after``, ``valid-before``,
  ``cert-authority``.
* Times are ``YYYYMMDD[HHMM[SS]]``, local unless ``Z`` or ``UTC`` stands behind; both ends belong to the span.
* A line that cannot be read refuses the whole file: a typing error must not silently change who is trusted.
* Lines with a certificate authority, a FIDO key or a weak key are read and vouch for nobody.
* The file always comes from outside of the bundle.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timezone, tzinfo

from envbundle.errors import UserInputError
from envbundle.spec.finding import Finding

from .keys import ALGORITHMS, PublicKey, UnsupportedKeyError, decode_key_data, unsupported_kind
from .lines import first_word, numbered_lines
from .outcome import Refusal, Vouched, nearest
from .patterns import accepts_anyone, matches_list

_TIME = re.compile(r"([0-9]{8})(?:([0-9]{4})([0-9]{2})?)?(Z|UTC)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignerLine:
    """One line. ``where`` is ``file:line``; times are aware; ``unusable`` says why it vouches for nobody."""

    where: str
    principals: str
    key_blob: bytes
    namespaces: str | None = None
    valid_after: datetime | None = None
    valid_before: datetime | None = None
    cert_authority: bool = False
    unusable: str = ""

    def judge(
        self, *, namespace: str, now: datetime, principals: tuple[str, ...] | None
    ) -> Vouched | Refusal:
        """Judge a signature by this line's key; ``principals`` None means that any name will do."""
        if self.unusable:
            return Refusal(code="E-SIG-UNSUPPORTED", found=f"{self.unusable} ({self.where})")
        name = self._name(principals)
        if name is None:
            return Refusal(
                code="E-SIG-PRINCIPAL",
                found=f"a key of {self.principals} ({self.where})",
                expected=" or ".join(principals or ()) or "a signer that every rule accepts",
            )
        if self.namespaces is not None and not matches_list(namespace, self.namespaces):
            return Refusal(
                code="E-SIG-NAMESPACE",
                found=f'a key for namespaces="{self.namespaces}" ({self.where})',
                expected=f"one that may sign for {namespace}",
            )
        if self.valid_after is not None and now < self.valid_after:
            return Refusal(
                code="E-SIG-NOT-YET",
                found=f"a key valid from {_written(self.valid_after)} ({self.where})",
                expected=f"a key valid at {_written(now)}",
                hint="if this machine's clock is wrong, set it",
            )
        if self.valid_before is not None and now > self.valid_before:
            return Refusal(
                code="E-SIG-EXPIRED",
                found=f"a key valid until {_written(self.valid_before)} ({self.where})",
                expected=f"a key valid at {_written(now)}",
                hint="have the bundle signed with a current key; if this machine's clock is wrong, set it",
            )
        return Vouched(principal=name, where=self.where)

    def _name(self, principals: tuple[str, ...] | None) -> str | None:
        if principals is None:
            return self.principals if accepts_anyone(self.principals) else None
        return next((name for name in principals if matches_list(name, self.principals)), None)


@dataclass(frozen=True, slots=True)
class AllowedSigners:
    """The lines of one or more files, in order."""

    lines: tuple[SignerLine, ...]

    @classmethod
    def parse(cls, data: bytes, *, source: str, zone: tzinfo | None = None) -> AllowedSigners:
        """Read a file's bytes; ``source`` names it in messages.

        ``zone`` is what local times are in; None is this machine's. Raises ``UserInputError`` (E-SIGNERS)
        that carries every faulty line.
        """
        lines: list[SignerLine] = []
        faults: list[Finding] = []
        for number, text in numbered_lines(data, source, "E-SIGNERS"):
            try:
                lines.append(_parse_line(text, f"{source}:{number}", zone))
            except ValueError as fault:  # noqa: PERF203  # every faulty line is told at once
                faults.append(
                    Finding(
                        code="E-SIGNERS",
                        severity="error",
                        subject=f"{source}:{number}",
                        expected="principals [options] key-type key",
                        found=str(fault),
                    )
                )
        if faults:
            raise UserInputError.of(faults)
        return cls(tuple(lines))

    def judge(
        self, key: PublicKey, *, namespace: str, now: datetime, principals: tuple[str, ...] | None
    ) -> Vouched | Refusal:
        """Say whether a line vouches for a signature by ``key``, else the nearest reason why none does."""
        refusals: list[Refusal] = []
        for line in self.lines:
            if line.key_blob == key.blob:
                answer = line.judge(namespace=namespace, now=now, principals=principals)
                if isinstance(answer, Vouched):
                    return answer
                refusals.append(answer)
        if refusals:
            return nearest(tuple(refusals))
        return Refusal(
            code="E-SIG-UNTRUSTED",
            found=f"a key that no line names: {key.kind} {key.fingerprint}",
            expected="a key listed in allowed_signers" if self.lines else "an allowed_signers file",
            hint="ask the signer for the fingerprint over another channel, then add the key to "
            "allowed_signers; or give the bundle's id by hand (--id)",
        )


def _parse_line(text: str, where: str, zone: tzinfo | None) -> SignerLine:
    principals, rest = first_word(text)
    word, after = first_word(rest)
    options = ""
    if word not in ALGORITHMS and not unsupported_kind(word):
        options, (word, after) = word, first_word(after)
    if '"' in principals:
        raise ValueError("a quote inside of the principals")
    if not principals or "," in (principals[0], principals[-1]) or ",," in principals:
        raise ValueError(f"principals {principals!r} with an empty name")
    data = first_word(after)[0]
    if not data:
        raise ValueError("no key: principals, options, key type and key are needed")
    if word not in ALGORITHMS and not unsupported_kind(word):
        raise ValueError(f"unknown key type {word[:60]!r}")
    blob = decode_key_data(word, data)
    line = SignerLine(where=where, principals=principals, key_blob=blob, unusable=_why_unusable(blob))
    line = _with_options(line, options, zone)
    if line.cert_authority:
        return replace(line, unusable="a certificate authority, and certificates are not supported yet")
    return line


def _why_unusable(blob: bytes) -> str:
    try:
        PublicKey(blob)
    except UnsupportedKeyError as reason:
        return str(reason)
    return ""


_OPTION = re.compile(r'([A-Za-z-]+)(?:=("(?:[^"\\]|\\.)*"|[^,"]*))?(,|\Z)')


def _with_options(line: SignerLine, text: str, zone: tzinfo | None) -> SignerLine:
    seen: set[str] = set()
    at = 0
    while at < len(text):
        match = _OPTION.match(text, at)
        if match is None:
            raise ValueError(f"options that cannot be read: {text[at : at + 60]!r}")
        name, value = match[1].lower(), match[2]
        if name in seen:
            raise ValueError(f"option {name} twice")
        seen.add(name)
        line = _with_option(line, name, value, zone)
        at = match.end()
        if match[3] == "," and at == len(text):
            raise ValueError("options that end with a comma")
    if line.valid_after and line.valid_before and line.valid_before <= line.valid_after:
        raise ValueError("valid-before is not later than valid-after")
    return line


def _with_option(line: SignerLine, name: str, value: str | None, zone: tzinfo | None) -> SignerLine:
    if name == "cert-authority":
        if value is not None:
            raise ValueError("cert-authority takes no value")
        return replace(line, cert_authority=True)
    if name not in ("namespaces", "valid-after", "valid-before"):
        raise ValueError(f"unknown option {name[:60]!r}")
    if value is None or not value.startswith('"'):
        raise ValueError(f"option {name} needs a value in quotes")
    inner = value[1:-1].replace('\\"', '"')
    if name == "namespaces":
        if not inner:
            raise ValueError("namespaces of no namespace")
        return replace(line, namespaces=inner)
    moment = parse_time(inner, zone)
    return replace(line, valid_after=moment) if name == "valid-after" else replace(line, valid_before=moment)


def parse_time(text: str, zone: tzinfo | None) -> datetime:
    """Read ``YYYYMMDD[HHMM[SS]][Z]``; ``zone`` None is this machine's zone; raises ``ValueError``."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"time {text[:40]!r} is not YYYYMMDD[HHMM[SS]][Z]")
    digits = match[1] + (match[2] or "0000") + (match[3] or "00")
    try:
        naive = datetime.strptime(digits, "%Y%m%d%H%M%S")  # noqa: DTZ007  # the zone follows at once
        if match[4]:
            return naive.replace(tzinfo=timezone.utc)
        return (naive.astimezone() if zone is None else naive.replace(tzinfo=zone)).astimezone(timezone.utc)
    except (ValueError, OverflowError, OSError) as fault:
        raise ValueError(f"time {text[:40]!r}: {fault}") from None


def _written(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
