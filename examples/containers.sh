#!/bin/sh
# A file from one container to another that share nothing but the runtime directory: each has process
# numbers, a network, mounts and a root directory of its own, and a /dev/shm of 64 MiB that stays empty.
# The same goes for containers of any make: give both the one directory, as
# `docker run -v /run/corewire:/run/corewire -e COREWIRE_RUNTIME_DIR=/run/corewire ...` does.
#
# usage, as root: examples/containers.sh path/to/corewire FILE

set -eu
program=$(realpath "$1")
file=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -m 700 "$work/shared"

# contained NAME COMMAND...: runs it in a container.
contained() {
    name=$1
    shift
    mkdir "$work/$name"
    unshare --mount --pid --net --fork --propagation private sh -eu -c '
        name=$1 root=$2 shared=$3 program=$4
        shift 4
        mount -t tmpfs tmpfs "$root"
        for system in bin lib lib64 usr; do
            if [ -L "/$system" ]; then
                cp -a "/$system" "$root"
            elif [ -d "/$system" ]; then
                mkdir "$root/$system"
                mount --bind -o ro "/$system" "$root/$system"
            fi
        done
        cp "$program" "$root/corewire"
        mkdir -p "$root/proc" "$root/tmp" "$root/dev/shm" "$root/run/corewire"
        mount -t proc proc "$root/proc"
        mount -t tmpfs -o size=64m tmpfs "$root/dev/shm"
        mount --bind "$shared" "$root/run/corewire"
        export COREWIRE_RUNTIME_DIR=/run/corewire
        for space in pid net mnt; do
            echo "$name: $(readlink /proc/self/ns/$space)" >&2
        done
        chroot "$root" "$@"
        echo "$name: $(ls -A "$root/dev/shm" | wc -l) files in /dev/shm" >&2
    ' sh "$name" "$work/$name" "$work/shared" "$program" "$@"
}

contained receiver sh -c '/corewire receive image | sha256sum' &
contained sender /corewire send image --wait-receivers 1 <"$file"
wait $!
