//! Observes channels without joining them: who sends, who receives, who lags. This costs the channels
//! nothing.

use std::error::Error;

use corewire::Domain;

fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::open()?;
    let mut sender = domain.sender("example-observe").slots(64).create()?;
    let mut receiver = domain.receiver("example-observe").join()?;
    for number in 0..40u64 {
        sender.send(&number.to_le_bytes())?;
    }
    for _ in 0..16 {
        drop(receiver.receive()?);
    }

    for name in domain.channels()? {
        let view = domain.observe(name.as_str())?.look();
        println!("{}: process {}, {} sent, {} slots", view.name, view.pid, view.sent, view.slots);
        for receiver in &view.receivers {
            println!("  row {}: process {}, lag {}", receiver.row, receiver.pid, receiver.lag);
        }
        for (counter, value) in view.counters.iter().filter(|(_, value)| *value > 0) {
            println!("  {counter} {value}");
        }
    }
    Ok(())
}
