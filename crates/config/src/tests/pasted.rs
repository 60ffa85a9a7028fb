//! A kubelet's file pasted whole: fields that mean nothing here are accepted with a warning; unknown
//! fields are errors.

use super::*;
use topology::Sizes;

const KUBEADM: &str = include_str!("../../../../tests/kubelet/kubeadm.yaml");
const K3S: &str = include_str!("../../../../tests/kubelet/k3s.yaml");
const EKS: &str = include_str!("../../../../tests/kubelet/eks.json");
const GKE: &str = include_str!("../../../../tests/kubelet/gke.yaml");
const ALL: [(&str, &str); 4] = [("kubeadm", KUBEADM), ("k3s", K3S), ("eks", EKS), ("gke", GKE)];

/// Large enough for what the files reserve.
fn large() -> Topology {
    let topology = machines::presets::preset("epyc-9654").unwrap().topology().unwrap();
    let memory = topology.nodes().iter().map(|node| (node.id, 64 << 30)).collect();
    topology.with_memory(&Sizes { memory, ..Sizes::default() })
}

fn not_used(text: &str) -> Vec<String> {
    Config::parse("c", text).unwrap().not_used().iter().map(ToString::to_string).collect()
}

#[test]
fn files_of_kubelets_are_accepted_and_have_their_effect() {
    for (name, text) in ALL {
        let config = Config::parse(name, text).unwrap();
        let settings = config.resolve(&large()).unwrap();
        // As many as are neither used here nor a part of the header.
        let fields = config.source.root.fields().len();
        let used = fields - config.not_used().len() - 2;
        let (expect, policy, reserved) = match name {
            "kubeadm" => (9, Policy::Static, "0-1,192-193"),
            "k3s" => (1, Policy::None, ""),
            "eks" => (4, Policy::Static, "0"),
            _ => (3, Policy::Static, "0,192"),
        };
        let found = (used, settings.policy, settings.placement.reserved.to_string());
        assert_eq!(found, (expect, policy, reserved.to_owned()), "{name}");
        assert_eq!(settings.memory.is_some(), name == "kubeadm", "{name}");
    }
}

#[test]
fn the_block_of_a_file_has_the_files_effect() {
    for (name, text) in ALL {
        let FromKubelet { block, left_out } = from_kubelet(name, text.into()).unwrap();
        let of_block = Config::parse("block", &block).unwrap();
        let settings = |config: &Config| config.resolve(&large()).unwrap();
        assert_eq!(
            settings(&of_block),
            settings(&Config::parse(name, text).unwrap()),
            "{name}: {block}"
        );
        assert_eq!(of_block.not_used(), [], "{name}: {block}");
        assert!(left_out.len() >= not_used(text).len(), "{name}: {left_out:?}");
    }
}

#[test]
fn fields_that_mean_nothing_here_are_named_with_their_line() {
    assert_eq!(
        not_used(
            "kind: KubeletConfiguration\nclusterDNS: [10.0.0.10]\nstrict: true\nport: {any: [thing]}\n"
        ),
        ["line 2: clusterDNS: not used here", "line 4: port: not used here"]
    );
    let reasons = not_used("cpuManagerReconcilePeriod: 5s\nfeatureGates: {X: true}\n");
    for (reason, part) in reasons.iter().zip(["every ten seconds", "depends on a gate"]) {
        assert!(reason.contains(": not used here: ") && reason.contains(part), "{reason}");
    }
    assert_eq!(reasons.len(), 2);
}

#[test]
fn an_entry_names_its_own_fields_where_it_applies() {
    let text = "port: 1\nnodes:\n- names: [a]\n  maxPods: 9\n- names: [b]\n  strict: true\n";
    let config = Config::parse("c", text).unwrap();
    let lines = |entries: &[usize]| -> Vec<usize> {
        config.with(entries).unwrap().not_used().iter().map(|warning| warning.line).collect()
    };
    assert_eq!((lines(&[]), lines(&[0]), lines(&[1])), (vec![1], vec![1, 4], vec![1]));
    assert_eq!(config.overrides()[0].not_used[0].text, "maxPods: not used here");
}

