"""A bundle packed elsewhere, on a host with Python and nothing else: the way that docs/bare-hosts.md tells."""



from __future__ import annotations

import hashlib
import os
import shutil
from typing import Any

import pytest

from .hosts import SIGNERS, STICK, SUITES, Host

pytestmark = pytest.mark.e2e
USER = 4711
WHERE = "import os, sys; print(sys.executable, sys.prefix, os.path.realpath(sys.prefix), sep='\\n')"


def everything(host: Host, prefix: str, **more: Any) -> None:
    """Install at ``prefix`` and do there all that the page tells."""
    done = host.install(prefix, **more)
    assert done.status == 0, done.err + done.out
    generation = done.answer["generation"]
    real = f"{prefix}.generations/{generation}"
    script = host.run(f"{prefix}/bin/demo-app", **more)
    assert "demo-app with the hand patch" in script.out, script.err
    assert f"prefix {real}" in script.out
    told = host.run(f"{prefix}/bin/python", "-c", WHERE, **more).out.splitlines()
    assert told == [f"{real}/bin/python", real, real]
    for words in (("verify", prefix), ("generations", prefix), ("receipt", prefix), ("history", prefix)):
        done = host.bare(*words, **more)
        assert done.status == 0, (words, done.err, done.out)
    ran = host.run("python3", f"{STICK}/install.pyz", "run", prefix, "--", "demo-app", **more)
    assert "demo-app with the hand patch" in ran.out, ran.err


def test_the_host_has_nothing(host: Host) -> None:
    modules = ("pip", "ensurepip", "cryptography", "zstandard", "packaging")
    found = host.run("python3", "-c", f"import importlib.util as u; print([m for m in {modules} if u.find_spec(m)])")
    assert found.out == "[]\n"
    programs = "pip pip3 uv ssh-keygen rsync cc gcc git curl"
    assert host.run("sh", "-c", f"for p in {programs}; do command -v $p; done; true").out == ""


def test_under_a_plain_prefix(host: Host) -> None:
    everything(host, "/opt/env")


def test_under_a_path_with_a_space(host: Host) -> None:
    everything(host, "/opt/the env of today/an env")


def test_under_a_path_of_260_bytes(host: Host) -> None:
    prefix = "/opt/" + "/".join(["long-name-" * 5] * 4) + "/"
    prefix += "e" * (260 - len(prefix))
    assert len(prefix) == 260
    everything(host, prefix)


def test_as_a_user_who_may_write_nowhere_else(host: Host) -> None:
    home = host.path("/srv/service")
    home.mkdir()
    home.chmod(0o700)
    os.chown(home, USER, USER)
    closed = "; ".join(
        f"mount -t tmpfs -o mode=755 tmpfs $R{place}" for place in ("/tmp", "/var/tmp", "/dev/shm")
    )
    everything(host, "/srv/service/env", user=USER, HOME="/srv/service", before=closed)
    where = host.run("sh", "-c", "echo x >/tmp/x || echo x >/opt/x", user=USER, before=closed)
    assert where.status != 0
    # Without a home the folder that it is started in serves.
    done = host.bare(
        "verify", "/srv/service/env", user=USER, HOME="/nonexistent", cwd="/srv/service", before=closed
    )
    assert (done.status, done.answer["ok"]) == (0, True), done.err


def test_from_a_store_whose_path_has_260_bytes(host: Host) -> None:
    far = "/media/" + "/".join(["a stick " + "s" * 40] * 5)
    far += "/" + "s" * (259 - len(far))
    host.path(far).parent.mkdir(parents=True)
    host.path(far).symlink_to(STICK)
    done = host.bare(
        "install",
        far,
        "--arch",
        host.tag,
        "--prefix",
        "/opt/far",
        "--allowed-signers",
        SIGNERS,
        pyz=f"{far}/install.pyz",
    )
    assert done.status == 0, done.err + done.out


def test_it_is_checked_by_hand_first(host: Host) -> None:
    """What the page tells people who have no tool at all: compare the sha256 that pack printed."""
    said = host.run("sha256sum", f"{STICK}/install.pyz").out.split()[0]
    assert said == hashlib.sha256(host.path(f"{STICK}/install.pyz").read_bytes()).hexdigest()


def test_an_unknown_signer_installs_nothing(host: Host) -> None:
    host.path("/media/strangers").write_text(
        "stranger@example.org ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n"
    )
    done = host.bare(
        "install", STICK, "--arch", host.tag, "--prefix", "/opt/none", "--allowed-signers", "/media/strangers"
    )
    assert done.status in (2, 3), done.out
    assert not host.path("/opt/none").exists()
    assert not host.path("/opt/none.generations").exists()


