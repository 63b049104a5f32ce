//! Endpoints that follow a tuning file.

use std::fs;
use std::process::{Command, Stdio};

use crate::roles::{Directory, Role};

// Keeps P252.
#[test]
fn endpoints_follow_the_file_that_the_environment_names() {
    let directory = Directory::new("tuned");
    let file = directory.path().with_extension("toml");
    let text = "format = 1\nprocessor = \"any\"\n\n[messages]\noffered_above_bytes = 16384\noffered_if_scarce_above_bytes = 16384\ncells = 32\n";
    fs::write(&file, text).unwrap();
    let start = |tuning: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corewire-role"));
        command.arg("tuned").arg(directory.path()).args(["c", "count=30000"]);
        command.env("COREWIRE_TUNING", tuning).stdin(Stdio::piped()).stdout(Stdio::piped());
        Role::of(command.spawn().unwrap())
    };
    for (tuning, offered, cells) in
        [("none", "false", "64 of 16384"), (file.to_str().unwrap(), "true", "32 of 16384")]
    {
        let mut role = start(tuning);
        assert_eq!(role.until("offered"), offered, "{tuning}");
        assert_eq!(role.until("cells"), cells, "{tuning}");
        assert!(role.is_success());
    }
    fs::remove_file(file).unwrap();
}
