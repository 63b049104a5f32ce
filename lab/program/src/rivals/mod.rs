//! Other systems that benches and studies measure beside corewire.

pub(crate) mod iceoryx2;
pub(crate) mod zeromq;
