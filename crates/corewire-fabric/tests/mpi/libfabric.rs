//! libfabric's own programs.

use std::process::Command;

use crate::job::Job;
use crate::mpis::output;
use crate::place::Place;

#[test]
fn fi_info_lists_the_provider() {
    if output("fi_info", &["--version"]).is_none() {
        eprintln!("SKIPPED: fi_info of libfabric is not in PATH");
        return;
    }
    let place = Place::new("fi-info");
    let run = |arguments: &[&str]| {
        Job::start(&place, Command::new("fi_info").args(arguments)).expect_success()
    };
    let said = run(&["-p", "corewire"]);
    let has = |line: &str| said.lines().any(|it| it.trim() == line);
    assert!(has("provider: corewire") && has("type: FI_EP_RDM"), "{said}");
    let said = run(&[
        "-p",
        "corewire",
        "-t",
        "FI_EP_RDM",
        "-c",
        "FI_TAGGED|FI_MSG|FI_DIRECTED_RECV|FI_RMA|FI_ATOMIC",
    ]);
    assert!(said.contains("provider: corewire"), "{said}");
    // What it does not offer it does not claim, for a helper to be put above it.
    for refused in [["-t", "FI_EP_DGRAM"], ["-t", "FI_EP_MSG"], ["-c", "FI_RMA_EVENT"]] {
        let arguments = [&["-p", "corewire"], &refused[..]].concat();
        let (status, said) = Job::start(&place, Command::new("fi_info").args(arguments)).finish();
        assert!(!status.success() && !said.contains("provider: corewire"), "{refused:?}: {said}");
    }
    assert_eq!(place.files(), Vec::<String>::new());
}
