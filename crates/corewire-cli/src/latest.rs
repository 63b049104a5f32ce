//! `corewire send --latest` and `receive --latest`: the last message of one writer.

use corewire::{Domain, JoinError, LatestWriter, ReceiveError};
use corewire_os::event::wait_readable;

use crate::failure::Failure;
use crate::input::Input;
use crate::output;
use crate::records::{READ_BYTES, Records, Splitter};
use crate::signals::Signals;
use crate::sink::Sink;

/// Makes each message of the input the value, until a signal.
pub(crate) fn send(
    domain: &Domain,
    name: &str,
    readers: u16,
    (records, largest): (Records, usize),
    input: &mut Input,
    signals: &Signals,
) -> Result<(), Failure> {
    let mut writer = domain.latest(name).largest(largest).readers(readers.into()).create()?;
    let outcome = set_all(name, &mut writer, (records, largest), input, signals);
    if outcome.is_err() {
        // Readers are to see that it did not end in order: they end with 3.
        std::mem::forget(writer);
    }
    outcome
}

fn set_all(
    name: &str,
    writer: &mut LatestWriter,
    (records, largest): (Records, usize),
    input: &mut Input,
    signals: &Signals,
) -> Result<(), Failure> {
    let bytes = if records == Records::Chunks { largest } else { READ_BYTES };
    let (mut buffer, mut splitter) = (vec![0; bytes], Splitter::new(records, largest));
    loop {
        match input.read(&mut buffer, signals)? {
            None => return Ok(()),
            Some(0) => break,
            Some(bytes) => splitter
                .split(&buffer[..bytes], |value| writer.set(value).map_err(Failure::from))?,
        }
    }
    splitter.finish(|value| writer.set(value).map_err(Failure::from))?;
    if writer.count() == 0 {
        return Err(Failure::other("the input was empty: there is no value"));
    }
    output::note(format!("the input has ended; {name} keeps its last value until a signal"));
    while !signals.is_over() {
        wait_readable(&[signals.descriptor()], None)?;
    }
    Ok(())
}

/// Writes the newest value, and newer ones, up to `left` of them.
pub(crate) fn receive(
    domain: &Domain,
    name: &str,
    left: u64,
    waits: bool,
    sink: &mut Sink,
) -> Result<(), Failure> {
    let builder = domain.latest(name);
    let mut reader = match builder.clone().open() {
        Err(JoinError::NotFound(_)) if waits => {
            output::waiting(name, domain);
            builder.open_when_created()?
        }
        opened => opened?,
    };
    for _ in 0..left {
        let value = match reader.wait() {
            Ok(value) => value.to_vec(),
            Err(ReceiveError::EndOfStream) => break,
            Err(error) => return Err(error.into()),
        };
        sink.put(reader.number().unwrap_or_default(), &value)?;
        sink.flush()?;
    }
    Ok(())
}
