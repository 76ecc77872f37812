"""The files a person or a service sources: activate scripts, ``env.sh``, ``env.conf``.

* All of them are written anew for the prefix at hand, every path and value quoted for its language.
* ``activate`` names the prefix, not the generation: a shell lives longer than a generation. Processes are
  pinned when they start.
* ``deactivate`` gives back what was there before.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from envbundle.errors import UserInputError

from . import quoting

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_environment(environment: Mapping[str, str]) -> None:
    """Refuse names that are no variable and values that no shell can hold (E-ENVIRONMENT)."""
    for name, value in environment.items():
        if not _NAME.fullmatch(name) or name in ("PATH", "VIRTUAL_ENV", "PS1", "IFS"):
            raise UserInputError(
                "E-ENVIRONMENT",
                ascii(name)[:100],
                expected="a variable's name that is not the activation's own",
            )
        if any(ord(character) < 32 for character in value):
            raise UserInputError(
                "E-ENVIRONMENT", name, expected="a value without control characters", found=ascii(value)[:100]
            )


def scripts(prefix: str, title: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the text of every such file by its path in the generation.

    ``prefix`` is the absolute path of the prefix, ``title`` what prompts show.
    """
    check_environment(environment)
    return {
        "bin/activate": _sh(prefix, title, environment),
        "bin/activate.csh": _csh(prefix, title, environment),
        "bin/activate.fish": _fish(prefix, title, environment),
        "env.sh": env_sh(environment),
        "env.conf": env_conf(environment),
    }


def env_sh(environment: Mapping[str, str]) -> str:
    """Return lines for ``. PREFIX/env.sh`` in any POSIX shell."""
    lines = [f"export {name}={quoting.sh(value)}" for name, value in sorted(environment.items())]
    return "\n".join(["# The variables of this environment; written by envbundle.", *lines, ""])


def env_conf(environment: Mapping[str, str]) -> str:
    """Return lines for systemd's ``EnvironmentFile=``."""
    lines = [f"{name}={quoting.systemd(value)}" for name, value in sorted(environment.items())]
    return "\n".join(["# The variables of this environment; written by envbundle.", *lines, ""])


def _sh(prefix: str, title: str, environment: Mapping[str, str]) -> str:
    values = sorted(environment.items())
    back = "".join(
        f"""    if [ -n "${{_ENVBUNDLE_SET_{name}+x}}" ]; then
        unset {name} _ENVBUNDLE_SET_{name}
        if [ -n "${{_ENVBUNDLE_OLD_{name}+x}}" ]; then
            {name}=$_ENVBUNDLE_OLD_{name}; export {name}; unset _ENVBUNDLE_OLD_{name}
        fi
    fi
"""
        for name, _ in values
    )
    forth = "".join(
        f"""if [ -n "${{{name}+x}}" ]; then _ENVBUNDLE_OLD_{name}=${name}; fi
_ENVBUNDLE_SET_{name}=1; {name}={quoting.sh(value)}; export {name}
"""
        for name, value in values
    )
    return f"""# Written by envbundle. Source it (". bin/activate"); "deactivate" gives the shell back.

if [ -n "${{VIRTUAL_ENV-}}" ] && command -v deactivate >/dev/null 2>&1; then
    deactivate
fi

deactivate () {{
    if [ -n "${{_ENVBUNDLE_OLD_PATH+x}}" ]; then
        PATH=$_ENVBUNDLE_OLD_PATH; export PATH; unset _ENVBUNDLE_OLD_PATH
    fi
    if [ -n "${{_ENVBUNDLE_OLD_PYTHONHOME+x}}" ]; then
        PYTHONHOME=$_ENVBUNDLE_OLD_PYTHONHOME; export PYTHONHOME; unset _ENVBUNDLE_OLD_PYTHONHOME
    fi
    if [ -n "${{_ENVBUNDLE_OLD_PS1+x}}" ]; then
        PS1=$_ENVBUNDLE_OLD_PS1; unset _ENVBUNDLE_OLD_PS1
    fi
{back}    unset VIRTUAL_ENV VIRTUAL_ENV_PROMPT
    hash -r 2>/dev/null || :
    unset -f deactivate
}}

VIRTUAL_ENV={quoting.sh(prefix)}; export VIRTUAL_ENV
VIRTUAL_ENV_PROMPT={quoting.sh(title)}; export VIRTUAL_ENV_PROMPT
_ENVBUNDLE_OLD_PATH=$PATH
PATH="$VIRTUAL_ENV/bin:$PATH"; export PATH
if [ -n "${{PYTHONHOME+x}}" ]; then
    _ENVBUNDLE_OLD_PYTHONHOME=$PYTHONHOME; unset PYTHONHOME
fi
{forth}if [ -z "${{VIRTUAL_ENV_DISABLE_PROMPT-}}" ] && [ -n "${{PS1-}}" ]; then
    _ENVBUNDLE_OLD_PS1=$PS1
    PS1={quoting.sh(f"({title}) ")}"$PS1"
fi
hash -r 2>/dev/null || :
"""


