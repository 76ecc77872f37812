"""The site's policy file: whose signature counts for which bundle name.

    # bundle names        principals that may sign them
    sglang-*,!sglang-dev  release@example.org,alice@example.org
    *                     bob@example.org

* Two fields a line, split by white space; ``#`` begins a comment line.
* Names are a pattern list as in allowed_signers. The first line that accepts the bundle's name decides.
* Principals are plain names, without wildcards; allowed_signers says which keys they have.
* A bundle whose name no line accepts may be signed by nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

from envbundle.errors import UserInputError
from envbundle.spec.finding import Finding

from .lines import numbered_lines
from .patterns import accepts_anyone, matches_list


def plain_name_fault(name: str) -> str:
    """Return why ``name`` cannot be one principal's name, or ''. Wildcards would trust more than they say."""
    if not name or any(character.isspace() for character in name):
        return "empty, or holds white space"
    wild = sorted(set(name) & set('*?!,"'))
    return f"holds {' '.join(wild)}" if wild else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRules:
    """Lines in order: a pattern list of bundle names, and the principals who may sign those."""

    source: str
    rules: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def parse(cls, data: bytes, *, source: str) -> NameRules:
        """Read the file's bytes; raises ``UserInputError`` (E-SIGN-POLICY) that carries every faulty line."""
        rules: list[tuple[str, tuple[str, ...]]] = []
        faults: list[Finding] = []
        for number, line in numbered_lines(data, source, "E-SIGN-POLICY"):
            words = line.split()
            fault = "" if len(words) == 2 else f"{len(words)} fields"
            if not fault and not accepts_anyone(words[0]):
                fault = f"names {words[0]!r} that accept no bundle"
            principals = tuple(words[-1].split(","))
            fault = fault or next(
                (f"principal {name!r}: {why}" for name in principals if (why := plain_name_fault(name))), ""
            )
            if fault:
                faults.append(
                    Finding(
                        code="E-SIGN-POLICY",
                        severity="error",
                        subject=f"{source}:{number}",
                        expected="bundle names, then principals",
                        found=fault,
                    )
                )
            else:
                rules.append((words[0], principals))
        if faults:
            raise UserInputError.of(faults)
        return cls(source=source, rules=tuple(rules))

    def principals_for(self, bundle_name: str) -> tuple[str, ...]:
        """Return who may sign a bundle of this name; nobody where no line accepts it."""
        return next((who for names, who in self.rules if matches_list(bundle_name, names)), ())
