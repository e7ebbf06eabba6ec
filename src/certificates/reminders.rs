//! Log warnings before a certificate expires.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::{Expiry, Use};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Reminds once at 30, 7 and 1 days before a certificate ends, and once it has.
#[derive(Debug, Default)]
pub struct Reminders(HashMap<Certificate, ReminderStage>);

type Certificate = (PathBuf, String, Use);

/// How near the end is. The later, the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ReminderStage {
    Far,
    Month,
    Week,
    Day,
    Over,
}

// === impl Reminders ===

impl Reminders {
    /// Whom to remind of at `now`: those that came a stage nearer to their end since
    /// the last call, or that are new and near. A renewed certificate begins anew.
    pub fn due<'e>(&mut self, expiries: &'e [Expiry], now: SystemTime) -> Vec<&'e Expiry> {
        let mut stages = HashMap::new();
        let mut due = Vec::new();
        for expiry in expiries {
            let certificate = (expiry.file.clone(), expiry.name.clone(), expiry.used_for);
            let stage = ReminderStage::of(expiry.at, now);
            let before = self.0.get(&certificate).copied().unwrap_or(ReminderStage::Far);
            if stage > before {
                due.push(expiry);
            }
            // Several of one name: the one that ends first counts.
            let kept = stages.entry(certificate).or_insert(stage);
            *kept = stage.max(*kept);
        }
        self.0 = stages;
        due
    }
}

// === impl ReminderStage ===

impl ReminderStage {
    fn of(end: SystemTime, now: SystemTime) -> Self {
        match end.duration_since(now) {
            Err(_) => Self::Over,
            Ok(left) if left <= DAY => Self::Day,
            Ok(left) if left <= 7 * DAY => Self::Week,
            Ok(left) if left <= 30 * DAY => Self::Month,
            Ok(_) => Self::Far,
        }
    }
}
