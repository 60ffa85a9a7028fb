use super::*;

fn enabled(text: &str) -> String {
    enable(text).unwrap().content.unwrap()
}

/// A distribution's file with a user's comments.
const USUAL: &str = r#"version = 2
# Ours.
root = "/data/containerd"   # a larger disk

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = "registry.invalid/pause:3"
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"

  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd"
"#;

#[test]
fn everything_else_in_the_file_stays_as_it_is() {
    assert_eq!(enabled(USUAL), format!("{USUAL}\n[plugins.\"{NRI}\"]\ndisable = false\n"));
    let off = "version = 2\n[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = true # not yet\n  disable_connections = false\n";
    assert_eq!(enabled(off), off.replace("true", "false"));
    // Older images of EKS: only plugins that containerd launches may connect.
    let alone = "version = 3\n[plugins.'io.containerd.nri.v1.nri']\n  disable = false\n  disable_connections = true\n";
    assert_eq!(enabled(alone), alone.replace("true", "false"));
    // In one line, and by a dotted key.
    let inline = "version = 2\nplugins = { \"io.containerd.nri.v1.nri\" = { disable = true } }\n";
    assert_eq!(enabled(inline), inline.replace("true", "false"));
    let dotted = "version = 3\nplugins.\"io.containerd.nri.v1.nri\".disable = true\n";
    assert_eq!(enabled(dotted), dotted.replace("true", "false"));
}

/// What `containerd config default` of containerd 2 writes, with NRI disabled, and kind's file of the
/// old format, which containerd 2 also reads.
#[test]
fn the_files_of_containerd_2_are_changed() {
    let current = "version = 3\nroot = '/var/lib/containerd'\nstate = '/run/k3s/containerd'\n\n[plugins]\n  \
                   [plugins.'io.containerd.cri.v1.runtime']\n    enable_cdi = true\n\n  \
                   [plugins.'io.containerd.nri.v1.nri']\n    disable = true\n    socket_path = '/var/run/nri/nri.sock'\n    \
                   disable_connections = false\n";
    let on = current.replace("disable = true", "disable = false");
    assert_eq!(enabled(current), on);
    let found = enable(&on).unwrap();
    assert_eq!((found.content, found.socket), (None, None));
    let elsewhere = on.replace("/var/run/nri/nri.sock", "/run/k3s/nri.sock");
    assert_eq!(enable(&elsewhere).unwrap().socket.as_deref(), Some("/run/k3s/nri.sock"));
    let old = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n  snapshotter = \"overlayfs\"\n";
    assert_eq!(enabled(old), format!("{old}\n[plugins.\"{NRI}\"]\ndisable = false\n"));
}

#[test]
fn a_second_time_changes_nothing() {
    for text in ["version = 2\n", USUAL, "version = 3\n[plugins]\n"] {
        let once = enabled(text);
        assert_eq!(enable(&once).unwrap().content, None, "{once}");
    }
}

#[test]
fn imports_and_another_socket_are_reported() {
    let text = "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n[plugins.\"io.containerd.nri.v1.nri\"]\n\
                socket_path = \"/run/other.sock\"\n";
    let found = enable(text).unwrap();
    assert_eq!(found.imports, ["/etc/containerd/conf.d/*.toml"]);
    assert_eq!(found.socket.as_deref(), Some("/run/other.sock"));
    let usual = text.replace("/run/other.sock", SOCKET);
    assert_eq!(enable(&usual).unwrap().socket, None);
}

#[test]
fn an_unsuitable_file_is_refused_with_the_reason() {
    let version = |text: &str| Unsuitable::Version(text.to_owned());
    for (text, why) in [
        ("", version("1")),
        ("disabled_plugins = [\"cri\"]\n", version("1")),
        ("version = 4\n", version("4")),
        ("version = \"2\"\n", version("\"2\"")),
        ("version = 2\ndisabled_plugins = [\"io.containerd.nri.v1.nri\"]\n", Unsuitable::Disabled),
        ("version = 2\ndisabled_plugins = \"x\"\n", Unsuitable::Kind("disabled_plugins")),
        ("version = 2\nplugins = 1\n", Unsuitable::Kind("plugins")),
        ("version = 2\nplugins.\"io.containerd.nri.v1.nri\" = 1\n", Unsuitable::Kind(NRI)),
        (
            "version = 2\nplugins.\"io.containerd.nri.v1.nri\".disable = \"no\"\n",
            Unsuitable::Kind("disable"),
        ),
    ] {
        assert_eq!(enable(text), Err(why), "{text}");
    }
    assert!(matches!(enable("version = \n"), Err(Unsuitable::Syntax(_))));
}

