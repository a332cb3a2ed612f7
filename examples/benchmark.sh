#!/bin/sh
# Measures a model file on each device of this machine that models run on: device,p50,p99 in ms.
#
#   sh examples/benchmark.sh resnet50.onnx [RUNS]
#
# A device that the model does not run on is told on stderr.
set -eu
if [ $# -lt 1 ]; then
    echo "usage: $0 MODEL.onnx [RUNS]" >&2
    exit 2
fi
number() { sed "s/.*\"$1\":\\([0-9.eE+-]*\\).*/\\1/"; }
echo "device,p50_ms,p99_ms"
# A line a device: its id, before the name, and whether models run there, at the end.
radeon-cluster devices | awk '$NF == "yes" { print $1 }' | while read -r device; do
    if answer=$(radeon-cluster bench "$1" --device "$device" --runs "${2:-20}" --json 2>/dev/null); then
        echo "$device,$(echo "$answer" | number p50),$(echo "$answer" | number p99)"
    else
        echo "$device: the model does not run there" >&2
    fi
done
