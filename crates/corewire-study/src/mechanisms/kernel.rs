//! What the C library has and no safe library wraps: System V message queues, and POSIX semaphores in
//! shared memory. The only unsafe code of the study but for one line of iceoryx2's.

use std::io;

use corewire_ring::region::Region;

/// A System V message queue.
#[derive(Debug)]
pub(super) struct Queue(libc::c_int);

/// A queue that goes when this is dropped.
#[derive(Debug)]
pub(super) struct OwnedQueue(pub(super) Queue);

/// A message as the kernel wants it: its type, which is 1, then its bytes, in whole words.
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
    /// One of nobody's yet.
    pub(super) fn create() -> io::Result<OwnedQueue> {
        // SAFETY: takes numbers only.
        let id = unsafe { libc::msgget(libc::IPC_PRIVATE, libc::IPC_CREAT | 0o600) };
        check(id)?;
        Ok(OwnedQueue(Self(id)))
    }

    /// Has it hold `bytes` bytes.
    pub(super) fn set_capacity(&self, bytes: usize) -> io::Result<()> {
        let mut settings = std::mem::MaybeUninit::<libc::msqid_ds>::zeroed();
        // SAFETY: room for the settings, which are numbers: all zeroes are some, too.
        check(unsafe { libc::msgctl(self.0, libc::IPC_STAT, settings.as_mut_ptr()) })?;
        // SAFETY: as above, and filled in.
        let mut settings = unsafe { settings.assume_init() };
        settings.msg_qbytes = bytes as libc::msglen_t;
        // SAFETY: only read.
        check(unsafe { libc::msgctl(self.0, libc::IPC_SET, &raw mut settings) })
    }

    /// The queue of that number.
    pub(super) fn of(id: libc::c_int) -> Self {
        Self(id)
    }

    pub(super) fn id(&self) -> libc::c_int {
        self.0
    }

    /// Waits for room.
    pub(super) fn send(&self, message: &QueueMessage) -> io::Result<()> {
        let start = message.words.as_ptr();
        // SAFETY: the words are a type and `bytes` bytes.
        check(unsafe { libc::msgsnd(self.0, start.cast(), message.bytes, 0) })
    }

    /// Waits for a message, at most as long as `message` is.
    pub(super) fn receive(&self, message: &mut QueueMessage) -> io::Result<()> {
        let start = message.words.as_mut_ptr();
        // SAFETY: there is room for a type and `bytes` bytes.
        let got = unsafe { libc::msgrcv(self.0, start.cast(), message.bytes, 0, 0) };
        if got < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        // SAFETY: takes numbers only; the last argument is not looked at.
        unsafe { libc::msgctl(self.0.0, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

/// A semaphore that processes share, at an offset of memory that all have mapped.
#[derive(Debug)]
pub(super) struct Semaphore {
    memory: Region,
    at: usize,
}

impl Semaphore {
    /// Bytes that one takes, in lines.
    pub(super) const BYTES: usize = size_of::<libc::sem_t>().next_multiple_of(64);

    /// The semaphore at `at`, which has been initialised.
    ///
    /// # Panics
    /// If it does not lie in the memory, or not at a line.
    pub(super) fn at(memory: &Region, at: usize) -> Self {
        assert!(at.is_multiple_of(64) && at + Self::BYTES <= memory.bytes(), "own offset");
        Self { memory: memory.clone(), at }
    }

    fn pointer(&self) -> *mut libc::sem_t {
        let (base, _) = self.memory.address();
        // SAFETY: inside the memory, as `at` has made sure.
        unsafe { base.add(self.at) }.cast().as_ptr()
    }

    /// Makes it one of value `value`.
    pub(super) fn initialise(&self, value: u32) -> io::Result<()> {
        // SAFETY: room for one, in memory that nobody uses yet.
        check(unsafe { libc::sem_init(self.pointer(), 1, value) })
    }

    /// Takes one, waiting for it.
    pub(super) fn wait(&self) -> io::Result<()> {
        loop {
            // SAFETY: initialised, and mapped while `memory` lives.
            let result = check(unsafe { libc::sem_wait(self.pointer()) });
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Gives one.
    pub(super) fn post(&self) -> io::Result<()> {
        // SAFETY: as above.
        check(unsafe { libc::sem_post(self.pointer()) })
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
