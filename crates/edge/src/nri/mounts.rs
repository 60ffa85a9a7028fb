//! Whether the files of a new container can be mounted among its own mounts.
//!
//! A mount below one that propagates to the host appears there as well, for all others, and stays when the container is
//! gone. A second mount at the same place fails the container with some runtimes.

use super::outgoing::MOUNTED;
use std::path::{Component, Path};

/// The same place in images where `/run` is a link to `/var/run`, or `/var/run` one to `/run`.
const ALSO_MOUNTED: &str = "/var/run/nri-cpu-manager";

/// The most such mounts that a container can have: images and pods have one or two.
pub(super) const MAX_MOUNTS: usize = 16;

/// Whether a mount here may be above the files, or at their place. Where a path with `..` leads is for the image to say.
pub(super) fn is_place(destination: &str) -> bool {
    let at = Path::new("/").join(destination);
    let is_above = |files: &str| Path::new(files).starts_with(&at);
    !destination.is_empty() && (is_above(MOUNTED) || is_above(ALSO_MOUNTED) || has_parents(&at))
}

/// Whether the option lets mounts below appear on the host (`mountPropagation: Bidirectional`).
pub(super) fn is_propagation(option: &str) -> bool {
    ["shared", "rshared"].contains(&option)
}

fn has_parents(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

/// Why the container that this call creates can have no files.
pub(super) fn obstacle(call: &nri::Call) -> Option<String> {
    let nri::Call::CreateContainer(pod, container) = call else { return None };
    let too_many = (container.mounts.len() > MAX_MOUNTS)
        .then(|| format!("more than {MAX_MOUNTS} mounts around them"));
    let found = container.mounts.iter().find_map(|mount| {
        let nri::wire::Mount { destination, options, .. } = mount;
        if !is_place(destination) {
            None
        } else if options.iter().any(|option| is_propagation(option)) {
            Some(format!("{destination} has mountPropagation: Bidirectional"))
        } else if [MOUNTED, ALSO_MOUNTED].iter().any(|at| Path::new(at) == Path::new(destination)) {
            Some(format!("its pod has a mount at {destination}"))
        } else {
            None
        }
    });
    let why = found.or(too_many)?;
    Some(format!("{}/{}/{}: {why}", pod.namespace, pod.name, container.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nri::projection::reads;
    use nri::wire::{Container, ContainerRequest, Mount};
    use protobuf::Message;

    /// Mounts elsewhere do not count, and are not read.
    #[test]
    fn more_mounts_than_the_bound_get_no_files() {
        let at = |destination: &str| Mount { destination: destination.into(), ..Mount::new() };
        for (around, expect) in [(MAX_MOUNTS, false), (MAX_MOUNTS + 1, true), (1000, true)] {
            let elsewhere = (0..1000).map(|number| at(&format!("/data/{number}")));
            let mounts =
                elsewhere.chain((0..around).map(|number| at(&format!("/{number}/../run"))));
            let container = Container { mounts: mounts.collect(), ..Container::new() };
            let request =
                ContainerRequest { container: Some(container).into(), ..ContainerRequest::new() };
            let bytes = request.write_to_bytes().unwrap();
            let read: ContainerRequest = reads(false).parse(&bytes).unwrap();
            let container = read.container.unwrap_or_default();
            assert!(container.mounts.len() <= MAX_MOUNTS + 1);
            let call = nri::Call::CreateContainer(Default::default(), container);
            assert_eq!(obstacle(&call).is_some(), expect, "{around}");
        }
    }
}
