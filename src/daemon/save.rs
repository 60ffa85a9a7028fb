//! How the owner has the claims written, and goes on when they are.

use super::owner::Owner;
use super::persist::AfterSave;
use super::step::Effect;
use crate::checkpoint::StateError;

impl Owner {
    /// Has the claims written if they have changed.
    pub(super) fn save(&mut self) {
        if self.checkpoint.begin() {
            self.effects.push(Effect::Save(self.ledger.claims().collect()));
        }
    }

    /// Goes on with this when all claims of now are on disk, or cannot be written.
    pub(super) fn after_save(&mut self, then: AfterSave) {
        if !self.checkpoint.is_pending() {
            let failed = self.checkpoint.error();
            self.show_decided();
            return self.go_on(then, failed.as_deref());
        }
        self.checkpoint.wait(then);
        self.save();
    }

    pub(super) fn save_again(&mut self) {
        self.checkpoint.changed = true;
        self.save();
    }

    /// A write of the claims has ended.
    pub(super) fn saved(&mut self, result: &Result<(), StateError>) {
        let had_failed = self.checkpoint.ended(result, self.now);
        match result {
            Ok(()) if had_failed => log::info!("checkpoint: written again"),
            Ok(()) => {}
            Err(error) => {
                self.record.counters.checkpoint_errors += 1;
                log::error!("{error}");
            }
        }
        self.show_decided();
        let failed = self.checkpoint.error();
        for then in self.checkpoint.take_due() {
            self.go_on(then, failed.as_deref());
        }
        self.save();
    }

    /// `failed`: why the claims are not on disk.
    fn go_on(&mut self, then: AfterSave, failed: Option<&str>) {
        match then {
            AfterSave::Answer(call) => self.finish(*call, failed),
            // What has been decided since is not on disk yet.
            AfterSave::Deliver if self.checkpoint.is_pending() => self.after_save(then),
            AfterSave::Deliver => self.deliver(),
            AfterSave::Move => self.move_saved(failed),
        }
    }
}
