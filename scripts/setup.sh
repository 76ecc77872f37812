#!/bin/sh
# Make .venv hold envbundle, editable, with the extras named as arguments (test, lint, docs).
#
#   scripts/setup.sh            .venv/bin/envbundle is ready
#   scripts/setup.sh test       ... and what the unit tests import
#
# Starts from a Python >= 3.10 with venv, or from one with pip, or from uv. Running it again costs a few
# milliseconds: a stamp in .venv holds the checksum of pyproject.toml, the extras and the folder.
# PYTHON=/path/to/python chooses the interpreter of a new .venv.
set -eu
cd "$(dirname "$0")/.."
here=$(pwd)
venv=.venv
extras=$(printf '%s\n' "$@" | LC_ALL=C sort -u | tr '\n' ' ')
# The host's own settings of an active environment must not steer ours.
unset PYTHONHOME PYTHONPATH VIRTUAL_ENV

say() { printf '%s\n' "$*" >&2; }
fits() { "$1" -c 'import sys; raise SystemExit(not (3, 10) <= sys.version_info[:2] < (3, 15))' </dev/null >/dev/null 2>&1; }
imports() { "$1" -c "import $2" </dev/null >/dev/null 2>&1; }
works() { [ -x "$venv/bin/python" ] && fits "$venv/bin/python"; }
# Without pip in it an environment is of use only where uv can fill it; an interrupted one has neither.
can_install() { imports "$venv/bin/python" pip || [ -x "$venv/bin/uv" ] || command -v uv >/dev/null 2>&1; }

wanted() {
    printf '%s\n' "$here" "$(cksum <pyproject.toml)"
    printf 'extra %s\n' $extras | LC_ALL=C sort -u
}
# The stamp is a list of lines; extras installed by an earlier run stay good.
up_to_date() {
    works && [ -x "$venv/bin/envbundle" ] && [ -f "$venv/.made" ] || return 1
    wanted | while IFS= read -r line; do
        [ "$line" = "extra " ] || grep -qxF -- "$line" "$venv/.made" || exit 1
    done
}

if up_to_date; then exit 0; fi

# Of several interpreters the first that can make an environment by itself is taken.
candidates() {
    if [ -n "${PYTHON:-}" ]; then printf '%s\n' "$PYTHON"; return; fi
    printf '%s\n' python3 python3.12 python3.13 python3.11 python3.14 python3.10 python
}

make_venv() {
    for python in $(candidates); do
        if fits "$python" && imports "$python" "venv, ensurepip"; then
            say "setup: making $venv with $python -m venv"
            rm -rf "$venv" && "$python" -m venv "$venv" && return 0
        fi
    done
    if command -v uv >/dev/null 2>&1; then
        say "setup: making $venv with uv"
        rm -rf "$venv" && uv venv -q --python "${PYTHON:->=3.10,<3.15}" "$venv" && return 0
    fi
    for python in $(candidates); do
        if fits "$python" && imports "$python" pip; then
            say "setup: making $venv with virtualenv, which $python -m pip brings"
            boot=$(mktemp -d)
            rm -rf "$venv"
            if "$python" -m pip install -q --target "$boot" virtualenv </dev/null &&
                PYTHONPATH="$boot" "$python" -m virtualenv -q "$venv"; then
                rm -rf "$boot"
                return 0
            fi
            rm -rf "$boot"
        fi
    done
    return 1
}

if ! { works && can_install; } && ! make_venv; then
    say "setup: no usable Python: install Python 3.10 or newer with its venv module (Debian, Ubuntu: apt-get install python3-venv), or uv"
    exit 1
fi

spec=.
known=$( [ -f "$venv/.made" ] && sed -n 's/^extra \(.\{1,\}\)$/\1/p' "$venv/.made" || true )
all=$(printf '%s\n' $known $extras | LC_ALL=C sort -u | tr '\n' ',' | sed 's/^,*//; s/,*$//')
[ -z "$all" ] || spec=".[$all]"
say "setup: installing envbundle ($spec) into $venv"
rm -f "$venv/.made"
if imports "$venv/bin/python" pip; then
    "$venv/bin/python" -m pip install -q --disable-pip-version-check -e "$spec" </dev/null
elif [ -x "$venv/bin/uv" ]; then
    "$venv/bin/uv" pip install -q --python "$venv/bin/python" -e "$spec" </dev/null
else
    uv pip install -q --python "$venv/bin/python" -e "$spec" </dev/null
fi
{
    printf '%s\n' "$here" "$(cksum <pyproject.toml)"
    printf '%s\n' "$all" | tr ',' '\n' | sed 's/^/extra /'
} >"$venv/.made.new"
mv "$venv/.made.new" "$venv/.made"
