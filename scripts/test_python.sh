#!/usr/bin/env bash
# Run the tests on the Python of another Debian suite, in a folder of its own: `make test-python`.
#
#   scripts/test_python.sh [pytest's arguments]
#
#   PYTHON_ROOT  the folder, made with debootstrap the first time; default .python-3.13
#   SUITE        the Debian suite; default trixie, which has Python 3.13
#   MIRROR       where its packages come from; default: the mirror that this machine's apt uses
#   WORKERS      test processes; default 2
#
# Needs Linux, root and debootstrap. The folder holds the suite's own Chromium, PostgreSQL and CPU build of torch; the
# rest comes from PyPI, with this machine's pip settings. Tests run in name spaces of their own, so that no mount and no
# process outlives them. The exit status is pytest's.
set -euo pipefail

packages=(chromium chromium-driver gcc git jq libc6-dev make postgresql procps python3-dev python3-torch python3-venv)

fail() {
    echo "$(basename "$0"): $1" >&2
    exit 1
}

# The machine's mirrors as "URL suite", the suite renamed to the one asked for.
mirrors() {
    local codename
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    # shellcheck disable=SC2016  # apt's variables, not the shell's
    apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' 2>/dev/null |
        sed -n "s/ $codename\(-security\|-updates\)\?\$/ $suite\1/p" | sort -u
}

