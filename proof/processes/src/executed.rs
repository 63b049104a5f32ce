//! What is left in a process that executes another program.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use corewire::Domain;

use crate::{Options, Outcome};

/// Creates a channel and an endpoint with the peer `watcher`, joins the channel `watched`, and executes a program that prints what it still has.
pub(crate) fn execute(domain: &Domain, options: &Options, directory: &Path) -> Outcome {
    let builder = domain.sender(&options.channel);
    let _sender = match options.is_shared {
        false => (Some(builder.create()?), None),
        true => (None, Some(builder.open_shared(2)?)),
    };
    let _own = domain.receiver(&options.channel).join()?;
    let _watched = domain.receiver("watched").join()?;
    let mut endpoint = domain.endpoint("exec").create()?;
    endpoint.peer("watcher")?;
    println!("created");
    std::io::stdin().read_line(&mut String::new())?;
    let error =
        Command::new("/proc/self/exe").arg("left").arg(directory).arg(&options.channel).exec();
    Err(error.into())
}

/// Prints the open descriptors of the kinds that a domain has, and the maps of memory files. (The
/// process that started the first program may have passed it other descriptors.)
pub(crate) fn say_what_is_left(directory: &Path) -> Outcome {
    let mut left = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let target = std::fs::read_link(entry?.path())?;
        let text = target.to_string_lossy();
        let kinds = ["/memfd:", "socket:", "anon_inode:"];
        if target.starts_with(directory) || kinds.iter().any(|kind| text.starts_with(kind)) {
            left.push(text.into_owned());
        }
    }
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    left.extend(maps.lines().filter(|line| line.contains("memfd:")).map(str::to_owned));
    println!("left {left:?}");
    // Keeps the process alive.
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
