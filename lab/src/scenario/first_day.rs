//! An operator's first day: the plugin observes, enforces, follows a change, and is uninstalled. Each step is previewed,
//! and the processes must then run where the preview has said.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cpuset::CpuSet;
use status::outlook::{AssignmentEffect, Outlook};

use super::guaranteed;
use super::shape::Shape;
use crate::command::poll;
use crate::invariants::parse;
use crate::pod::{Container, Pod};
use crate::testbed::{Testbed, says};

/// For a change to be read and carried out, on emulated CPUs.
const FOLLOWED: Duration = Duration::from_secs(30);

/// Seconds for two check passes.
const CHECKED_TWICE: u64 = 21;

pub(super) fn first_day(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    testbed.start(&Pod::new("best", [Container::best_effort("main")]))?;
    testbed.shared("web")?;
    testbed.exclusive("db", 1)?;
    testbed.start_plugin(&shape.config("mode: observe"))?;
    testbed
        .start(&Pod::new("cache", [guaranteed("main", 1), Container::guaranteed("side", 500)]))?;
    testbed.wait(CHECKED_TWICE);
    for container in testbed.look()?.containers {
        let allowed = parse(&container.allowed);
        ensure!(allowed == shape.online, "{} may run on {allowed}", container.pod);
    }
    says(&testbed.status()?, &["mode observe"])?;

    change(testbed, &shape.config(""))?;
    testbed
        .wait_for("time on this node: 2 containers pinned, 0 moved, 4 shared pods narrowed", 1)?;
    testbed.wait(CHECKED_TWICE);
    let enforced = testbed.view()?;
    testbed.logs_no_warning()?;

    let more = Shape { reserved: shape.reserved | parse(enforced.allowed("db")), ..shape.clone() };
    change(testbed, &more.config(""))?;
    testbed.invariants().reserved = more.reserved;
    testbed.view()?;

    let kept = testbed.uninstall_outlook(false)?;
    let freed = testbed.uninstall_outlook(true)?;
    testbed.uninstall()?;
    testbed.revert(false)?;
    comes_true(testbed, &kept)?;
    testbed.revert(true)?;
    comes_true(testbed, &freed)
}

fn change(testbed: &mut Testbed<'_>, config: &str) -> Result<()> {
    let outlook = testbed.outlook(config)?;
    testbed.swap_config(config)?;
    comes_true(testbed, &outlook)?;
    // Cgroups do not wait for the state file.
    testbed.settles(CHECKED_TWICE, &[])
}

fn comes_true(testbed: &mut Testbed<'_>, outlook: &Outlook) -> Result<()> {
    testbed.begin("wait until containers run as previewed");
    let own = outlook.assignments.iter().map(|one| {
        let then = match one.effect {
            AssignmentEffect::Stays => one.cpus,
            AssignmentEffect::Moves { to, .. }
            | AssignmentEffect::Pinned { to, .. }
            | AssignmentEffect::Unprotected { to } => to,
            AssignmentEffect::Shares { .. } | AssignmentEffect::Refused { .. } => {
                outlook.shared_then
            }
        };
        ((one.pod.as_str(), one.container.as_str()), then)
    });
    let own: BTreeMap<_, CpuSet> = own.collect();
    let mut wrong = String::new();
    poll(FOLLOWED, || {
        let view = testbed.look()?;
        let unforeseen = view.containers.iter().find(|container| {
            let foreseen = own.get(&(container.pod.as_str(), container.container.as_str()));
            parse(&container.allowed) != *foreseen.unwrap_or(&outlook.shared_then)
        });
        let Some(one) = unforeseen else { return Ok(Some(())) };
        wrong =
            format!("{}/{} may run on {}, unlike\n{outlook}", one.pod, one.container, one.allowed);
        Ok(None)
    })?
    .context(wrong)
}