def test_a_flipped_byte_installs_nothing(host: Host) -> None:
    store = host.path("/media/damaged")
    shutil.copytree(host.path(STICK), store)
    blobs = [p for p in (store / "blobs/sha256").iterdir() if p.stat().st_size < 1_000_000]
    largest = max(blobs, key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(data)
    done = host.bare(
        "install", "/media/damaged", "--arch", host.tag, "--prefix", "/opt/none", "--allowed-signers", SIGNERS
    )
    assert done.status == 3, done.out
    assert not host.path("/opt/none").exists()


def test_mounted_noexec_everywhere_it_says_where_it_looked(host: Host) -> None:
    mounts = "; ".join(
        f"mount -t tmpfs -o noexec,mode=1777 tmpfs $R{place}"
        for place in ("/root", "/tmp", "/var/tmp", "/dev/shm", "/mnt")
    )
    done = host.bare("--version", before=mounts, cwd="/mnt")
    assert (done.status, done.codes) == (4, ["E-BOOTSTRAP-CACHE"]), done.err
    found = done.answer["findings"][0]["found"]
    assert found.count("mounted noexec") == 5
    assert "/root/.cache/envbundle-bootstrap: mounted noexec" in found
    assert "ENVBUNDLE_BOOTSTRAP_CACHE=" in done.answer["findings"][0]["hint"]
    named = host.run(
        "python3",
        f"{STICK}/install.pyz",
        "--version",
        before=mounts,
        cwd="/mnt",
        ENVBUNDLE_BOOTSTRAP_CACHE="/srv/cache",
    )
    assert named.status == 0, named.err


def test_a_folder_of_somebody_else_is_passed_over(host: Host) -> None:
    taken = host.path(f"/tmp/envbundle-bootstrap-{USER}")
    taken.mkdir(mode=0o700)
    os.chown(taken, USER + 1, USER + 1)
    done = host.run(
        "python3",
        f"{STICK}/install.pyz",
        "--version",
        user=USER,
        HOME="/nonexistent",
        TMPDIR="/tmp",
        cwd="/usr",
    )
    assert done.status == 0, done.err
    assert list(taken.iterdir()) == []


def test_one_file_serves_both_pythons_and_a_bundle_for_the_other_is_refused(host: Host) -> None:
    """B30: the interpreter is not there; nothing is written."""
    other = next(python for python in SUITES.values() if python != host.python)
    tag = f"demo-{other.replace('.', '_')}-sm_103"
    done = host.bare(
        "install", STICK, "--arch", tag, "--prefix", "/opt/other", "--allowed-signers", SIGNERS, "--no-device"
    )
    assert (done.status, done.codes) == (4, ["E-HOST-PYTHON"])
    assert other in done.answer["findings"][0]["expected"]
    assert not host.path("/opt/other.generations").exists()


def test_b31_an_interpreter_that_the_user_cannot_reach(host: Host) -> None:
    private = host.path("/root/private/bin")
    private.mkdir(parents=True, exist_ok=True)
    host.path("/root").chmod(0o700)
    target = private / f"python{host.python}"
    if not target.exists():
        target.symlink_to(f"/usr/bin/python{host.python}")
    folder = host.path("/srv/other-user")
    folder.mkdir(exist_ok=True)
    os.chown(folder, USER, USER)
    words = ("--python", f"/root/private/bin/python{host.python}")
    done = host.install("/srv/other-user/env", *words, user=USER, HOME="/srv/other-user")
    assert (done.status, done.codes) == (4, ["E-HOST-PYTHON"])
    assert f"/root/private/bin/python{host.python}" in done.answer["findings"][0]["found"]
    assert list(folder.glob("env*")) == []


def test_b32_home_is_the_real_folder_of_the_interpreter(host: Host) -> None:
    link = host.path("/opt/py")
    if not link.is_symlink():
        link.symlink_to("/usr")
    done = host.install("/opt/b32", "--python", f"/opt/py/bin/python{host.python}")
    assert done.status == 0, done.err + done.out
    config = host.path("/opt/b32.generations") / done.answer["generation"] / "pyvenv.cfg"
    assert "home = /usr/bin\n" in config.read_text()
    link.unlink()
    base = host.run("/opt/b32/bin/python", "-c", "import encodings, sys; print(sys.base_prefix)")
    assert base.out == "/usr\n", base.err


def test_b66_a_volume_that_is_too_small_is_seen_before_anything_is_written(host: Host) -> None:
    host.path("/mnt").mkdir(exist_ok=True)
    done = host.install("/mnt/env", before="mount -t tmpfs -o size=1m tmpfs $R/mnt")
    assert done.status == 4, done.out
    assert "E-SPACE" in done.codes
    few = host.install("/mnt/env", before="mount -t tmpfs -o size=100m,nr_inodes=20 tmpfs $R/mnt")
    assert few.status == 4, few.out
    assert "E-INODES" in few.codes


def test_a_read_only_volume(host: Host) -> None:
    done = host.install("/mnt/env", before="mount -t tmpfs -o ro tmpfs $R/mnt")
    assert done.status == 4, done.out
    assert "E-READ-ONLY" in done.codes
