#!/bin/sh
# Makes data-VERSION.tar.gz of a data folder as the given binary leaves it, for `tests/cli/upgrade.rs`:
# once a version, when it is released, from the root of the repository.
#
#   apps/cli/tests/data/make.sh target/release/radeon-cluster
set -eu
program=$(realpath "$1")
version=$("$program" --version | cut -d' ' -f2)
here=$(realpath "$(dirname "$0")")
model=$(realpath "$here/../../../../inference/tests/classical/binarizer/model.onnx")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_DATA_HOME="$work/home" XDG_CACHE_HOME="$work/home" RADEON_QUIC__ADVERTISE=never

mkdir -m 0700 data
# Ten years: the folder is opened long after it was made.
cat > data/radeon-cluster.toml <<'END'
workers = 1
device = "cpu"
batch_max = 4
results_kept_for_s = 315360000
keys_kept_for_s = 315360000

[http]
addr = "127.0.0.1:0"

[grpc]
addr = "127.0.0.1:0"

[quic]
addr = "127.0.0.1:0"
END
# A float for each of 64 pixels: a white image.
printf '\223NUMPY\001\000v\000' > image.npy
printf '%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 8, 8), }" >> image.npy
head -c 256 /dev/zero >> image.npy

ask() { "$program" "$@" --json --data data; }
ask start > /dev/null
ask models add added "$model" > /dev/null
ask models add added "$model" > /dev/null
ask keys create --role submit --note kept | sed 's/.*"key":"\([^"]*\)".*/\1/' > data/kept.key
ask submit --model digits --input image.npy --durable --key done --wait > /dev/null
ask stop > /dev/null
ask start --workers 0 > /dev/null
ask submit --model digits --input image.npy --durable --key queued > /dev/null
ask stop --now > /dev/null
cp image.npy data/
rm -f data/*.log data/*.lock data/pki/*.lock

tar --sort=name --owner=0 --group=0 --numeric-owner -czf "$here/data-$version.tar.gz" data
ls -l "$here/data-$version.tar.gz"
