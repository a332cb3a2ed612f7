"""Watches a folder, has a cluster read every new picture, and writes a line of a table for each.

    python3 examples/camera_folder.py pictures --out labels.csv --model read-digit

A picture is sent once its size has not changed between two looks, so that one that a camera still
writes is not. What stands in the table already is not sent again. While the cluster does not answer, pictures
wait. Ctrl-C ends it; what was not read yet is read when it is started again.
"""

import argparse
import csv
import json
import os
import signal
import sys
import threading

from client import Cluster, Refused

ENDINGS = (".png", ".jpg", ".jpeg", ".webp")


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


def watch(cluster, args, stop):
    """Looks at the folder until it is told to stop; gives how many pictures were read."""
    done, sizes, count = known(args.out), {}, 0
    with open(args.out, "a", newline="") as file:
        table = csv.writer(file)
        while True:
            now = pictures(args.folder)
            steady = [name for name, size in now.items() if size and sizes.get(name) == size]
            for name in sorted(set(steady) - done):
                if stop.is_set():
                    return count
                try:
                    outputs = cluster.picture(args.model, os.path.join(args.folder, name))
                except Refused as error:
                    print(f"{name} was not read: {error}", file=sys.stderr)
                    # Too much at once and a server in trouble pass; a picture that is none stays one.
                    if error.status < 500 and error.status != 429:
                        done.add(name)
                    continue
                except OSError as error:
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
    except OSError as error:
        sys.exit(f"error: {error}")
