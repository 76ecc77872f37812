"""The manifest that ``envbundle init`` writes: short, commented, and valid as it stands.

A line that begins with ``#`` and no space is a setting that waits to be used: without its ``#`` the manifest
must still be valid (a test takes all of them off at once). Prose begins with ``# ``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .toml_writer import key_of, value_of

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA_FILE = "envbundle.schema.json"

_TEMPLATE = """\
#:schema {schema}
# What belongs into this environment, and for which machines. Every key: docs/manifest.md
# Next: `envbundle lock`, then `envbundle pack`, `envbundle copy`, `envbundle install`.

[bundle]
name = {name}
version = {version}
python = {python}
# Refuse on the target whatever has a lower serial than was ever accepted there:
#serial = 1

[resolve]
requirements = {requirements}
#requirement-files = ["requirements.txt"]
#constraints = ["setuptools<90"]
# Folders with wheels of your own:
#find-links = ["wheels"]
# A full freeze of exact pins, taken as it is (needs `==` everywhere):
#complete = false

# Indexes with their own wheels; an explicit one serves only what `from` sends there.
#[[resolve.index]]
#name = "cuda"
#url = "https://packages.example/simple"
#explicit = true

#[resolve.from]
#torch = "cuda"

# One table for each class of machines. gpu: one, several that must all be served, or "none".
[target.{target}]
gpu = {gpu}
platform = {platform}
# The oldest driver among the machines; PTX is judged by it:
#driver = "580"
# The machines reach no network at run time:
#offline = true

# Your patched files, laid out as in site-packages; paths not there stay as the wheel has them.
#[[overlay]]
#distribution = "sglang"
#base = "0.5.9"
#path = "overlays/sglang"
#remove = ["sglang/srt/old.py"]

# What is demanded of a package's GPU code: "complete", "files" (the default), "any", "runtime-jit".
#[package.sgl-kernel]
#coverage = "files"
#exempt = ["sgl_kernel/flash_ops*.so"]

[layout]
# "relocatable": the prefix is chosen by install. "fixed": only at the prefix named here.
mode = "relocatable"
#prefix = "/opt/{name_plain}"
interpreter = "host"

# What must hold on the target before anything is written there.
#[[invariant]]
#kind = "model"
#path = "/models/my-model"

#[[invariant]]
#kind = "tool"
#tool = "nvcc"
#min = "12.9"

# Variables that activate and env.sh set.
#[environment]
#CUDA_HOME = "/usr/local/cuda"

# Run in the new environment before it goes live, without network.
#[[check]]
#import = ["torch"]
#timeout = 300

# Distributions that must have one version.
#[[group]]
#same-version = ["flashinfer-python", "flashinfer-cubin"]
"""


def manifest_template(
    *,
    name: str = "my-environment",
    version: str = "1",
    python: str = "3.12",
    target: str = "sm_90",
    gpu: str = "sm_90",
    platform: str = "x86_64-manylinux_2_39",
    requirements: Sequence[str] = (),
    schema: str = f"./{SCHEMA_FILE}",
) -> str:
    """Return a commented manifest with these values; valid if they are.

    ``schema`` is what an editor opens for the ``#:schema`` line: a path relative to the manifest, or a URL;
    ``envbundle init`` writes the schema's file beside the manifest.
    """
    listed = "".join(f"    {value_of(requirement)},\n" for requirement in requirements)
    return _TEMPLATE.format(
        schema=schema,
        name=value_of(name),
        name_plain=name,
        version=value_of(version),
        python=value_of(python),
        target=key_of(target),
        gpu=value_of(gpu),
        platform=value_of(platform),
        requirements=f"[\n{listed}]" if listed else "[]",
    )


def suggest_bundle_name(folder: str) -> str:
    """Return a legal bundle name near a folder's name, which may hold anything."""
    plain = re.sub(r"[^a-z0-9._-]+", "-", folder.lower())[:64].strip("._-")
    return plain or "my-environment"
