//! The image of every container of the lab, made without a registry: an OCI layout in a tar archive.
//!
//! One layer with a static shell and the probe. The same image serves as the pods' sandbox ("pause") image.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;
use sha2::{Digest, Sha256};

/// Under which name pods refer to the image.
pub const NAME: &str = "registry.invalid/lab:1";

const APPLETS: &[&str] = &["sh", "sleep", "cat"];

/// Writes the archive to `path`.
///
/// # Errors
/// When a program cannot be read or the archive not written.
pub fn write(path: &Path, busybox: &Path, probe: &Path) -> Result<()> {
    let layer = layer(busybox, probe)?;
    let layer_digest = digest(&layer);
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/bin/probe", "sleep"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
    })
    .to_string();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", config.as_bytes()),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
    })
    .to_string();
    let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", manifest.as_bytes());
    entry["annotations"] =
        json!({"io.containerd.image.name": NAME, "org.opencontainers.image.ref.name": NAME});
    let index = json!({"schemaVersion": 2, "manifests": [entry]}).to_string();

    let file =
        File::create(path).with_context(|| format!("cannot write the image {}", path.display()))?;
    let mut archive = tar::Builder::new(file);
    add(
        &mut archive,
        "oci-layout",
        0o644,
        json!({"imageLayoutVersion": "1.0.0"}).to_string().as_bytes(),
    )?;
    add(&mut archive, "index.json", 0o644, index.as_bytes())?;
    for blob in [config.as_bytes(), manifest.as_bytes(), &layer] {
        let name = digest(blob).replace(':', "/");
        add(&mut archive, &format!("blobs/{name}"), 0o644, blob)?;
    }
    archive.finish().with_context(|| format!("cannot finish the image {}", path.display()))
}

fn layer(busybox: &Path, probe: &Path) -> Result<Vec<u8>> {
    let read = |path: &Path| {
        std::fs::read(path).with_context(|| format!("cannot read {} for the image", path.display()))
    };
    let mut archive = tar::Builder::new(Vec::new());
    add(&mut archive, "bin/busybox", 0o755, &read(busybox)?)?;
    add(&mut archive, "bin/probe", 0o755, &read(probe)?)?;
    for applet in APPLETS {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        header.set_mode(0o777);
        archive
            .append_link(&mut header, format!("bin/{applet}"), "busybox")
            .context("cannot add a link to the image")?;
    }
    archive.into_inner().context("cannot finish the image's layer")
}

/// Times and owners stay zero: the same programs give the same image.
fn add<W: Write>(
    archive: &mut tar::Builder<W>,
    name: &str,
    mode: u32,
    content: &[u8],
) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(mode);
    archive
        .append_data(&mut header, name, content)
        .with_context(|| format!("cannot add {name} to the image"))
}

fn descriptor(media_type: &str, content: &[u8]) -> serde_json::Value {
    json!({"mediaType": media_type, "digest": digest(content), "size": content.len()})
}

fn digest(content: &[u8]) -> String {
    let hash = Sha256::digest(content);
    hash.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}
