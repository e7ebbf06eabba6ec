//! The program as people run it: arguments, output, exit codes, files left behind.
//!
//! Each test runs the real binary in a folder of its own.

#[path = "cli/init.rs"]
mod init;
#[path = "cli/run.rs"]
mod run;
