//! The mechanisms, and what is said about each.

use clap::ValueEnum;
use corewire_transfer::mechanisms::MAPS_MAX;
use serde::{Deserialize, Serialize};

use super::pair::{CELL_BYTES, CELLS};
use crate::study::results::About;

/// A mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Id {
    /// The interface and its barrier, with no transfer
    Nothing,
    /// Two buffers with flags
    PrintedBuffer,
    /// The same, with copies past the caches as in the paper
    PrintedStreaming,
    /// The pipe of a pair of rings
    SharedBuffer,
    /// Nemesis' queues, one pair for each process
    PrintedQueue,
    /// One ring of cells for each pair
    MessageQueue,
    /// The receiver stops the sender and reads its memory
    Ptrace,
    /// The sender copies by the kernel
    KernelPut,
    /// The receiver copies by the kernel
    KernelGet,
    /// Both copy by the kernel, from both ends
    BothSides,
    /// Messages lie in memory that both have mapped
    Window,
    /// The same by the library, a segment for each buffer
    Mapped,
    /// libfabric over TCP, by the sender
    NetworkPut,
    /// libfabric over TCP, by the receiver
    NetworkGet,
}

/// How much a side that computes can leave to the other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sides {
    /// Both copy.
    Two,
    /// One copies, and the other does nothing.
    One,
    /// One copies, and the other is stopped.
    OneStops,
}

