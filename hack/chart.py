"""What hack/chart does, in its Python environment."""

import base64
import gzip
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import helm_python as helm

CHART = Path("charts/nri-cpu-manager")
MANIFESTS = Path("manifests")
NAMESPACE = "kube-system"
HOOK = "helm.sh/hook"
# Every value, and what the chart makes of them except for the copies of the rules and the dashboard.
EVERY_VALUE = Path("tests/chart/values.yaml")
EVERY_OBJECT = Path("tests/chart/objects.yaml")
# Values of config that contradict each other, and some that do not; the plugin's tests read them, too.
CONTRADICTIONS = Path("tests/chart/contradictions.yaml")
COPIES = ["prometheusrule.yaml", "dashboard.yaml"]
GROUPS = ["image", "serviceAccount", "podMonitor", "prometheusRule", "dashboard", "networkPolicy", "uninstall"]

# Values that have to be refused, and what the error has to name.
REFUSED = [
    ("kernelExclusivty: true", "'kernelExclusivty'"),
    ("migrate: 'yes'", "/migrate"),
    ("quiet: {enabled: true}", "/quiet"),
    ("image: {tga: next}", "'tga'"),
    ("resources: {limit: {}}", "'limit'"),
    ("config: {cpuManagerPolicyy: static}", "'cpuManagerPolicyy'"),
    ("config: {cpuManagerPolicy: dynamic}", "/config/cpuManagerPolicy"),
    ("config: {cpuManagerPolicyOptions: {full-pcpu-only: true}}", "'full-pcpu-only'"),
    ("config: {cpuManagerPolicyOptions: {full-pcpus-only: 2}}", "/config/cpuManagerPolicyOptions/full-pcpus-only"),
    ("config: {reservedSystemCPUs: [0, 1]}", "/config/reservedSystemCPUs"),
    ("config: {reservedSystemCPUs: none}", "/config/reservedSystemCPUs"),
    ("config: {systemReserved: {cpus: 1}}", "'cpus'"),
    ("config: {systemReserved: {cpu: -1}}", "/config/systemReserved/cpu"),
    ("config: {kubeReserved: {memory: '-1Gi'}}", "/config/kubeReserved/memory"),
    ("config: {strict: 3}", "/config/strict"),
    ("config: {noticeSeconds: 301}", "/config/noticeSeconds"),
    ("config: {podLevelResources: pod}", "/config/podLevelResources"),
    # What YAML makes of an unquoted off.
    ("config: {rebalance: {mode: off}}", "/config/rebalance/mode"),
    ("config: {rebalance: {mode: suggest}}", "/config/rebalance"),
    ("config: {podResources: {dir: /run/x}}", "'dir'"),
    ("config: {podResources: {listen: run/x}}", "/config/podResources/listen"),
    ("config: {namespaces: [{names: [a], allow: {uncore: prefer}}]}", "/config/namespaces/0/allow/uncore"),
    ("config: {namespaces: [{names: [a], defaults: {uncor: prefer}}]}", "'uncor'"),
    ("config: {reservedNamespaces: kube-system}", "/config/reservedNamespaces"),
    ("config: {names: [a]}", "/config/names"),
    ("config: {nodes: [{strict: true}]}", "/config/nodes/0"),
    ("config: {nodes: [{names: [a], nodes: []}]}", "/config/nodes/0/nodes"),
    ("config: {nodes: [{names: [a], strct: true}]}", "'strct'"),
    ("config: {clusterDns: [10.96.0.10]}", "'clusterDns'"),
    ("config: {kind: Pod}", "/config/kind"),
    ("config: {nodes: [{names: [a], kind: KubeletConfiguration}]}", "/config/nodes/0/kind"),
    ("affinity: {nodeAfinity: {}}", "'nodeAfinity'"),
    ("updateStrategy: {type: Recreate}", "/updateStrategy/type"),
    ("updateStrategy: {rollingUpdate: {maxSurge: some}}", "/updateStrategy/rollingUpdate/maxSurge"),
    ("updateStrategy: {rollingUpdate: {maxUnavailable: 1}}", "maxSurge"),
    ("updateStrategy: {rollingUpdate: {maxSurge: 0%}}", "maxUnavailable"),
    ("serviceAccount: {crate: true}", "'crate'"),
    ("nriSocket: /nri.sock", "/nriSocket"),
    ("containerdConfig: config.toml", "/containerdConfig"),
    ("cgroupRoot: sys", "/cgroupRoot"),
    ("podMonitor: true", "/podMonitor"),
    ("podMonitor: {enable: true}", "'enable'"),
    ("podMonitor: {interval: 30}", "/podMonitor/interval"),
    ("prometheusRule: {disabled: [NriCpuManagerDwn]}", "/prometheusRule/disabled/0"),
    ("prometheusRule: {runbooks: 'https://example.com/docs'}", "/prometheusRule/runbooks"),
    ("dashboard: {labels: {grafana_dashboard: 1}}", "/dashboard/labels/grafana_dashboard"),
    ("networkPolicy: {from: [{}]}", "/networkPolicy/from/0"),
    ("networkPolicy: {from: [{podSelektor: {}}]}", "'podSelektor'"),
    ("config: {interrupts: away}", "quiet: true"),
    ("config: {nodes: [{names: [a], interrupts: housekeeping}]}", "quiet: true"),
    ("config: {namespaces: [{names: [a], defaults: {c-states: disable}}]}", "quiet: true"),
    ("config: {exclusivity: kernel}", "kernelExclusivity: true"),
    ("config: {nodes: [{names: [a], exclusivity: kernel}]}", "kernelExclusivity: true"),
]

