#!/bin/sh
# A cluster of two workers reads ten digits, and loses a worker and no digit on the way.
#
#   sh examples/cluster-demo.sh
#
# Everything lies in a temporary folder that is its owner's alone, and is gone afterwards.
set -eu
here=$(dirname "$0")
place=$(mktemp -d)
data=$place/data
log=$place/log
finish() {
    radeon-cluster stop --now --data "$data" >"$log" 2>&1 || true
    rm -rf "$place"
}
# What a command says beside its answer is shown where it fails.
quietly() {
    "$@" 2>"$log" || { cat "$log" >&2; exit 1; }
}
trap finish EXIT
trap 'exit 130' INT TERM

any=127.0.0.1:0
radeon-cluster start --workers 2 --http $any --grpc $any --quic $any --data "$data" >/dev/null
radeon-cluster workers --data "$data"

# A durable task is kept, with its input, until it has ended, whatever is killed meanwhile.
ids=
for digit in 0 1 2 3 4 5 6 7 8 9; do
    task=$(quietly radeon-cluster submit --model digits --input "$here/digits/$digit.png" \
        --durable --json --data "$data")
    ids="$ids $digit:$(echo "$task" | sed 's/.*"task_id":"\([^"]*\)".*/\1/')"
    if [ "$digit" = 4 ]; then
        pid=$(radeon-cluster workers --json --data "$data" | sed 's/.*"pid":\([0-9]*\).*/\1/')
        kill -9 "$pid"
        echo "worker $pid is killed"
    fi
done

# The class with the highest score is the digit that was read.
right=0
for pair in $ids; do
    answer=$(quietly radeon-cluster result --wait "${pair#*:}" --json --data "$data")
    read=$(echo "$answer" | sed 's/.*"data":\[\([^]]*\)\].*/\1/' | tr , '\n' |
        awk 'NR == 1 || $1 > most { most = $1; class = NR - 1 } END { print class }')
    [ "$read" = "${pair%%:*}" ] && right=$((right + 1))
done
echo "$right of 10 digits were read right"
[ "$right" = 10 ]
