//! `limits`: the maximum number and size of concurrent requests, and the memory for watched
//! objects, which by default depends on the memory that this process may use. Also how file
//! descriptors are divided.
//!
//! Accepted connections, calls to webhooks and other authorizers, and connections to watched API
//! servers each take a file descriptor. Each of these uses has its own share of the descriptors, so
//! that none can take those of the others, or those for probes and files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::section::Section;
use portcullis_policy::field::FaultKind;

/// The limits of resources. Authorization and admission each have the limits for requests
/// separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum size of a request body, in bytes.
    pub body_bytes: usize,
    /// The maximum number of concurrent requests.
    pub in_flight: usize,
    /// The maximum size of the bodies of all concurrent requests together, in bytes; at least
    /// `body_bytes`.
    pub in_flight_bytes: usize,
    /// The memory for the objects of all watched clusters, in bytes; `None`: half of the memory
    /// that the process may use.
    pub watched_bytes: Option<usize>,
}

/// The memory that a process is assumed to have if its limits are unknown, in bytes.
pub(crate) const ASSUMED_MEMORY: usize = 1 << 30;

/// Where the file system of control groups is mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The memory that this process may use, in bytes: the least limit of its control groups (version 1
/// or 2), and no more than the machine has; `None` if it is unknown.
pub(crate) fn memory_of_process() -> Option<usize> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    memory_limit(&read)
}

fn memory_limit(read: &impl Fn(&Path) -> Option<String>) -> Option<usize> {
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let files = groups.lines().flat_map(limits_of);
    let limits = files.filter_map(|file| read(&file)?.trim().parse::<usize>().ok());
    limits.chain(of_machine(read)).min()
}

/// The files with the limits of the control group in a line of `/proc/self/cgroup`, such as
/// `0::/a/b` (version 2) or `7:memory:/a/b`, and of its ancestors. In a container, the path may be
/// the one on the host, while the container's own group is mounted as the root.
fn limits_of(line: &str) -> Vec<PathBuf> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
        return Vec::new();
    };
    let (root, file) = match controllers {
        "" => (PathBuf::from(CGROUPS), "memory.max"),
        _ if controllers.split(',').any(|one| one == "memory") => {
            (Path::new(CGROUPS).join("memory"), "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    let own = path.trim_start_matches('/');
    let groups = Path::new(own).ancestors();
    groups.map(|group| root.join(group).join(file)).collect()
}

fn of_machine(read: &impl Fn(&Path) -> Option<String>) -> Option<usize> {
    let text = read(Path::new("/proc/meminfo"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1 << 10)
}

/// Descriptors for probes, files and logs.
const RESERVED_DESCRIPTORS: usize = 256;

/// The maximum number of concurrent calls, each of which may take 200 KiB.
const MAX_CALLS: usize = 1024;

/// The maximum number of idle connections to webhooks, each of which may take 150 KiB.
const MAX_IDLE_CALLS: usize = 512;

/// The maximum number of connections to watched API servers.
const MAX_WATCHES: usize = 16_384;

/// How the file descriptors of a process are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// Connections from callers and browsers.
    pub(crate) accepted: usize,
    /// Calls to webhooks and other authorizers.
    calls: usize,
    /// Idle connections to webhooks.
    pub(crate) idle_calls: usize,
    /// Connections to watched API servers.
    pub(crate) watches: usize,
}

impl Descriptors {
    /// The descriptors of this process, whose soft limit is raised to the hard limit.
    pub(crate) fn of_process() -> Self {
        static DESCRIPTORS: LazyLock<Descriptors> = LazyLock::new(|| Descriptors::within(raise_limit()));
        *DESCRIPTORS
    }

    /// The calls to webhooks whose responses admission waits for.
    pub(crate) const fn admission_calls(self) -> usize {
        self.calls / 8 * 5
    }

    /// The calls to shadow webhooks.
    pub(crate) const fn shadow_calls(self) -> usize {
        self.calls / 8
    }

    /// The calls to other authorizers.
    pub(crate) const fn authorizer_calls(self) -> usize {
        self.calls / 4
    }

    /// Divides `limit` descriptors. If there are few, a quarter is for accepted connections.
    fn within(limit: Option<u64>) -> Self {
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let eighth = |most: usize| (limit / 8).min(most);
        let (calls, idle_calls, watches) = (eighth(MAX_CALLS), eighth(MAX_IDLE_CALLS), eighth(MAX_WATCHES));
        let others = RESERVED_DESCRIPTORS + calls + idle_calls + watches;
        Self {
            accepted: limit.saturating_sub(others).max(limit / 4),
            calls,
            idle_calls,
            watches,
        }
    }
}

fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "cannot raise the limit of open files");
            limit.current
        }
    }
}

