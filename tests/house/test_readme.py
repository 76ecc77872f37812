"""What the README shows is true: its manifest is read, its commands run, its links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from envbundle.cli.table import COMMANDS
from envbundle.spec.manifest_text import parse_manifest

from .source import ROOT, committed_files, relative

README = (ROOT / "README.md").read_text("utf-8")


def marked(mark: str) -> list[str]:
    """The fenced blocks that stand below a ``<!-- mark -->`` line."""
    return re.findall(rf"^<!-- {mark} -->\n```\w+\n(.*?)\n```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", marked("manifest"))
def test_the_manifest_is_read_without_a_fault(text: str) -> None:
    manifest = parse_manifest(text, filename="README.md")
    assert [spec.target.name for spec in manifest.targets] == ["sm_90", "sm_100"]


@pytest.mark.parametrize("script", marked("run"))
def test_the_commands_run(script: str, tmp_path: Path) -> None:
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "LANG": "C.UTF-8",
    }
    (tmp_path / "home").mkdir()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "demo-app with the hand patch" in done.stdout


def test_every_command_is_named() -> None:
    assert [name for name in COMMANDS if not re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", README)] == []


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(p, id=relative(p))
        for p in committed_files()
        if p.suffix == ".md" and p.parent.name != "format.d"
    ],
)
def test_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_anchors_lead_to_titles() -> None:
    for page, anchor in re.findall(r"\]\(([\w/.-]+)#([\w-]+)\)", README):
        titles = re.findall(r"^#+ (.*)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
