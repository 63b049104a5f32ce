//! The bytes of the file: headers and records, as [`log_file`](super) draws them.

use std::io::{self, BufReader, Read};

use corewire_os::locked::LockedFile;
use serde::{Deserialize, Serialize};

use super::error::{VERSION, VERSION_BEFORE};
use crate::frame::{Command, encode};
use crate::kept::{Entry, Snapshot};

pub(super) const MAGIC: &[u8; 16] = b"corewire's log\n\0";
/// The distance of the two headers: no disk writes both at once.
const HEADER_DISTANCE: u64 = 4096;
/// Where the first record is.
pub(super) const FIRST: u64 = 2 * HEADER_DISTANCE;
const HEADER_BYTES: usize = 48;
/// The only header of version 1, and its first record.
const OLD_HEADER_BYTES: usize = 40;
const RECORD_HEADER_BYTES: usize = 24;

/// What a record holds.
#[derive(Serialize, Deserialize)]
pub(super) enum Content {
    Snapshot(Snapshot<Command>),
    Entry(u64, Entry<Command>),
}

/// What marks the records of one file, so that no command can look like one by chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) mark: u32,
    pub(super) seed: u32,
}

/// What the headers say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) marks: Marks,
    /// Counts the headers that were written, alternately in both places.
    pub(super) number: u64,
    /// The file is on the disk up to here.
    pub(super) synced: u64,
    /// Where the first record is.
    pub(super) first: u64,
}

/// What the beginning of a file is.
pub(super) enum Beginning {
    Log(Header),
    /// As version 1 has written it.
    Old(Header),
    /// Of another version.
    Version(u32),
    /// Of a log, and not whole.
    Damaged,
    Empty,
    Other,
}

impl Header {
    /// Writes the next header, in the place of the older one.
    pub(super) fn write_next(&mut self, file: &LockedFile, synced: u64) -> io::Result<()> {
        let next = Self { number: self.number + 1, synced, ..*self };
        let mut header = [0; HEADER_BYTES];
        header[..16].copy_from_slice(MAGIC);
        header[16..20].copy_from_slice(&VERSION.to_le_bytes());
        header[20..24].copy_from_slice(&next.marks.mark.to_le_bytes());
        header[24..28].copy_from_slice(&next.marks.seed.to_le_bytes());
        header[32..40].copy_from_slice(&next.number.to_le_bytes());
        header[40..].copy_from_slice(&next.synced.to_le_bytes());
        let sum = checksum(0, &[&header[..28], &header[32..]]);
        header[28..32].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&header, next.number % 2 * HEADER_DISTANCE)?;
        *self = next;
        Ok(())
    }

    fn parse(header: &[u8; HEADER_BYTES]) -> Option<Self> {
        let is_whole = header.starts_with(MAGIC)
            && [VERSION, VERSION_BEFORE].contains(&word(header, 16))
            && checksum(0, &[&header[..28], &header[32..]]) == word(header, 28);
        let marks = Marks { mark: word(header, 20), seed: word(header, 24) };
        let (number, synced) = (long(header, 32), long(header, 40));
        is_whole.then_some(Self { marks, number, synced, first: FIRST })
    }

    fn parse_old(header: &[u8; HEADER_BYTES]) -> Option<Self> {
        let is_whole =
            checksum(0, &[&header[..28], &header[32..OLD_HEADER_BYTES]]) == word(header, 28);
        let marks = Marks { mark: word(header, 20), seed: word(header, 24) };
        let (synced, first) = (long(header, 32), OLD_HEADER_BYTES as u64);
        is_whole.then_some(Self { marks, number: 0, synced, first })
    }
}

