#!/bin/sh
# The REST interface by curl: health, models, an inference, a picture, and a task that is kept.
#
#   sh examples/curl.sh [URL] [FOLDER FOR DATA]
#
# It asks the cluster at URL, http://127.0.0.1:8000 unless it is given. With the folder for data of
# a cluster on this machine it also submits a task, for which its owner's key is needed, and has
# pictures read by the ensemble read-digit.
set -eu
here=$(dirname "$0")
url=${1:-http://127.0.0.1:8000}
data=${2:-}
ask() { curl --silent --show-error --fail-with-body --max-time 30 "$@"; }

ask "$url/v2/health/ready" && echo "ready"
ask "$url/v2/models/digits" && echo

# Numbers, as the Open Inference Protocol has them.
zeros=$(awk 'BEGIN { for (i = 0; i < 64; i++) printf "%s0", (i ? "," : "") }')
ask "$url/v2/models/digits/infer" -d '{"inputs": [
    {"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": ['"$zeros"']}]}' && echo

[ -n "$data" ] || exit 0

# An ensemble is a file in the folder of models; a load has it read at once.
mkdir -p "$data/models/read-digit"
cp "$here/read-digit.toml" "$data/models/read-digit/ensemble.toml"
radeon-cluster models load read-digit --data "$data" >/dev/null
ask -F "image=@$here/paper/7.png" "$url/v2/models/read-digit/infer" && echo

# The key goes by a file of curl's own settings, since all accounts see command lines.
authorised() {
    printf 'header = "Authorization: Bearer %s"\n' "$(cat "$data/local.key")" |
        curl --config - --silent --show-error --fail-with-body --max-time 30 "$@"
}
task=$(authorised "$url/api/v1/cluster/tasks" -d '{"model": "digits", "durable": true,
    "inputs": [{"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": ['"$zeros"']}]}')
echo "$task"
id=$(echo "$task" | sed 's/.*"task_id":"\([^"]*\)".*/\1/')
authorised "$url/api/v1/cluster/tasks/$id?wait_ms=10000" && echo
