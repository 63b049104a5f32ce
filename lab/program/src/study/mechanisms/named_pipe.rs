//! Named pipes (ZIMP, section V): like pipes, but opened by name.

use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::pipe::{Receiver, Sender, limit};
use super::{Kept, Kind, Mechanism, Seat, Shape, Site};
use crate::study::failure::{Doing, Failure};

pub(crate) struct NamedPipes;

impl Mechanism for NamedPipes {
    type Sender = Sender;
    type Receiver = Receiver;
    const NAME: &'static str = "Named pipes";
    const KIND: Kind = Kind::Kernel;
    const HAS_MANY_SENDERS: bool = true;

    fn settings() -> String {
        "blocking, the kernel's own capacity (64 KiB)".to_owned()
    }

    fn limit(shape: Shape) -> Option<String> {
        limit(shape)
    }

    fn set_up(site: &mut Site) -> Result<Kept, Failure> {
        for receiver in site.receivers() {
            let (path, mode) = (path(site, receiver), Mode::RUSR | Mode::WUSR);
            mknodat(CWD, &path, FileType::Fifo, mode, 0).doing("make a named pipe")?;
        }
        Ok(Box::new(()))
    }

    fn sender(site: &Site, _: u32, _: Seat<'_>) -> Result<Sender, Failure> {
        Sender::open(site, site.receivers().map(|receiver| path(site, receiver)).collect())
    }

    fn receiver(site: &Site, index: u32, _: Seat<'_>) -> Result<Receiver, Failure> {
        Receiver::open(site, &path(site, index))
    }
}

fn path(site: &Site, receiver: u32) -> PathBuf {
    site.directory.join(format!("{}-{receiver}.pipe", site.number))
}
