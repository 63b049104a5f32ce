//! The systems that a call is compared with.

use std::path::Path;
use std::thread;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{bus, dbus, grpc};
use crate::study::failure::{Doing, Failure};
use crate::study::results::About;

const DBUS: &str = "A method call with a uint64 and its reply, by rustbus 0.19 (which was compared with libdbus and \
                    zbus: none was faster), through a dbus-daemon with a socket and a configuration of its own. On the \
                    same core the daemon runs there, too; with cores apart it runs where the kernel puts it.";
const GRPC: &str = "A unary call of UInt64Value over a Unix socket, by tonic 0.14; each side has a tokio runtime of one \
                    thread.";

/// A system for calls between processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Id {
    /// D-Bus, through a dbus-daemon of the study's own
    Dbus,
    /// gRPC over a Unix socket
    Grpc,
}

/// A caller of a service that answers with the number that it was sent.
pub(crate) trait Call {
    /// Sends a number, and returns the one that comes back.
    fn call(&mut self, number: u64) -> Result<u64, Failure>;
}

impl Id {
    /// Its name in results and on the command line.
    pub(super) fn text(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// What results say of it.
    pub(super) fn about(self) -> About {
        let (name, settings) = match self {
            Self::Dbus => ("D-Bus", DBUS),
            Self::Grpc => ("gRPC", GRPC),
        };
        About::new(self.text(), name, settings, self.absence())
    }

    /// Why it is not available here; `None` if it is.
    pub(crate) fn absence(self) -> Option<String> {
        match self {
            Self::Dbus => bus::absence(),
            Self::Grpc => None,
        }
    }

    /// Starts its service in a thread, which is ready when this returns and ends with the process.
    pub(crate) fn serve(self, directory: &Path) -> Result<(), Failure> {
        let serve: Box<dyn FnOnce() + Send> = match self {
            Self::Dbus => Box::new(dbus::service()?),
            Self::Grpc => Box::new(grpc::service(directory)?),
        };
        thread::Builder::new().spawn(serve).map(drop).doing("start a thread")
    }

    /// Connects to its service.
    pub(crate) fn connect(self, directory: &Path) -> Result<Box<dyn Call>, Failure> {
        Ok(match self {
            Self::Dbus => Box::new(dbus::Caller::connect()?),
            Self::Grpc => Box::new(grpc::Caller::connect(directory)?),
        })
    }
}
