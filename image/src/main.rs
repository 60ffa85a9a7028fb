//! `hack/image`, which runs this in the repository.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use image::{NAME, Platform, Programs};

/// Build the plugin's image as an OCI archive, without Docker
#[derive(Debug, Parser)]
#[command(name = "hack/image", bin_name = "hack/image")]
struct Options {
    /// Archive to write; default: target/image/nri-cpu-manager-VERSION.tar
    file: Option<PathBuf>,
    /// One image for these platforms: linux/amd64,linux/arm64; default: this machine's alone
    #[arg(long, value_delimiter = ',')]
    platform: Vec<Platform>,
}

const DIRECTORY: &str = "target/image";

/// The archive of `hack/image` without arguments.
fn default_archive() -> String {
    format!("{DIRECTORY}/nri-cpu-manager-{}.tar", env!("CARGO_PKG_VERSION"))
}

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hack/image: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the path and the digest.
fn run(options: Options) -> Result<()> {
    let path = match options.file {
        Some(file) => file,
        None => {
            std::fs::create_dir_all(DIRECTORY)
                .with_context(|| format!("cannot create {DIRECTORY}"))?;
            default_archive().into()
        }
    };
    let mut platforms = options.platform;
    if platforms.is_empty() {
        platforms.push(Platform::HERE);
    }
    let mut programs = Vec::new();
    for platform in platforms {
        let built = image::hack_build(Path::new("."), platform, &[])?;
        programs.push((platform, Programs::within(&built)));
    }
    let digest = image::write_plugin(&path, &programs)?;
    println!("{}\n{NAME}@{digest}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the commands of the README load is what `hack/image` has made.
    #[test]
    fn the_readme_loads_this_archive() {
        let readme = include_str!("../../README.md");
        let archive = default_archive();
        let file = archive.strip_prefix("target/image/").unwrap();
        for archive in [archive.as_str(), file] {
            let command = format!("\n# ctr --namespace k8s.io images import {archive}\n");
            assert!(readme.contains(&command), "README.md has no line{command}");
        }
    }

    #[test]
    fn the_commands_on_the_pages_are_accepted() {
        let pages = [
            include_str!("../../README.md"),
            include_str!("../../CONTRIBUTING.md"),
            include_str!("../../docs/install.md"),
            include_str!("../../docs/quickstart.md"),
        ];
        let spans = pages.iter().flat_map(|page| page.split(['`', '\n']));
        let mut found = 0;
        for span in spans {
            let command = span.trim_start_matches(['$', '#', ' ']);
            // An explanation follows.
            let command = command.split(" #").next().unwrap();
            if command.split_whitespace().next() == Some("hack/image") {
                found += 1;
                Options::try_parse_from(command.split_whitespace()).unwrap();
            }
        }
        assert!(found > 5, "only {found} commands found");
    }
}
