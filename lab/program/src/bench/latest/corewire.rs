//! A last value of corewire.

use ::corewire::{LatestReader, LatestWriter};

use super::super::prelude::*;
use super::{PATIENCE, Reads, Writes};

const NAME: &str = "latest";

pub(super) fn writer(options: &Options, crew: &Crew) -> Result<LatestWriter, Failure> {
    Ok(crew.domain()?.latest(NAME).largest(options.bytes).create()?)
}

pub(super) fn reader(options: &Options, worker: &Worker) -> Result<LatestReader, Failure> {
    Ok(worker.domain()?.latest(NAME).wait(options.wait()).open_timeout(PATIENCE)?)
}

impl Writes for LatestWriter {
    #[inline(always)]
    fn set(&mut self, value: &[u8]) -> Result<(), Failure> {
        Ok(Self::set(self, value)?)
    }
}

impl Reads for LatestReader {
    #[inline(always)]
    fn get<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, Failure> {
        Ok(Self::get(self)?.map(read))
    }
}
