//! The plugin's image, built without Docker from the last stage of the Dockerfile.
//!
//! The Dockerfile is the only description of the image. Only the instructions that it uses are
//! supported; anything else is an error, so that both ways to build cannot diverge.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::{Entry, Image, read};
use crate::binaries::Binaries;
use crate::cache;
use crate::platform::Platform;
use crate::{files, manifests};

/// File names of the program and of its image.
const PROGRAM: &str = "nri-cpu-manager";
const ARCHIVE: &str = "nri-cpu-manager.tar";

const DOCKERFILE: &str = include_str!("../../../Dockerfile");

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
    let digest = match options.platform[..] {
        [] => write(&path, &Binaries::build_plugin(Platform::HERE)?)?,
        ref platforms => write_index(&path, platforms)?,
    };
    let shown = path.strip_prefix(cache::repository()).unwrap_or(&path);
    println!("{}\n{NAME}@{digest}", shown.display());
    Ok(())
}

/// Returns the digest of the index.
fn write_index(path: &Path, platforms: &[Platform]) -> Result<String> {
    let mut images = Vec::new();
    for &platform in platforms {
        ensure!(
            images.iter().all(|(other, _)| *other != platform),
            "--platform names {platform} twice"
        );
        let program = read(&Binaries::build_plugin(platform)?)?;
        platform.check(&program)?;
        images.push((platform, image(DOCKERFILE, program)?));
    }
    super::write_index(path, NAME, &images)
}

/// Returns the digest.
pub fn write(path: &Path, program: &Path) -> Result<String> {
    image(DOCKERFILE, read(program)?)?.write(path)
}

/// The image of the last stage: `FROM scratch`, one `COPY --from`, and `LABEL`, `USER`,
/// `ENTRYPOINT` and `CMD` in the forms without a shell. Anything else is an error.
pub fn image(dockerfile: &str, program: Vec<u8>) -> Result<Image> {
    let mut place = None;
    let mut config = serde_json::Map::new();
    let mut labels = BTreeMap::new();
    for line in last_stage(dockerfile)? {
        let wrong = || format!("unsupported line in the Dockerfile's last stage: {line}");
        let (instruction, rest) = line.split_once(' ').with_context(wrong)?;
        match instruction {
            "COPY" => {
                let words: Vec<&str> = rest.split_whitespace().collect();
                let [from, _, to] = words[..] else { bail!(wrong()) };
                ensure!(from.starts_with("--from=") && place.is_none(), wrong());
                place = Some(to.strip_prefix('/').with_context(wrong)?.to_owned());
            }
            "LABEL" => {
                let (name, text) = rest.split_once('=').with_context(wrong)?;
                let text: String = serde_json::from_str(text).with_context(wrong)?;
                labels.insert(name.to_owned(), text);
            }
            "USER" => {
                config.insert("User".to_owned(), json!(rest));
            }
            "ENTRYPOINT" | "CMD" => {
                let words: Vec<String> = serde_json::from_str(rest).with_context(wrong)?;
                let key = if instruction == "CMD" { "Cmd" } else { "Entrypoint" };
                config.insert(key.to_owned(), json!(words));
            }
            _ => bail!(wrong()),
        }
    }
    config.insert("Labels".to_owned(), json!(labels));
    let path = place.context("the Dockerfile's last stage copies no program")?;
    let files = vec![Entry::Program { path, content: program }];
    Ok(Image { name: NAME.to_owned(), config: Value::Object(config), files })
}

/// The instructions after `FROM scratch`.
fn last_stage(dockerfile: &str) -> Result<Vec<&str>> {
    let lines = dockerfile.lines().map(str::trim);
    let lines: Vec<&str> = lines.filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    let start = lines.iter().rposition(|line| line.starts_with("FROM "));
    let start = start.context("the Dockerfile has no FROM")?;
    ensure!(lines[start] == "FROM scratch", "the Dockerfile's last stage is not FROM scratch");
    Ok(lines[start + 1..].to_vec())
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

    #[test]
    fn the_image_has_what_the_dockerfile_says() {
        let config = image(DOCKERFILE, Vec::new()).unwrap().config;
        let list = |key: &str| config[key].to_string().replace(',', ", ");
        for line in [
            format!("ENTRYPOINT {}", list("Entrypoint")),
            format!("CMD {}", list("Cmd")),
            format!("USER {}", config["User"].as_str().unwrap()),
        ] {
            assert!(DOCKERFILE.lines().any(|l| l == line), "the Dockerfile has no line {line}");
        }
        let labels = config["Labels"].as_object().unwrap();
        assert_eq!(labels.len(), DOCKERFILE.matches("\nLABEL ").count());
        assert_eq!(labels["org.opencontainers.image.version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(labels["org.opencontainers.image.licenses"], env!("CARGO_PKG_LICENSE"));
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

    #[test]
    fn unsupported_instructions_are_errors() {
        for (from, to, expect) in [
            ("CMD [\"run\"]", "CMD run", "CMD run"),
            ("CMD [\"run\"]", "ENV A=b", "ENV A=b"),
            ("CMD [\"run\"]", "COPY --from=build /a /b", "COPY"),
            ("FROM scratch", "FROM debian", "not FROM scratch"),
        ] {
            assert!(DOCKERFILE.contains(from));
            let error = image(&DOCKERFILE.replace(from, to), Vec::new()).unwrap_err();
            assert!(format!("{error:#}").contains(expect), "{error:#}");
        }
    }
}
