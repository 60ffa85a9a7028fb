//! An image's name, looked up as CRI-O does. containerd takes a short name for one of Docker Hub's;
//! CRI-O, as it comes, takes it for nothing. What CRI-O finds, every runtime finds.

use anyhow::{Result, bail, ensure};

/// Finds an image among the names of those that a node has loaded.
///
/// # Errors
/// When the name is a short one, or of an image that would have to be pulled: a node of the lab
/// reaches no registry.
pub fn find(name: &str, loaded: &[String]) -> Result<()> {
    ensure!(
        is_full(name),
        "ImageInspectError: short-name {name:?} did not resolve to an alias: it names no registry"
    );
    if !loaded.iter().any(|known| known == name) {
        bail!("ErrImagePull: {name} is not loaded; the node has {}", loaded.join(", "));
    }
    Ok(())
}

/// The first component is a registry: it has a dot or a port, or is `localhost`.
fn is_full(name: &str) -> bool {
    name.split_once('/')
        .is_some_and(|(first, _)| first.contains(['.', ':']) || first == "localhost")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::shipped::NAME;

    #[test]
    fn a_short_name_is_nothing() {
        let loaded = [NAME, "docker.io/library/nri-cpu-manager:0.1.0"].map(str::to_owned);
        for short in ["nri-cpu-manager:0.1.0", "library/nri-cpu-manager:0.1.0"] {
            let error = find(short, &loaded).unwrap_err().to_string();
            assert!(error.contains("did not resolve to an alias"), "{error}");
        }
        find(NAME, &loaded).unwrap();
        for absent in ["localhost/nri-cpu-manager", "registry:5000/nri-cpu-manager:0.1.0"] {
            let error = find(absent, &loaded).unwrap_err().to_string();
            assert!(error.contains("is not loaded"), "{error}");
        }
    }
}
