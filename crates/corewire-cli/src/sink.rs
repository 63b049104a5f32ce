//! How messages are written to standard output.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use corewire::{ChannelType, Snapshot};
use serde::Serialize;

use crate::failure::Failure;
use crate::output;

/// Bytes gathered before they are written, as long as more messages are there.
const BUFFER_BYTES: usize = 64 << 10;

/// How messages are written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    /// Each is followed by these bytes.
    Ended(&'static [u8]),
    /// Each follows its length.
    Framed,
    /// Each is an object on a line of its own.
    Json,
}

/// A message in JSON.
#[derive(Debug, Serialize)]
struct Line<'a> {
    sequence: u64,
    time_s: f64,
    r#type: Option<TypeOf<'a>>,
    bytes: String,
}

/// The declared type of a channel, in JSON.
#[derive(Debug, Serialize)]
struct TypeOf<'a> {
    name: &'a str,
    bytes: u64,
}

/// Standard output, with a buffer of its own: the standard library's would flush at every line.
pub(crate) struct Sink {
    output: BufWriter<File>,
    form: Form,
    /// The type of the channel's messages.
    pub(crate) of_type: Option<ChannelType>,
    /// The message to be written.
    message: Vec<u8>,
}

impl Sink {
    pub(crate) fn open(form: Form) -> Result<Self, Failure> {
        let own = rustix::io::dup(io::stdout());
        let own = own.map_err(|error| output::failed(&error.into()))?;
        let output = BufWriter::with_capacity(BUFFER_BYTES, File::from(own));
        Ok(Self { output, form, of_type: None, message: Vec::new() })
    }

    /// Writes a message; false if it was overwritten before it was copied.
    pub(crate) fn take(&mut self, mut snapshot: Snapshot<'_>) -> Result<bool, Failure> {
        if snapshot.copy_into(&mut self.message).is_err() {
            return Ok(false);
        }
        self.write(snapshot.sequence())?;
        Ok(true)
    }

    /// Writes this message.
    pub(crate) fn put(&mut self, sequence: u64, message: &[u8]) -> Result<(), Failure> {
        self.message.clear();
        self.message.extend_from_slice(message);
        self.write(sequence)
    }

    fn write(&mut self, sequence: u64) -> Result<(), Failure> {
        let Self { output, message, form, .. } = self;
        let written = match *form {
            Form::Ended(end) => output.write_all(message).and_then(|()| output.write_all(end)),
            Form::Framed => {
                let length = u32::try_from(message.len()).map_err(|_| {
                    Failure::other(format!(
                        "message {sequence} has {} bytes: --framed can write at most {}",
                        message.len(),
                        u32::MAX
                    ))
                })?;
                output.write_all(&length.to_le_bytes()).and_then(|()| output.write_all(message))
            }
            Form::Json => return self.write_json(sequence),
        };
        written.map_err(|error| output::failed(&error))
    }

    fn write_json(&mut self, sequence: u64) -> Result<(), Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let of_type = self.of_type.as_ref();
        let of_type = of_type.map(|ChannelType { name, bytes, .. }| TypeOf { name, bytes: *bytes });
        let line = Line {
            sequence,
            // Whole microseconds: more digits would claim more than the clock knows.
            time_s: (now.as_secs_f64() * 1e6).round() / 1e6,
            r#type: of_type,
            bytes: STANDARD.encode(&self.message),
        };
        let mut text = serde_json::to_string(&line).map_err(Failure::other)?;
        text.push('\n');
        self.output.write_all(text.as_bytes()).map_err(|error| output::failed(&error))
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.output.flush().map_err(|error| output::failed(&error))
    }
}
