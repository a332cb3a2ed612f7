"""Stages of the Containerfile as folders, and programs in them as a runtime of containers would start them.

A folder has what the stage copies; a program in it has a namespace of mounts with /proc, /dev, /tmp and what it is
given, and the account, variables and command that the stage says. Takes root. No image is pulled, and none is built.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

PATIENCE_S = 60
FOLDERS = ("proc", "dev", "tmp", "etc", "run/secrets", "data")


def need():
    """Why no such program can be started here, or nothing."""
    if os.geteuid() != 0:
        return "root: file systems are mounted and roots changed"
    tried = subprocess.run(["unshare", "--mount", "--net", "--uts", "true"], capture_output=True, text=True)
    return f"namespaces: {tried.stderr.strip()}" if tried.returncode else None


class Stage:
    """The instructions of one stage."""

    def __init__(self, text, name):
        text = text.replace("\\\n", " ")
        begin = re.search(rf"^FROM (\S+) AS {name}$", text, re.M)
        assert begin, f"the Containerfile has no stage {name}"
        self.base = begin[1]
        lines = text[begin.end() :].split("\nFROM ")[0].splitlines()
        lines = [line.split(None, 1) for line in lines if line.strip() and not line.startswith("#")]
        self.copies, self.env, self.user, self.entry = [], {}, "0:0", []
        for word, rest in lines:
            if word == "COPY":
                *sources, target = [part for part in rest.split() if not part.startswith("--")]
                owner = re.search(r"--chown=(\S+)", rest)
                self.copies += [(source, target, owner) for source in sources]
            elif word == "ENV":
                self.env.update([rest.split("=", 1)])
            elif word == "USER":
                self.user = rest
            elif word == "ENTRYPOINT":
                self.entry = json.loads(rest)
            else:
                assert word in ("RUN", "WORKDIR"), f"{word} is not known here, expected what stages of images have"

    def build(self, root, sources):
        """Copies what the stage copies, from where `sources` says that it lies here."""
        for source, target, owner in self.copies:
            found = Path(sources[source])
            place = root / target.lstrip("/")
            if found.is_dir():
                shutil.copytree(found, place, dirs_exist_ok=True)
                copied = [place / path.name for path in found.iterdir()]
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, place / Path(source).name)
                copied = [place / Path(source).name]
            for path in copied if owner else []:
                os.chown(path, *map(int, owner[1].split(":")))
        for folder in FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
        return Root(root, self.env, self.user, self.entry)


class Root:
    """A folder that programs take for everything."""

    def __init__(self, path, env, user, entry):
        self.path, self.env, self.user, self.entry = path, env, user, entry

    def libraries(self, program):
        """What the host's loader would load for a program, at the same places."""
        shown = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+) \(0x", shown):
            place = self.path / library.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)

    def command(self, args, env=None, mounts=(), entry=None, host=None):
        """What runs the program with these arguments. A mount is a folder or file, and where it is seen."""
        root = self.path
        mounts = [("/dev", "/dev"), *mounts]
        script = [f"mount -t proc proc {root}/proc", f"mount -t tmpfs -o mode=1777 tmpfs {root}/tmp"]
        script += [f"mount --rbind {source} {root}{target}" for source, target in mounts]
        script += [f"hostname {host}"] if host else []
        script.append(f'exec chroot --userspec={self.user} {root} "$@"')
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", **self.env, **(env or {})}
        given = [f"{name}={value}" for name, value in variables.items()]
        inside = (self.entry if entry is None else entry) + list(args)
        return ["env", "-i", *given, "unshare", "--mount", "--uts", "/bin/sh", "-euc", "; ".join(script), "sh", *inside]

    def run(self, *args, **how):
        """Runs it to its end; answers what it printed as JSON."""
        done = subprocess.run(self.command(args, **how), capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, f"{args} ended with {done.returncode}: {done.stderr[-2000:]}"
        return json.loads(done.stdout)

    def spawn(self, *args, log, **how):
        """Starts it; what it prints goes to the file `log`."""
        return subprocess.Popen(self.command(args, **how), stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def eventually(what, holds):
    """Waits until something holds; what it raises until then counts as no."""
    begin, last = time.monotonic(), None
    while time.monotonic() - begin < PATIENCE_S:
        try:
            if value := holds():
                return value
        except Exception as error:
            last = error
        time.sleep(0.05)
    raise AssertionError(f"not within {PATIENCE_S} s: {what}; {last!r}")


def end(process, how=signal.SIGTERM):
    """Has it end, and answers with which code."""
    process.send_signal(how)
    return process.wait(timeout=PATIENCE_S)


def report(name, test):
    """Runs a test and prints its line."""
    try:
        test()
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"failed: {name}: {text[:1500]}", flush=True)
        return False
    print(f"ok {name}", flush=True)
    return True
