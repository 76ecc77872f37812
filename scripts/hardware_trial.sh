#!/bin/sh
# Try a bundle on a real GPU: does its kernel give the right numbers, and is the wrong one refused as predicted?
#
#   scripts/hardware_trial.sh pack DIR [ARCH] [OTHER]    where nvcc and an index are: make DIR/store
#   scripts/hardware_trial.sh run DIR                    on the machine with the GPU: python3 and a driver are enough
#
# ARCH (default sm_90) is the GPU's own, OTHER (default sm_120) one that it cannot run. PYTHON=3.12 and
# PLATFORM=x86_64-manylinux_2_39 name the machine. `run` prints a transcript and ends 0 only if every step ended as
# it should; it writes below DIR alone.
set -eu

pack() {
    here=$(cd "$(dirname "$0")/.." && pwd)
    arch=${2:-sm_90} other=${3:-sm_120}
    python=${PYTHON:-3.12} platform=${PLATFORM:-x86_64-manylinux_2_39}
    mkdir -p "$1" && cd "$1"
    rm -rf wheels store build keys cache
    mkdir -p wheels build keys
    for each in "$arch" "$other"; do
        rm -rf build/tree
        mkdir -p build/tree/cuda_probe
        cp "$here/tests/data/cuda/cuda_probe/__init__.py" build/tree/cuda_probe/
        nvcc -shared -Xcompiler -fPIC -cudart shared -gencode "arch=compute_${each#sm_},code=$each" \
            -Xlinker '-rpath=$ORIGIN/../nvidia/cu13/lib' -o build/tree/cuda_probe/_probe.so "$here/tests/data/cuda/probe.cu"
        "$here/.venv/bin/python" "$here/scripts/probe_wheel.py" build/tree wheels "1.0+$(echo "$each" | tr -d _)"
    done
    cat >envbundle.toml <<MANIFEST
[bundle]
name = "probe"
version = "1.0"
python = "$python"

[resolve]
requirements = ["nvidia-cuda-runtime>=13.0,<13.1"]
find-links = ["wheels"]

[target.$arch]
gpu = "$arch"
platform = "$platform"
driver = "580"
requirements = ["cuda-probe==1.0+$(echo "$arch" | tr -d _)"]

[target.$other]
gpu = "$other"
platform = "$platform"
driver = "580"
requirements = ["cuda-probe==1.0+$(echo "$other" | tr -d _)"]

[[check]]
import = ["cuda_probe"]
MANIFEST
    "$here/.venv/bin/python" - <<'KEY'
from pathlib import Path

from envbundle.api.example import write_key

write_key(Path("keys/id_ed25519"), Path("keys/allowed_signers"))
KEY
    "$here/.venv/bin/envbundle" lock
    "$here/.venv/bin/envbundle" pack -o store --key keys/id_ed25519
    rm -rf keys/id_ed25519 build wheels cache
    echo "$arch $other" >targets
    sha256sum store/install.pyz | cut -d' ' -f1 >install.pyz.sha256
}

failed=0
# say EXPECTED-STATUS WORDS...: run it, show it, and compare the exit status
say() {
    expected=$1
    shift
    printf '\n$ %s\n' "$*"
    status=0
    "$@" 2>&1 || status=$?
    printf '[exit status %s' "$status"
    if [ "$status" != "$expected" ]; then
        printf ', EXPECTED %s' "$expected"
        failed=1
    fi
    printf ']\n'
}

trial() {
    cd "$1"
    read -r arch other <targets
    scratch=$(mktemp -d "$(pwd)/host-XXXXXX")
    trap 'rm -rf "$scratch"' EXIT
    export HOME="$scratch/home" ENVBUNDLE_ALLOWED_SIGNERS="$(pwd)/keys/allowed_signers"
    unset PYTHONPATH XDG_CACHE_HOME VIRTUAL_ENV || true
    mkdir "$HOME"
    pyz="store/install.pyz"
    date -u '+%Y-%m-%d %H:%M UTC'
    uname -srm
    python3 -c 'import platform; print("Python", platform.python_version(), *platform.libc_ver())'
    for tool in ssh-keygen rsync uv; do command -v $tool || echo "no $tool"; done
    say 0 nvidia-smi --query-gpu=index,name,compute_cap,driver_version --format=csv
    say 0 sh -c "sha256sum $pyz | grep $(cat install.pyz.sha256)"
    say 0 python3 "$pyz" verify store
    say 0 python3 "$pyz" install store --arch "$arch" --prefix "$scratch/right" --check
    say 0 python3 "$pyz" install store --arch "$arch" --prefix "$scratch/right"
    say 0 "$scratch/right/bin/cuda-probe"
    say 0 python3 "$pyz" run "$scratch/right" -- cuda-probe
    say 0 python3 "$pyz" verify "$scratch/right"
    echo
    echo "# The bundle for $other is refused before anything is written"
    say 1 python3 "$pyz" install store --arch "$other" --prefix "$scratch/wrong"
    say 0 sh -c "python3 '$pyz' install store --arch $other --prefix '$scratch/wrong' 2>&1 | grep E-GPU-ARCH"
    say 2 ls "$scratch/wrong" "$scratch/wrong.generations"
    echo
    echo "# Forced, it installs, and its kernel fails at launch with error 209 (no kernel image for the device)"
    say 0 python3 "$pyz" install store --arch "$other" --prefix "$scratch/wrong" --force-arch
    say 2 "$scratch/wrong/bin/cuda-probe"
    say 0 sh -c "'$scratch/wrong/bin/cuda-probe' | grep 'CUDA error 209 '"
    [ "$failed" = 0 ] && echo && echo "every step ended as it should"
    return "$failed"
}

case ${1:-} in
pack) pack "$2" "${3:-}" "${4:-}" ;;
run) trial "$2" ;;
*) sed -n '2,9p' "$0" >&2 && exit 2 ;;
esac
