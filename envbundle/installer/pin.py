"""The start-up file that ties a process to the generation it was started in.

* ``PREFIX`` is a link that is moved while servers run. Without a pin, a process started through it keeps
  ``PREFIX/...`` in sys.path and sys.executable: a late import or a child would come from another generation.
* Two ``.pth`` files run the module: the first in sort order, so that packages imported by other ``.pth``
  files are already imported from the real path, and the last, for what other ``.pth`` files added.
* The variables that lead children here (PATH, VIRTUAL_ENV) are turned to the real path as well.
* A descriptor of the generation's folder stays open, so that ``gc`` sees in /proc who is in it.
* It works with ``-I``; with ``-S`` nothing runs at start-up, and nothing is pinned.
"""

from __future__ import annotations

MODULE = '''\
"""Keep this process in the generation it was started in (written by envbundle)."""

import os
import sys

given = sys.prefix
real = os.path.realpath(__file__)
for _ in range(4):  # lib/pythonX.Y/site-packages/this file
    real = os.path.dirname(real)
lease = -1


def moved(path):
    if path == given or path.startswith(given + os.sep):
        return real + path[len(given):]
    return path


def pin_path():
    sys.path[:] = dict.fromkeys(map(moved, sys.path))


def pin():
    global lease
    lease = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name, place in (("PATH", os.path.join(real, "bin")), ("VIRTUAL_ENV", real)):
        value = os.environ.get(name, "")
        parts = value.split(os.pathsep)
        tail = os.sep + os.path.basename(place) if name == "PATH" else ""
        turned = [place if p.endswith(tail) and os.path.realpath(p) == place else p for p in parts]
        if turned != parts:
            os.environ[name] = os.pathsep.join(turned)
    if given == real:
        return
    sys.executable = moved(sys.executable)
    sys.exec_prefix = moved(sys.exec_prefix)
    sys.prefix = real
    pin_path()
    for path in list(sys.path_importer_cache):
        if moved(path) != path:
            del sys.path_importer_cache[path]
    if "site" in sys.modules:
        sys.modules["site"].PREFIXES[:] = dict.fromkeys(map(moved, sys.modules["site"].PREFIXES))


try:
    if os.path.samefile(given, real):
        pin()
    else:
        real = given
except OSError:
    real = given
'''

FIRST = "import _envbundle_pin\n"
LAST = "import _envbundle_pin; _envbundle_pin.pin_path()\n"
