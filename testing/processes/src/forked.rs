//! What happens to handles in a forked child.

use std::path::Path;

use corewire::{CreateError, Domain, JoinError, ReceiveError, SendError};

use crate::{Options, Outcome};

pub(crate) fn run(domain: &Domain, options: &Options, directory: &Path) -> Outcome {
    let mut sender = domain.sender(&options.channel).create()?;
    let mut receiver = domain.receiver(&options.channel).join()?;
    sender.send(b"before")?;
    // SAFETY: the child uses only what corewire allows after a fork, and ends with `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_right = sender.send(b"from the child") == Err(SendError::Forked)
            && receiver.receive().map(|message| message.len()) == Err(ReceiveError::Forked)
            && matches!(domain.sender("other").create(), Err(CreateError::Forked))
            && matches!(domain.receiver(&options.channel).join(), Err(JoinError::Forked))
            && child_can_start_anew(directory, &options.channel);
        drop((sender, receiver));
        // SAFETY: ends the child without running its parent's exit handlers.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    if status != 0 {
        return Err(format!("the child ended with {status:#x}").into());
    }
    // The parent's channel must be undisturbed.
    sender.send(b"after")?;
    let first = receiver.receive()?.to_vec();
    let second = receiver.receive()?.to_vec();
    if first != b"before" || second != b"after" || sender.receivers() != 1 {
        return Err("the fork disturbed the parent's channel".into());
    }
    println!("forked well");
    Ok(())
}

/// The child opens the domain again and joins its parent's channel, as any other process does.
fn child_can_start_anew(directory: &Path, channel: &str) -> bool {
    let Ok(domain) = Domain::open_at(directory) else { return false };
    let Ok(receiver) = domain.receiver(channel).join() else { return false };
    let Ok(mut own) = domain.sender("of-the-child").create() else { return false };
    own.send(b"x").is_ok() && receiver.next_sequence() == 1
}
