"""Checks what the manifests of deploy/kubernetes render to: the schemas of Kubernetes' API, and our own rules.

    python manifests.py ROOT NAME.yaml …

ROOT is the repository, each file what `kubectl kustomize` made of one folder. Needs `kubernetes-validate` 1.37.
Prints a line a check. Each rule is also given a manifest with a mistake planted in it, and has to say so.
"""

import copy
import re
import sys
from pathlib import Path

import kubernetes_validate
import yaml

# The oldest release that has all that is used, and the newest whose schemas there are.
RELEASES = ("1.30", "1.37")
WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet")
# Settings that come with the control plane of several coordinators.
AWAITED = {"RADEON_CONTROL", "RADEON_CONTROL_NAME"}
KEDA = {"ScaledObject", "TriggerAuthentication"}


class Program:
    """What the program has: settings, commands with their flags, routes, metrics."""

    def __init__(self, root):
        read = lambda path: (root / path).read_text()
        self.settings = set(re.findall(r'^\s*\("(RADEON_\w+)", ', read("apps/cli/src/settings/sources.rs"), re.M))
        self.routes = set(re.findall(r'Route::get\("(/\w+)"', read("apps/server/src/router.rs")))
        self.metrics = set(re.findall(r'"(lgp_\w+)"', read("apps/server/src/exposition.rs")))
        self.flags = {}
        for command in ("start", "join"):
            source = read(f"apps/cli/src/commands/{command}.rs")
            # An attribute may span lines; the field that it is of follows.
            fields = re.findall(r"#\[arg\(([^\n]*|\n.*?)\)\]\s*(?:pub\(crate\) )?(\w+):", source, re.S)
            found = [name for attribute, name in fields if re.search(r"\blong\b", attribute)]
            self.flags[command] = {"--" + name.replace("_", "-") for name in found}
        for what, found in vars(self).items():
            assert found, f"no {what} are found in the sources: this program has to learn how they look now"
        assert {"--foreground", "--workers", "--tls"} <= self.flags["start"], self.flags
        assert {"--cache", "--data"} <= self.flags["join"], self.flags


def pod(workload):
    return workload["spec"]["template"]["spec"]


def containers(spec):
    return spec.get("initContainers", []) + spec["containers"]


def of(docs, *kinds):
    return [doc for doc in docs if doc["kind"] in kinds]


def called(doc):
    return f"{doc['kind']} {doc['metadata']['name']}"


def matches(selector, labels):
    return all(labels.get(key) == value for key, value in selector.items())


def hpa(scaled):
    """What KEDA makes of a ScaledObject, as far as Kubernetes has a schema for it."""
    spec = scaled["spec"]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", **spec["scaleTargetRef"]}
    external = {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": scaled["metadata"],
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": spec["minReplicaCount"],
            "maxReplicas": spec["maxReplicaCount"],
            "metrics": [{"type": "External", "external": external}],
            **spec["advanced"]["horizontalPodAutoscalerConfig"],
        },
    }


def schemas(docs, _program, _secrets):
    for doc in docs:
        if doc["apiVersion"] == "keda.sh/v1alpha1" and doc["kind"] in KEDA:
            # KEDA's schemas do not come with Kubernetes'.
            if doc["kind"] == "TriggerAuthentication":
                continue
            doc = hpa(doc)
        for release in RELEASES:
            try:
                kubernetes_validate.validate(doc, release, strict=True)
            except kubernetes_validate.ValidationError as error:
                place = "/".join(str(part) for part in error.path)
                yield f"{called(doc)}: {place}: {error.message.splitlines()[0][:160]} (Kubernetes {release})"
            except kubernetes_validate.SchemaNotFoundError as error:
                yield f"{called(doc)}: {error.message}"


def security(docs, _program, _secrets):
    for workload in of(docs, *WORKLOADS):
        spec, name = pod(workload), called(workload)
        context = spec.get("securityContext", {})
        if not (context.get("runAsNonRoot") and context.get("runAsUser")):
            yield f"{name} may run as root"
        if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield f"{name} has no seccomp profile"
        if spec.get("automountServiceAccountToken") is not False:
            yield f"{name} is given a token of the API server"
        if any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")):
            yield f"{name} shares a namespace of its node"
        if any("hostPath" in volume for volume in spec.get("volumes", [])):
            yield f"{name} mounts a folder of its node"
        for one in containers(spec):
            own = one.get("securityContext", {})
            if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
                yield f"{name}: {one['name']} may gain privileges"
            if own.get("readOnlyRootFilesystem") is not True:
                yield f"{name}: {one['name']} can write to its image"
            if own.get("capabilities", {}).get("drop") != ["ALL"]:
                yield f"{name}: {one['name']} keeps capabilities"


