//! Reading and writing the fields of a packet.

/// Reads what a neighbour sent.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Bytes with their length in front, at most so many.
    pub(super) fn long(&mut self, bytes_max: usize) -> Option<Vec<u8>> {
        let count = usize::from(self.u16()?);
        (count <= bytes_max).then_some(())?;
        self.bytes(count).map(<[u8]>::to_vec)
    }

    pub(super) fn text(&mut self, bytes_max: usize) -> Option<String> {
        let count = usize::from(self.u16()?);
        (count <= bytes_max).then_some(())?;
        std::str::from_utf8(self.bytes(count)?).ok().map(str::to_owned)
    }

    /// Nothing may be left.
    pub(super) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Writes the fields of a packet.
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    /// Bytes with their length in front. What is beyond `bytes_max` is left out: reasons are cut, and the callers check
    /// everything else before.
    pub(super) fn long(&mut self, bytes: &[u8], bytes_max: usize) {
        let bytes = bytes.get(..bytes_max).unwrap_or(bytes);
        self.u16(u16::try_from(bytes.len()).unwrap_or(u16::MAX));
        self.0.extend(bytes);
    }

    pub(super) fn text(&mut self, text: &str, bytes_max: usize) {
        let mut end = text.len().min(bytes_max);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.long(text.get(..end).unwrap_or_default().as_bytes(), bytes_max);
    }
}