# Values that have to be accepted, and what the plugin's configuration then has.
ACCEPTED = [
    ("config: {systemReserved: null, kubeReserved: {cpu: 1, pid: 9}}", {"kubeReserved": {"cpu": 1, "pid": 9}}),
    ("config: {reservedSystemCPUs: 3, exposeCPUs: file}", {"reservedSystemCPUs": 3, "exposeCPUs": "file"}),
    ("config: {rebalance: {mode: 'off'}}", {"rebalance": {"mode": "off"}}),
    ("config: {rebalance: {movesPer100Starts: 10, acrossNumaNodes: true, minStay: 60s}}", {}),
    ("config: {nodes: [{names: ['gpu-*'], labels: {zone: 'eu-*'}, strict: true}]}", {}),
    ("config: {namespaces: [{names: ['hpc-*'], allow: {smt: [isolate]}, defaults: {movable: false}}]}", {}),
    ("config: {kind: KubeletConfiguration, clusterDNS: [10.96.0.10], logging: {any: 1}}", {"clusterDNS": ["10.96.0.10"]}),
    ("config: {nodes: [{names: [a], maxPods: 9}]}", {}),
    ("config: {reservedNamespaces: [kube-system, 'infra-*']}", {}),
    ("{kernelExclusivity: true, config: {exclusivity: kernel}}", {"exclusivity": "kernel"}),
    ("{quiet: true, config: {interrupts: away}}", {"interrupts": "away"}),
    ("config: {interrupts: leave, namespaces: [{names: [a], defaults: {interrupts: leave}}]}", {"interrupts": "leave"}),
    ("global: {parent: 1}", {}),
    ("updateStrategy: {type: OnDelete, rollingUpdate: {maxUnavailable: 1}}", {}),
    ("updateStrategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 10%}}", {}),
    ("updateStrategy: {rollingUpdate: null}", {}),
]


# An operator's own configuration, which every overlay has to keep.
OWN = {
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    "reservedSystemCPUs": "0-3,8",
    "placement": "compact",
    "rebalance": {"movesPer100Starts": 10, "minStay": "5m"},
    "nodes": [{"names": ["gpu-*"], "reservedSystemCPUs": "0-7"}],
}


def documents(text):
    """The objects of a YAML stream."""
    parts = ("\n" + text).split("\n---")
    return [one for one in map(helm.values_from_yaml, parts) if one]


def texts(chart, values):
    """The text of each template with objects."""
    files = chart.render(values, name="cpus", namespace=NAMESPACE)
    return {Path(name).name: text for name, text in sorted(files.items()) if name.endswith(".yaml")}


def paths(values):
    return sorted([*values, *(f"{key}.{name}" for key in GROUPS for name in values[key])])


