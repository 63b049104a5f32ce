//! Functions of the C library that no safe library wraps: System V message queues, and POSIX semaphores
//! in shared memory. Other unsafe code of the study is in `count`, `iceoryx2`,
//! `shared_memory_semaphores`, `nemesis` and `transfer`.

use std::io;

use corewire_ring::region::Region;

/// A System V message queue.
#[derive(Debug)]
pub(super) struct Queue(libc::c_int);

/// A queue that is removed on drop.
#[derive(Debug)]
pub(super) struct OwnedQueue(pub(super) Queue);

/// A message in the kernel's format: its type, which is 1, then its bytes, padded to whole words.
#[derive(Debug)]
pub(super) struct QueueMessage {
    words: Vec<u64>,
    bytes: usize,
}

impl QueueMessage {
    pub(super) fn new(bytes: usize) -> Self {
        let mut words = vec![0; 1 + bytes.div_ceil(8)];
        words[0] = 1;
        Self { words, bytes }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &zerocopy::IntoBytes::as_bytes(&self.words[1..])[..self.bytes]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut zerocopy::IntoBytes::as_mut_bytes(&mut self.words[1..])[..self.bytes]
    }
}

impl Queue {
    /// Creates a private queue.
    pub(super) fn create() -> io::Result<OwnedQueue> {
        // SAFETY: the call takes numbers only.
        let id = unsafe { libc::msgget(libc::IPC_PRIVATE, libc::IPC_CREAT | 0o600) };
        check(id)?;
        Ok(OwnedQueue(Self(id)))
    }

    /// Sets the capacity of the queue to `bytes` bytes.
    pub(super) fn set_capacity(&self, bytes: usize) -> io::Result<()> {
        let mut settings = std::mem::MaybeUninit::<libc::msqid_ds>::zeroed();
        // SAFETY: the pointer has room for the settings, whose fields are numbers, so all zeroes are
        // valid.
        check(unsafe { libc::msgctl(self.0, libc::IPC_STAT, settings.as_mut_ptr()) })?;
        // SAFETY: as above, and the call has filled it in.
        let mut settings = unsafe { settings.assume_init() };
        settings.msg_qbytes = bytes as libc::msglen_t;
        // SAFETY: the call only reads the settings.
        check(unsafe { libc::msgctl(self.0, libc::IPC_SET, &raw mut settings) })
    }

    /// The existing queue with this id.
    pub(super) fn of(id: libc::c_int) -> Self {
        Self(id)
    }

    pub(super) fn id(&self) -> libc::c_int {
        self.0
    }

    /// Sends a message. Blocks while the queue is full.
    pub(super) fn send(&self, message: &QueueMessage) -> io::Result<()> {
        let start = message.words.as_ptr();
        // SAFETY: the words hold a type and `bytes` bytes.
        check(unsafe { libc::msgsnd(self.0, start.cast(), message.bytes, 0) })
    }

    /// Receives a message of at most the length of `message`. Blocks while the queue is empty.
    pub(super) fn receive(&self, message: &mut QueueMessage) -> io::Result<()> {
        let start = message.words.as_mut_ptr();
        // SAFETY: the words have room for a type and `bytes` bytes.
        let got = unsafe { libc::msgrcv(self.0, start.cast(), message.bytes, 0, 0) };
        if got < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        // SAFETY: the call takes numbers only; it ignores the last argument.
        unsafe { libc::msgctl(self.0.0, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

/// A semaphore shared by processes, at an offset of memory that all of them have mapped.
#[derive(Debug)]
pub(super) struct Semaphore {
    memory: Region,
    at: usize,
}

impl Semaphore {
    /// Size of a semaphore, in whole lines.
    pub(super) const BYTES: usize = size_of::<libc::sem_t>().next_multiple_of(64);

    /// The semaphore at offset `at`. It must be initialised before use.
    ///
    /// # Panics
    /// If it does not lie within the memory, or not at the start of a line.
    pub(super) fn at(memory: &Region, at: usize) -> Self {
        assert!(at.is_multiple_of(64) && at + Self::BYTES <= memory.bytes(), "own offset");
        Self { memory: memory.clone(), at }
    }

    fn pointer(&self) -> *mut libc::sem_t {
        let (base, _) = self.memory.address();
        // SAFETY: the offset is inside the memory; `at` has checked it.
        unsafe { base.add(self.at) }.cast().as_ptr()
    }

    /// Initialises the semaphore with `value`.
    pub(super) fn initialise(&self, value: u32) -> io::Result<()> {
        // SAFETY: there is room for a semaphore, in memory that no process uses yet.
        check(unsafe { libc::sem_init(self.pointer(), 1, value) })
    }

    /// Decrements the semaphore. Blocks while it is 0.
    pub(super) fn wait(&self) -> io::Result<()> {
        loop {
            // SAFETY: the semaphore is initialised, and mapped while `memory` lives.
            let result = check(unsafe { libc::sem_wait(self.pointer()) });
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Increments the semaphore.
    pub(super) fn post(&self) -> io::Result<()> {
        // SAFETY: as above.
        check(unsafe { libc::sem_post(self.pointer()) })
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
