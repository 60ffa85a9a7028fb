//! Container images, built without a registry or a daemon: an OCI layout in a tar archive, for `ctr
//! images import` and `podman load`. `hack/image` makes the plugin's, the lab also that of its containers.
//!
//! Times, owners and the order of files are fixed: the same files give the same bytes.
//!
//! Why not a tool: buildah and docker would also build the Dockerfile's first stage, from a
//! registry; umoci and skopeo must be installed, while `hack/image` needs neither root nor Debian,
//! and calling them would take as many lines as the few JSON objects below.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub use platform::Platform;

mod platform;

/// An image with one layer.
#[derive(Debug, Clone)]
pub struct Image {
    /// `config` of the OCI image configuration.
    pub config: Value,
    /// What is in it, in the layer's order.
    pub files: Vec<Entry>,
}

/// An entry of the layer. Paths have no leading slash.
#[derive(Debug, Clone)]
pub enum Entry {
    Program { path: String, content: Vec<u8> },
    Link { path: String, target: String },
}

impl Entry {
    pub fn program(path: &str, from: &Path) -> Result<Self> {
        Ok(Self::Program { path: path.to_owned(), content: read(from)? })
    }
}

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The archive of an image, of which a runtime picks its platform's by an index; one platform needs
/// none. `name` is what pods refer to, with registry and tag. Returns the image's digest, which is
/// that of its manifest or index.
pub fn write(path: &Path, name: &str, images: &[(Platform, Image)]) -> Result<String> {
    let mut blobs = Vec::new();
    let mut manifests = Vec::new();
    for (platform, image) in images {
        manifests.push(image.add_to(&mut blobs, *platform)?);
    }
    let mut entry = match &manifests[..] {
        [only] => only.clone(),
        _ => {
            for ((platform, _), entry) in images.iter().zip(&mut manifests) {
                let architecture = platform.architecture();
                entry["platform"] = json!({"architecture": architecture, "os": "linux"});
            }
            let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
            let index = index.to_string();
            let entry = descriptor(INDEX, index.as_bytes());
            blobs.insert(0, index.into_bytes());
            entry
        }
    };
    // The first is for containerd, the second for podman and skopeo.
    entry["annotations"] = json!({
        "io.containerd.image.name": name,
        "org.opencontainers.image.ref.name": name,
    });
    let image = entry["digest"].as_str().unwrap_or_default().to_owned();
    let index = json!({"schemaVersion": 2, "manifests": [entry]}).to_string();
    let layout = json!({"imageLayoutVersion": "1.0.0"}).to_string();
    let file =
        File::create(path).with_context(|| format!("cannot write the image {}", path.display()))?;
    let mut archive = tar::Builder::new(file);
    add(&mut archive, "oci-layout", 0o644, layout.as_bytes())?;
    add(&mut archive, "index.json", 0o644, index.as_bytes())?;
    for blob in &blobs {
        let name = digest(blob).replace(':', "/");
        add(&mut archive, &format!("blobs/{name}"), 0o644, blob)?;
    }
    archive.finish().with_context(|| format!("cannot finish the image {}", path.display()))?;
    Ok(image)
}

impl Image {
    /// Adds configuration, manifest and layer; returns the manifest's descriptor.
    fn add_to(&self, blobs: &mut Vec<Vec<u8>>, platform: Platform) -> Result<Value> {
        let layer = layer(&self.files)?;
        let config = json!({
            "architecture": platform.architecture(),
            "os": "linux",
            "config": self.config,
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        })
        .to_string();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor("application/vnd.oci.image.config.v1+json", config.as_bytes()),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
        })
        .to_string();
        let entry = descriptor(MANIFEST, manifest.as_bytes());
        blobs.extend([config.into_bytes(), manifest.into_bytes(), layer]);
        Ok(entry)
    }
}

fn layer(files: &[Entry]) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for file in files {
        match file {
            Entry::Program { path, content } => add(&mut archive, path, 0o755, content)?,
            Entry::Link { path, target } => {
                let mut header = header(0o777, 0);
                header.set_entry_type(tar::EntryType::Symlink);
                archive
                    .append_link(&mut header, path, target)
                    .context("cannot add a link to the image")?;
            }
        }
    }
    archive.into_inner().context("cannot finish the image's layer")
}

fn add<W: Write>(
    archive: &mut tar::Builder<W>,
    name: &str,
    mode: u32,
    content: &[u8],
) -> Result<()> {
    let mut header = header(mode, content.len() as u64);
    archive
        .append_data(&mut header, name, content)
        .with_context(|| format!("cannot add {name} to the image"))
}

/// Fixed owner and time.
fn header(mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("cannot read {} for the image", path.display()))
}

fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(content), "size": content.len()})
}

