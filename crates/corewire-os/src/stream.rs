//! Connected sockets whose bytes go straight to where a message is received, and come from where it lies.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use corewire_layout::rendezvous::Stretch;
use corewire_ring::message::Sink;

/// Parts of one message that one call reads or writes at most.
const PARTS_MAX: usize = 64;

const NOTHING: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };

/// Adds the bytes `from` to `from + bytes` of these stretches to `parts`, from `count` on. Returns how many there are then.
fn add_parts(
    parts: &mut [libc::iovec; PARTS_MAX],
    mut count: usize,
    stretches: impl Iterator<Item = Stretch>,
    mut from: u64,
    mut bytes: u64,
) -> usize {
    for stretch in stretches {
        let skipped = from.min(stretch.bytes);
        from -= skipped;
        let taken = bytes.min(stretch.bytes - skipped);
        if taken == 0 {
            continue;
        }
        let Some(part) = parts.get_mut(count) else { break };
        bytes -= taken;
        let (Ok(address), Ok(length)) =
            (usize::try_from(stretch.address + skipped), usize::try_from(taken))
        else {
            break;
        };
        *part =
            libc::iovec { iov_base: ptr::with_exposed_provenance_mut(address), iov_len: length };
        count += 1;
    }
    count
}

/// Sends `head`, and then the bytes `from` to `from + bytes` of what lies at `stretches` of this process's memory. Never
/// blocks. Returns the number of bytes that the kernel has taken, which may be fewer.
///
/// The kernel reads them: what is no memory any more is an error, and nothing else.
///
/// # Errors
/// Of the system call: `WouldBlock` if there is no room, `EFAULT` as said.
pub fn send_from(
    stream: impl AsFd,
    head: &[u8],
    stretches: &[Stretch],
    from: u64,
    bytes: u64,
) -> Result<usize> {
    let mut parts = [NOTHING; PARTS_MAX];
    parts[0] = libc::iovec { iov_base: head.as_ptr().cast_mut().cast(), iov_len: head.len() };
    let first = usize::from(!head.is_empty());
    let count = add_parts(&mut parts, first, stretches.iter().copied(), from, bytes);
    // SAFETY: all zeroes is a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = count as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the kernel only reads what the parts name, and says so if it cannot.
    let sent = unsafe { libc::sendmsg(stream.as_fd().as_raw_fd(), &raw const message, flags) };
    usize::try_from(sent).map_err(|_| Error::last_os_error())
}

/// Receives up to `bytes` bytes to where the bytes of a message from `at` on go, as far as there is room. What lies before `at`
/// was received. Never blocks. Returns the number of bytes; 0 if the other side sends nothing more, or there is no room.
///
/// # Errors
/// Of the system call: `WouldBlock` if nothing has arrived. `InvalidInput` if nothing was written before `at`.
pub fn receive_to(
    stream: impl AsFd,
    sink: &mut (impl Sink + ?Sized),
    at: usize,
    bytes: usize,
) -> Result<usize> {
    let landing = sink.landing();
    if at > landing.written() {
        return Err(ErrorKind::InvalidInput.into());
    }
    let mut parts = [NOTHING; PARTS_MAX];
    let count = add_parts(&mut parts, 0, landing.stretches_all(), at as u64, bytes as u64);
    if count == 0 {
        return Ok(0);
    }
    // SAFETY: all zeroes is a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = count as _;
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: the parts are writable and nobody else's as long as the landing lives.
    let received = unsafe { libc::recvmsg(stream.as_fd().as_raw_fd(), &raw mut message, flags) };
    let received = usize::try_from(received).map_err(|_| Error::last_os_error())?;
    // SAFETY: what lies before `at` was written, which was checked, and the kernel has written so many bytes behind it.
    unsafe { landing.set_written(at + received) };
    Ok(received)
}

/// The bytes `from` to `from + bytes` of what lies at `stretches` of this process's memory. The kernel copies them: what is no
/// memory any more is an error, and nothing else.
///
/// # Errors
/// Of the system calls: `EFAULT` as said.
pub fn copy_of(stretches: &[Stretch], from: u64, bytes: u64) -> Result<Vec<u8>> {
    let length = usize::try_from(bytes).map_err(|_| Error::from(ErrorKind::InvalidInput))?;
    let mut copied = Vec::with_capacity(length);
    // A pipe of the kernel's own, as wide as it gets at once: no filter forbids that.
    let (read, write) = rustix::pipe::pipe_with(
        rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK,
    )?;
    while copied.len() < length {
        let mut parts = [NOTHING; PARTS_MAX];
        let done = copied.len() as u64;
        let count = add_parts(&mut parts, 0, stretches.iter().copied(), from + done, bytes - done);
        if count == 0 {
            return Err(ErrorKind::InvalidInput.into());
        }
        let count = libc::c_int::try_from(count).unwrap_or(libc::c_int::MAX);
        // SAFETY: the kernel only reads what the parts name, and says so if it cannot.
        let written = unsafe { libc::writev(write.as_raw_fd(), parts.as_ptr(), count) };
        let written = usize::try_from(written).map_err(|_| Error::last_os_error())?;
        let before = copied.len();
        while copied.len() < before + written {
            rustix::io::read(&read, rustix::buffer::spare_capacity(&mut copied))?;
        }
    }
    Ok(copied)
}