# Folders and files that this machine's pip settings and certificates name: they are shown inside, read-only.
settings() {
    {
        printf '%s\n' /etc/pip.conf /etc/xdg/pip "$HOME/.config/pip" "$HOME/.pip" /etc/ssl/certs
        printf '%s\n' "${PIP_CERT:-}" "${SSL_CERT_FILE:-}" "${REQUESTS_CA_BUNDLE:-}"
        # An index in a folder names files beside it.
        # pip writes to its cache, which lies in the checkout.
        python3 -m pip config list 2>/dev/null | grep -v cache-dir | grep -oE "[ '](file://)?/[^ ']+" |
            sed -E "s/^[ ']//; s|^file://(.*)/[^/]+/?\$|\1|"
    } | sort -u | {
        local above=
        while IFS= read -r path; do
            case $path in "" | "${above:-/}"/*) continue ;; esac
            [ ! -e "$path" ] || echo "$path"
            [ ! -d "$path" ] || above=$path
        done
    }
}

bind() { # source, further options
    local target=$root$1
    if [ -d "$1" ]; then mkdir -p "$target"; else mkdir -p "$(dirname "$target")" && touch "$target"; fi
    mount --bind "$1" "$target"
    [ -z "${2:-}" ] || mount -o "remount,bind,$2" "$target"
}

inside() {
    chroot "$root" /usr/bin/env -C "$checkout" -u PYTHONPATH -u PYTHONHOME -u VIRTUAL_ENV -u LD_LIBRARY_PATH \
        PATH=/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        PYTHON=/venv/bin/python LANG=C.UTF-8 USE_LIBUV=0 "$@"
}

mount_all() {
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    bind "$checkout"
    # A worktree's repository lies elsewhere.
    local repository
    repository=$(git -C "$checkout" rev-parse --path-format=absolute --git-common-dir 2>/dev/null || true)
    case $repository in "" | "$checkout"/*) ;; *) bind "$repository" ro ;; esac
    # The folder isn't part of the checkout that it holds.
    case $root in "$checkout"/*) mount -t tmpfs -o ro tmpfs "$root$root" ;; esac
    local path
    for path in /etc/resolv.conf /etc/hosts; do
        [ ! -e "$path" ] || bind "$(readlink -f "$path")" ro
    done
}

make_root() {
    [ ! -e "$root" ] || return 0
    local mirror
    mirror=${MIRROR:-$(mirrors | sed -n "s/ $suite\$//p" | head -n 1)}
    [ -n "$mirror" ] || fail "this machine's apt knows no Debian mirror: say MIRROR=http://..."
    echo "Making $root with debootstrap: Debian $suite, 4 GB with all that the tests need (ten minutes, once)"
    rm -rf --one-file-system "$root.part"
    local how=/usr/share/debootstrap/scripts/$suite # a suite younger than this debootstrap is made as unstable is
    [ -e "$how" ] || how=/usr/share/debootstrap/scripts/sid
    debootstrap --variant=minbase --include=ca-certificates "$suite" "$root.part" "$mirror" "$how" >"$root.log" ||
        fail "debootstrap failed; its words are in $root.log"
    echo "$suite" >"$root.part/.suite"
    mv "$root.part" "$root"
    rm "$root.log"
}

install_packages() {
    local wanted="$suite ${packages[*]}; stores without libuv"
    [ "$(cat "$root/.packages" 2>/dev/null)" != "$wanted" ] || return 0
    echo "Installing $suite's packages into $root: Python, torch, Chromium, PostgreSQL (minutes)"
    local from
    from=$(mirrors)
    [ -z "${MIRROR:-}" ] || from="$MIRROR $suite"
    sed 's/^/deb /; s/$/ main/' <<<"$from" >"$root/etc/apt/sources.list"
    apt-config dump | grep -E '^Acquire::(Check-|[a-z]+::(Proxy|No-Cache))' >"$root/etc/apt/apt.conf.d/90machine" || true
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # starts no service
    chmod +x "$root/usr/sbin/policy-rc.d"
    inside apt-get update -qq
    # What an earlier call was stopped at.
    inside DEBIAN_FRONTEND=noninteractive dpkg --configure -a >/dev/null
    inside DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" \
        >"$root/var/log/packages.log" 2>&1 || { tail -5 "$root/var/log/packages.log" >&2 && return 1; }
    inside apt-get clean
    # Debian's torch is built without libuv, but stores and torchrun ask for it, most of them whatever USE_LIBUV says.
    local distributed=$root/usr/lib/python3/dist-packages/torch/distributed/__init__.py
    grep -q _with_libuv "$distributed" || cat >>"$distributed" <<'PYTHON'

_with_libuv = TCPStore.__init__
TCPStore.__init__ = lambda self, *args, **options: _with_libuv(self, *args, **{"use_libuv": False, **options})
PYTHON
    inside git config --system safe.directory '*' # the checkout may belong to another user
    echo "$wanted" >"$root/.packages"
}

install_python() {
    local version torch wanted constraints=()
    version=$(inside /usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    [ ! -e "$checkout/constraints/python-$version.txt" ] || constraints=(-c "constraints/python-$version.txt")
    wanted=$(cat "$checkout/pyproject.toml" "${constraints[@]:1}" "$0" | sha256sum)
    [ "$(cat "$root/venv/.installed" 2>/dev/null)" != "$wanted" ] || return 0
    echo "Installing .[dev] for Python $version into $root/venv (minutes)"
    # Debian's torch is built for the CPU; PyPI's brings several gigabytes of CUDA: what asks for another is an error.
    torch=$(inside /usr/bin/python3 -c 'from importlib.metadata import version; print(version("torch"))')
    echo "torch==$torch" >"$root/torch.txt"
    inside /usr/bin/python3 -m venv --clear --system-site-packages /venv
    inside pip install -qq "${constraints[@]}" -c /torch.txt -e '.[dev]'
    # Debian's torch comes without the command.
    printf '#!/venv/bin/python\nfrom torch.distributed.run import main\n\nmain()\n' >"$root/venv/bin/torchrun"
    chmod +x "$root/venv/bin/torchrun"
    echo "$wanted" >"$root/venv/.installed"
}

run_inside() {
    exec 9>"$root.lock" # another call may be installing
    flock 9
    make_root
    mount --bind "$root" "$root" # a mount of its own, as "unshare --mount-proc" inside asks for
    mount_all
    install_packages
    settings | while IFS= read -r path; do bind "$path" ro; done
    install_python
    exec 9>&-
    local status=0
    inside python -m pytest -n "${WORKERS:-2}" --dist loadfile --no-loadscope-reorder -m "not soak" \
        -o cache_dir=/venv/.pytest_cache "$@" || status=$?
    exit "$status"
}

checkout=$(cd "$(dirname "$0")/.." && pwd -P)
root=$(realpath -m "${PYTHON_ROOT:-$checkout/.python-3.13}")
suite=${SUITE:-trixie}
if [ "${1:-}" = --inside ]; then
    shift
    run_inside "$@"
fi

[ "$(uname -s)" = Linux ] || fail "needs Linux: it runs another suite of Debian"
for program in debootstrap unshare setpriv flock; do
    command -v "$program" >/dev/null || fail "needs $program: apt-get install debootstrap util-linux"
done

[ ! -e "$root" ] || [ "$(cat "$root/.suite" 2>/dev/null)" = "$suite" ] ||
    fail "$root isn't a folder of $suite that this script made: name another with PYTHON_ROOT"
[ "$(id -u)" -eq 0 ] || fail "needs root, for debootstrap and chroot: sudo make test-python"

# A process group of its own, which is told to end as the terminal would tell it.
set -m
SUITE=$suite PYTHON_ROOT=$root setpriv --pdeathsig KILL \
    unshare --mount --pid --fork --kill-child "$0" --inside "$@" </dev/null &
job=$!
trap 'kill -INT -- "-$job" 2>/dev/null' INT
trap 'kill -TERM -- "-$job" 2>/dev/null' TERM HUP
status=0
wait "$job" || status=$?
while kill -0 "$job" 2>/dev/null; do # a signal came: it ends in its time
    status=0
    wait "$job" || status=$?
done
exit "$status"
