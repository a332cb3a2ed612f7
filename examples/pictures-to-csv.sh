#!/bin/sh
# Has a running cluster read every picture of a folder, and writes a table: file,class,score.
#
#   sh examples/pictures-to-csv.sh digits examples/digits > classes.csv
#
# The model is one whose output is a row of scores. A picture that cannot be read is told on stderr with
# the reason, ends no other, and makes the exit status 1.
set -eu
if [ $# -ne 2 ]; then
    echo "usage: $0 MODEL FOLDER" >&2
    exit 2
fi
status=0
echo "file,class,score"
for file in "$2"/*.png "$2"/*.jpg "$2"/*.jpeg "$2"/*.webp; do
    [ -f "$file" ] || continue
    if answer=$(radeon-cluster submit --model "$1" --input "$file" --wait --json); then
        echo "$answer" | sed 's/.*"data":\[\([^]]*\)\].*/\1/' | tr , '\n' |
            awk -v file="$(basename "$file")" 'NR == 1 || $1 > most { most = $1; class = NR - 1 }
                END { printf "\"%s\",%d,%s\n", file, class, most }'
    else
        echo "$file was not read" >&2
        status=1
    fi
done
exit $status
