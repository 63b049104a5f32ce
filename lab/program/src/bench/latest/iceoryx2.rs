//! iceoryx2: a blackboard with one entry. An entry has a type of fixed size: the smallest of some sizes that holds a value.

use corewire_harness::failure::Doing;
use iceoryx2::port::reader::EntryHandle;
use iceoryx2::port::writer::EntryHandleMut;
use iceoryx2::prelude::*;
use zerocopy::IntoBytes;

use super::super::prelude::*;
use super::{Reader, Reads, Writer, Writes};
use crate::rivals::iceoryx2::{Service, node};

/// The key of the entry.
const KEY: u64 = 0;
const NAME: &str = "latest";

/// Calls a function for the size that holds `bytes` bytes.
macro_rules! sized {
    ($bytes:expr, $function:ident($($argument:expr),*)) => {
        match $bytes {
            ..=48 => $function::<48>($($argument),*),
            ..=256 => $function::<256>($($argument),*),
            ..=4096 => $function::<4096>($($argument),*),
            _ => $function::<65536>($($argument),*),
        }
    };
}

struct Entry<const BYTES: usize> {
    /// Taken while the value is changed.
    entry: EntryHandleMut<Service, u64, [u8; BYTES]>,
    value: [u8; BYTES],
    _node: Node<Service>,
}

pub(super) fn writer(options: &Options, crew: &Crew) -> Result<Box<dyn Writer>, Failure> {
    fn of<const BYTES: usize>(options: &Options, crew: &Crew) -> Result<Box<dyn Writer>, Failure> {
        let node = node(crew.directory(), 0)?;
        let name = NAME.try_into().doing("name a service")?;
        let service = node.service_builder(&name).blackboard_creator::<u64>();
        let service = service.max_readers(options.receivers).max_nodes(options.receivers + 1);
        let service = service.add::<[u8; BYTES]>(KEY, [0; BYTES]).create();
        let service = service.doing("make an iceoryx2 blackboard")?;
        let writer = service.writer_builder().create().doing("make an iceoryx2 writer")?;
        let entry = writer.entry(&KEY).doing("write an entry")?;
        Ok(Box::new(Entry { entry, value: [0; BYTES], _node: node }))
    }
    sized!(options.bytes, of(options, crew))
}

impl<const BYTES: usize> Writes for Entry<BYTES> {
    #[inline(always)]
    fn set(&mut self, value: &[u8]) -> Result<(), Failure> {
        self.value[..value.len()].copy_from_slice(value);
        self.entry.update_with_copy(self.value);
        Ok(())
    }
}

struct Handle<const BYTES: usize> {
    entry: EntryHandle<Service, u64, [u8; BYTES]>,
    bytes: usize,
    _node: Node<Service>,
}

pub(super) fn reader(options: &Options, worker: &Worker) -> Result<Box<dyn Reader>, Failure> {
    fn of<const BYTES: usize>(
        options: &Options,
        worker: &Worker,
    ) -> Result<Box<dyn Reader>, Failure> {
        let node = node(worker.directory(), 0)?;
        let name = NAME.try_into().doing("name a service")?;
        let start = Instant::now();
        let service = loop {
            match node.service_builder(&name).blackboard_opener::<u64>().open() {
                Ok(service) => break service,
                Err(error) if start.elapsed() > super::PATIENCE => {
                    return Err(error).doing("open an iceoryx2 blackboard");
                }
                // Its writer makes it at the same time.
                Err(_) => std::thread::yield_now(),
            }
        };
        let reader = service.reader_builder().create().doing("make an iceoryx2 reader")?;
        let entry = reader.entry(&KEY).doing("read an entry")?;
        Ok(Box::new(Handle::<BYTES> { entry, bytes: options.bytes, _node: node }))
    }
    sized!(options.bytes, of(options, worker))
}

impl<const BYTES: usize> Reads for Handle<BYTES> {
    #[inline(always)]
    fn get<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, Failure> {
        let value = self.entry.get();
        Ok(Some(read(&value.as_bytes()[..self.bytes])))
    }
}
