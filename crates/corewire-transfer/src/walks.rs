//! Two lists of stretches of memory, as the system calls want them that copy from one to the other.

use corewire_layout::rendezvous::Stretch;
use libc::iovec;

/// Stretches of memory in one system call (`IOV_MAX`).
const STRETCHES_MAX: usize = 1024;
/// The longest piece that is slow, which a core's own cache holds.
pub(crate) const SLOW_BYTES_MAX: u64 = 256 << 10;

/// The two lists of one system call, of the same length in bytes.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    pub(crate) local: Vec<iovec>,
    pub(crate) remote: Vec<iovec>,
    pub(crate) bytes: u64,
    /// It is one stretch that takes a [detour](crate::detour): where it lies on both sides.
    pub(crate) slow: Option<(Stretch, Stretch)>,
}

impl Piece {
    pub(crate) fn push(&mut self, local: Stretch, remote: Stretch) {
        self.local.push(vector_of(local));
        self.remote.push(vector_of(remote));
        self.bytes += local.bytes;
    }
}

/// A stretch for a system call. Only the kernel uses the address.
#[expect(clippy::cast_possible_truncation, reason = "an address and a length of this machine")]
pub(crate) fn vector_of(stretch: Stretch) -> iovec {
    let iov_base = std::ptr::with_exposed_provenance_mut(stretch.address as usize);
    iovec { iov_base, iov_len: stretch.bytes as usize }
}

/// Two lists of stretches that are copied from one to the other, cut into pieces.
pub(crate) struct BothWalks<L, R> {
    local: Walk<L>,
    remote: Walk<R>,
    left: u64,
}

impl<L: Iterator<Item = Stretch>, R: Iterator<Item = Stretch>> BothWalks<L, R> {
    /// The `bytes` bytes from byte `from` of each on.
    pub(crate) fn new(local: L, remote: R, from: u64, bytes: u64) -> Self {
        Self { local: Walk::new(local, from), remote: Walk::new(remote, from), left: bytes }
    }

    /// The next two stretches, of the same length; `None` at the end, or if one of the lists is too short.
    pub(crate) fn next_pair(&mut self) -> Option<(Stretch, Stretch)> {
        let (ahead, _) = self.ahead()?;
        Some(self.pass(ahead.bytes))
    }

    /// Passes `bytes` bytes of what is ahead.
    fn pass(&mut self, bytes: u64) -> (Stretch, Stretch) {
        self.left -= bytes;
        (self.local.pass(bytes), self.remote.pass(bytes))
    }

    /// The next two stretches, of any length, that [`pass`](Self::pass) may pass.
    fn ahead(&mut self) -> Option<(Stretch, Stretch)> {
        let bytes = self.local.ahead().min(self.remote.ahead()).min(self.left);
        let cut = |stretch: Stretch| Stretch { bytes, ..stretch };
        (bytes > 0).then(|| (cut(self.local.current), cut(self.remote.current)))
    }

    /// Bytes that are left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// As much as fits in one call; nothing if one of the lists is too short. What `is_slow` says of, from its local stretch
    /// and its remote one, is a piece of its own.
    pub(crate) fn next_piece(&mut self, is_slow: impl Fn(&Stretch, &Stretch) -> bool) -> Piece {
        let mut piece = Piece::default();
        while piece.local.len() < STRETCHES_MAX - 1
            && let Some((local, remote)) = self.ahead()
        {
            if is_slow(&local, &remote) {
                if piece.bytes == 0 {
                    let (local, remote) = self.pass(local.bytes.min(SLOW_BYTES_MAX));
                    piece.push(local, remote);
                    piece.slow = Some((local, remote));
                }
                break;
            }
            let (local, remote) = self.pass(local.bytes);
            piece.push(local, remote);
        }
        piece
    }
}

/// A list of stretches from a certain byte on.
struct Walk<I> {
    parts: I,
    current: Stretch,
}

impl<I: Iterator<Item = Stretch>> Walk<I> {
    fn new(parts: I, from: u64) -> Self {
        let mut walk = Self { parts, current: Stretch { address: 0, bytes: 0 } };
        let mut skip = from;
        while skip > 0 && walk.ahead() > 0 {
            skip -= walk.pass(skip.min(walk.current.bytes)).bytes;
        }
        walk
    }

    /// The length of the next stretch; 0 at the end.
    fn ahead(&mut self) -> u64 {
        while self.current.bytes == 0 {
            let Some(next) = self.parts.next() else { return 0 };
            self.current = next;
        }
        self.current.bytes
    }

    /// The next `bytes` bytes, of one stretch.
    fn pass(&mut self, bytes: u64) -> Stretch {
        let passed = Stretch { bytes, ..self.current };
        self.current.address += bytes;
        self.current.bytes -= bytes;
        passed
    }
}
