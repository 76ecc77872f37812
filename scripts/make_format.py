"""Put docs/format.md together: the frame, the sections of the rooms, and one example of every document.

Sources are docs/format.d/frame.md, which names the others by ``{{section FILE}}``, ``{{example NAME}}`` and
``{{value NAME}}`` lines, and scripts/format_examples.py. A section that is not there leaves nothing behind.
With ``--check`` nothing is written and the exit status is 1 where the page is stale.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import format_examples as made

from envbundle.spec.lock_text import render_lock

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "docs" / "format.d"
PAGE = ROOT / "docs" / "format.md"
HEADER = "<!-- Written by `make docs` from docs/format.d/ and scripts/format_examples.py: edit those. -->\n\n"


def examples() -> dict[str, str]:
    """Return each example as a fenced block by its name in the frame."""
    lock_text = render_lock(made.lock())
    answers = [
        f"`{verb}`:\n\n{_block('json', made.pretty(answer))}"
        for verb, answer in made.answers(lock_text).items()
    ]
    return {
        "manifest": _block("toml", made.MANIFEST),
        "lock": _block("toml", lock_text),
        "layer": _block("json", made.pretty(made.distribution_layer("demo_app").to_dict())),
        "overlay-layer": _block("json", made.pretty(made.overlay_layer().to_dict())),
        "descriptor": _block("json", made.pretty(made.descriptor(lock_text).to_dict())),
        "receipt": _block("json", made.pretty(made.receipt(lock_text).to_dict())),
        "findings": _block("json", made.pretty([finding.to_dict() for finding in made.findings()])),
        "answers": "\n\n".join(answers),
    }


def values() -> dict[str, str]:
    """Return each single value that the frame names."""
    bundle = made.descriptor(render_lock(made.lock()))
    return {
        "layer-digest": str(bundle.content.layers[0].list),
        "overlay-digest": str(bundle.content.layers[2].list),
        "content-id": str(bundle.content_id),
        "bundle-id": str(bundle.bundle_id),
        "tag": bundle.tag,
    }


def page() -> str:
    """Return the whole page."""
    blocks, single = examples(), values()

    def fill(match: re.Match[str]) -> str:
        kind, name = match[1], match[2]
        if kind == "example":
            return blocks[name]
        if kind == "value":
            return single[name]
        path = SOURCES / name
        return _deeper(path.read_text("utf-8").strip()) if path.is_file() else ""

    text = re.sub(
        r"\{\{(section|example|value) ([\w.-]+)\}\}", fill, (SOURCES / "frame.md").read_text("utf-8")
    )
    return HEADER + re.sub(r"\n{3,}", "\n\n", text)


def _deeper(section: str) -> str:
    """Return a section whose own title is of the second level, and all below it one deeper."""
    if not section.startswith("# "):
        return section
    lines, fenced = [], False
    for line in section.splitlines():
        fenced ^= line.startswith("```")
        lines.append(f"#{line}" if line.startswith("#") and not fenced else line)
    return "\n".join(lines)


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def main(argv: list[str]) -> int:
    """Write the page, or with ``--check`` say that it is stale."""
    text = page()
    if "--check" in argv:
        fresh = PAGE.is_file() and PAGE.read_text("utf-8") == text
        if not fresh:
            print("docs/format.md is stale: run make docs")
        return 0 if fresh else 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
