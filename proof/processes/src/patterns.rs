//! A worker of a queue, and a reader of a last value.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use corewire::{Domain, ReceiveError};

use crate::{Options, Outcome};

/// Does jobs until there are none: appends the first eight bytes of each to the file beside the directory.
pub(crate) fn work(domain: &Domain, directory: &Path, options: &Options) -> Outcome {
    let mut done =
        OpenOptions::new().append(true).create(true).open(directory.with_extension("done"))?;
    let mut worker = domain.queue(&options.channel).wait(options.wait).worker()?;
    let mut out = std::io::stdout();
    writeln!(out, "works")?;
    while let Some(job) = worker.take()? {
        // One write to a file that is opened to append is one piece.
        done.write_all(job.get(..8).ok_or("a job has eight bytes")?)?;
        job.done()?;
    }
    writeln!(out, "finished")?;
    Ok(())
}

/// Reads a last value until its writer ends: each is a number, repeated, and never less than one before.
pub(crate) fn watch(domain: &Domain, options: &Options) -> Outcome {
    let mut reader = domain.latest(&options.channel).wait(options.wait).open()?;
    let (mut last, mut count) = (0, 0_u64);
    let mut out = std::io::stdout();
    writeln!(out, "reads")?;
    loop {
        let value = match reader.wait() {
            Ok(value) => value,
            Err(ReceiveError::EndOfStream) => break,
            Err(error) => return Err(error.into()),
        };
        let mut numbers = value.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let number = numbers.next().ok_or("a value has eight bytes")?;
        if numbers.any(|other| other != number) {
            return Err(format!("torn: {value:?}").into());
        }
        if number < last {
            return Err(format!("{number} after {last}").into());
        }
        (last, count) = (number, count + 1);
    }
    writeln!(out, "last {last} of {count}")?;
    Ok(())
}