// === impl Limits ===

impl Limits {
    /// The memory for data that is derived from the bodies of all concurrent requests, such as
    /// their indexes, in bytes: as much as for the bodies, and enough for the objects in the
    /// largest body.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.in_flight_bytes.max(4 * self.body_bytes)
    }
}

/// A request with 1 MiB of selectors in its URL becomes a review of over 20 MB.
const fn default_body_bytes() -> usize {
    32 * 1024 * 1024
}

const fn default_in_flight() -> usize {
    1024
}

const fn default_in_flight_bytes() -> usize {
    256 * 1024 * 1024
}

/// The minimum of `watchedBytes`.
const MIN_WATCHED_BYTES: u64 = 16 << 20;

pub(crate) fn limits(root: &Section<'_>) -> Limits {
    let section = root.section(
        "limits",
        &["bodyBytes", "inFlight", "inFlightBytes", "watchedBytes"],
    );
    let limits = Limits {
        body_bytes: section.positive("bodyBytes").unwrap_or_else(default_body_bytes),
        in_flight: section.positive("inFlight").unwrap_or_else(default_in_flight),
        in_flight_bytes: section
            .positive("inFlightBytes")
            .unwrap_or_else(default_in_flight_bytes),
        watched_bytes: section
            .bytes("watchedBytes", MIN_WATCHED_BYTES)
            .and_then(|bytes| bytes.try_into().ok()),
    };
    if limits.in_flight_bytes < limits.body_bytes {
        let message = format!(
            "{} is less than bodyBytes, {}: the largest body would never be accepted",
            limits.in_flight_bytes, limits.body_bytes
        );
        section.fault("inFlightBytes", FaultKind::Invalid, message);
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: (&str, &str) = ("/proc/meminfo", "MemTotal:        8000 kB\nMemFree: 1 kB\n");

    fn least_of(files: &[(&str, &str)]) -> Option<usize> {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path)?;
            Some(file.1.to_owned())
        };
        memory_limit(&read)
    }

    #[test]
    fn the_least_limit_counts() {
        let cgroup = ("/proc/self/cgroup", "0::/kubepods/pod/main\n");
        let table: [(&[(&str, &str)], _); 6] = [
            (&[], None),
            (&[MEMINFO, cgroup], Some(8_000 << 10)),
            (
                &[
                    MEMINFO,
                    cgroup,
                    ("/sys/fs/cgroup/kubepods/pod/main/memory.max", "max\n"),
                ],
                Some(8_000 << 10),
            ),
            (
                &[
                    MEMINFO,
                    cgroup,
                    ("/sys/fs/cgroup/kubepods/memory.max", "1048576\n"),
                ],
                Some(1 << 20),
            ),
            (
                &[
                    MEMINFO,
                    ("/proc/self/cgroup", "0::/\n"),
                    ("/sys/fs/cgroup/memory.max", "2097152\n"),
                ],
                Some(2 << 20),
            ),
            (
                &[
                    MEMINFO,
                    (
                        "/proc/self/cgroup",
                        "3:cpu,cpuacct:/docker/x\n2:memory:/docker/x\n",
                    ),
                    (
                        "/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes",
                        "9223372036854771712\n",
                    ),
                    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3145728\n"),
                ],
                Some(3 << 20),
            ),
        ];
        for (files, expected) in table {
            assert_eq!(least_of(files), expected, "{files:?}");
        }
    }

    #[test]
    fn calls_and_callers_leave_descriptors_to_each_other() {
        let of = |limit| {
            let found = Descriptors::within(limit);
            (found.accepted, found.calls, found.idle_calls, found.watches)
        };
        let accepted = (1 << 20) - 256 - 1024 - 512 - 16_384;
        assert_eq!(of(Some(1 << 20)), (accepted, 1024, 512, 16_384));
        assert_eq!(of(Some(1024)), (384, 128, 128, 128));
        assert_eq!(of(Some(256)), (64, 32, 32, 32));
        let (accepted, calls, idle_calls, watches) = of(None);
        assert!(accepted > 1 << 40);
        assert_eq!((calls, idle_calls, watches), (1024, 512, 16_384));
        for limit in [None, Some(1024), Some(256), Some(64)] {
            let found = Descriptors::within(limit);
            let parts = [
                found.admission_calls(),
                found.shadow_calls(),
                found.authorizer_calls(),
            ];
            assert!(parts.iter().sum::<usize>() <= found.calls && parts.iter().all(|part| *part > 0));
        }
    }
}