def resources(docs, _program, _secrets):
    for workload in of(docs, *WORKLOADS):
        for one in containers(pod(workload)):
            given = one.get("resources", {})
            for kind in ("requests", "limits"):
                for what in ("cpu", "memory"):
                    if what not in given.get(kind, {}):
                        yield f"{called(workload)}: {one['name']} has no {kind} of {what}"


def probes(docs, program, _secrets):
    for workload in of(docs, *WORKLOADS):
        for one in pod(workload)["containers"]:
            name = f"{called(workload)}: {one['name']}"
            # Who listens can be asked how it is; who does not, at least whether it is ready.
            wanted = ["startup", "liveness", "readiness"] if one.get("ports") else ["readiness"]
            for kind in wanted:
                if f"{kind}Probe" not in one:
                    yield f"{name} has no {kind} probe"
            for kind in ("startup", "liveness", "readiness"):
                get = one.get(f"{kind}Probe", {}).get("httpGet")
                if get is None:
                    continue
                if get["path"] not in program.routes:
                    yield f"{name}: {get['path']} is no route of the server"
                if get["port"] not in [port["name"] for port in one["ports"]]:
                    yield f"{name}: {get['port']} is no port of it"
                headers = {header["name"]: header["value"] for header in get.get("httpHeaders", [])}
                services = [service["metadata"]["name"] for service in of(docs, "Service")]
                if get.get("scheme") != "HTTPS" or headers.get("Host") not in services:
                    yield f"{name}: the {kind} probe is refused without TLS and a name of the certificate"


def settings(docs, program, _secrets):
    for workload in of(docs, *WORKLOADS):
        for one in containers(pod(workload)):
            env = {entry["name"]: entry.get("value") for entry in one.get("env", [])}
            for name in env:
                if name.startswith("RADEON_") and name not in program.settings | AWAITED:
                    yield f"{called(workload)}: {name} is no setting"
            ports = {str(port["containerPort"]) for port in one.get("ports", [])}
            for name, value in env.items():
                if name.endswith("__ADDR") and value.rsplit(":")[-1] not in ports:
                    yield f"{called(workload)}: {name} is {value}, which is no port of {one['name']}"


def commands(docs, program, _secrets):
    for workload in of(docs, *WORKLOADS):
        for one in containers(pod(workload)):
            if "command" in one:
                continue
            command, *rest = one["args"]
            if command not in program.flags:
                yield f"{called(workload)}: {command} is no command that is known here"
                continue
            for flag in (word.split("=")[0] for word in rest if word.startswith("--")):
                if flag not in program.flags[command]:
                    yield f"{called(workload)}: {command} has no flag {flag}"


def secrets(docs, _program, known):
    for doc in of(docs, "Secret"):
        yield f"{called(doc)} is in what is applied; secrets are made by hand"
    used = []
    for workload in of(docs, *WORKLOADS):
        spec = pod(workload)
        for one in containers(spec):
            refs = [entry.get("valueFrom", {}).get("secretKeyRef") for entry in one.get("env", [])]
            used += [(called(workload), ref["name"], ref["key"]) for ref in refs if ref]
        for volume in spec.get("volumes", []):
            if "secret" in volume:
                used.append((called(workload), volume["secret"]["secretName"], None))
    for auth in of(docs, "TriggerAuthentication"):
        used += [(called(auth), ref["name"], ref["key"]) for ref in auth["spec"]["secretTargetRef"]]
    for who, name, key in used:
        if name not in known or key is not None and key not in known[name]:
            yield f"{who}: secrets.example.yaml has no {name} with {key or 'files'}"


def selectors(docs, _program, _secrets):
    labels = [workload["spec"]["template"]["metadata"]["labels"] for workload in of(docs, *WORKLOADS)]
    for doc in of(docs, "Service"):
        if not any(matches(doc["spec"]["selector"], one) for one in labels):
            yield f"{called(doc)} selects nothing"
    budgets = [doc["spec"]["selector"]["matchLabels"] for doc in of(docs, "PodDisruptionBudget")]
    for budget in budgets:
        if not any(matches(budget, one) for one in labels):
            yield "a PodDisruptionBudget selects nothing"
    for workload, one in zip(of(docs, *WORKLOADS), labels):
        if not any(matches(budget, one) for budget in budgets):
            yield f"{called(workload)} has no PodDisruptionBudget"


