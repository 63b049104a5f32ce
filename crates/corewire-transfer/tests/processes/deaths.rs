pub(crate) fn remove(_: &corewire_transfer::driver::Courier) {}
pub(crate) fn die(_: &corewire_transfer::driver::Courier) {}
pub(crate) fn trace(_: &corewire_transfer::driver::Courier) {}
