//! Processor time and memory of this process, as the kernel reports them.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// `USER_HZ`, the clock ticks per second in `/proc/self/stat`: 100 on all common architectures.
const TICKS: f64 = 100.0;

/// Processor time since the start of the process, ended threads included.
pub(crate) fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc/self/stat");
    let (_, fields) = stat.rsplit_once(')').expect("the name of the program");
    // utime and stime are fields 14 and 15 of stat(5), 11 and 12 after the name.
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: f64 = ticks.filter_map(|field| field.parse::<f64>().ok()).sum();
    Duration::from_secs_f64(ticks / TICKS)
}

/// Processor time of the current thread, which depends little on how busy the machine is.
pub(crate) fn cpu_of_thread() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.try_into().expect("a time since its start")
}

/// The resident memory in megabytes: now, and at its peak.
pub(crate) fn memory() -> (f64, f64) {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let megabytes = |field: &str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .expect("a field");
        let kilobytes = line
            .split_whitespace()
            .next()
            .and_then(|text| text.parse::<f64>().ok());
        kilobytes.expect("a number") / 1024.0
    };
    (megabytes("VmRSS:"), megabytes("VmHWM:"))
}
