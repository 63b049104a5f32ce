pub(crate) fn probe(_: &corewire_transfer::driver::Courier) {}
