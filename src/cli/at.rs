//! `--at`: the time for which a command decides.

use std::time::SystemTime;

use portcullis_policy::engine::Time;

#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct At {
    /// Decide for this time, in RFC 3339, such as `2026-12-01T08:00:00Z` [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse)]
    at: Option<Time>,
}

impl At {
    /// The time named, or now.
    pub(crate) fn time(self) -> Time {
        self.at.unwrap_or_else(|| SystemTime::now().into())
    }
}

pub(crate) fn parse(text: &str) -> Result<Time, &'static str> {
    Time::parse(text).ok_or("expected a time in RFC 3339, such as `2026-12-01T08:00:00Z`")
}
