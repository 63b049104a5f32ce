//! Messages of a declared type, read in place as values of that type. A receiver that expects another
//! type is refused.

use std::error::Error;

use corewire::{Domain, JoinError, MessageType};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Tick {
    price: u64,
    volume: u64,
}

impl MessageType for Tick {
    const NAME: &'static str = "example.Tick.1";
}

fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::open()?;
    let mut sender = domain.sender("example-typed").create_typed::<Tick>()?;
    let mut receiver = domain.receiver("example-typed").join_typed::<Tick>()?;

    sender.send(&Tick { price: 101, volume: 7 })?;
    let tick = receiver.receive()?;
    println!("{} at {}", tick.volume, tick.price);

    // Plain bytes are a different type.
    match domain.receiver("example-typed").join() {
        Err(JoinError::Type { found_bytes, .. }) => println!("refused: {found_bytes} bytes"),
        other => return Err(format!("not refused: {other:?}").into()),
    }
    Ok(())
}