fn digest(content: &[u8]) -> String {
    let hash = Sha256::digest(content);
    hash.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// The name in the manifests. Without a registry, so that it is always the image that a node has
/// loaded.
pub const NAME: &str = concat!("localhost/nri-cpu-manager:", env!("CARGO_PKG_VERSION"));

/// What the plugin's image has for a platform.
#[derive(Debug, Clone)]
pub struct Programs {
    pub plugin: PathBuf,
    pub cpuctl: PathBuf,
}

impl Programs {
    /// As `hack/build` has made them.
    pub fn within(directory: &Path) -> Programs {
        let [plugin, cpuctl] = PROGRAMS.map(|name| directory.join(name));
        Programs { plugin, cpuctl }
    }
}

/// Their names in the image, and in the directory of a build.
const PROGRAMS: [&str; 2] = ["nri-cpu-manager", "cpuctl"];

/// The archive of the plugin's image for the platforms of these programs. Returns the image's digest.
pub fn write_plugin(path: &Path, programs: &[(Platform, Programs)]) -> Result<String> {
    let mut images = Vec::new();
    for (platform, programs) in programs {
        let is_named = images.iter().any(|(other, _)| other == platform);
        ensure!(!is_named, "the image has {platform} twice");
        let contents = [read(&programs.plugin)?, read(&programs.cpuctl)?];
        for content in &contents {
            platform.check(content)?;
        }
        images.push((*platform, plugin(contents)));
    }
    write(path, NAME, &images)
}

const DESCRIPTION: &str =
    "Topology-aware CPU pinning for Kubernetes nodes, as an NRI plugin for containerd and CRI-O";

/// The last stage of the Dockerfile.
fn plugin(contents: [Vec<u8>; 2]) -> Image {
    let config = json!({
        "User": "65534:65534",
        "Env": ["MALLOC_ARENA_MAX=1"],
        "Entrypoint": ["/nri-cpu-manager"],
        "Cmd": ["run"],
        "Labels": {
            "org.opencontainers.image.title": "nri-cpu-manager",
            "org.opencontainers.image.description": DESCRIPTION,
            "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
            "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
        },
    });
    let program = |(path, content): (&str, _)| Entry::Program { path: path.to_owned(), content };
    Image { config, files: PROGRAMS.into_iter().zip(contents).map(program).collect() }
}

/// Builds with `hack/build` in the repository, and returns the directory that it prints. Its progress and errors go to this
/// program's standard error, because a build takes minutes.
pub fn hack_build(repository: &Path, platform: Platform, arguments: &[&str]) -> Result<PathBuf> {
    let mut build = Command::new(repository.join("hack/build"));
    build.args(arguments).current_dir(repository).stdin(Stdio::null()).stderr(Stdio::inherit());
    // An outer `cargo test` sets its own flags.
    build.env_remove("CARGO_ENCODED_RUSTFLAGS");
    if platform != Platform::HERE {
        build.args(["--target", platform.machine()]);
    }
    let output = build.output().context("cannot start hack/build")?;
    ensure!(output.status.success(), "hack/build failed ({}): see its output above", output.status);
    let path = String::from_utf8(output.stdout).context("hack/build printed no directory")?;
    Ok(repository.join(path.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `hack/release` checks with skopeo that each platform's program and labels are found.
    #[test]
    fn the_same_program_gives_the_same_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["program", "a.tar", "b.tar"].map(|name| directory.path().join(name));
        std::fs::write(&paths[0], platform::tests::program(Platform::HERE)).unwrap();
        let both = Programs { plugin: paths[0].clone(), cpuctl: paths[0].clone() };
        let programs = [(Platform::HERE, both)];
        let digests = [1, 2].map(|index: usize| write_plugin(&paths[index], &programs).unwrap());
        assert_eq!(digests[0], digests[1]);
        let [a, b] = [1, 2].map(|index: usize| std::fs::read(&paths[index]).unwrap());
        assert!(a == b);
        let mut archive = tar::Archive::new(&a[..]);
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.mtime().unwrap(), header.uid().unwrap()), (0, 0));
        }
    }

    /// Line by line, so that both ways to build give the same image.
    #[test]
    fn the_dockerfile_describes_this_image() {
        let Image { config, files } = plugin([Vec::new(), Vec::new()]);
        let path = |file| match file {
            Entry::Program { path, .. } => format!("/{path}"),
            Entry::Link { .. } => panic!("{file:?}"),
        };
        let paths: Vec<String> = files.into_iter().map(path).collect();
        let list = |key: &str| config[key].to_string().replace(',', ", ");
        let mut lines = vec![
            "FROM scratch".to_owned(),
            format!("COPY --from=build {} /", paths.join(" ")),
            format!("USER {}", config["User"].as_str().unwrap()),
            format!("ENV {}", config["Env"][0].as_str().unwrap()),
            format!("ENTRYPOINT {}", list("Entrypoint")),
            format!("CMD {}", list("Cmd")),
        ];
        let labels = config["Labels"].as_object().unwrap();
        lines.extend(labels.iter().map(|(name, text)| format!("LABEL {name}={text}")));
        let dockerfile = include_str!("../../Dockerfile");
        let stage = dockerfile.find("FROM scratch").unwrap();
        let mut described: Vec<&str> = dockerfile[stage..].lines().collect();
        described.retain(|line| !line.is_empty() && !line.starts_with('#'));
        described.sort_unstable();
        lines.sort_unstable();
        assert_eq!(lines, described);
    }
}
