//! Any bytes are either refused or parsed as a header that describes the segment, or as the record of a
//! name.

#![no_main]

use corewire_layout::name::NameRecord;
use corewire_layout::segment::{RawReceiverHeader, RawSenderHeader, ReceiverHeader, SenderHeader};
use libfuzzer_sys::fuzz_target;
use zerocopy::FromBytes;

fuzz_target!(|bytes: &[u8]| {
    if let Some(record) = NameRecord::parse(bytes) {
        assert_eq!(NameRecord::parse(record.to_text().as_bytes()), Some(record));
    }
    if let Ok((raw, _)) = RawReceiverHeader::read_from_prefix(bytes) {
        for length in [0, 4095, 4096, 4097, u64::MAX] {
            if let Ok(header) = ReceiverHeader::parse(&raw, length) {
                assert_eq!(length, 4096);
                assert_eq!(ReceiverHeader::parse(&header.to_raw(), length), Ok(header));
            }
        }
    }
    if let Ok((raw, rest)) = RawSenderHeader::read_from_prefix(bytes) {
        // The length comes from the input, or is the one that the header requires.
        let said = u64::read_from_prefix(rest).map_or(0, |(length, _)| length);
        let expected = match SenderHeader::parse(&raw, said) {
            Err(corewire_layout::segment::HeaderError::Length { expected, .. }) => expected,
            _ => said,
        };
        if let Ok(header) = SenderHeader::parse(&raw, expected) {
            assert_eq!(header.geometry.segment_bytes(), expected);
            assert_eq!(SenderHeader::parse(&header.to_raw(), expected), Ok(header));
        }
    }
});
