//! What benches share that measure other systems, too.

use super::prelude::*;

/// How long workers may take for a block.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// After this it is looked whether they run.
const LOOKS_AFTER: Duration = Duration::from_secs(1);

/// The other systems that are here.
pub(super) struct Rivals {
    pub(super) zeromq: bool,
    pub(super) iceoryx2: bool,
    /// A sentence for what is missing.
    pub(super) missing: Option<String>,
}

impl Rivals {
    #[cfg(feature = "rivals")]
    pub(super) fn look() -> Self {
        let zeromq = crate::rivals::zeromq::version();
        let missing = zeromq.as_ref().err().map(|failure| failure.message.clone());
        Self { zeromq: zeromq.is_ok(), iceoryx2: true, missing }
    }

    /// There are none in this program.
    #[cfg(not(feature = "rivals"))]
    pub(super) fn look() -> Self {
        Self { zeromq: false, iceoryx2: false, missing: Some(super::NO_RIVALS.to_owned()) }
    }
}

/// Waits until so many workers have reached a step. Where that takes longer than `first`, and then twice as long, and so on,
/// calls `again`: what has told them may be lost.
pub(super) fn await_step(
    crew: &mut Crew,
    workers: usize,
    step: u64,
    first: Duration,
    mut again: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (start, mut next) = (Instant::now(), first);
    while !(0..workers).all(|worker| crew.board().has_reached(worker, step)) {
        // A worker may need this processor.
        std::thread::yield_now();
        let elapsed = start.elapsed();
        if elapsed > next {
            again()?;
            next = 2 * next.max(Duration::from_millis(1));
        }
        // After the last block the first worker ends before the others.
        if elapsed > LOOKS_AFTER {
            crew.look()?;
        }
        if elapsed > PATIENCE {
            return Err(Failure::other("a worker has not ended its block in time"));
        }
    }
    Ok(())
}