def _csh(prefix: str, title: str, environment: Mapping[str, str]) -> str:
    back, forth = "", ""
    for name in ("PATH", "PROMPT"):
        old = f"_ENVBUNDLE_OLD_{name}"
        give = f'setenv PATH "${old}:q"' if name == "PATH" else f'set prompt="${old}:q"'
        back += f"test $?{old} != 0 && {give} && unset {old}; "
    for name, value in sorted(environment.items()):
        old = f"_ENVBUNDLE_OLD_{name}"
        back += f'unsetenv {name}; test $?{old} != 0 && setenv {name} "${old}:q" && unset {old}; '
        forth += f'if ($?{name}) then\n    set {old}="${name}:q"\nendif\nsetenv {name} {quoting.csh(value)}\n'
    return f"""# Written by envbundle. Source it; "deactivate" gives the shell back.

if ($?VIRTUAL_ENV) then
    if ("`alias deactivate`" != "") deactivate
endif
alias deactivate '{back}unsetenv VIRTUAL_ENV; unsetenv VIRTUAL_ENV_PROMPT; rehash; unalias deactivate'

setenv VIRTUAL_ENV {quoting.csh(prefix)}
setenv VIRTUAL_ENV_PROMPT {quoting.csh(title)}
set _ENVBUNDLE_OLD_PATH="$PATH:q"
setenv PATH "$VIRTUAL_ENV/bin:$PATH:q"
{forth}if (! $?VIRTUAL_ENV_DISABLE_PROMPT && $?prompt) then
    set _ENVBUNDLE_OLD_PROMPT="$prompt:q"
    set prompt = {quoting.csh(f"({title}) ")}"$prompt:q"
endif
rehash
"""


def _fish(prefix: str, title: str, environment: Mapping[str, str]) -> str:
    back, forth = "", ""
    for name, value in sorted(environment.items()):
        old = f"_ENVBUNDLE_OLD_{name}"
        back += f"    set -e {name}\n    if set -q {old}\n        set -gx {name} ${old}\n"
        back += f"        set -e {old}\n    end\n"
        forth += f"if set -q {name}\n    set -g {old} ${name}\nend\nset -gx {name} {quoting.fish(value)}\n"
    return f"""# Written by envbundle. Source it; "deactivate" gives the shell back.

if set -q VIRTUAL_ENV; and functions -q deactivate
    deactivate
end

function deactivate -d 'Leave the environment'
    if set -q _ENVBUNDLE_OLD_PATH
        set -gx PATH $_ENVBUNDLE_OLD_PATH
        set -e _ENVBUNDLE_OLD_PATH
    end
    if set -q _ENVBUNDLE_OLD_PYTHONHOME
        set -gx PYTHONHOME $_ENVBUNDLE_OLD_PYTHONHOME
        set -e _ENVBUNDLE_OLD_PYTHONHOME
    end
    if functions -q _envbundle_old_prompt
        functions -e fish_prompt
        functions -c _envbundle_old_prompt fish_prompt
        functions -e _envbundle_old_prompt
    end
{back}    set -e VIRTUAL_ENV
    set -e VIRTUAL_ENV_PROMPT
    functions -e deactivate
end

set -gx VIRTUAL_ENV {quoting.fish(prefix)}
set -gx VIRTUAL_ENV_PROMPT {quoting.fish(title)}
set -g _ENVBUNDLE_OLD_PATH $PATH
set -gx PATH "$VIRTUAL_ENV/bin" $PATH
if set -q PYTHONHOME
    set -g _ENVBUNDLE_OLD_PYTHONHOME $PYTHONHOME
    set -e PYTHONHOME
end
{forth}if test -z "$VIRTUAL_ENV_DISABLE_PROMPT"; and functions -q fish_prompt
    functions -c fish_prompt _envbundle_old_prompt
    function fish_prompt
        echo -n "($VIRTUAL_ENV_PROMPT) "
        _envbundle_old_prompt
    end
end
"""