def scaling(docs, program, _secrets):
    for scaled in of(docs, "ScaledObject"):
        name, spec = called(scaled), scaled["spec"]
        target = spec["scaleTargetRef"]["name"]
        found = [one for one in of(docs, *WORKLOADS) if one["metadata"]["name"] == target]
        if not found:
            yield f"{name}: there is no {target}"
        if any("replicas" in one["spec"] for one in found):
            yield f"{name}: {target} has a number of its own"
        if spec["minReplicaCount"] < 1:
            yield f"{name}: without a worker nothing is ready"
        for trigger in spec["triggers"]:
            metric = trigger["metadata"]["valueLocation"].split("{")[0]
            if metric not in program.metrics:
                yield f"{name}: {metric} is no metric of the server"
            if trigger["authenticationRef"]["name"] not in [
                auth["metadata"]["name"] for auth in of(docs, "TriggerAuthentication")
            ]:
                yield f"{name}: a trigger has no key"


def together(docs, _program, _secrets):
    """Rules about coordinators and workers, whose manifests are apart."""
    for coordinators in of(docs, "StatefulSet"):
        spec, name = coordinators["spec"], coordinators["metadata"]["name"]
        env = {entry["name"]: entry.get("value") for entry in pod(coordinators)["containers"][0]["env"]}
        members = [f"{name}-{i}.{spec['serviceName']}" for i in range(spec["replicas"])]
        services = {service["metadata"]["name"]: service["spec"] for service in of(docs, "Service")}
        headless = services.get(spec["serviceName"], {})
        if headless.get("clusterIP") != "None" or not headless.get("publishNotReadyAddresses"):
            yield f"{name}: workers do not find coordinators that wait for workers"
        for workload in of(docs, *WORKLOADS):
            labels = workload["spec"]["template"]["metadata"]["labels"]
            policies = [doc["spec"] for doc in of(docs, "NetworkPolicy")]
            own = [policy for policy in policies if matches(policy["podSelector"]["matchLabels"], labels)]
            for direction in ("Ingress", "Egress"):
                if not any(direction in policy["policyTypes"] for policy in own):
                    yield f"{called(workload)} has no NetworkPolicy for {direction}"
        for workers in of(docs, "Deployment"):
            if pod(workers)["terminationGracePeriodSeconds"] < int(env["RADEON_RUN_LIMIT_S"]) + 30:
                yield f"{called(workers)} is killed before its longest run is over"
            args = pod(workers)["containers"][0]["args"]
            if args[1].split(",") != members:
                yield f"{called(workers)} joins {args[1]}, expected {','.join(members)}"
        for scaled in of(docs, "ScaledObject"):
            urls = [trigger["metadata"]["url"] for trigger in scaled["spec"]["triggers"]]
            asked = {re.sub(r"https://([^.]+\.[^.]+)\..*", r"\1", url) for url in urls}
            if asked != set(members):
                yield f"{called(scaled)} asks {sorted(asked)}, expected {members}"


RULES = [schemas, security, resources, probes, settings, commands, secrets, selectors, scaling]
# Where a mistake is planted, what it is, the rule that has to notice it, and what that says.
COORDINATOR, WORKER, SCALED = "StatefulSet", "Deployment", "ScaledObject"


