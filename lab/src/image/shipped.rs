//! The plugin's image, built without Docker: the last stage of the Dockerfile.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Entry, Image, read};
use crate::binaries::Binaries;
use crate::cache;
use crate::platform::Platform;
use crate::{files, manifests};

/// File names of the program and of its image.
const PROGRAM: &str = "nri-cpu-manager";
const ARCHIVE: &str = "nri-cpu-manager.tar";

/// The name in the manifests. Without a registry, so that it is always the image that a node has
/// loaded.
pub const NAME: &str = concat!("localhost/nri-cpu-manager:", env!("CARGO_PKG_VERSION"));

/// The shipped program, its image, and the manifests.
#[derive(Debug, Clone)]
pub struct Shipped {
    /// The program alone.
    pub program: PathBuf,
    /// Archive.
    pub image: PathBuf,
    /// The directory of the [rendered](manifests::render) manifests.
    pub manifests: PathBuf,
}

impl Shipped {
    /// Writes the archive of the image and the manifests into `directory`.
    pub fn with(program: &Path, directory: &Path) -> Result<Self> {
        let shipped = Self { program: program.to_path_buf(), ..Self::within(directory) };
        shipped.prepare()?;
        Ok(shipped)
    }

    /// Paths of the copy in a VM.
    pub fn within(directory: &Path) -> Self {
        let [program, image, manifests] =
            [PROGRAM, ARCHIVE, "manifests"].map(|name| directory.join(name));
        Self { program, image, manifests }
    }

    pub fn copy(program: &Path, directory: &Path) -> Result<()> {
        let copy = Self::within(directory);
        files::copy(program, &copy.program)?;
        copy.prepare()
    }

    fn prepare(&self) -> Result<()> {
        write(&self.image, &self.program)?;
        manifests::render(&self.manifests)
    }
}

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Archive to write; default: target/image/nri-cpu-manager-VERSION.tar
    file: Option<PathBuf>,
    /// One image for these platforms: linux/amd64,linux/arm64; default: this machine's alone
    #[arg(long, value_delimiter = ',')]
    platform: Vec<Platform>,
}

const DIRECTORY: &str = "target/image";

/// The archive of `hack/image` without arguments, in the repository.
fn default_archive() -> String {
    format!("{DIRECTORY}/nri-cpu-manager-{}.tar", env!("CARGO_PKG_VERSION"))
}

/// Prints the path and the digest.
pub fn run(options: &Options) -> Result<()> {
    let path = match &options.file {
        Some(file) => file.clone(),
        None => {
            files::make_directory(&cache::repository().join(DIRECTORY))?;
            cache::repository().join(default_archive())
        }
    };
    let mut platforms = options.platform.clone();
    if platforms.is_empty() {
        platforms.push(Platform::HERE);
    }
    let mut images = Vec::new();
    for platform in platforms {
        let is_named = images.iter().any(|(other, _)| *other == platform);
        ensure!(!is_named, "--platform names {platform} twice");
        let program = read(&Binaries::build_plugin(platform)?)?;
        platform.check(&program)?;
        images.push((platform, image(program)));
    }
    let digest = super::write(&path, NAME, &images)?;
    let shown = path.strip_prefix(cache::repository()).unwrap_or(&path);
    println!("{}\n{NAME}@{digest}", shown.display());
    Ok(())
}

/// Returns the digest.
fn write(path: &Path, program: &Path) -> Result<String> {
    super::write(path, NAME, &[(Platform::HERE, image(read(program)?))])
}

const DESCRIPTION: &str =
    "Topology-aware CPU pinning for Kubernetes nodes, as an NRI plugin for containerd and CRI-O";

/// As the Dockerfile describes it.
fn image(program: Vec<u8>) -> Image {
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
    Image { config, files: vec![Entry::Program { path: PROGRAM.to_owned(), content: program }] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `hack/release` checks with skopeo that each platform's program and labels are found.
    #[test]
    fn the_same_program_gives_the_same_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["program", "a.tar", "b.tar"].map(|name| directory.path().join(name));
        std::fs::write(&paths[0], b"\x7fELF").unwrap();
        let digests = [1, 2].map(|index: usize| write(&paths[index], &paths[0]).unwrap());
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
        let Image { config, files } = image(Vec::new());
        let [Entry::Program { path, .. }] = &files[..] else { panic!("{files:?}") };
        let list = |key: &str| config[key].to_string().replace(',', ", ");
        let mut lines = vec![
            "FROM scratch".to_owned(),
            format!("COPY --from=build /{path} /{path}"),
            format!("USER {}", config["User"].as_str().unwrap()),
            format!("ENV {}", config["Env"][0].as_str().unwrap()),
            format!("ENTRYPOINT {}", list("Entrypoint")),
            format!("CMD {}", list("Cmd")),
        ];
        let labels = config["Labels"].as_object().unwrap();
        lines.extend(labels.iter().map(|(name, text)| format!("LABEL {name}={text}")));
        let dockerfile = include_str!("../../../Dockerfile");
        let stage = dockerfile.find("FROM scratch").unwrap();
        let mut described: Vec<&str> = dockerfile[stage..].lines().collect();
        described.retain(|line| !line.is_empty() && !line.starts_with('#'));
        described.sort_unstable();
        lines.sort_unstable();
        assert_eq!(lines, described);
    }

    /// What the commands of the README load is what `hack/image` has made.
    #[test]
    fn the_readme_loads_this_archive() {
        let readme = include_str!("../../../README.md");
        let archive = default_archive();
        let file = archive.strip_prefix("target/image/").unwrap();
        for archive in [archive.as_str(), file] {
            let command = format!("\n# ctr --namespace k8s.io images import {archive}\n");
            assert!(readme.contains(&command), "README.md has no line{command}");
        }
    }
}
