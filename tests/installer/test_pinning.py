"""A process belongs to the generation it was started in (docs/adr/0010)."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from envbundle.installer.install import install
from envbundle.installer.options import InstallOptions

from .builders import LATER, NOW, Dist, bundle, sample_items

if TYPE_CHECKING:
    from pathlib import Path

SERVER = """
import json, shutil, subprocess, sys
print("ready", flush=True)
sys.stdin.readline()
import app.late
child = [sys.executable, "-c", "import app.late, sys; print(app.late.value, sys.prefix)"]
found = {"late": app.late.value, "prefix": sys.prefix, "path": sys.path, "executable": sys.executable}
found["child"] = subprocess.run(child, capture_output=True, text=True).stdout.split()
shell = "python -c 'import app.late; print(app.late.value)'; app-value"
found["shell"] = subprocess.run(["sh", "-c", shell], capture_output=True, text=True).stdout.split()
import through_pth
found["pth"] = through_pth.value
print(json.dumps(found), flush=True)
"""


def items(value: str) -> list[Dist]:
    server = Dist(
        name="server",
        files={
            "server_main.py": f"def main():\n    exec({SERVER!r}, globals())\n"
            "if __name__ == '__main__':\n    main()\n",
            "valued.py": "def main():\n    import app\n    print(app.value)\n",
            "server.pth": "extra_folder\nimport pth_package\n",
            "extra_folder/through_pth.py": f"value = {value!r}\n",
            "pth_package/__init__.py": "",
        },
        entry_points={"server": "server_main:main", "app-value": "valued:main"},
    )
    return [*sample_items(value), server]


@pytest.mark.parametrize(
    "how",
    [
        ["{prefix}/bin/server"],
        ["{prefix}/bin/python", "-m", "server_main"],
        ["{prefix}/bin/python", "-I", "-m", "server_main"],
        ["sh", "-c", '. "{prefix}/bin/activate"; exec python -m server_main'],
        ["sh", "-c", '. "{prefix}/bin/activate"; exec server'],
    ],
    ids=["script", "module", "isolated", "activated", "activated-script"],
)
@pytest.mark.parametrize("folder", ["env", "my env"])
def test_a_process_stays_in_its_generation(tmp_path: Path, how: list[str], folder: str) -> None:
    prefix = tmp_path / folder
    options = InstallOptions(prefix=prefix)
    first = install(*bundle(*items("one"), version="1"), options, now=NOW)
    argv = [word.format(prefix=prefix) for word in how]
    path = f"{prefix}/bin:/usr/bin:/bin"
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PATH": path}
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        second = install(*bundle(*items("two"), version="2"), options, now=LATER)
        assert process.pid in [pid for pid, _ in second.users]
        process.stdin.write("\n")
        process.stdin.flush()
        found = json.loads(process.stdout.readline())
    real = os.path.realpath(prefix.parent / f"{folder}.generations" / first.generation)
    assert found["late"] == found["pth"] == "one"
    assert found["prefix"] == real
    assert found["executable"] == f"{real}/bin/python"
    assert found["child"][0] == "one"
    assert found["shell"] == ["one", "one"]
    assert [entry for entry in found["path"] if entry.startswith(f"{prefix}/")] == []
    assert len(set(found["path"])) == len(found["path"])