/// TOML's writer ends every line in the same way.
#[test]
fn line_ends_stay_as_they_are() {
    let on = |text: &str| text.replace("true", "false");
    let off = "version = 2\n[plugins.\"io.containerd.nri.v1.nri\"]\ndisable = true # no\n[debug]\nlevel = \"\"\n";
    let crlf = off.replace('\n', "\r\n");
    assert_eq!(enabled(&crlf), on(&crlf));
    let mixed = off.replacen('\n', "\r\n", 1);
    assert_eq!(enabled(&mixed), on(&mixed).replace("# no\n", "# no\r\n"));
    let usual = USUAL.replace('\n', "\r\n");
    let table = format!("\r\n[plugins.\"{NRI}\"]\r\ndisable = false\r\n");
    assert_eq!(enabled(&usual), format!("{usual}{table}"));
    // Without an end of the last line.
    let open = "version = 2\r\nroot = \"/x\"";
    assert_eq!(enabled(open), format!("{open}\r\n{table}"));
}

/// k3s and RKE2 render the file from a Go template.
#[test]
fn a_template_without_the_plugins_table_gets_one() {
    let enabled = |text: &str| enable_in_template(text).unwrap().content;
    let table = format!("[plugins.\"{NRI}\"]\n  disable = false\n");
    let base = "{{ template \"base\" . }}\n";
    let with = format!("{base}\n{table}");
    assert_eq!(enabled(base), Some(with.clone()));
    assert_eq!(enabled(base.trim_end()), Some(with.clone()));
    assert_eq!(enabled(&with), None, "a second time");
    let crlf = base.replace('\n', "\r\n");
    assert_eq!(enabled(&crlf), Some(with.replace('\n', "\r\n")));
    let off =
        format!("{base}[plugins.'{NRI}']\n  disable = true # no\n[debug]\n  disable = true\n");
    assert_eq!(enabled(&off), Some(off.replacen("true", "false", 1)));
    let alone = format!("{base}[plugins.'{NRI}']\n  disable_connections = true\n  disable=false\n");
    assert_eq!(enabled(&alone), Some(alone.replace("true", "false")));
    let comment = format!("# [plugins.\"{NRI}\"]\n{base}");
    assert_eq!(enabled(&comment), Some(format!("{comment}\n{table}")));
    for unclear in [
        format!("disabled_plugins = [\"{NRI}\"]\n{base}"),
        format!("{base}[plugins.\"{NRI}\"]\n  socket_path = \"/x\"\n[debug]\n  disable = true\n"),
        format!("{base}[plugins.\"{NRI}\"]\n  disable = {{{{ .Off }}}}\n"),
    ] {
        assert_eq!(enable_in_template(&unclear), Err(Unsuitable::Template), "{unclear}");
    }
}

/// Runs the command on a file, and returns what it said.
fn run_on(config: &Path) -> Result<String, Box<dyn Error>> {
    run_at(Path::new("/nowhere"), Some(config))
}

