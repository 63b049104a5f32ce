//! Access to memory that peers expose, and to this endpoint's.

use corewire_endpoint::{
    Change, Exposed, Kind, Memory, MessageError, Number, OperationHandle, Options, Part, Peer,
    Relation, Rights,
};
use corewire_ring::copying::{NextReader, copy_slice};

use super::Endpoint;

/// A number in exposed memory: an integer of 8 to 64 bits, `f32`, or `f64`.
pub trait RemoteNumber: Copy + sealed::Bytes {
    /// Its kind.
    const NUMBER: Number;
}

mod sealed {
    pub trait Bytes: Sized {
        fn to_bytes(self) -> Vec<u8>;
        fn of_bytes(bytes: &[u8]) -> Option<Self>;
    }
}

macro_rules! numbers {
    ($($type:ty: $number:ident),*) => { $(
        impl sealed::Bytes for $type {
            fn to_bytes(self) -> Vec<u8> {
                self.to_le_bytes().into()
            }

            fn of_bytes(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self::from_le_bytes)
            }
        }

        impl RemoteNumber for $type {
            const NUMBER: Number = Number::$number;
        }
    )* };
}
numbers!(i8: I8, u8: U8, i16: I16, u16: U16, i32: I32, u32: U32, i64: I64, u64: U64, f32: F32, f64: F64);

impl Endpoint {
    /// Lets peers access `memory` as far as `rights` say, until it is [concealed](Self::conceal) or the endpoint is dropped.
    /// Returns its key, which peers must be told, and which names nothing else ever.
    ///
    /// A [`Window`](crate::Window) is memory that all its participants have mapped: each number in it takes a load or a store, and
    /// a participant needs no endpoint. Exposed memory is in one process alone, may be anything that it has, and takes a call
    /// of the kernel, or of its owner:
    ///
    /// | access | done by |
    /// |---|---|
    /// | [`put`](Self::put) and [`get`](Self::get) | the kernel, in the call that begins them: the owner may compute, sleep, or be stopped |
    /// | the same, where the kernel does not permit it (another user or PID namespace, seccomp, Yama, a process that cannot be dumped), beyond 256 exposures at a time, or where the owner's [`Rendezvous`](crate::Rendezvous) is not `BothSides` | the owner, while one of its calls runs or waits |
    /// | [`change`](Self::change) and [`compare_and_swap`](Self::compare_and_swap) | the owner, likewise: one after the other |
    ///
    /// An owner that computes for long runs a [thread](Self::with_progress_thread) that carries out what it is asked for. Accesses
    /// from one endpoint to another are done in the order in which they began.
    ///
    /// Rights are checked by the side that copies: a process that may read another one's memory by the kernel can read all of it.
    ///
    /// ```
    /// use corewire::{Domain, ExposedMemory, NumberChange, RemotePart, WindowRights};
    ///
    /// # let directory = std::env::temp_dir().join(format!("corewire-doc-expose-{}", std::process::id()));
    /// let domain = Domain::open_at(&directory)?;
    /// let mut owner = domain.endpoint("owner").create()?;
    /// let memory = ExposedMemory::new(4096).ok_or("no memory")?;
    /// let key = owner.expose(&memory, WindowRights::ATOMIC)?;
    /// let mut owner = owner.with_progress_thread()?;
    ///
    /// // In another process, which was told the key:
    /// let mut endpoint = domain.endpoint("other").create()?;
    /// let peer = endpoint.peer("owner")?;
    /// endpoint.put(peer, &[RemotePart { key, offset: 8, bytes: 5 }], b"hello")?;
    /// let mut found = [0; 5];
    /// endpoint.get(peer, &[RemotePart { key, offset: 8, bytes: 5 }], &mut found)?;
    /// assert_eq!(&found, b"hello");
    /// assert_eq!(endpoint.change(peer, (key, 0), NumberChange::Add, 3u64)?, 0);
    /// assert_eq!(endpoint.compare_and_swap(peer, (key, 0), 3u64, 9)?, 3);
    ///
    /// let mut number = [0; 8];
    /// assert!(memory.get(0, &mut number));
    /// assert_eq!(u64::from_le_bytes(number), 9);
    /// # drop((endpoint, owner, domain));
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Source: remote memory access, Buntinas and others, “Data Transfers between Processes in an SMP System”, sections II and
    /// IV-B.
    ///
    /// # Errors
    /// [`MessageError::Forked`].
    pub fn expose(&mut self, memory: &Exposed, rights: Rights) -> Result<u64, MessageError> {
        self.expose_as(memory, rights, None, 0)
    }

