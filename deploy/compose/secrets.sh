#!/bin/sh
# Makes the secrets that compose.yaml mounts, and starts its coordinator for that. Once, and again for a new token.
# COMPOSE is what runs compose, as in: COMPOSE="podman compose" ./secrets.sh
set -eu
cd "$(dirname "$0")"
compose=${COMPOSE:-docker compose}
# Each program in a container has an account of its own: they read the files, and the folder keeps others out.
umask 022
mkdir -p secrets
chmod 0700 secrets

# The value of a field of one line of JSON.
field() { sed -n 's/.*"'"$1"'":"\([^"]*\)".*/\1/p'; }

# A coordinator that other machines reach starts only when there is a key.
test -s secrets/metrics-key ||
    $compose run --rm -T coordinator keys create --role submit --note prometheus --json |
    field key > secrets/metrics-key
$compose up --detach --wait coordinator
# The certificate by which Prometheus knows it, without the authority's key.
$compose cp coordinator:/data/cluster/pki/authority.pem - | tar -xO |
    sed '/PRIVATE KEY/,$d' > secrets/authority
$compose exec -T coordinator /usr/local/bin/radeon-cluster token create --uses 2 --ttl 1h --json |
    field token > secrets/join-token

for name in metrics-key authority join-token; do
    test -s "secrets/$name" || { echo "secrets/$name is empty" >&2; exit 1; }
done
