//! The images that the lab runs: the plugin's, with the manifests, and that of all other containers.

use std::path::{Path, PathBuf};

use anyhow::Result;
use image::{Entry, Image, Platform, Programs};
use serde_json::json;

use crate::{files, manifests};

/// The file name of the image.
const ARCHIVE: &str = "nri-cpu-manager.tar";

/// The shipped programs, their image, and the manifests.
#[derive(Debug, Clone)]
pub struct Shipped {
    pub programs: Programs,
    /// Archive.
    pub image: PathBuf,
    /// The directory of the [rendered](manifests::render) manifests.
    pub manifests: PathBuf,
}

impl Shipped {
    /// Writes the archive of the image and the manifests into `directory`.
    pub fn with(programs: Programs, directory: &Path) -> Result<Self> {
        let shipped = Self { programs, ..Self::within(directory) };
        shipped.prepare()?;
        Ok(shipped)
    }

    /// Paths of the copy in a VM.
    pub fn within(directory: &Path) -> Self {
        let [image, manifests] = [ARCHIVE, "manifests"].map(|name| directory.join(name));
        Self { programs: Programs::within(directory), image, manifests }
    }

    pub fn copy(programs: &Programs, directory: &Path) -> Result<()> {
        let copy = Self::within(directory);
        files::copy(&programs.plugin, &copy.programs.plugin)?;
        files::copy(&programs.cpuctl, &copy.programs.cpuctl)?;
        copy.prepare()
    }

    fn prepare(&self) -> Result<()> {
        image::write_plugin(&self.image, &[(Platform::HERE, self.programs.clone())])?;
        manifests::render(&self.manifests)
    }
}

/// Name of the image of all of the lab's containers and sandboxes: a static shell and the probe.
pub const LAB: &str = "registry.invalid/lab:1";

const APPLETS: &[&str] = &["sh", "sleep", "cat"];

pub fn write_lab(path: &Path, busybox: &Path, probe: &Path) -> Result<()> {
    let mut files =
        vec![Entry::program("bin/busybox", busybox)?, Entry::program("bin/probe", probe)?];
    let link =
        |applet: &&str| Entry::Link { path: format!("bin/{applet}"), target: "busybox".to_owned() };
    files.extend(APPLETS.iter().map(link));
    let config = json!({"Entrypoint": ["/bin/probe", "sleep"], "Env": ["PATH=/bin"]});
    image::write(path, LAB, &[(Platform::HERE, Image { config, files })]).map(|_| ())
}
