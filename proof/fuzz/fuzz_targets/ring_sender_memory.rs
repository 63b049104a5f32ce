//! Hostile words in a sender's memory, against a receiver. The first byte selects the policy, the other
//! bytes are steps.

#![no_main]

use std::cell::RefCell;

use corewire_hostile::Step;
use corewire_hostile::receiver::Victim;
use corewire_layout::geometry::Geometry;
use corewire_layout::segment::Policy;
use libfuzzer_sys::fuzz_target;

thread_local! {
    static VICTIMS: RefCell<Vec<Victim>> = RefCell::new(
        [Policy::Block, Policy::Overwrite, Policy::Evict { after_ns: 2 }]
            .map(|policy| Victim::new(Geometry::new(8, 1024, 3000, 4).unwrap(), policy))
            .into(),
    );
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, steps)) = bytes.split_first() else { return };
    VICTIMS.with_borrow_mut(|victims| {
        let victim = &mut victims[usize::from(*first) % 3];
        victim.begin_anew();
        Step::of_bytes(steps).for_each(|step| victim.step(&step));
    });
});
