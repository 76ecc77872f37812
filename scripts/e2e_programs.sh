#!/bin/sh
# Install what the end-to-end tests run besides Python, where it is missing: by apt-get alone.
set -eu
# program:package, one a line; the tests look programs up by name.
programs='
ssh-keygen:openssh-client
ssh-agent:openssh-client
sshd:openssh-server
rsync:rsync
docker-registry:docker-registry
fish:fish
zsh:zsh
skopeo:skopeo
ip:iproute2
unshare:util-linux
debootstrap:debootstrap
chroot:coreutils
mount:mount
mkfs.xfs:xfsprogs
fish:fish
tcsh:tcsh
'
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
missing=
for line in $programs; do
    command -v "${line%%:*}" >/dev/null 2>&1 || missing="$missing ${line##*:}"
done
[ -n "$missing" ] || exit 0
missing=$(printf '%s\n' $missing | LC_ALL=C sort -u | tr '\n' ' ')
if ! command -v apt-get >/dev/null 2>&1; then
    echo "e2e: install these first, there is no apt-get here to do it: $missing" >&2
    exit 1
fi
root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "e2e: run as root, or install these first: $missing" >&2
        exit 1
    fi
    root=sudo
fi
echo "e2e: installing $missing" >&2
export DEBIAN_FRONTEND=noninteractive
$root apt-get update -qq </dev/null
# shellcheck disable=SC2086  # a list of package names
$root apt-get install -y -qq --no-install-recommends $missing </dev/null >/dev/null
for line in $programs; do
    if ! command -v "${line%%:*}" >/dev/null 2>&1; then
        echo "e2e: ${line##*:} was installed and ${line%%:*} is still not on PATH" >&2
        exit 1
    fi
done