/// `mode` in `authorization` is not that of `rebalance`, whose line the error has.
#[test]
fn errors_are_not_about_what_means_nothing_here() {
    refuses(
        "authorization: {mode: Webhook}\nrebalance:\n  mode: sometimes\n",
        "line 3: mode: \"sometimes\" is unknown, expected move or suggest or off",
    );
    refuses("port: 1\nport: 2\n", "line 2: port: set twice, first on line 1");
    refuses("logging:\n  a: 1\n  a: 2\n", "line 3: logging.a: set twice, first on line 2");
}

/// A field of a file, a typo of it, and what is meant; nothing if no name is near.
const TYPOS: [(&str, &str, &str, &str); 32] = [
    (KUBEADM, "apiVersion", "apiversoin", "apiVersion"),
    (KUBEADM, "authentication", "autentication", "authentication"),
    (KUBEADM, "authorization", "authorisation", "authorization"),
    (KUBEADM, "cgroupDriver", "cgroup-driver", "cgroupDriver"),
    (KUBEADM, "clusterDNS", "clusterDns", "clusterDNS"),
    (KUBEADM, "clusterDomain", "clusterDomian", "clusterDomain"),
    (KUBEADM, "cpuManagerPolicy", "cpuManagerPolcy", "cpuManagerPolicy"),
    (KUBEADM, "cpuManagerPolicyOptions", "cpuManagerPolicyOption", "cpuManagerPolicyOptions"),
    (KUBEADM, "cpuManagerReconcilePeriod", "cpuManagerReconcilPeriod", "cpuManagerReconcilePeriod"),
    (KUBEADM, "crashLoopBackOff", "crashLoopBackoffs", "crashLoopBackOff"),
    (KUBEADM, "featureGates", "featureGate", "featureGates"),
    (KUBEADM, "kind", "kinds", "kind"),
    (KUBEADM, "memoryManagerPolicy", "memoryMangerPolicy", "memoryManagerPolicy"),
    (KUBEADM, "reservedMemory", "reserveMemory", "reservedMemory"),
    (KUBEADM, "reservedSystemCPUs", "reservedSystemCPU", "reservedSystemCPUs"),
    (KUBEADM, "topologyManagerScope", "topologyManagerScop", "topologyManagerScope"),
    (KUBEADM, "topologyManagerPolicy", "topologyMangerPolicy", "topologyManagerPolicy"),
    (K3S, "address", "adress", "address"),
    (K3S, "evictionHard", "evictonHard", "evictionHard"),
    (K3S, "failSwapOn", "failOnSwap", ""),
    (K3S, "resolvConf", "resolveConf", "resolvConf"),
    (K3S, "staticPodPath", "staticPodsPath", "staticPodPath"),
    (K3S, "tlsCertFile", "tlsCertificate", "tlsCertFile"),
    (EKS, "kubeReserved", "kubeReserverd", "kubeReserved"),
    (EKS, "maxPods", "maxPod", "maxPods"),
    (EKS, "protectKernelDefaults", "protectKernelDefault", "protectKernelDefaults"),
    (EKS, "providerID", "providerld", "providerID"),
    (EKS, "systemReservedCgroup", "systemReservedGroup", "systemReservedCgroup"),
    (EKS, "topologyManagerPolicy", "topology-manager-policy", "topologyManagerPolicy"),
    (GKE, "cpuCFSQuota", "cpuQuota", ""),
    (GKE, "podPidsLimit", "pidsLimit", "podPidsLimit"),
    (GKE, "readOnlyPort", "insecure", ""),
];

