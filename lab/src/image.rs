//! Container images, built without a registry or a daemon: an OCI layout in a tar archive, for `ctr
//! images import` and `podman load`.
//!
//! Times, owners and the order of files are fixed: the same files give the same bytes.
//!
//! Why not a tool: buildah and docker would also build the Dockerfile's first stage, from a
//! registry; umoci and skopeo must be installed, while `hack/image` needs neither root nor Debian,
//! and calling them would take as many lines as the few JSON objects below.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::platform::Platform;

pub mod shipped;

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

/// Name of the image of all of the lab's containers and sandboxes: a static shell and the probe.
pub const LAB: &str = "registry.invalid/lab:1";

const APPLETS: &[&str] = &["sh", "sleep", "cat"];

pub fn write_lab(path: &Path, busybox: &Path, probe: &Path) -> Result<()> {
    let program = |name: &str, from: &Path| {
        Ok::<_, anyhow::Error>(Entry::Program { path: format!("bin/{name}"), content: read(from)? })
    };
    let mut files = vec![program("busybox", busybox)?, program("probe", probe)?];
    let link =
        |applet: &&str| Entry::Link { path: format!("bin/{applet}"), target: "busybox".to_owned() };
    files.extend(APPLETS.iter().map(link));
    let config = json!({"Entrypoint": ["/bin/probe", "sleep"], "Env": ["PATH=/bin"]});
    write(path, LAB, &[(Platform::HERE, Image { config, files })]).map(|_| ())
}
