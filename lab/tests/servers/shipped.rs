//! The default install: what `hack/test` runs without `--all`.

use lab::cgroup::Driver;
use lab::containerd::Version;
use lab::job::Software;

use crate::pass;

/// The manifests' pod with its default rights, `exclusivity: auto`, systemd as the cgroup driver,
/// several uncore caches.
#[test]
fn the_default_install_passes() {
    let software = Software { driver: Driver::Systemd, ..Version::V2_1.into() };
    pass("kep-4800-small", software, "", "machine,churn,exposed-file,restarts,drift,new-pods");
}