fn run_at(root: &Path, config: Option<&Path>) -> Result<String, Box<dyn Error>> {
    let mut out = Vec::new();
    let args = EnableNriArgs { config: config.map(Path::to_owned), dry_run: false };
    run_below(root, &args, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

#[test]
fn a_file_is_replaced_with_its_permissions() {
    let directory = tempfile::tempdir().unwrap();
    let (config, link) = (directory.path().join("config.toml"), directory.path().join("link"));
    fs::write(&config, USUAL).unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("config.toml", &link).unwrap();
    let before = fs::metadata(&config).unwrap().ino();

    let said = run_on(&link).unwrap();
    assert!(said.contains("systemctl restart containerd"), "{said}");
    assert_eq!(fs::read_to_string(&config).unwrap(), enabled(USUAL));
    let after = fs::metadata(&config).unwrap();
    assert_eq!(after.mode() & 0o7777, 0o640);
    assert_ne!(after.ino(), before, "it was written in place: a crash would leave half of it");
    assert!(link.is_symlink());
    let kept = directory.path().join("config.toml.before-enable-nri");
    assert!(said.contains(&format!("The old file is {}.", kept.display())), "{said}");
    assert_eq!(fs::read_to_string(&kept).unwrap(), USUAL);
    assert_eq!(fs::metadata(&kept).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);

    let said = run_on(&config).unwrap();
    assert!(said.contains("nothing was changed"), "{said}");
    assert_eq!(fs::metadata(&config).unwrap().ino(), after.ino());

    // Changed again later: the copy of the first time stays.
    let other = USUAL.replace("Ours", "Theirs");
    fs::write(&config, &other).unwrap();
    let said = run_on(&config).unwrap();
    assert!(said.contains("config.toml.before-enable-nri-2."), "{said}");
    let copies = [&kept, &directory.path().join("config.toml.before-enable-nri-2")];
    assert_eq!(copies.map(|copy| fs::read_to_string(copy).unwrap()), [USUAL, &other]);
}

/// As GNU diff prints it; `patch` applies it.
#[test]
fn a_dry_run_prints_the_difference_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.toml");
    let table = format!("[plugins.\"{NRI}\"]\n");
    for (old, expect) in [
        (
            USUAL.to_owned(),
            format!(
                "@@ -10,3 +10,6 @@\n \n   [plugins.\"io.containerd.internal.v1.opt\"]\n     path = \
                 \"/var/lib/containerd\"\n+\n+{table}+disable = false\n"
            ),
        ),
        (
            format!(
                "version = 2\n{table}disable = true # no\nsocket_path = \"\"\ndisable_connections = true\n[debug]\n"
            ),
            format!(
                "@@ -1,6 +1,6 @@\n version = 2\n {table}-disable = true # no\n+disable = false # no\n socket_path = \"\"\n\
                 -disable_connections = true\n+disable_connections = false\n [debug]\n"
            ),
        ),
        (
            "version = 2".to_owned(),
            format!(
                "@@ -1,1 +1,4 @@\n-version = 2\n\\ No newline at end of file\n+version = 2\n+\n+{table}+disable = false\n"
            ),
        ),
    ] {
        fs::write(&config, &old).unwrap();
        let mut out = Vec::new();
        let args = EnableNriArgs { config: Some(config.clone()), dry_run: true };
        run_below(Path::new("/nowhere"), &args, &mut out).unwrap();
        let shown = config.display();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!(
                "--- {shown}\n+++ {shown}\n{expect}{shown}: nothing was changed (--dry-run). With this change, restart \
                 containerd: systemctl restart containerd (containers keep running)\n"
            )
        );
        assert_eq!(fs::read_to_string(&config).unwrap(), old);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}

/// containerd would not read a file that this command creates, except by chance.
#[test]
fn a_missing_file_is_refused_with_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let refused = |config: Option<&Path>| run_at(root.path(), config).unwrap_err().to_string();
    let missing = root.path().join("nope.toml");
    let error = refused(Some(&missing));
    assert!(error.contains("nope.toml: no such file. Nothing was changed"), "{error}");
    assert!(error.contains("containerd config default >"), "{error}");
    assert!(refused(None).contains("containerd config default >"));
    assert!(!missing.exists());

    let default = root.path().join("etc/containerd/config.toml");
    fs::create_dir_all(default.parent().unwrap()).unwrap();
    fs::write(&default, USUAL).unwrap();
    let error = refused(Some(&missing));
    assert!(error.contains(&format!("reads {}", default.display())), "{error}");
    assert!(!missing.exists());
    assert!(run_at(root.path(), None).unwrap().contains("systemctl restart containerd"));
    assert_eq!(fs::read_to_string(&default).unwrap(), enabled(USUAL));
}

