//! Requests of a sender's data thread to its control half.

use std::sync::Arc;

use corewire_layout::frame::Frame;
use corewire_ring::sync::{AtomicU32, Ordering::Relaxed};
use corewire_ring::{Control, Kernel};

use super::{Owner, Readiness};
use crate::guard::lock;

/// Requests of a sender's data thread to its control half.
pub(crate) struct SenderControl {
    owner: Arc<Owner>,
    /// 1 while the control thread has been asked to wake the remaining sleepers.
    is_waking: Arc<AtomicU32>,
}

impl SenderControl {
    pub(crate) fn new(owner: &Arc<Owner>) -> Self {
        Self { owner: Arc::clone(owner), is_waking: Arc::new(AtomicU32::new(0)) }
    }
}

impl Control for SenderControl {
    fn wake_descriptor(&self, row: u32) {
        if let Some(link) = lock(&self.owner.state).links.get(&row) {
            match &link.readiness {
                Readiness::None => {}
                Readiness::Bell(bell) => bell.ring(),
                // A full socket already holds enough of these frames.
                Readiness::Frames => drop(link.socket.send(&Frame::Ring, &[])),
            }
        }
    }

    fn wake_rest(&self) {
        if self.is_waking.fetch_or(1, Relaxed) == 1 {
            return;
        }
        let is_waking = Arc::clone(&self.is_waking);
        let owner = self.owner.this.clone();
        self.owner.hub().run_soon(move || {
            is_waking.store(0, Relaxed);
            if let Some(owner) = owner.upgrade() {
                owner.linux.wake(owner.words.bell(), u32::MAX >> 1);
            }
        });
    }
}
