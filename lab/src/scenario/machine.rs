//! The machine as described, against what Linux reports of it.

use anyhow::{Result, ensure};

use super::shape::Shape;
use crate::testbed::Testbed;

/// The machine as reported by Linux and by the plugin's reader is the one described.
pub(super) fn machine(testbed: &mut Testbed<'_>, shape: &Shape) -> Result<()> {
    let view = testbed.view()?;
    for (who, reported) in [("Linux", &view.hardware), ("the plugin's reader", &view.read)] {
        let described = &shape.hardware;
        ensure!(reported == described, "{who} reports {reported:#?}\ndescribed: {described:#?}");
    }
    Ok(())
}