#[test]
fn a_rendered_file_is_changed_in_its_template() {
    for (directory, rendered, template, content, missing, restart) in [
        (
            "var/lib/rancher/k3s/agent/etc/containerd",
            "config.toml",
            "config.toml.tmpl",
            "{{ template \"base\" . }}\n",
            "create it with the line {{ template \"base\" . }} and pass it with --config",
            "systemctl restart k3s",
        ),
        (
            "var/lib/rancher/rke2/agent/etc/containerd",
            "config.toml",
            "config-v3.toml.tmpl",
            "{{ template \"base\" . }}\n",
            "create it with the line {{ template \"base\" . }} and pass it with --config",
            "systemctl restart rke2-server",
        ),
        (
            "var/snap/microk8s/current/args",
            "containerd.toml",
            "containerd-template.toml",
            "version = 2\nroot = \"${SNAP_COMMON}/x\"\n",
            "MicroK8s installs it",
            "snap restart microk8s.daemon-containerd",
        ),
    ] {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join(directory);
        fs::create_dir_all(&directory).unwrap();
        let (rendered, template) = (directory.join(rendered), directory.join(template));
        fs::write(&rendered, "version = 2\n").unwrap();
        // There is no template yet.
        for config in [None, Some(rendered.as_path())] {
            let error = run_at(root.path(), config).unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
        fs::write(&template, content).unwrap();
        let error = run_at(root.path(), Some(&rendered)).unwrap_err().to_string();
        assert!(error.contains("replaces this file at each start"), "{error}");
        assert!(error.contains(&format!("change {}", template.display())), "{error}");
        assert_eq!(fs::read_to_string(&rendered).unwrap(), "version = 2\n");

        let said = run_at(root.path(), None).unwrap();
        assert!(said.contains(&template.display().to_string()) && said.contains(restart), "{said}");
        let text = fs::read_to_string(&template).unwrap();
        assert!(text.starts_with(content) && text.contains("disable = false"), "{text}");

        // Another containerd, for example Docker's.
        let default = root.path().join("etc/containerd/config.toml");
        fs::create_dir_all(default.parent().unwrap()).unwrap();
        fs::write(&default, USUAL).unwrap();
        let error = run_at(root.path(), None).unwrap_err().to_string();
        assert!(error.contains("--config") && error.contains("etc/containerd"), "{error}");
        assert_eq!(fs::read_to_string(&default).unwrap(), USUAL);
    }
    // k3s with another data directory.
    let root = tempfile::tempdir().unwrap();
    let config = root.path().join("config.toml");
    let head = "# File generated by k3s. DO NOT EDIT. Use config.toml.tmpl instead.\n";
    fs::write(&config, format!("{head}version = 2\n")).unwrap();
    let error = run_on(&config).unwrap_err().to_string();
    assert!(error.contains("Use config.toml.tmpl instead"), "{error}");
}

/// k3s and RKE2 with containerd 2 render this template if both exist.
#[test]
fn the_template_for_containerd_2_comes_first() {
    for distribution in ["k3s", "rke2"] {
        let root = tempfile::tempdir().unwrap();
        let directory =
            root.path().join(format!("var/lib/rancher/{distribution}/agent/etc/containerd"));
        fs::create_dir_all(&directory).unwrap();
        let base = "{{ template \"base\" . }}\n";
        fs::write(directory.join("config.toml"), "version = 3\n").unwrap();
        let [old, new] =
            ["config.toml.tmpl", "config-v3.toml.tmpl"].map(|name| directory.join(name));
        fs::write(&old, base).unwrap();
        fs::write(&new, base).unwrap();
        let said = run_at(root.path(), None).unwrap();
        assert!(said.contains("config-v3.toml.tmpl: changed"), "{said}");
        assert_eq!(fs::read_to_string(&old).unwrap(), base);
        assert!(fs::read_to_string(&new).unwrap().ends_with("disable = false\n"));
    }
}

#[test]
fn a_failure_leaves_the_old_file() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.toml");
    fs::write(&config, USUAL).unwrap();
    // In the place of the new file, so that it cannot be opened.
    fs::create_dir(directory.path().join("config.toml.enable-nri")).unwrap();
    let error = run_on(&config).unwrap_err().to_string();
    assert!(error.contains("config.toml"), "{error}");
    assert_eq!(fs::read_to_string(&config).unwrap(), USUAL);
    fs::write(&config, "version = 1\n").unwrap();
    let error = run_on(&config).unwrap_err().to_string();
    assert!(error.contains("config.toml: ") && error.contains("config migrate"), "{error}");
}