impl Beginning {
    /// Reads both headers: of those that are whole, the later one is valid.
    pub(super) fn read(file: &LockedFile) -> io::Result<Self> {
        let mut both = [[0; HEADER_BYTES]; 2];
        let mut counts = [0; 2];
        for (place, (header, count)) in (0..).zip(both.iter_mut().zip(&mut counts)) {
            *count = At { file, at: place * HEADER_DISTANCE }.read_as_much(header)?;
        }
        let whole = both.iter().filter_map(Header::parse).max_by_key(|header| header.number);
        let is_log = |header: &[u8; HEADER_BYTES]| header.starts_with(MAGIC);
        let old = Header::parse_old(&both[0]);
        let is_old = is_log(&both[0]) && word(&both[0], 16) == 1;
        if let Some(header) = old.filter(|_| is_old && counts[0] >= OLD_HEADER_BYTES) {
            // Of that version, whatever its records contain where the second header would be.
            return Ok(Self::Old(header));
        }
        Ok(match (whole, both.iter().find(|header| is_log(header))) {
            (Some(header), _) => Self::Log(header),
            (None, _) if counts[0] == 0 => Self::Empty,
            (None, None) => Self::Other,
            (None, Some(header)) => match word(header, 16) {
                1 | VERSION_BEFORE | VERSION => Self::Damaged,
                // A damaged number of the version, or a later one: nothing is changed.
                other => Self::Version(other),
            },
        })
    }
}

impl Marks {
    /// Appends a record.
    pub(super) fn write(self, buffer: &mut Vec<u8>, synced: u64, content: &Content) {
        let content = encode(content);
        let at = buffer.len();
        buffer.extend(self.mark.to_le_bytes());
        buffer.extend([0; 4]);
        buffer.extend((content.len() as u64).to_le_bytes());
        buffer.extend(synced.to_le_bytes());
        buffer.extend(&content);
        let checksum = checksum(self.seed, &[&buffer[at + 8..]]);
        buffer[at + 4..at + 8].copy_from_slice(&checksum.to_le_bytes());
        buffer.resize(buffer.len().next_multiple_of(8), 0);
    }

    /// Reads the content of the next record, of which there are so many bytes at most. Returns the length of the record,
    /// and what it says was on the disk; nothing if none is whole there.
    pub(super) fn read(
        self,
        reader: &mut impl Read,
        most: u64,
        content: &mut Vec<u8>,
    ) -> io::Result<Option<(u64, u64)>> {
        let mut header = [0; RECORD_HEADER_BYTES];
        let Some(rest) = most.checked_sub(RECORD_HEADER_BYTES as u64) else { return Ok(None) };
        reader.read_exact(&mut header)?;
        let (length, synced) = (long(&header, 8), long(&header, 16));
        let padded = length.checked_next_multiple_of(8).filter(|padded| *padded <= rest);
        let Some(padded) = padded.filter(|_| word(&header, 0) == self.mark) else {
            return Ok(None);
        };
        let Ok(bytes) = usize::try_from(padded) else { return Ok(None) };
        content.clear();
        // As much as there is: a damaged length allocates no more than the file has.
        if reader.by_ref().take(padded).read_to_end(content)? < bytes {
            return Ok(None);
        }
        content.truncate(usize::try_from(length).unwrap_or(bytes));
        let sum = checksum(self.seed, &[&header[8..], content]);
        let is_whole = sum == word(&header, 4);
        Ok(is_whole.then_some((RECORD_HEADER_BYTES as u64 + padded, synced)))
    }

    /// The next place from `at` on, before `end`, at which a whole record is that says of what was on the disk what is
    /// `wanted`.
    pub(super) fn find(
        self,
        file: &LockedFile,
        at: u64,
        end: u64,
        wanted: impl Fn(u64) -> bool,
    ) -> io::Result<Option<u64>> {
        let mut words = BufReader::with_capacity(1 << 20, At { file, at });
        let mut bytes = Vec::new();
        // No record begins in zeros.
        let last = file.data_end(at)?.min(end);
        for place in (at..last).step_by(8) {
            let mut word_there = [0; 8];
            if words.read_exact(&mut word_there).is_err() {
                break;
            }
            if word(&word_there, 0) != self.mark {
                continue;
            }
            let record = self.read(&mut At { file, at: place }, end - place, &mut bytes)?;
            if record.is_some_and(|(_, synced)| wanted(synced)) {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }
}

fn checksum(seed: u32, parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(seed);
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Reads a file from a place on.
pub(super) struct At<'a> {
    pub(super) file: &'a LockedFile,
    pub(super) at: u64,
}

impl At<'_> {
    /// Fills as much of the buffer as there is. Returns how much.
    fn read_as_much(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        while let Some(rest) = buffer.get_mut(count..).filter(|rest| !rest.is_empty()) {
            match self.read(rest)? {
                0 => break,
                more => count += more,
            }
        }
        Ok(count)
    }
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
