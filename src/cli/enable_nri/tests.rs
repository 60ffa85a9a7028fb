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
fn what_is_there_stays_as_it_is() {
    assert_eq!(enabled(USUAL), format!("{USUAL}\n[plugins.\"{NRI}\"]\ndisable = false\n"));
    let off = "version = 2\n[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = true # not yet\n  disable_connections = false\n";
    assert_eq!(enabled(off), off.replace("true", "false"));
    // In one line, and by a dotted key.
    let inline = "version = 2\nplugins = { \"io.containerd.nri.v1.nri\" = { disable = true } }\n";
    assert_eq!(enabled(inline), inline.replace("true", "false"));
    let dotted = "version = 3\nplugins.\"io.containerd.nri.v1.nri\".disable = true\n";
    assert_eq!(enabled(dotted), dotted.replace("true", "false"));
}

#[test]
fn a_second_time_changes_nothing() {
    for text in ["version = 2\n", USUAL, "version = 3\n[plugins]\n"] {
        let once = enabled(text);
        assert_eq!(enable(&once).unwrap().content, None, "{once}");
    }
}

#[test]
fn what_could_spoil_it_is_told() {
    let text = "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n[plugins.\"io.containerd.nri.v1.nri\"]\n\
                socket_path = \"/run/other.sock\"\n";
    let found = enable(text).unwrap();
    assert_eq!(found.imports, ["/etc/containerd/conf.d/*.toml"]);
    assert_eq!(found.socket.as_deref(), Some("/run/other.sock"));
    let usual = text.replace("/run/other.sock", SOCKET);
    assert_eq!(enable(&usual).unwrap().socket, None);
}

#[test]
fn what_is_unsuitable_is_left_alone() {
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

/// Runs the command on a file, and returns what it said.
fn run_on(config: &Path) -> Result<String, Box<dyn Error>> {
    let mut out = Vec::new();
    run(&EnableNriArgs { config: config.to_owned() }, &mut out)?;
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
    let names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(names.len(), 2, "{names:?}");

    let said = run_on(&config).unwrap();
    assert!(said.contains("nothing was changed"), "{said}");
    assert_eq!(fs::metadata(&config).unwrap().ino(), after.ino());
}

#[test]
fn a_missing_file_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.toml");
    let said = run_on(&config).unwrap();
    assert!(said.contains("created"), "{said}");
    let text = fs::read_to_string(&config).unwrap();
    assert_eq!(text, format!("version = 2\n\n[plugins.\"{NRI}\"]\ndisable = false\n"));
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
