"""Console and GUI scripts of entry points (PyPA "Entry points specification"): written, never carried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envbundle.installer.shebang import start_with

from .interface import Fixed

if TYPE_CHECKING:
    from .interface import Place, Subject


def fix(subject: Subject, place: Place) -> Fixed:
    """Return a script that imports the entry point's object and ends with what calling it returns.

    A reference without an object runs the module as ``python -m`` would.
    """
    module, _, attribute = subject.entry.reference.partition(":")
    if attribute:
        first = attribute.partition(".")[0]
        body = (
            "import sys\n\n"
            f"from {module} import {first}\n\n"
            'if __name__ == "__main__":\n'
            f"    sys.exit({attribute}())\n"
        )
    else:
        body = (
            "import runpy\n\n"
            'if __name__ == "__main__":\n'
            f'    runpy.run_module("{module}", run_name="__main__", alter_sys=True)\n'
        )
    return Fixed(data=start_with(place.interpreter, body.encode()))
