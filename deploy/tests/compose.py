"""compose.yaml against the schema of Compose, and its services started from it, without a daemon: the programs in the
root that images.py made, Prometheus from this machine, all in one network where each service's name is 127.0.0.1.
Every query of the Grafana dashboard is asked of that Prometheus, which has to parse it and to have data.

    python compose.py REPOSITORY ROOT WORK

ROOT is the folder that the cpu image came to. Prints a line a check. Needs `check-jsonschema` and PyYAML.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

import yaml

from containers import Root, end, eventually, need, report
from images import IMAGE, ask

PROMETHEUS = "http://127.0.0.1:9090"
# What there is on cards alone.
CARDS = re.compile(r"\bnv_(gpu|energy)_")


def schema(folder, work):
    """Good as it is; and a mistake is noticed."""
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    file = folder / "compose.yaml"
    said = subprocess.run([*check, file], capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
    wrong = work / "wrong.yaml"
    wrong.write_text(file.read_text().replace("command:", "comand:", 1))
    assert subprocess.run([*check, wrong], capture_output=True).returncode == 1, "a wrong field is not noticed"


def references(folder, compose):
    """What services name is there."""
    for kind in ("configs", "secrets"):
        for name, one in compose[kind].items():
            assert kind == "secrets" or (folder / one["file"]).exists(), one["file"]
        for service, spec in compose["services"].items():
            for used in spec.get(kind, []):
                used = used["source"] if isinstance(used, dict) else used
                assert used in compose[kind], f"{service} names {used}"
    provisioned = yaml.safe_load((folder / "grafana/datasource.yaml").read_text())["datasources"][0]
    assert all(panel["datasource"]["uid"] == provisioned["uid"] for panel in dashboard(folder)["panels"])
    path = yaml.safe_load((folder / "grafana/dashboards.yaml").read_text())["providers"][0]["options"]["path"]
    mounted = [one["target"] for one in compose["services"]["grafana"]["configs"]]
    assert f"{path}/radeon-cluster.json" in mounted, mounted


def dashboard(folder):
    return json.loads((folder.parent / "grafana/radeon-cluster.json").read_text())


class Services:
    """The services of compose.yaml that are programs of ours."""

    def __init__(self, folder, root, work):
        self.folder, self.work = folder, work
        self.compose = yaml.safe_load((folder / "compose.yaml").read_text())
        self.root = Root(Path(root), {"HOME": "/data", "RADEON_DATA": "/data/cluster"}, "10001:10001", [
            "/usr/local/bin/radeon-cluster"])
        (self.root.path / "etc/hosts").write_text(hosts(self.compose))

    def how(self, name):
        """Variables and mounts of a service, whose volume is a folder here."""
        spec = self.compose["services"][name]
        volume = self.work / "volumes" / name
        if not volume.exists():
            volume.mkdir(parents=True)
            os.chown(volume, 10001, 10001)
        mounts = [(volume, "/data")]
        for secret in spec.get("secrets", []):
            # A file over a file: in the folder that it comes from, its reader may not look.
            (self.root.path / "run/secrets" / secret).touch()
            mounts.append((self.work / "secrets" / secret, f"/run/secrets/{secret}"))
        return {"env": spec["environment"], "mounts": mounts, "host": spec["hostname"]}

    def start(self, name):
        log = open(self.work / f"{name}.log", "wb")
        command = self.compose["services"][name]["command"]
        return self.root.spawn(*command, log=log, **self.how(name))

    def compose_command(self, args):
        """What `docker compose ARGS` does, as far as secrets.sh asks."""
        action, *args = [arg for arg in args if arg not in ("--rm", "-T", "--detach", "--wait")]
        service, *args = args
        if action == "run":
            return self.root.command(args, **self.how(service))
        if action == "exec":
            return self.root.command(args, entry=[], **self.how(service))
        if action == "cp":
            name, path = service.split(":")
            return ["tar", "-C", self.work / "volumes" / name / Path(path).parent.relative_to("/data"), "-c",
                    Path(path).name]
        assert action == "up" and service == "coordinator", action
        return None


def hosts(compose):
    names = ["localhost", *compose["services"]]
    return "".join(f"127.0.0.1 {name}\n" for name in names)


def shim(folder, root, work, args):
    """Stands for compose in secrets.sh: the coordinator was started before, and is waited for here."""
    services = Services(Path(folder), root, Path(work))
    command = services.compose_command(args)
    if command is None:
        check = services.compose["services"]["coordinator"]["healthcheck"]["test"]
        assert check[0] == "CMD", check
        (Path(work) / "asked-to-start").touch()
        healthy = services.root.command(check[1:], entry=[], **services.how("coordinator"))
        eventually("the coordinator is healthy", lambda: subprocess.run(healthy, capture_output=True).returncode == 0)
        return 0
    return subprocess.run(command).returncode


def traffic(key, stop):
    """A little of everything that the dashboard shows."""
    url = "https://localhost:8000"
    while not stop.is_set():
        ask(f"{url}/v2/models/digits/infer", {"inputs": [IMAGE]}, key)
        ask(f"{url}/api/v1/cluster/tasks", {"model": "digits", "inputs": [IMAGE]}, key)
        time.sleep(0.05)


def query(text):
    text = urllib.parse.urlencode({"query": text})
    return ask(f"{PROMETHEUS}/api/v1/query?{text}")[1]["data"]["result"]


def prometheus(folder, work, processes):
    config = folder / "prometheus.yml"
    secrets = work / "secrets"
    # Its file names the secrets where containers see them.
    local = work / "prometheus.yml"
    text = config.read_text().replace("/run/secrets", str(secrets)).replace("scrape_interval: 5s", "scrape_interval: 1s")
    local.write_text(text)
    subprocess.run(["promtool", "check", "config", local], check=True, capture_output=True)
    log = open(work / "prometheus.log", "wb")
    storage = f"--storage.tsdb.path={work / 'prometheus'}"
    listen = "--web.listen-address=127.0.0.1:9090"
    command = ["prometheus", f"--config.file={local}", storage, listen]
    processes.append(subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL))


def live(folder, root, work):
    """All of it at once; answers what a card would be needed for."""
    services, processes, busy, stop = Services(folder, root, work), [], [], threading.Event()
    try:
        # The script makes the first key before it asks for the coordinator.
        secrets = start_secrets(folder, root, work)
        eventually("a key is made", lambda: (work / "asked-to-start").exists() or secrets.poll())
        processes.append(services.start("coordinator"))
        said = secrets.communicate(timeout=60)[0]
        assert secrets.returncode == 0, said
        authority = (work / "secrets/authority").read_text()
        assert "BEGIN CERTIFICATE" in authority and "PRIVATE" not in authority, "the authority's key is not for others"
        processes.extend(services.start(name) for name in ("worker-1", "worker-2"))
        prometheus(folder, work, processes)
        key = (work / "secrets/metrics-key").read_text().strip()
        url = "https://localhost:8000/api/v1/cluster/workers"
        eventually("both work", lambda: [it["state"] for it in ask(url, None, key)[1]] == ["ready"] * 2)
        busy.append(threading.Thread(target=traffic, args=(key, stop)))
        busy[0].start()
        asked = [target["expr"] for panel in dashboard(folder)["panels"] for target in panel["targets"]]
        asked = [text.replace("$__rate_interval", "5s") for text in asked]
        eventually("the page is scraped", lambda: query("up{job='radeon-cluster'} == 1"))
        for text in (text for text in asked if not CARDS.search(text)):
            eventually(f"data of {text}", lambda: numbers(query(text)))
        for text in (text for text in asked if CARDS.search(text)):
            # It parses, or this raises.
            query(text)
        assert not query("lgp_no_such_metric"), "a query without data is told from one with"
        stop.set()
        busy[0].join()
        assert [end(process) for process in reversed(processes)] == [0] * len(processes)
        return [text for text in asked if CARDS.search(text)]
    finally:
        stop.set()
        for thread in busy:
            thread.join()
        for process in processes:
            process.kill()


def numbers(results):
    """Whether there is one that is a number: of no request there is no latency."""
    return any(float(one["value"][1]) == float(one["value"][1]) for one in results)


def start_secrets(folder, root, work):
    """secrets.sh as it is, on a copy of its folder, with this program in the place of compose."""
    copy = work / "compose"
    copy.mkdir()
    (copy / "secrets.sh").write_text((folder / "secrets.sh").read_text())
    (work / "secrets").mkdir()
    (copy / "secrets").symlink_to(work / "secrets")
    own = shlex.join([sys.executable, __file__, "shim", str(folder), str(root), str(work)])
    env = os.environ | {"COMPOSE": own}
    pipe = subprocess.PIPE
    return subprocess.Popen(["sh", copy / "secrets.sh"], env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def inside(repository, root, work):
    """What runs in a network of its own."""
    folder, work = Path(repository) / "deploy/compose", Path(work)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    names = work / "hosts"
    names.write_text(hosts(yaml.safe_load((folder / "compose.yaml").read_text())))
    subprocess.run(["mount", "--bind", names, "/etc/hosts"], check=True)
    cards = []
    good = report("compose's services and the dashboard's queries", lambda: cards.extend(live(folder, root, work)))
    if good:
        print(f"skipped: gpu: {len(cards)} of the dashboard's queries parse, and no card is here to have data of")
    return good


def main(repository, root, work):
    folder, work = Path(repository) / "deploy/compose", Path(work)
    work.mkdir(parents=True)
    compose = yaml.safe_load((folder / "compose.yaml").read_text())
    good = report("compose.yaml by its schema", lambda: schema(folder, work))
    good &= report("compose.yaml names what is there", lambda: references(folder, compose))
    if reason := need():
        print(f"skipped: {reason}")
        return good
    own = ["unshare", "--net", "--mount", sys.executable, __file__, "inside"]
    return subprocess.run([*own, repository, root, str(work)]).returncode == 0 and good


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    if first == "shim":
        sys.exit(shim(*others[:3], others[3:]))
    if first == "inside":
        sys.exit(0 if inside(*others) else 1)
    sys.exit(0 if main(first, *others) else 1)
