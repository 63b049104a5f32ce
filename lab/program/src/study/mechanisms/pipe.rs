//! Pipes (ZIMP, II-A3): one for each receiver.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use super::{Kept, Kind, Mechanism, Receives, Seat, Sends, Shape, Site};
use crate::study::failure::{Doing, Failure};

/// Largest write that is not interleaved with the writes of other processes (`PIPE_BUF`).
const WHOLE_BYTES_MAX: usize = 4096;

pub(crate) struct Pipes;

/// The sending end: one pipe to each receiver, named or not.
pub(crate) struct Sender {
    pipes: Vec<File>,
    message: Vec<u8>,
}

/// The receiving end.
pub(crate) struct Receiver {
    pipe: File,
    message: Vec<u8>,
}

impl Mechanism for Pipes {
    type Sender = Sender;
    type Receiver = Receiver;
    const NAME: &'static str = "Pipes";
    const KIND: Kind = Kind::Kernel;
    const HAS_MANY_SENDERS: bool = true;

    fn settings() -> String {
        "blocking, the kernel's own capacity (64 KiB)".to_owned()
    }

    fn limit(shape: Shape) -> Option<String> {
        limit(shape)
    }

    fn set_up(site: &mut Site) -> Result<Kept, Failure> {
        let make = |_| rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let pipes: Vec<_> =
            site.receivers().map(make).collect::<Result<_, _>>().doing("make a pipe")?;
        let own = std::process::id();
        let path = |end: &OwnedFd| format!("/proc/{own}/fd/{}", end.as_raw_fd());
        site.ticket = pipes.iter().map(|(_, writing)| path(writing)).collect();
        site.ticket.extend(pipes.iter().map(|(reading, _)| path(reading)));
        Ok(Box::new(pipes))
    }

    fn sender(site: &Site, _: u32, _: Seat<'_>) -> Result<Sender, Failure> {
        let paths = site.receivers().map(|receiver| site.entry(receiver as usize).map(Path::new));
        Sender::open(site, paths.collect::<Result<_, _>>()?)
    }

    fn receiver(site: &Site, index: u32, _: Seat<'_>) -> Result<Receiver, Failure> {
        let path = site.entry((site.shape.receivers + index) as usize)?;
        Receiver::open(site, Path::new(path))
    }
}

/// The limit of both kinds of pipes.
pub(super) fn limit(shape: Shape) -> Option<String> {
    let is_mixed = shape.senders > 1 && shape.bytes > WHOLE_BYTES_MAX;
    is_mixed.then(|| {
        format!("pipes keep several senders' messages apart up to {WHOLE_BYTES_MAX} bytes")
    })
}

impl Sender {
    pub(super) fn open(site: &Site, paths: Vec<impl AsRef<Path>>) -> Result<Self, Failure> {
        let open = |path| OpenOptions::new().write(true).open(path);
        let pipes = paths.into_iter().map(open).collect::<Result<_, _>>();
        Ok(Self { pipes: pipes.doing("open a pipe")?, message: vec![0; site.shape.bytes] })
    }
}

impl Receiver {
    pub(super) fn open(site: &Site, path: &Path) -> Result<Self, Failure> {
        let pipe = File::open(path).doing("open a pipe")?;
        Ok(Self { pipe, message: vec![0; site.shape.bytes] })
    }
}

impl Sends for Sender {
    fn send(&mut self, write: impl FnOnce(&mut [u8])) -> Result<(), Failure> {
        write(&mut self.message);
        for pipe in &mut self.pipes {
            pipe.write_all(&self.message).doing("write to a pipe")?;
        }
        Ok(())
    }
}

impl Receives for Receiver {
    fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R, Failure> {
        self.pipe.read_exact(&mut self.message).doing("read from a pipe")?;
        Ok(read(&self.message))
    }
}