    /// The same under a `key` of the caller's choice, if there is one, and with the number `origin` for the first byte: the
    /// memory's own address, for example.
    ///
    /// # Errors
    /// [`MessageError::KeyInUse`], `Forked`.
    pub fn expose_as(
        &mut self,
        memory: &Exposed,
        rights: Rights,
        key: Option<u64>,
        origin: u64,
    ) -> Result<u64, MessageError> {
        self.check_forked()?;
        self.engine.expose(memory.clone(), key, origin, rights)
    }

    /// Peers access the memory with this key no more. Never waits: a copy by the kernel that has begun goes on to its end, and
    /// memory that `ExposedMemory::new` has made stays until then.
    ///
    /// # Errors
    /// [`MessageError::UnknownKey`], `Forked`.
    pub fn conceal(&mut self, key: u64) -> Result<(), MessageError> {
        self.check_forked()?;
        self.engine.conceal(key)
    }

    fn check_forked(&self) -> Result<(), MessageError> {
        if self.control.is_forked() { Err(MessageError::Forked) } else { Ok(()) }
    }

    /// Copies `source` to the memory of a peer: to `parts`, one after the other. Returns when it is there. Waits only if the
    /// peer must do it.
    ///
    /// # Errors
    /// [`MessageError::Denied`], `PartsDiffer`, `PeerDied` and others if the peer has gone, `Interrupted`, `Forked`.
    pub fn put(&mut self, peer: Peer, parts: &[Part], source: &[u8]) -> Result<(), MessageError> {
        if self.try_put(peer, parts, &[source])? {
            return Ok(());
        }
        let handle = self.iput(peer, parts, source.to_vec(), Options::default())?;
        self.wait(handle)?.result.map(drop)
    }

