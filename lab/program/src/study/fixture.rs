//! A machine, and a study that measures nothing, for tests.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::distances::Lines;
use super::page::{Page, Table};
use super::results::{Body, Cache, Machine, Results};
use super::runner::{Effort, Entry, Group, Study};
use crate::study::failure::Failure;

/// A study without results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Nothing;

/// What it finds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct None;

impl Study for Nothing {
    type Body = None;
    type Job = u32;
    type Found = ();

    fn name(&self) -> &'static str {
        "nothing"
    }

    fn effort(&self) -> Effort {
        Effort::Full
    }

    fn groups(&self) -> Vec<Group<u32>> {
        Vec::new()
    }

    fn time_of(&self, _: &u32) -> Duration {
        Duration::ZERO
    }

    fn words(&self, _: &u32) -> String {
        String::new()
    }

    fn run(&self, _: &u32, _: u32, _: &Path) -> Result<(), Failure> {
        Ok(())
    }

    fn body(&self, _: &Machine, _: &[Entry<Self>]) -> Result<None, Failure> {
        Ok(None)
    }
}

impl Body for None {
    const NAMES: &[&str] = &["nothing"];

    fn retain(&mut self, _: &mut dyn FnMut(Lines) -> bool) {}

    fn page(_: &Results<Self>) -> Page {
        Page::bare("# Nothing")
    }

    fn tables(_: &Results<Self>) -> Vec<(&'static str, Table)> {
        Vec::new()
    }

    fn summary(_: &Results<Self>) -> Vec<Table> {
        Vec::new()
    }
}

/// A machine with 4 cores.
pub(crate) fn machine() -> Machine {
    let cache = |level, kind: &str, bytes, shared_by| Cache {
        level,
        kind: kind.to_owned(),
        bytes,
        shared_by,
    };
    Machine {
        processor: "Intel(R) Xeon(R) Processor @ 2.90GHz <test>".to_owned(),
        cores: 4,
        sockets: 1,
        caches: vec![
            cache(1, "data", 32 << 10, 2),
            cache(1, "instruction", 32 << 10, 2),
            cache(2, "unified", 1 << 20, 2),
            cache(3, "unified", 33 << 20, 4),
        ],
        memory_bytes: 16 << 30,
        kernel: "Linux 6.1.0-42-cloud-amd64".to_owned(),
        hypervisor: Some("KVM".to_owned()),
        counters_absent: Some("the kernel has no hardware counters here (ENOENT)".to_owned()),
        queue_limits: "a namespace of its own, raised to 16 MiB".to_owned(),
    }
}

/// Results of a study on that machine.
pub(crate) fn results<B>(study: &str, body: B) -> Results<B> {
    let began = "2026-11-22T01:02:03Z".to_owned();
    let (study, version, effort) = (study.to_owned(), "0.1.0".to_owned(), "default".to_owned());
    Results { format: 1, study, version, began, effort, machine: machine(), body }
}
