//! ZeroMQ over `ipc://`: PUB and SUB, both of which keep the newest message only (`ZMQ_CONFLATE`).

use std::path::{Path, PathBuf};

use super::super::prelude::*;
use super::{Reads, Writes};
use crate::rivals::zeromq::{Kind, Socket};

fn path(directory: &Path) -> PathBuf {
    directory.join("zeromq-latest")
}

pub(super) struct Writer(Socket);

impl Writer {
    pub(super) fn new(crew: &Crew, cpus: &[usize]) -> Result<Self, Failure> {
        let socket = Socket::open(cpus, Kind::Pub)?;
        socket.conflate()?;
        socket.bind(&path(crew.directory()))?;
        Ok(Self(socket))
    }
}

impl Writes for Writer {
    #[inline(always)]
    fn set(&mut self, value: &[u8]) -> Result<(), Failure> {
        self.0.send(value, false)
    }
}

pub(super) struct Reader {
    socket: Socket,
    value: Vec<u8>,
}

impl Reader {
    pub(super) fn new(options: &Options, worker: &Worker, cpus: &[usize]) -> Result<Self, Failure> {
        let socket = Socket::open(cpus, Kind::Sub)?;
        socket.conflate()?;
        socket.subscribe()?;
        socket.connect(&path(worker.directory()))?;
        Ok(Self { socket, value: vec![0; options.bytes] })
    }
}

impl Reads for Reader {
    #[inline(always)]
    fn get<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, Failure> {
        let length = self.socket.try_receive(&mut self.value)?;
        Ok(length.map(|length| read(&self.value[..length])))
    }
}
