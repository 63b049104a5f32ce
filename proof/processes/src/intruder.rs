//! A guest that tries to write the sender's memory, by every means that the kernel offers to a
//! process that has a descriptor of it or knows the sender's process.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;
use std::ptr;

use corewire_layout::frame::Frame;
use corewire_layout::segment::BELL;
use corewire_os::fork::Descriptor;
use corewire_os::process;

use crate::Outcome;
use crate::by_hand::{Joined, Wishes, join};

/// Joins by hand, tries everything, prints the result of each attempt, then leaves.
pub(crate) fn run(directory: &Path, channel: &str) -> Outcome {
    // A process that has changed its user may not open its own /proc/self/mem unless it sets this
    // flag.
    // SAFETY: integer arguments only.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
    let Joined { socket, descriptors, .. } = join(directory, channel, Wishes::default())?;
    let [segment, sender_life] = <[Descriptor; 2]>::try_from(descriptors)
        .map_err(|found| format!("{} descriptors", found.len()))?;
    println!("joined");
    let status = rustix::fs::fstat(&segment)?;
    let target = Target {
        descriptor: segment.as_fd().as_raw_fd(),
        bytes: usize::try_from(status.st_size)?,
        sender: libc::pid_t::try_from(socket.peer()?.pid)?,
        sender_life: sender_life.as_fd().as_raw_fd(),
    };
    target.try_all()?;
    socket.send(&Frame::Leave, &[])?;
    println!("tried");
    Ok(())
}

/// What the intruder tries to write.
struct Target {
    descriptor: RawFd,
    bytes: usize,
    sender: libc::pid_t,
    sender_life: RawFd,
}

/// Prints whether a call that must fail has failed.
fn refused(what: &str, is_refused: bool) {
    let error = io::Error::last_os_error();
    if is_refused { println!("refused {what}: {error}") } else { println!("DONE {what}") }
}

const JUNK: [u8; 64] = [0x5a; 64];

impl Target {
    fn map(&self, descriptor: RawFd, protection: i32, flags: i32) -> *mut libc::c_void {
        // SAFETY: a new mapping, at an address that the kernel chooses.
        unsafe { libc::mmap(ptr::null_mut(), self.bytes, protection, flags, descriptor, 0) }
    }

    fn try_all(&self) -> Outcome {
        self.write("the descriptor", self.descriptor);
        self.change();
        let path = CString::new(format!("/proc/self/fd/{}", self.descriptor))?;
        // SAFETY: a path with its terminating zero.
        let again = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        // Opening the memory again may be allowed. The seals belong to the memory, not to the
        // descriptor.
        if again < 0 {
            refused("to open it again", true);
        } else {
            self.write("it opened again", again);
        }
        self.through_its_map()?;
        self.through_the_sender();
        Ok(())
    }

    /// Tries to write through a descriptor.
    fn write(&self, what: &str, descriptor: RawFd) {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let at = self.map(descriptor, both, libc::MAP_SHARED);
        refused(&format!("to map {what} for writing"), at == libc::MAP_FAILED);
        let at = self.map(descriptor, libc::PROT_WRITE, libc::MAP_SHARED_VALIDATE);
        refused(&format!("to map {what} for writing alone"), at == libc::MAP_FAILED);
        let junk = JUNK.as_ptr().cast();
        // SAFETY: the source bytes are valid for this length.
        let done = unsafe { libc::pwrite(descriptor, junk, JUNK.len(), 4096) };
        refused(&format!("to pwrite {what}"), done < 0);
        // SAFETY: the source bytes are valid for this length.
        let done = unsafe { libc::write(descriptor, junk, JUNK.len()) };
        refused(&format!("to write {what}"), done < 0);
        let source = fs::File::open("/proc/self/exe").map_or(-1, |file| {
            // SAFETY: integer arguments; the file stays open during the call.
            unsafe { libc::sendfile64(descriptor, file.as_raw_fd(), ptr::null_mut(), 64) }
        });
        refused(&format!("to send a file to {what}"), source < 0);
        let done = rustix::pipe::pipe().map_or(-1, |(reader, writer)| {
            let _ = rustix::io::write(&writer, &JUNK);
            let none = ptr::null_mut();
            // SAFETY: integer arguments; the pipe stays open during the call.
            unsafe { libc::splice(reader.as_raw_fd(), none, descriptor, none, 64, 0) }
        });
        refused(&format!("to splice into {what}"), done < 0);
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: integer arguments only.
        let done = unsafe { libc::fallocate(descriptor, punch, 0, 4096) };
        refused(&format!("to punch a hole into {what}"), done < 0);
        let zero = libc::FALLOC_FL_ZERO_RANGE;
        // SAFETY: integer arguments only.
        let done = unsafe { libc::fallocate(descriptor, zero, 0, 4096) };
        refused(&format!("to zero a part of {what}"), done < 0);
        let size = libc::off_t::try_from(self.bytes).unwrap_or(0);
        for length in [0, size - 4096, size + 4096] {
            // SAFETY: integer arguments only.
            let done = unsafe { libc::ftruncate(descriptor, length) };
            refused(&format!("to make {what} {length} bytes long"), done < 0);
        }
    }