/// Throws up to `bytes` bytes away that have arrived. Never blocks. Returns how many.
///
/// # Errors
/// Of the system call: `WouldBlock` if nothing has arrived.
pub fn discard(stream: impl AsFd, bytes: usize) -> Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let raw = stream.as_fd().as_raw_fd();
    // SAFETY: of a TCP socket, this flag makes the kernel throw the bytes away: it writes nowhere.
    let gone = unsafe { libc::recv(raw, ptr::null_mut(), bytes, flags) };
    usize::try_from(gone).map_err(|_| Error::last_os_error())
}

/// The mean time of a round trip on a TCP connection in microseconds, as its kernel sees it, and bytes that the other side's kernel
/// has not acknowledged.
///
/// # Errors
/// Of the system calls.
pub fn state_of(stream: impl AsFd) -> Result<(u32, u32)> {
    let raw = stream.as_fd().as_raw_fd();
    // SAFETY: all zeroes is a valid value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).unwrap_or(0);
    let target = (&raw mut info).cast();
    // SAFETY: the kernel writes at most `length` bytes to the structure.
    if unsafe { libc::getsockopt(raw, libc::IPPROTO_TCP, libc::TCP_INFO, target, &raw mut length) }
        != 0
    {
        return Err(Error::last_os_error());
    }
    let mut unsent: libc::c_int = 0;
    // SAFETY: the kernel writes one number.
    if unsafe { libc::ioctl(raw, libc::TIOCOUTQ, &raw mut unsent) } != 0 {
        return Err(Error::last_os_error());
    }
    Ok((info.tcpi_rtt, u32::try_from(unsent).unwrap_or(0)))
}

/// How many bytes have arrived and were not received.
///
/// # Errors
/// Of the system call.
pub fn arrived(stream: impl AsFd) -> Result<usize> {
    let count = rustix::io::ioctl_fionread(stream)?;
    usize::try_from(count).map_err(|_| Error::from(ErrorKind::InvalidData))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use corewire_ring::message::{Memory, Source as _};

    use super::*;

    fn sockets() -> [TcpStream; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [dialled, listener.accept().unwrap().0]
    }

    #[test]
    fn parts_of_a_message_are_sent_from_where_they_lie() {
        let [from, mut to] = sockets();
        let memory = Memory::from(vec![b"abc".to_vec(), Vec::new(), b"defgh".to_vec()]);
        let mut stretches = Vec::new();
        memory.stretches(&mut |stretch| stretches.push(stretch));
        assert_eq!(send_from(&from, b"head", &stretches, 2, 4).unwrap(), 8);
        assert_eq!(send_from(&from, b"", &stretches, 0, 8).unwrap(), 8);
        let mut bytes = [0; 16];
        to.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"headcdefabcdefgh");
        assert_eq!(copy_of(&stretches, 1, 5).unwrap(), b"bcdef");
        let long = vec![7_u8; 300_000];
        let stretch = Stretch { address: long.as_ptr().expose_provenance() as u64, bytes: 300_000 };
        assert!(copy_of(&[stretch], 100, 299_900).unwrap() == long[100..]);
        assert!(copy_of(&[stretch], 100, 300_000).is_err());
        // What is no memory is an error.
        let nowhere = [Stretch { address: 4096, bytes: 10 }];
        let error = send_from(&from, b"", &nowhere, 0, 10).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
        assert_eq!(copy_of(&nowhere, 0, 10).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    }

    #[test]
    fn bytes_arrive_where_a_message_goes_and_the_rest_is_thrown_away() {
        let [mut from, to] = sockets();
        let mut memory = Memory::from(vec![vec![0; 3], vec![0; 4]]);
        let nothing = receive_to(&to, &mut memory, 0, 7).unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
        from.write_all(b"abcdefghij").unwrap();
        while arrived(&to).unwrap() < 10 {}
        assert_eq!(receive_to(&to, &mut memory, 0, 2).unwrap(), 2);
        assert_eq!(receive_to(&to, &mut memory, 2, 100).unwrap(), 5);
        assert_eq!(receive_to(&to, &mut memory, 7, 1).unwrap(), 0);
        assert_eq!(*memory.into_vec(), *b"abcdefg");
        assert_eq!(discard(&to, 2).unwrap(), 2);
        let mut vector = Vec::with_capacity(8);
        assert_eq!(receive_to(&to, &mut vector, 0, 1).unwrap(), 1);
        assert_eq!(vector, b"j");
        let (round_trip_us, unacknowledged) = state_of(&from).unwrap();
        assert!(round_trip_us < 1_000_000 && unacknowledged <= 10);
        assert_eq!(discard(&to, 1).unwrap_err().kind(), ErrorKind::WouldBlock);
        // A gap would be memory that nobody has written.
        assert_eq!(receive_to(&to, &mut vector, 2, 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
