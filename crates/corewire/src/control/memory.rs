//! Private memory of senders.

use corewire_layout::geometry::Geometry;
use corewire_layout::slot::INLINE_BYTES_MAX;
use corewire_os::OsError;
use corewire_ring::region::Region;

/// Memory in which a message is composed, for a channel whose messages may be overwritten while they are read.
pub(crate) fn staging(geometry: &Geometry) -> Result<Region, OsError> {
    let bytes = geometry.message_bytes_max().max(INLINE_BYTES_MAX as u64);
    let region = usize::try_from(bytes).ok().and_then(Region::private);
    // ENOMEM.
    region.ok_or_else(|| OsError { what: format!("allocate {bytes} bytes").into(), errno: 12 })
}