def every_object(chart):
    files = texts(chart, helm.values_from_yaml(EVERY_VALUE.read_text()))
    return "---\n".join(text.strip() + "\n" for name, text in files.items() if name not in COPIES)


def render(chart, values):
    """The objects of a release, and those of its hooks."""
    objects = [one for text in texts(chart, values).values() for one in documents(text)]
    hooks = [one for one in objects if HOOK in one["metadata"].get("annotations", {})]
    return [one for one in objects if one not in hooks], hooks


def only(kind, objects):
    [one] = [one for one in objects if one["kind"] == kind]
    return one


def containers(daemon_set):
    pod = daemon_set["spec"]["template"]["spec"]
    return pod.get("initContainers", []) + pod["containers"]


def kustomize(directory):
    command = ["hack/kustomize", str(directory)]
    return documents(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def comparable(value):
    """Without what has no meaning: the order of named things; comments and order in the configuration."""
    if isinstance(value, dict):
        return {
            key: helm.values_from_yaml(one) if key == "config.yaml" else comparable(one)
            for key, one in value.items()
        }
    if isinstance(value, list):
        named = all(isinstance(one, dict) and "name" in one for one in value)
        return sorted(map(comparable, value), key=lambda one: one["name"]) if named else value
    return value


def sorted_objects(objects):
    return sorted(map(comparable, objects), key=lambda one: (one["kind"], one["metadata"]["name"]))


class Check:
    def __init__(self, chart):
        self.chart = chart
        self.failures = 0

    def result(self, what, error):
        print(f"{'FAILED' if error else 'ok'}: {what}")
        if error:
            print(error)
            self.failures += 1

    def same(self, what, ours, theirs):
        ours, theirs = (json.dumps(one, indent=1, sort_keys=True) for one in (ours, theirs))
        self.result(what, None if ours == theirs else f"{ours}\ninstead of\n{theirs}")

    def kustomized(self, directory, objects):
        what = f"equal to kustomize {directory}, objects: {len(objects)}"
        self.same(what, sorted_objects(objects), sorted_objects(kustomize(directory)))

    def lint(self, name, values):
        report = helm.lint(CHART, values, strict=True, namespace=NAMESPACE)
        # Below 2 are hints.
        found = [one["error"] for one in report["messages"] if one["severity"] >= 2]
        self.result(f"lint, {name}", "\n".join(found + report["errors"]))

    def refuses(self, text, expect):
        try:
            render(self.chart, helm.values_from_yaml(text))
            error = "accepted"
        except (helm.HelmValuesError, helm.HelmRenderError) as refused:
            error = None if expect in refused.detail else refused.detail
        self.result(f"refused, naming {expect}: {text}", error)

    def accepts(self, text, expect):
        try:
            config_map = only("ConfigMap", render(self.chart, helm.values_from_yaml(text))[0])
            config = helm.values_from_yaml(config_map["data"]["config.yaml"])
            error = None if expect.items() <= config.items() else json.dumps(config)
        except helm.HelmError as refused:
            error = refused.detail
        self.result(f"accepted: {text}", error)


def check(chart):
    checks = Check(chart)
    files = {path.stem: path for path in sorted(CHART.glob("overlays/*.yaml"))}
    overlays = {name: helm.values_from_yaml(path.read_text()) for name, path in files.items()}
    names = sorted(path.name for path in MANIFESTS.glob("overlays/*"))
    checks.same("a file of values for each overlay", list(overlays), names)

    checks.lint("base", {})
    for name, values in overlays.items():
        checks.lint(name, values)

    checks.kustomized(MANIFESTS / "base", render(chart, {})[0])
    for name, values in overlays.items():
        checks.kustomized(MANIFESTS / "overlays" / name, render(chart, values)[0])
    hooks = render(chart, {})[1]
    annotations = [one["metadata"].pop("annotations") for one in hooks]
    checks.kustomized(MANIFESTS / "uninstall", hooks)
    checks.same("the uninstall comes after the plugin", [one[HOOK] for one in annotations], ["post-delete"])

    # Helm merges the files of values in this order.
    for name, values in overlays.items():
        merged = {**values, "config": {**values.get("config", {}), **OWN}}
        config_map = only("ConfigMap", render(chart, merged)[0])
        config = helm.values_from_yaml(config_map["data"]["config.yaml"])
        kept = {key: config.get(key) for key in OWN}
        kept["cpuManagerPolicyOptions"] = {key: kept["cpuManagerPolicyOptions"][key] for key in OWN["cpuManagerPolicyOptions"]}
        checks.same(f"{name} keeps an operator's own values", kept, OWN)

    # All values of all files: no two have the same key.
    every = {key: one for values in overlays.values() for key, one in values.items()}
    objects, hooks = render(chart, every)
    names = [one["name"] for one in containers(only("DaemonSet", objects))]
    checks.same("overlays combine", names, ["enable-nri", "nri-cpu-manager"])
    for one in containers(only("DaemonSet", objects)) + containers(only("DaemonSet", hooks)):
        labels = one["securityContext"].get("seLinuxOptions")
        checks.same(f"the SELinux type of container {one['name']}", labels, every["seLinuxOptions"])
    changed = only("DaemonSet", render(chart, {"config": {"strict": True}})[0])
    checks.same("a change of config restarts nothing", changed, only("DaemonSet", render(chart, {})[0]))
    hooks = render(chart, {"uninstall": {"revert": False}})[1]
    checks.same("no hooks without uninstall.revert", hooks, [])
    hooks = render(chart, {"uninstall": {"kubectlImage": "kubectl:1"}})[1]
    kinds = sorted(one["kind"] for one in hooks)
    expect = ["DaemonSet", "Job", "Role", "RoleBinding", "ServiceAccount"]
    checks.same("a Job waits with uninstall.kubectlImage", kinds, expect)

    different = helm.values_from_yaml(EVERY_VALUE.read_text())
    checks.lint(EVERY_VALUE, different)
    checks.same(f"{EVERY_VALUE} has every value", paths(different), paths(chart.values))
    what = f"equal to {EVERY_OBJECT} (hack/chart accept writes it)"
    checks.same(what, sorted_objects(documents(every_object(chart))), sorted_objects(documents(EVERY_OBJECT.read_text())))
    monitoring(checks, chart)

    contradictions = helm.values_from_yaml(CONTRADICTIONS.read_text())
    more = [(json.dumps({"config": one["config"]}), one["says"]) for one in contradictions["refused"]]
    for text, expect in REFUSED + more:
        checks.refuses(text, expect)
    for text, expect in ACCEPTED + [(json.dumps({"config": one}), {}) for one in contradictions["accepted"]]:
        checks.accepts(text, expect)

    with helm.Chart.load(package(Path("target/chart"))) as packaged:
        for values in ({}, different):
            checks.same("the packaged chart renders the same", render(packaged, values), render(chart, values))
    name, digest = "registry.example.com/a/b", "sha256:" + 64 * "0"
    released = package_release(Path("target/chart/release"), f"{name}@{digest}", "https://example.com/a/b")
    with helm.Chart.load(released) as packaged:
        objects, hooks = render(packaged, {})
    images = {one["image"] for part in (objects, hooks) for one in containers(only("DaemonSet", part))}
    checks.same("the chart of a release names the pushed image", sorted(images), [f"{name}@{digest}"])
    metadata = helm.values_from_yaml(helm.show(str(released), output_format="chart"))
    scanned = helm.values_from_yaml("images:\n" + metadata["annotations"]["artifacthub.io/images"])["images"]
    checks.same("Artifact Hub scans the pushed image", [one["image"] for one in scanned], [f"{name}:{metadata['version']}"])
    checks.same("it names its sources", [metadata["home"], *metadata["sources"]], 2 * ["https://example.com/a/b"])
    if checks.failures:
        sys.exit(f"{checks.failures} failed")


def monitoring(checks, chart):
    """Rules, dashboard and icon have one source each; the chart has links, and a copy of the icon."""
    rules = helm.values_from_yaml((MANIFESTS / "prometheus/rules.yaml").read_text())["groups"]
    alerts = [rule["alert"] for group in rules for rule in group["rules"]]

    def rendered(**values):
        objects = render(chart, {"prometheusRule": {"enabled": True, **values}})[0]
        return only("PrometheusRule", objects)["spec"]["groups"]

    checks.same("the rules of manifests/prometheus", rendered(), rules)
    [group] = rendered(disabled=alerts[1:])
    checks.same("disabled alerts are left out", [rule["alert"] for rule in group["rules"]], alerts[:1])
    base = "https://git.example.com/cpus/"
    prefixed = [rule["annotations"]["runbook_url"] for group in rendered(runbooks=base) for rule in group["rules"]]
    relative = [rule["annotations"]["runbook_url"] for group in rules for rule in group["rules"]]
    checks.same("runbooks of an own copy", prefixed, [base + one for one in relative])

    objects = render(chart, {"dashboard": {"enabled": True}})[0]
    [data] = [one["data"] for one in objects if one["metadata"]["name"].endswith("-dashboard")]
    dashboard = json.loads((MANIFESTS / "grafana/dashboard.json").read_text())
    checks.same("the dashboard of manifests/grafana", json.loads(data["nri-cpu-manager.json"]), dashboard)

    icon = base64.b64encode((CHART / "icon.svg").read_bytes()).decode()
    named = helm.values_from_yaml((CHART / "Chart.yaml").read_text())["icon"]
    checks.same("Chart.yaml has icon.svg", named, f"data:image/svg+xml;base64,{icon}")

    # A rule without peers would admit everyone.
    policy = only("NetworkPolicy", render(chart, {"networkPolicy": {"enabled": True}})[0])["spec"]
    checks.same("without peers only the node reaches the port", "ingress" in policy, False)
    daemon_set = only("DaemonSet", render(chart, {"serviceAccount": {"name": "own"}})[0])
    checks.same("an existing account", daemon_set["spec"]["template"]["spec"]["serviceAccountName"], "own")
    account = only("ServiceAccount", render(chart, {"serviceAccount": {"create": True}, "uninstall": {"revert": False}})[0])
    checks.same("an account that nothing needs later", "annotations" in account["metadata"], False)


def package(directory, chart=CHART):
    directory.mkdir(parents=True, exist_ok=True)
    archive = Path(helm.package(chart, destination=directory))
    archive.write_bytes(without_times(archive.read_bytes()))
    return archive


def package_release(directory, image, source=None):
    """The chart with an image in a registry, NAME@DIGEST, and perhaps the address of the sources."""
    name, digest = image.split("@")
    with tempfile.TemporaryDirectory() as copy:
        chart = Path(copy) / CHART.name
        shutil.copytree(CHART, chart)
        replace(chart / "values.yaml", [
            ("  repository: localhost/nri-cpu-manager\n", f"  repository: {name}\n"),
            ('  digest: ""\n', f'  digest: "{digest}"\n'),
            ("  # The name of an image that hack/image built and that is loaded on the nodes.\n", ""),
        ])
        replace(chart / "Chart.yaml", [("localhost/nri-cpu-manager:", f"{name}:")])
        if source:
            # Helm shows both, and the registry links the chart with its sources by them.
            links = f"home: {source}\nsources:\n  - {source}\nannotations:\n"
            replace(chart / "Chart.yaml", [("annotations:\n", links)])
        return package(directory, chart)


def replace(file, pairs):
    text = file.read_text()
    for old, new in pairs:
        if text.count(old) != 1:
            sys.exit(f"{file.name} has this {text.count(old)} times, expected once: {old}")
        text = text.replace(old, new)
    file.write_text(text)


def without_times(archive):
    """The same chart gives the same bytes: Helm records when it packed each file."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as old,
        gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            content = old.extractfile(member)
            member.mtime = 0
            # Helm's own headers have the time a second time.
            member.pax_headers = {}
            new.addfile(member, content)
    return packed.getvalue()


if sys.argv[1] == "package":
    target = Path(sys.argv[2] if len(sys.argv) > 2 else "target/chart")
    print(package_release(target, *sys.argv[3:]) if len(sys.argv) > 3 else package(target))
elif sys.argv[1] == "accept":
    with helm.Chart.load(CHART) as loaded:
        EVERY_OBJECT.write_text(f"# hack/chart accept wrote this from values.yaml.\n{every_object(loaded)}")
else:
    with helm.Chart.load(CHART) as loaded:
        check(loaded)