    /// Copies from the memory of a peer, from `parts`, to `target`. Waits only if the peer must do it.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn get(
        &mut self,
        peer: Peer,
        parts: &[Part],
        target: &mut [u8],
    ) -> Result<(), MessageError> {
        if self.try_get(peer, parts, &mut [&mut *target])? {
            return Ok(());
        }
        let handle = self.iget(peer, parts, vec![0; target.len()], Options::default())?;
        let completion = self.wait(handle)?;
        completion.result?;
        let mut parts = completion.memory.parts();
        if let Some(found) = parts.next().filter(|found| found.len() == target.len()) {
            copy_slice(NextReader::Own, found, target);
        }
        Ok(())
    }

    /// [`put`](Self::put) of several slices, one after the other, if it can be done at once. False if not; a part may have
    /// been put.
    ///
    /// # Errors
    /// As for [`put`](Self::put); what the peer denies is not known.
    #[inline]
    pub fn try_put(
        &mut self,
        peer: Peer,
        parts: &[Part],
        source: &[&[u8]],
    ) -> Result<bool, MessageError> {
        check_lengths(parts, source.iter().map(|slice| slice.len()).sum())?;
        self.handle_notices()?;
        self.engine.try_put(peer, parts, &source)
    }

    /// [`get`](Self::get) to several slices, one after the other, if it can be done at once. False if not; the slices may
    /// have been filled in part.
    ///
    /// # Errors
    /// As for [`try_put`](Self::try_put).
    #[inline]
    pub fn try_get(
        &mut self,
        peer: Peer,
        parts: &[Part],
        target: &mut [&mut [u8]],
    ) -> Result<bool, MessageError> {
        check_lengths(parts, target.iter().map(|slice| slice.len()).sum())?;
        self.handle_notices()?;
        self.engine.try_get(peer, parts, &mut &mut *target)
    }

    /// Begins to copy `memory` to the memory of a peer, and never waits for it. The completion returns the memory.
    ///
    /// # Errors
    /// [`MessageError::PartsDiffer`], and why nothing goes to this peer; what fails later is the operation's result.
    pub fn iput(
        &mut self,
        peer: Peer,
        parts: &[Part],
        memory: impl Into<Memory>,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        self.handle_notices()?;
        self.engine.start_put(peer, parts, memory.into(), options)
    }

    /// As [`iput`](Self::iput); then tells the peer's program the number `signal`, if that [takes](Self::take_signals) signals.
    /// Ends when the peer's endpoint has it, which takes a call of its.
    ///
    /// # Errors
    /// As for [`iput`](Self::iput).
    pub fn iput_and_signal(
        &mut self,
        peer: Peer,
        parts: &[Part],
        memory: impl Into<Memory>,
        signal: u64,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        self.handle_notices()?;
        self.engine.start_put_and_signal(peer, parts, memory.into(), signal, options)
    }

    /// Whether peers may signal; by default they may not. [`poll`](Self::poll) tells of each signal as
    /// [`OperationKind::Signal`](crate::OperationKind::Signal), with the number as immediate. A peer that signals on while
    /// 65,536 ends have not been told is cut off.
    pub fn take_signals(&mut self, takes_signals: bool) {
        self.engine.take_signals(takes_signals);
    }

    /// Begins to copy from the memory of a peer to `memory`, and never waits for it.
    ///
    /// # Errors
    /// As for [`iput`](Self::iput).
    pub fn iget(
        &mut self,
        peer: Peer,
        parts: &[Part],
        memory: impl Into<Memory>,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        self.handle_notices()?;
        self.engine.start_get(peer, parts, memory.into(), options)
    }

    /// Begins to change numbers in the memory of a peer, and never waits for it: see [`RemoteChange`](crate::RemoteChange).
    /// What they were before goes to `target`, if that is told; otherwise it must be empty.
    ///
    /// # Errors
    /// As for [`iput`](Self::iput); also [`MessageError::PartOfNumber`].
    pub fn ichange(
        &mut self,
        peer: Peer,
        kind: Kind,
        parts: &[Part],
        (compared, operands): (Memory, Memory),
        target: impl Into<Memory>,
        options: Options,
    ) -> Result<OperationHandle, MessageError> {
        self.handle_notices()?;
        self.engine.start_change(peer, kind, parts, (compared, operands), target.into(), options)
    }

    /// Number of accesses to the memory of a peer that have begun and are not complete. Each takes memory until it is: a program
    /// that begins them without end looks here, and calls [`progress`](Self::progress).
    #[must_use]
    pub fn pending_accesses(&self, peer: Peer) -> usize {
        self.engine.pending_accesses(peer)
    }

    /// Changes a number in the memory of a peer by `operand`, at this key and offset. Returns what it was. The peer does it,
    /// while one of its calls runs or waits, or in its [thread](Self::with_progress_thread); this call waits for it.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn change<N: RemoteNumber>(
        &mut self,
        peer: Peer,
        at: (u64, u64),
        change: Change,
        operand: N,
    ) -> Result<N, MessageError> {
        let operand = if change == Change::Keep { Vec::new() } else { operand.to_bytes() };
        self.change_one(peer, at, Kind::Fetch(change, N::NUMBER), (Vec::new(), operand))
    }

    /// Replaces a number in the memory of a peer by `new`, if it is `expected`. Returns what it was. Otherwise as
    /// [`change`](Self::change).
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn compare_and_swap<N: RemoteNumber>(
        &mut self,
        peer: Peer,
        at: (u64, u64),
        expected: N,
        new: N,
    ) -> Result<N, MessageError> {
        let kind = Kind::Compare(Relation::Equal, N::NUMBER);
        self.change_one(peer, at, kind, (expected.to_bytes(), new.to_bytes()))
    }

    fn change_one<N: RemoteNumber>(
        &mut self,
        peer: Peer,
        (key, offset): (u64, u64),
        kind: Kind,
        (compared, operands): (Vec<u8>, Vec<u8>),
    ) -> Result<N, MessageError> {
        let width = N::NUMBER.bytes();
        let parts = [Part { key, offset, bytes: width as u64 }];
        let operands = (compared.into(), operands.into());
        let options = Options::default();
        let handle = self.ichange(peer, kind, &parts, operands, vec![0; width], options)?;
        let completion = self.wait(handle)?;
        completion.result?;
        let found = completion.memory.parts().next().and_then(N::of_bytes);
        found.ok_or(MessageError::PartOfNumber { bytes: 0, width: width as u64 })
    }
}

fn check_lengths(parts: &[Part], given: usize) -> Result<(), MessageError> {
    let (mut bytes, given) = (0u64, given as u64);
    for part in parts {
        bytes = bytes.saturating_add(part.bytes);
    }
    if bytes == given { Ok(()) } else { Err(MessageError::PartsDiffer { parts: bytes, given }) }
}