    /// Tries to change the properties of the memory.
    fn change(&self) {
        for seals in [0, libc::F_SEAL_WRITE, libc::F_SEAL_SEAL] {
            // SAFETY: integer arguments only.
            let done = unsafe { libc::fcntl(self.descriptor, libc::F_ADD_SEALS, seals) };
            refused("to add a seal", done < 0);
        }
        // SAFETY: integer arguments only.
        let done = unsafe { libc::fchmod(self.descriptor, 0) };
        refused("to change its mode", done < 0);
    }

    /// Tries to write through the map that it is allowed to have.
    fn through_its_map(&self) -> Outcome {
        let map = self.map(self.descriptor, libc::PROT_READ, libc::MAP_SHARED);
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        let header = |at: *mut libc::c_void| {
            let mut copy = [0; BELL];
            // SAFETY: mapped readable; the header was written before the memory was handed out and
            // never changes.
            unsafe { ptr::copy_nonoverlapping(at.cast::<u8>(), copy.as_mut_ptr(), BELL) };
            copy
        };
        let before = header(map);
        let both = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: this process's own mapping.
        let done = unsafe { libc::mprotect(map, self.bytes, both) };
        refused("to make its map writable", done < 0);
        // SAFETY: this process's own mapping.
        let done = unsafe { libc::madvise(map, self.bytes, libc::MADV_REMOVE) };
        refused("to remove what it maps", done < 0);
        for (what, advice) in [("free", libc::MADV_FREE), ("prefault", libc::MADV_POPULATE_WRITE)] {
            // SAFETY: this process's own mapping.
            let done = unsafe { libc::madvise(map, self.bytes, advice) };
            refused(&format!("to {what} what it maps"), done < 0);
        }
        let memory = fs::OpenOptions::new().write(true).open("/proc/self/mem");
        let done = memory.and_then(|memory| {
            use std::os::unix::fs::FileExt;
            memory.write_at(&JUNK, map.addr() as u64)
        });
        refused("to write its map through /proc/self/mem", done.is_err());
        let own = libc::pid_t::try_from(process::pid())?;
        refused("process_vm_writev onto its map", !write_into(own, map));
        // This is allowed, and has no effect on other processes.
        // SAFETY: this process's own mapping.
        let _ = unsafe { libc::madvise(map, self.bytes, libc::MADV_DONTNEED) };
        let private = self.map(self.descriptor, both, libc::MAP_PRIVATE);
        if private != libc::MAP_FAILED {
            // SAFETY: a private mapping of this process, longer than the bytes that are copied.
            unsafe { ptr::copy_nonoverlapping(JUNK.as_ptr(), private.cast::<u8>(), JUNK.len()) };
        }
        refused("to change anything by a private map", header(map) == before);
        Ok(())
    }

    /// Tries to write through the sender's process, and to get its descriptors.
    fn through_the_sender(&self) {
        let path = format!("/proc/{}/mem", self.sender);
        refused(
            "to open the sender's memory",
            fs::OpenOptions::new().write(true).open(path).is_err(),
        );
        refused("process_vm_writev into the sender", !write_into(self.sender, ptr::null_mut()));
        // SAFETY: integer arguments only.
        let done = unsafe { libc::ptrace(libc::PTRACE_SEIZE, self.sender, 0, 0) };
        refused("to trace the sender", done < 0);
        for number in 3..20 {
            // SAFETY: integer arguments only.
            let done = unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.sender_life, number, 0) };
            if done >= 0 {
                refused("a descriptor of the sender's", false);
            }
        }
        refused("the sender's descriptors", true);
    }
}

fn write_into(process: libc::pid_t, at: *mut libc::c_void) -> bool {
    let junk = libc::iovec { iov_base: JUNK.as_ptr().cast_mut().cast(), iov_len: JUNK.len() };
    let there = libc::iovec { iov_base: at, iov_len: JUNK.len() };
    // SAFETY: one vector on each side; the kernel checks the other process's address.
    let done =
        unsafe { libc::process_vm_writev(process, &raw const junk, 1, &raw const there, 1, 0) };
    done >= 0
}
