//! Messages of a declared type, written and read in place as values of that type. A receiver that
//! expects another type, or another version of it, is refused.

use std::error::Error;

use corewire::Domain;

#[corewire::message(name = "example.Tick.1")]
struct Tick {
    price: u64,
    volume: u64,
}

/// As a program might declare the same type that was written by somebody else.
mod other {
    #[corewire::message(name = "example.Tick.1")]
    pub(crate) struct Tick {
        volume: u64,
        price: u64,
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::open()?;
    let mut sender = domain.sender("example-typed").typed::<Tick>().create()?;
    let mut receiver = domain.receiver("example-typed").typed::<Tick>().join()?;

    sender.send(&Tick { price: 101, volume: 7 })?; // one copy, into the channel
    let mut tick = sender.loan()?; // no copy: written where it will be read
    tick.price = 102;
    tick.volume = 3;
    tick.send();
    for _ in 0..2 {
        let tick = receiver.receive()?;
        println!("{} at {}", tick.volume, tick.price);
    }

    // Fields in another order are another type, and so are plain bytes.
    let refused = domain.receiver("example-typed").typed::<other::Tick>().join();
    println!("{}", refused.err().ok_or("swapped fields were not noticed")?);
    let refused = domain.receiver("example-typed").join();
    println!("{}", refused.err().ok_or("plain bytes were not noticed")?);
    Ok(())
}