def planted():
    def first(docs, kind):
        return of(docs, kind)[0]

    def headless(docs):
        return next(one["spec"] for one in of(docs, "Service") if one["spec"].get("clusterIP") == "None")

    def main(docs, kind):
        return pod(first(docs, kind))["containers"][0]

    def set_env(docs, kind, name, value):
        next(entry for entry in main(docs, kind)["env"] if entry["name"] == name)["value"] = value

    def rename_env(docs, name, to):
        next(entry for entry in main(docs, COORDINATOR)["env"] if entry["name"] == name)["name"] = to

    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    trigger = lambda docs: first(docs, SCALED)["spec"]["triggers"][0]["metadata"]
    behaviour = lambda docs: first(docs, SCALED)["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    context = lambda docs, kind: pod(first(docs, kind))["securityContext"]
    volume = lambda docs, name: next(one for one in pod(first(docs, COORDINATOR))["volumes"] if one["name"] == name)
    budget = lambda docs: first(docs, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"]
    asks = lambda docs, probe: main(docs, COORDINATOR)[f"{probe}Probe"]["httpGet"]
    return [
        (schemas, "replica", lambda d: first(d, COORDINATOR)["spec"].update(replica=3)),
        (schemas, "'three' is not", lambda d: first(d, COORDINATOR)["spec"].update(replicas="three")),
        (schemas, "schema for kind Gateway", lambda d: first(d, "Service").update(kind="Gateway")),
        (schemas, "stabilisation", lambda d: behaviour(d)["scaleDown"].update(stabilisation=1)),
        (security, "may run as root", lambda d: context(d, WORKER).pop("runAsNonRoot")),
        (security, "no seccomp", lambda d: context(d, COORDINATOR).pop("seccompProfile")),
        (security, "token of the API", lambda d: pod(first(d, WORKER)).pop("automountServiceAccountToken")),
        (security, "namespace of its node", lambda d: pod(first(d, WORKER)).update(hostNetwork=True)),
        (security, "folder of its node", lambda d: pod(first(d, WORKER))["volumes"].append({"hostPath": {}})),
        (security, "gain privileges", lambda d: main(d, WORKER)["securityContext"].update(privileged=True)),
        (security, "write to its image", lambda d: main(d, WORKER)["securityContext"].pop("readOnlyRootFilesystem")),
        (security, "keeps capabilities", lambda d: main(d, COORDINATOR)["securityContext"].pop("capabilities")),
        (resources, "no limits of memory", lambda d: main(d, WORKER)["resources"]["limits"].pop("memory")),
        (probes, "no liveness probe", lambda d: main(d, COORDINATOR).pop("livenessProbe")),
        (probes, "no readiness probe", lambda d: main(d, WORKER).pop("readinessProbe")),
        (probes, "/ready is no route", lambda d: asks(d, "readiness").update(path="/ready")),
        (probes, "is no port", lambda d: asks(d, "startup").update(port="web")),
        (probes, "refused without", lambda d: asks(d, "startup").pop("httpHeaders")),
        (settings, "RADEON_HTTP_ADDR is no", lambda d: rename_env(d, "RADEON_HTTP__ADDR", "RADEON_HTTP_ADDR")),
        (settings, "no port of coordinator", lambda d: set_env(d, COORDINATOR, "RADEON_QUIC__ADDR", "0.0.0.0:9443")),
        (commands, "no flag --foregroud", lambda d: main(d, COORDINATOR)["args"].append("--foregroud")),
        (commands, "enlist is no command", lambda d: main(d, WORKER)["args"].__setitem__(0, "enlist")),
        (secrets, "made by hand", lambda d: d.append(secret)),
        (secrets, "no radeon-tls with files", lambda d: volume(d, "tls")["secret"].update(secretName="radeon-tls")),
        (selectors, "Service radeon-coordinators selects", lambda d: headless(d)["selector"].update(a="b")),
        (selectors, "selects nothing", lambda d: budget(d).update(a="b")),
        (selectors, "has no PodDisruptionBudget", lambda d: d.remove(first(d, "PodDisruptionBudget"))),
        (scaling, "lgp_task is no metric", lambda d: trigger(d).update(valueLocation='lgp_task{state="queued"}')),
        (scaling, "there is no other", lambda d: first(d, SCALED)["spec"]["scaleTargetRef"].update(name="other")),
        (scaling, "nothing is ready", lambda d: first(d, SCALED)["spec"].update(minReplicaCount=0)),
        (together, "killed before", lambda d: pod(first(d, WORKER)).update(terminationGracePeriodSeconds=30)),
        (together, "joins", lambda d: first(d, COORDINATOR)["spec"].update(replicas=5)),
        (together, "asks", lambda d: trigger(d).update(url="https://a.b.c/metrics")),
        (together, "do not find", lambda d: headless(d).pop("publishNotReadyAddresses")),
        (together, "no NetworkPolicy for Egress", lambda d: d.remove(first(d, "NetworkPolicy"))),
    ]


def report(name, complaints):
    for complaint in complaints:
        print(f"failed: {name}: {complaint}")
    if not complaints:
        print(f"ok {name}")
    return not complaints


def main(root, files):
    root = Path(root)
    program = Program(root)
    examples = list(yaml.safe_load_all((root / "deploy/kubernetes/secrets.example.yaml").read_text()))
    known = {doc["metadata"]["name"]: doc["stringData"] for doc in examples}
    good = report("secrets.example.yaml", list(schemas(examples, program, known)))
    # Each object once: overlays have bases in common.
    everything = {}
    for file in map(Path, files):
        docs = list(yaml.safe_load_all(file.read_text()))
        good &= report(file.stem, [said for rule in RULES for said in rule(docs, program, known)])
        # Their base alone, which nobody applies.
        if file.stem != "workers":
            everything.update({called(doc): doc for doc in docs})
    docs = list(everything.values())
    good &= report("all together", list(together(docs, program, known)))
    for rule, part, plant in planted():
        wrong = copy.deepcopy(docs)
        plant(wrong)
        said = list(rule(wrong, program, known))
        seen = any(part in one for one in said)
        good &= report(f"planted: {part}", [] if seen else [f"is not noticed: {said}"])
    for name in sorted(AWAITED - program.settings):
        print(f"skipped: control: {name} is no setting yet, and manifests may name it")
    return good


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1], sys.argv[2:]) else 1)