impl Id {
    /// All mechanisms with a transfer, in the order of the paper.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied().filter(|id| *id != Self::Nothing)
    }

    /// Its name in results.
    pub(super) fn text(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Its name to display.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing but the barrier",
            Self::PrintedBuffer => "shared buffer, as printed",
            Self::PrintedStreaming => "shared buffer, as printed, streaming",
            Self::SharedBuffer => "shared buffer",
            Self::PrintedQueue => "message queue, as printed",
            Self::MessageQueue => "message queue",
            Self::Ptrace => "ptrace",
            Self::KernelPut => "kernel put",
            Self::KernelGet => "kernel get",
            Self::BothSides => "both sides at once",
            Self::Window => "window",
            Self::Mapped => "mapped memory",
            Self::NetworkPut => "network put",
            Self::NetworkGet => "network get",
        }
    }

    /// Whether the paper has it, in this form.
    pub(super) const fn is_in_paper(self) -> bool {
        self.paper_latency_us().is_some()
    }

    /// Whether it is there only for comparison with the paper.
    pub(super) const fn is_printed(self) -> bool {
        matches!(self, Self::PrintedBuffer | Self::PrintedStreaming | Self::PrintedQueue)
    }

    /// The latency that the paper found, in microseconds (Table II).
    pub(super) const fn paper_latency_us(self) -> Option<f64> {
        match self {
            Self::PrintedBuffer => Some(1.5),
            Self::PrintedQueue => Some(3.3),
            Self::KernelPut | Self::KernelGet => Some(2.1),
            Self::NetworkPut => Some(11.6),
            Self::NetworkGet => Some(14.3),
            Self::Ptrace => Some(20.2),
            _ => None,
        }
    }

    /// The throughput that the paper found, in its megabytes per second (Table V).
    pub(super) const fn paper_throughput_mb(self) -> Option<f64> {
        match self {
            Self::PrintedBuffer => Some(513.5),
            Self::PrintedQueue => Some(437.1),
            Self::KernelPut => Some(495.5),
            Self::KernelGet => Some(500.3),
            Self::NetworkPut => Some(227.1),
            Self::NetworkGet => Some(171.7),
            Self::Ptrace => Some(460.0),
            _ => None,
        }
    }

    /// The cache impact that the paper found at the source and the destination (Table IV).
    pub(super) const fn paper_impact(self) -> Option<&'static str> {
        match self {
            Self::PrintedStreaming | Self::KernelPut => Some("high, low"),
            Self::PrintedQueue => Some("high, high"),
            Self::KernelGet => Some("low, high"),
            Self::NetworkPut | Self::NetworkGet => Some("low, low"),
            Self::Ptrace => Some("medium, high"),
            _ => None,
        }
    }

    /// Whether it is set up for each region of memory (Table III).
    pub(super) const fn is_region_specific(self) -> bool {
        matches!(self, Self::Window | Self::Mapped | Self::NetworkPut | Self::NetworkGet)
    }

    pub(super) const fn sides(self) -> Sides {
        match self {
            Self::Ptrace => Sides::OneStops,
            Self::KernelPut
            | Self::KernelGet
            | Self::BothSides
            | Self::Window
            | Self::Mapped
            | Self::NetworkPut
            | Self::NetworkGet => Sides::One,
            _ => Sides::Two,
        }
    }

    /// What a process needs to be allowed to do: to the other process's memory, if nothing else is said.
    pub(super) const fn permission(self) -> &'static str {
        match self {
            Self::Ptrace => "trace",
            Self::KernelPut => "read, write",
            Self::KernelGet => "read",
            Self::BothSides => "read (write)",
            Self::NetworkPut | Self::NetworkGet => "connect",
            _ => "none",
        }
    }

    /// Whether the message must lie in memory that the mechanism made.
    pub(super) const fn needs_own_memory(self) -> bool {
        matches!(self, Self::Window | Self::Mapped)
    }

    /// What it is, in one sentence.
    fn settings(self) -> String {
        let (cells, cell) = (CELLS, CELL_BYTES >> 10);
        match self {
            Self::Nothing => {
                "the same program, with a mechanism that copies nothing: what the barrier and two reads of the clock cost"
                    .to_owned()
            }
            Self::PrintedBuffer => {
                "as printed (II-A): two buffers of 8 KiB, each with a flag that says whether it is full".to_owned()
            }
            Self::PrintedStreaming => {
                "the same with the paper's copies (III-B): up to 2 KiB by the string instruction, more by stores past the \
                 caches, into the buffers and out of them"
                    .to_owned()
            }
            Self::SharedBuffer => format!(
                "SharedBuffer of corewire-transfer: cells of {cell} KiB of a pair of rings, 256 KiB of which are reused"
            ),
            Self::PrintedQueue => format!(
                "as printed (II-B): a receive queue and a free queue for each process, {cells} cells of {cell} KiB each"
            ),
            Self::MessageQueue => format!(
                "MessageQueue of corewire-transfer: {cells} cells of {cell} KiB in turn, a ring for each pair of processes"
            ),
            Self::Ptrace => {
                "Ptrace of corewire-transfer: seize, interrupt, read /proc/PID/mem, detach".to_owned()
            }
            Self::KernelPut => {
                "KernelPut of corewire-transfer: process_vm_writev, which stands for Kaput; the receiver is told when \
                 everything is there"
                    .to_owned()
            }
            Self::KernelGet => {
                "KernelGet of corewire-transfer: process_vm_readv, which stands for Kaput".to_owned()
            }
            Self::BothSides => {
                "BothSides of corewire-transfer: both calls at once from 64 KiB on, below that the receiver's alone"
                    .to_owned()
            }
            Self::Window => {
                "memory of both processes, made once, in which the sender's messages lie: the receiver copies with one \
                 copy (IV-B)"
                    .to_owned()
            }
            Self::Mapped => format!(
                "Mapped of corewire-transfer: {MAPS_MAX} segments in turn, so that messages of less than half a megabyte \
                 are in a cache"
            ),
            Self::NetworkPut | Self::NetworkGet => {
                "libfabric's tcp provider over the loopback interface: no card moves the bytes, and the process whose \
                 memory is accessed must call libfabric meanwhile"
                    .to_owned()
            }
        }
    }

    /// The mechanism, and why it is missing.
    pub(super) fn about(self, absent: Option<String>) -> About {
        About::new(self.text(), self.name(), self.settings(), absent)
    }
}