#[test]
fn typos_in_a_kubelets_file_stay_errors() {
    for (text, field, typo, meant) in TYPOS {
        let line = |line: &str| {
            line.trim_start_matches([' ', '"']).split([':', '"']).next() == Some(field)
        };
        let at = text.lines().position(line).unwrap() + 1;
        let text: Vec<String> = text
            .lines()
            .zip(1..)
            .map(|(line, n)| if n == at { line.replacen(field, typo, 1) } else { line.to_owned() })
            .collect();
        let error = Config::parse("c", &text.join("\n")).unwrap_err().to_string();
        let expect = if meant.is_empty() {
            format!("c, line {at}: unknown field \"{typo}\", expected one of cpuManagerPolicy, ")
        } else {
            format!(
                "c, line {at}: unknown field \"{typo}\" (did you mean {meant}?). Nothing was changed"
            )
        };
        assert!(error.starts_with(&expect), "{error}");
    }
}

#[test]
fn draft_names_of_options_are_errors_that_name_the_option() {
    for (draft, kep, name) in [
        ("reject-non-smt-aligned", "KEP-2625", "full-pcpus-only"),
        ("smtalign", "KEP-2625", "full-pcpus-only"),
        ("smtisolate", "KEP-2625", "the annotation smt.cpu-manager.nri.io with isolate"),
        ("prefer-align-by-uncorecache", "KEP-4800", "prefer-align-cpus-by-uncorecache"),
        ("spread-physical-cpus-preferred", "KEP-4176", "distribute-cpus-across-cores"),
    ] {
        refuses(
            &format!("cpuManagerPolicy: static\ncpuManagerPolicyOptions:\n  {draft}: \"true\"\n"),
            &format!(
                "line 3: {draft}: cpu manager: new static policy error: unknown CPU Manager Policy option: \"{draft}\" (a draft of {kep} had this name for {name}: \
                 use that)"
            ),
        );
    }
}

#[test]
fn errors_about_draft_names_advise_an_existing_option_or_pod_option() {
    for (draft, _, name) in policy_options::DRAFTS {
        assert!(!placement::Options::NAMES.contains(&draft), "{draft}");
        let is_pod_option = || PodOption::parse("smt", "isolate").is_ok() && draft == "smtisolate";
        assert!(placement::Options::NAMES.contains(&name) || is_pod_option(), "{name}");
    }
}

#[test]
fn files_around_a_kubelets_are_named_with_the_part_to_give() {
    let talos = "version: v1alpha1\nmachine:\n  type: worker\n  kubelet:\n    extraConfig:\n      cpuManagerPolicy: static\n";
    let part = |file, path| {
        format!("this is {file}: give only the fields below {path}, without their indentation")
    };
    for (text, line, why) in [
        (talos, 5, part("the machine configuration of Talos", "machine.kubelet.extraConfig")),
        (
            "kind: EC2NodeClass\nspec:\n  kubelet: {cpuCFSQuota: true}\n",
            3,
            part("an object of Karpenter or kOps", "spec.kubelet"),
        ),
        (
            "kubeletConfig:\n  cpuManagerPolicy: static\n",
            1,
            part("a file around a kubelet's configuration", "kubeletConfig"),
        ),
        (
            "node-ip: 10.0.0.1\nkubelet-arg:\n- config=/etc/kubelet.yaml\n",
            2,
            "this is a configuration of k3s or RKE2, whose kubelet-arg are command-line flags: give the file that \
             the flag config names"
                .to_owned(),
        ),
    ] {
        let error = from_kubelet("k", text.into()).unwrap_err().to_string();
        assert_eq!(error, format!("k, line {line}: {why}. Nothing was changed"));
    }
    for text in
        ["--cpu-manager-policy=static --v=2\n", "# of a unit\nKUBELET_EXTRA_ARGS=\"--v=2\"\n"]
    {
        let error = from_kubelet("k", text.into()).unwrap_err().to_string();
        let expect = "k, line 1: these are a kubelet's command-line flags: give the file that its flag --config names";
        assert!(error.starts_with(expect), "{error}");
    }
}
