//! The samples of one sensor for three receivers with different uses: one watches a limit, one computes
//! the mean, one records. Each sample is written once, as a typed value, and all receivers read it in
//! place.

use std::error::Error;
use std::f64::consts::TAU;
use std::thread;

use corewire::{Domain, ReceiveError, Receiver};

/// Number of samples: ten seconds at 1 kHz.
const SAMPLES: u32 = 10_000;
/// Above this temperature there is an alarm.
const LIMIT_KELVIN: f64 = 310.0;

/// A sample of the sensor.
#[corewire::message]
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Time since the start.
    time_ms: u64,
    kelvin: f64,
}

type Outcome = Result<String, ReceiveError>;

fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::open()?;
    let mut sensor = domain.sender("temperature").typed::<Sample>().create()?;
    let uses: [fn(Receiver<Sample>) -> Outcome; 3] = [watch, average, record];
    let mut readers = Vec::new();
    for reading in uses {
        let samples = domain.receiver("temperature").typed::<Sample>().join()?;
        readers.push(thread::spawn(move || reading(samples)));
    }
    for number in 0..SAMPLES {
        // A slow wave that exceeds the limit twice.
        let kelvin = 300.0 + 11.0 * (TAU * 2.0 * f64::from(number) / f64::from(SAMPLES)).sin();
        sensor.send(&Sample { time_ms: number.into(), kelvin })?;
    }
    drop(sensor);
    for reader in readers {
        println!("{}", reader.join().map_err(|_| "a reader panicked")??);
    }
    Ok(())
}

/// Lists the times at which the limit was exceeded.
fn watch(mut samples: Receiver<Sample>) -> Outcome {
    let (mut alarms, mut is_above) = (Vec::new(), false);
    samples.for_each(|sample| {
        let was_above = std::mem::replace(&mut is_above, sample.kelvin > LIMIT_KELVIN);
        if is_above && !was_above {
            alarms.push(sample.time_ms);
        }
    })?;
    Ok(format!("above {LIMIT_KELVIN} K at {alarms:?} ms"))
}

/// Computes the mean of all samples.
fn average(mut samples: Receiver<Sample>) -> Outcome {
    let (mut count, mut sum) = (0u32, 0.0);
    samples.for_each(|sample| {
        count += 1;
        sum += sample.kelvin;
    })?;
    Ok(format!("mean of {count} samples {:.1} K", sum / f64::from(count)))
}

/// Records every tenth sample.
fn record(mut samples: Receiver<Sample>) -> Outcome {
    let mut kept = Vec::new();
    samples.for_each(|sample| {
        if sample.time_ms.is_multiple_of(10) {
            kept.push(*sample);
        }
    })?;
    let last = kept.last().map_or(0, |sample| sample.time_ms);
    Ok(format!("recorded {} samples, the last of {last} ms", kept.len()))
}
