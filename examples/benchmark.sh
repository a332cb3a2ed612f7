#!/bin/sh
# Measures a model file on each device of this machine that models run on: device,p50,p99 in ms.
#
#   sh examples/benchmark.sh resnet50.onnx [RUNS]
#
# A device that the model does not run on is told on stderr with the reason, and makes the exit status 1.
set -eu
if [ $# -lt 1 ]; then
    echo "usage: $0 MODEL.onnx [RUNS]" >&2
    exit 2
fi
number() { sed "s/.*\"$1\":\\([0-9.eE+-]*\\).*/\\1/"; }
# A line a device: its id, before the name, and whether models run there, at the end.
listed=$(radeon-cluster devices)
status=0
echo "device,p50_ms,p99_ms"
for device in $(echo "$listed" | awk '$NF == "yes" { print $1 }'); do
    if answer=$(radeon-cluster bench "$1" --device "$device" --runs "${2:-20}" --json); then
        echo "$device,$(echo "$answer" | number p50),$(echo "$answer" | number p99)"
    else
        echo "$device: $1 was not measured" >&2
        status=1
    fi
done
exit $status
