"""Watches a folder, has a cluster read every new picture, and writes a line of a table for each.

    python3 examples/camera_folder.py pictures --out labels.csv --model read-digit

A picture is sent once neither its size nor the time of its change is another than at the look before, so that one
that a camera still writes is not. What stands in the table already is not sent again, and what is no picture not
before it changes. While the cluster does not answer or has no room, pictures wait. What goes wrong is told once. A key
or a model that is refused ends it, and so does ctrl-C; what was not read yet is read when it is started again.
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
# Statuses of what is wrong with what was sent, or too large.
OF_THE_PICTURE = (400, 413)


class Hopeless(Exception):
    """What goes on until somebody changes something, and what that is."""


class Unusable(Exception):
    """What a picture is refused for, as long as it does not change."""


def pictures(folder):
    """The pictures of a folder, each with when it was changed and its size; one that goes meanwhile is left out."""
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if entry.name.lower().endswith(ENDINGS) and entry.is_file():
                    stat = entry.stat()
                    found[entry.name] = (stat.st_mtime_ns, stat.st_size)
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
    """Whether the model takes pictures, which is the fault of none of them. May raise Hopeless, and Refused."""
    inputs = cluster.ask(f"/v2/models/{model}")["inputs"]
    if not any((spec["name"], spec["datatype"]) == ("image", "BYTES") for spec in inputs):
        what = f"model {model} takes no pictures, expected one with an input image of BYTES"
        raise Hopeless(f"{what}: give another --model")


def read(cluster, model, data):
    """What the model reads in a picture. May raise Unusable, Hopeless, and Refused for what passes by itself."""
    try:
        try:
            return cluster.picture_bytes(model, data)
        except Refused as refusal:
            if refusal.status not in OF_THE_PICTURE:
                raise
            check_model(cluster, model)
            raise Unusable(str(refusal)) from None
    except Refused as refusal:
        if refusal.status >= 500 or refusal.status in PASSING:
            raise
        raise Hopeless(f"{remedy(refusal.status, cluster.url, model)} ({refusal})") from None


def remedy(status, url, model):
    """What to do about a refusal that does not pass."""
    if status in (401, 403):
        return f"the key is refused; set RADEON_KEY to one that may use model {model}"
    if status == 404:
        return "give a --model that `radeon-cluster models ls` lists"
    return f"see whether a cluster, and no other server, is at {url}"


def tell(told, name, words):
    """Says what goes wrong with a picture, or with the cluster, unless that was said of it last."""
    if told.get(name) != words:
        told[name] = words
        print(words, file=sys.stderr, flush=True)


def watch(cluster, args, stop):
    """Looks at the folder until it is told to stop; gives how many pictures were read."""
    done, unusable, seen, told, count = known(args.out), {}, {}, {}, 0
    with open(args.out, "a", newline="") as file:
        table = csv.writer(file)
        while True:
            now = pictures(args.folder)
            steady = [name for name, (_, size) in now.items() if size and seen.get(name) == now[name]]
            for name in sorted(name for name in set(steady) - done if unusable.get(name) != now[name]):
                if stop.is_set():
                    return count
                try:
                    with open(os.path.join(args.folder, name), "rb") as picture:
                        data = picture.read()
                except OSError as error:
                    tell(told, name, f"{name} cannot be read: {error}")
                    continue
                try:
                    outputs = read(cluster, args.model, data)
                except Unusable as why:
                    print(f"{name} is unusable: {why}", file=sys.stderr, flush=True)
                    unusable[name] = now[name]
                    continue
                except Refused as refusal:
                    tell(told, name, f"{name} is sent again later: {refusal}")
                    continue
                except (OSError, http.client.HTTPException) as error:
                    tell(told, "the cluster", f"the cluster does not answer: {error}")
                    break
                # Silence after an answer is told anew.
                told.pop("the cluster", None)
                # The first value of each output: the best label, and what speaks for it.
                table.writerow([name] + [values[0] if values else "" for values in outputs.values()])
                file.flush()
                done.add(name)
                count += 1
                print(name, json.dumps(outputs), flush=True)
            seen = now
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
