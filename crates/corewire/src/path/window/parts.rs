//! Put and get of lists: parts of the program's memory on one side, parts of the window on the other.

use corewire_layout::window::Rights;

use super::Window;
use crate::error::WindowError;

/// A part of a copy: where it lies in one of the program's parts, and in the window, and its length.
struct Piece {
    part: usize,
    skip: usize,
    offset: usize,
    bytes: usize,
}

impl Window {
    /// Copies the bytes of `sources`, one after the other, to these parts of the window, one after the other: pairs of an
    /// offset and a number of bytes. Both lists have the same length in bytes, and any number of parts.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = std::env::temp_dir().join(format!("corewire-doc-parts-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&dir)?;
    /// let window = domain.window("rows", 100).create()?;
    /// window.put_parts(&[b"ab", b"cde"], &[(0, 1), (10, 3), (20, 1)])?;
    ///
    /// let (mut first, mut second) = ([0; 2], [0; 3]);
    /// window.get_parts(&[(10, 3), (0, 1), (20, 1)], &mut [&mut first, &mut second])?;
    /// assert_eq!((&first, &second), (b"bc", b"dae"));
    /// # drop((window, domain)); std::fs::remove_dir_all(&dir)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`WindowError::Lengths`]; [`WindowError::Range`]; otherwise as for [`put`](Self::put). Nothing has been copied then.
    pub fn put_parts(&self, sources: &[&[u8]], targets: &[(u64, u64)]) -> Result<(), WindowError> {
        self.check(Rights::WRITE)?;
        let source_bytes = sources.iter().map(|source| source.len() as u64).sum();
        let target_bytes = self.length(targets)?;
        if source_bytes != target_bytes {
            return Err(WindowError::Lengths { source_bytes, target_bytes });
        }
        let lengths = sources.iter().map(|source| source.len());
        for Piece { part, skip, offset, bytes } in pieces(lengths, targets) {
            self.put_at(offset, &sources[part][skip..skip + bytes]);
        }
        Ok(())
    }

    /// Copies these parts of the window, one after the other, to `targets`, one after the other: see
    /// [`put_parts`](Self::put_parts).
    ///
    /// # Errors
    /// As for [`put_parts`](Self::put_parts).
    pub fn get_parts(
        &self,
        sources: &[(u64, u64)],
        targets: &mut [&mut [u8]],
    ) -> Result<(), WindowError> {
        self.check(Rights::READ)?;
        let source_bytes = self.length(sources)?;
        let target_bytes = targets.iter().map(|target| target.len() as u64).sum();
        if source_bytes != target_bytes {
            return Err(WindowError::Lengths { source_bytes, target_bytes });
        }
        let lengths: Vec<usize> = targets.iter().map(|target| target.len()).collect();
        for Piece { part, skip, offset, bytes } in pieces(lengths.into_iter(), sources) {
            self.data.get(offset, &mut targets[part][skip..skip + bytes]);
        }
        Ok(())
    }

    /// The length of these parts of the window, all of which lie in it.
    fn length(&self, parts: &[(u64, u64)]) -> Result<u64, WindowError> {
        let mut length = 0u64;
        for &(offset, bytes) in parts {
            self.find(offset, bytes)?;
            length = length.checked_add(bytes).ok_or_else(|| self.out_of_range(offset, bytes))?;
        }
        Ok(length)
    }
}

/// The pieces of a copy between parts of these lengths and parts of a window, all of which lie in it. Both have the same
/// length.
fn pieces(
    lengths: impl Iterator<Item = usize>,
    parts: &[(u64, u64)],
) -> impl Iterator<Item = Piece> {
    let mut mine = lengths.enumerate();
    let mut theirs = parts.iter();
    let (mut here, mut there) = ((0, 0, 0), (0, 0));
    std::iter::from_fn(move || {
        while here.2 == 0 {
            let (part, bytes) = mine.next()?;
            here = (part, 0, bytes);
        }
        while there.1 == 0 {
            let (offset, bytes) = *theirs.next()?;
            // It lies in memory of this process.
            let inside = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
            there = (inside(offset), inside(bytes));
        }
        let bytes = here.2.min(there.1);
        let piece = Piece { part: here.0, skip: here.1, offset: there.0, bytes };
        here = (here.0, here.1 + bytes, here.2 - bytes);
        there = (there.0 + bytes, there.1 - bytes);
        Some(piece)
    })
}
