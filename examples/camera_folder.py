"""Watches a folder, has a cluster read every new picture, and writes a line of a table for each.

    python3 examples/camera_folder.py pictures --out labels.csv --model read-digit

A picture is sent once its size has not changed between two looks, so that one that a camera still
writes is not. What stands in the table already is not sent again, and what is no picture not before it changes.
While the cluster does not answer or has no room, pictures wait. A key or a model that is refused ends it, and so does
ctrl-C; what was not read yet is read when it is started again.
"""

import argparse
import csv
import http.client
import json
import os
import signal
import sys
import threading

from client import Cluster, Refused

ENDINGS = (".png", ".jpg", ".jpeg", ".webp")
# Statuses of what passes by itself, as those from 500 on: a sender that was too slow, and one too many.
PASSING = (408, 429)


class Hopeless(Exception):
    """What goes on until somebody changes something, and what that is."""


def pictures(folder):
    """The pictures of a folder with their sizes in bytes; one that goes meanwhile is left out."""
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if entry.name.lower().endswith(ENDINGS) and entry.is_file():
                    found[entry.name] = entry.stat().st_size
            except FileNotFoundError:
                continue
    return found


def known(table):
    """The pictures that the table has already."""
    try:
        with open(table, newline="") as file:
            return {row[0] for row in csv.reader(file) if row}
    except FileNotFoundError:
        return set()


def check_model(cluster, model):
    """Whether the model takes pictures, which is the fault of none of them. May raise Hopeless."""
    inputs = cluster.ask(f"/v2/models/{model}")["inputs"]
    if not any((spec["name"], spec["datatype"]) == ("image", "BYTES") for spec in inputs):
        what = f"model {model} takes no pictures, expected one with an input image of BYTES"
        raise Hopeless(f"{what}: give another --model")


def is_unusable(refusal, cluster, model):
    """Whether a picture is refused for what it is, and not for now. May raise Hopeless."""
    if refusal.status >= 500 or refusal.status in PASSING:
        return False
    if refusal.status in (401, 403):
        raise Hopeless(f"the key is refused; set RADEON_KEY to one that may use model {model} ({refusal})")
    if refusal.status == 404:
        raise Hopeless(f"give a --model that `radeon-cluster models ls` lists ({refusal})")
    if refusal.status not in (400, 413):
        raise Hopeless(f"see whether a cluster, and no other server, is at {cluster.url} ({refusal})")
    check_model(cluster, model)
    return True


def watch(cluster, args, stop):
    """Looks at the folder until it is told to stop; gives how many pictures were read."""
    done, unusable, sizes, count = known(args.out), {}, {}, 0
    with open(args.out, "a", newline="") as file:
        table = csv.writer(file)
        while True:
            now = pictures(args.folder)
            steady = [name for name, size in now.items() if size and sizes.get(name) == size]
            for name in sorted(name for name in set(steady) - done if unusable.get(name) != now[name]):
                if stop.is_set():
                    return count
                try:
                    try:
                        outputs = cluster.picture(args.model, os.path.join(args.folder, name))
                    except Refused as refusal:
                        if is_unusable(refusal, cluster, args.model):
                            print(f"{name} is unusable: {refusal}", file=sys.stderr)
                            unusable[name] = now[name]
                        else:
                            print(f"{name} is sent again later: {refusal}", file=sys.stderr)
                        continue
                except (FileNotFoundError, PermissionError) as error:
                    print(f"{name} cannot be opened: {error}", file=sys.stderr)
                    continue
                except (OSError, http.client.HTTPException, Refused) as error:
                    print(f"the cluster does not answer: {error}", file=sys.stderr)
                    break
                # The first value of each output: the best label, and what speaks for it.
                table.writerow([name] + [values[0] if values else "" for values in outputs.values()])
                file.flush()
                done.add(name)
                count += 1
                print(name, json.dumps(outputs), flush=True)
            sizes = now
            if stop.wait(args.every):
                return count


def main():
    parser = argparse.ArgumentParser(description="Reads new pictures of a folder.")
    parser.add_argument("folder")
    parser.add_argument("--out", default="labels.csv", help="the table [default: labels.csv]")
    parser.add_argument("--model", default="read-digit", help="an ensemble [default: read-digit]")
    parser.add_argument("--url", default=os.environ.get("RADEON_URL", "http://127.0.0.1:8000"))
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two looks")
    args = parser.parse_args()
    stop = threading.Event()
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, lambda *_: stop.set())
    cluster = Cluster(args.url, os.environ.get("RADEON_KEY"))
    print(f"read {watch(cluster, args, stop)} pictures", flush=True)


if __name__ == "__main__":
    try:
        main()
    except (OSError, Hopeless) as error:
        sys.exit(f"error: {error}")
