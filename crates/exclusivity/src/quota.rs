//! CFS quotas of the ledger's containers.

use cgroups::{FileError, Hierarchy, LiftedQuotas};
use ledger::{Claim, Target};

/// Lifts an exclusive container's own CFS quota, after the runtime has ignored the request.
pub fn lift_quota(on: &Hierarchy, target: &Target) -> Result<(), FileError> {
    match &target.cgroup {
        Some(group) if target.setting.is_exclusive() => cgroups::lift_quota(on, group),
        _ => Ok(()),
    }
}

/// The quotas that a removal of the plugin restores: only claims record what these were.
pub fn lifted_quotas(claims: &[Claim]) -> LiftedQuotas {
    claims.iter().filter_map(lifted).collect()
}

fn lifted(claim: &Claim) -> Option<(String, String)> {
    let (quota, period) = claim.cpu.limit?.quota();
    Some((claim.id.0.to_string(), format!("{quota} {period}")))
}
