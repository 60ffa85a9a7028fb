//! The image of every container of the lab: a static shell and the probe. It serves as the pods'
//! sandbox ("pause") image as well.

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use super::{Entry, Image, read};

pub const NAME: &str = "registry.invalid/lab:1";

const APPLETS: &[&str] = &["sh", "sleep", "cat"];

pub fn write(path: &Path, busybox: &Path, probe: &Path) -> Result<()> {
    let program = |name: &str, from: &Path| {
        Ok::<_, anyhow::Error>(Entry::Program { path: format!("bin/{name}"), content: read(from)? })
    };
    let mut files = vec![program("busybox", busybox)?, program("probe", probe)?];
    let link =
        |applet: &&str| Entry::Link { path: format!("bin/{applet}"), target: "busybox".to_owned() };
    files.extend(APPLETS.iter().map(link));
    let config = json!({"Entrypoint": ["/bin/probe", "sleep"], "Env": ["PATH=/bin"]});
    Image { name: NAME.to_owned(), config, files }.write(path).map(|_| ())
}
