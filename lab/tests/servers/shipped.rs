//! The default install: what `hack/test` runs without `--all`.

use lab::cgroup::Driver;
use lab::containerd::Version;
use lab::job::Software;

use crate::part::{machine, play, scenarios};

/// The manifests' pod with its default rights, `exclusivity: auto`, systemd as the cgroup driver,
/// several uncore caches.
#[test]
fn the_default_install_passes() {
    let machine = machine("kep-4800-small");
    let software = Software { driver: Driver::Systemd, ..Version::V2_1.into() };
    let names = ["machine", "churn", "exposed-file", "plugin-restart", "drift", "new-pods"];
    play(&machine, software, &scenarios(&machine, &names));
}
