//! Label values of metrics: those known beforehand, and the names of objects that become labels.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Mutex, PoisonError};

use prometheus::IntCounterVec;
use prometheus::core::Collector;

use portcullis_policy::engine::Decision;

pub use crate::config::Endpoint;
pub use portcullis_policy::engine::PolicyResult;
pub use portcullis_policy::engine::admission::Phase;

/// A label whose values are known when the program is built.
pub trait Label: Copy + Eq + 'static {
    /// Each value once.
    const VALUES: &'static [Self];

    /// The value as metrics spell it.
    fn as_str(self) -> &'static str;
}

/// Declares a label: its values and how metrics spell them.
macro_rules! label {
    ($(#[$about:meta])* $name:ident { $($(#[$value_about:meta])* $value:ident => $text:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$value_about])* $value,)+
        }

        impl $name {
            /// How many values there are.
            pub const COUNT: usize = Self::ALL.len();

            /// Each value once, in the order of [`index`](Self::index).
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$value),+];

            /// The place of this value among all.
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }

            /// The value as metrics spell it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }
        }

        impl Label for $name {
            const VALUES: &'static [Self] = &Self::ALL;

            fn as_str(self) -> &'static str {
                Self::as_str(self)
            }
        }
    };
}

label! {
    /// `state`: how far the client of a connection has come in saying who it is.
    ConnectionState {
        /// Its TLS handshake is not complete.
        Handshake => "handshake",
        /// It is not authenticated yet.
        Unauthenticated => "unauthenticated",
        /// It has a certificate of the client CA, or a request of it was accepted.
        Authenticated => "authenticated",
    }
}

label! {
    /// `method`: the credential by which a caller was recognised, or was not.
    AuthenticationMethod {
        /// A client certificate.
        Certificate => "certificate",
        /// A bearer token that a kubeconfig holds, or one that nobody knows.
        Bearer => "bearer",
        /// A user name and password.
        Basic => "basic",
        /// A bearer token that an issuer signed: a JSON Web Token.
        Jwt => "jwt",
        /// A token in the path of the request.
        PathToken => "pathToken",
        /// None was presented.
        None => "none",
    }
}

label! {
    /// `result`: of an authentication, a reload, a request to a webhook.
    Outcome {
        /// It worked.
        Success => "success",
        /// It did not.
        Failure => "failure",
    }
}

label! {
    /// `code`: the HTTP status codes that the gateway answers with.
    Code {
        /// A review.
        Ok => "200",
        /// Not a review.
        BadRequest => "400",
        /// No or bad credential.
        Unauthorized => "401",
        /// Not for this caller.
        Forbidden => "403",
        /// Unknown path.
        NotFound => "404",
        /// Not by this method.
        MethodNotAllowed => "405",
        /// Too large.
        TooLarge => "413",
        /// Not JSON.
        UnsupportedMediaType => "415",
        /// Over the limit.
        TooManyRequests => "429",
        /// A fault of the gateway.
        InternalError => "500",
        /// Starting.
        Unavailable => "503",
        /// Past the deadline.
        Timeout => "504",
    }
}

impl Label for Endpoint {
    const VALUES: &'static [Self] = &Self::ALL;

    fn as_str(self) -> &'static str {
        Self::as_str(self)
    }
}

impl Label for PolicyResult {
    const VALUES: &'static [Self] = &Self::ALL;

    fn as_str(self) -> &'static str {
        Self::as_str(self)
    }
}

impl Label for Phase {
    const VALUES: &'static [Self] = &Self::ALL;

    fn as_str(self) -> &'static str {
        Self::as_str(self)
    }
}

impl From<Phase> for Endpoint {
    /// The endpoint that serves the phase.
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Validate => Self::Validate,
            Phase::Mutate => Self::Mutate,
        }
    }
}

impl Code {
    /// The label of a status code, if it is one of these.
    pub(crate) fn of(code: u16) -> Option<Self> {
        Some(match code {
            200 => Self::Ok,
            400 => Self::BadRequest,
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 => Self::NotFound,
            405 => Self::MethodNotAllowed,
            413 => Self::TooLarge,
            415 => Self::UnsupportedMediaType,
            429 => Self::TooManyRequests,
            500 => Self::InternalError,
            503 => Self::Unavailable,
            504 => Self::Timeout,
            _ => return None,
        })
    }
}

impl Label for Decision {
    const VALUES: &'static [Self] = &[Self::Allow, Self::Deny, Self::NoOpinion];

    fn as_str(self) -> &'static str {
        Self::as_str(self)
    }
}

/// One recorder for each value of a label.
#[derive(Debug, Clone)]
pub(crate) struct ByLabel<L, R>(Vec<(L, R)>);

impl<L: Label, R> ByLabel<L, R> {
    /// A recorder for every value.
    pub(crate) fn new(recorder: impl Fn(L) -> R) -> Self {
        Self::only(L::VALUES, recorder)
    }

    /// A recorder for these values.
    pub(crate) fn only(values: &[L], recorder: impl Fn(L) -> R) -> Self {
        Self(values.iter().map(|value| (*value, recorder(*value))).collect())
    }

    /// The recorder of a value, if it has one. There are few: a walk beats a map.
    pub(crate) fn get(&self, value: L) -> Option<&R> {
        self.0
            .iter()
            .find(|(label, _)| *label == value)
            .map(|(_, recorder)| recorder)
    }

    /// Records for a value, if it has a recorder.
    pub(crate) fn record(&self, value: L, record: impl FnOnce(&R)) {
        if let Some(recorder) = self.get(value) {
            record(recorder);
        }
    }
}

/// The values that two labels have together in a family's series.
pub(crate) fn label_pairs(family: &IntCounterVec, first: &str, second: &str) -> HashSet<(String, String)> {
    let families = family.collect();
    let series = families.iter().flat_map(|family| family.get_metric());
    let value_of = |metric: &prometheus::proto::Metric, name: &str| {
        metric
            .get_label()
            .iter()
            .find(|label| label.name() == name)
            .map(|label| label.value().to_owned())
    };
    series
        .filter_map(|metric| Some((value_of(metric, first)?, value_of(metric, second)?)))
        .collect()
}

/// The values that a label has in a family's series.
pub(crate) fn label_values(family: &impl Collector, name: &str) -> HashSet<String> {
    let families = family.collect();
    let series = families.iter().flat_map(|family| family.get_metric());
    let labels = series.flat_map(|metric| metric.get_label());
    labels
        .filter(|label| label.name() == name)
        .map(|label| label.value().to_owned())
        .collect()
}

/// The most names of watched objects that have series of their own in a family. Who may create
/// objects in a watched cluster chooses their names, and Prometheus keeps each series.
const MAX_WATCHED_NAMES: usize = 1000;

/// What the others are counted as, together.
pub(crate) const OTHER: &str = "other";

/// The names that the configuration and its files have, which always have series of their own.
#[derive(Debug, Default)]
pub(crate) struct ConfiguredNames(Mutex<HashSet<String>>);

impl ConfiguredNames {
    pub(crate) fn replace(&self, names: HashSet<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// Which of `names` are labels: those that are configured and, of the others, the first
    /// [`MAX_WATCHED_NAMES`]. A webhook's is that of its configuration.
    pub(crate) fn labels<'n>(&self, names: impl Iterator<Item = &'n str>) -> SeriesLabels {
        let configured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_configured = |name: &&str| {
            let object = name.split('/').next().unwrap_or_default();
            configured.contains(object)
        };
        let (configured, watched): (Vec<&str>, Vec<&str>) = names.partition(is_configured);
        let watched: BTreeSet<&str> = watched.into_iter().collect();
        let watched = watched.into_iter().take(MAX_WATCHED_NAMES);
        SeriesLabels(configured.into_iter().chain(watched).map(str::to_owned).collect())
    }
}

/// The names that are labels.
#[derive(Debug, Default)]
pub(crate) struct SeriesLabels(HashSet<String>);

impl SeriesLabels {
    /// `name`, or what it is counted as.
    pub(crate) fn of<'n>(&self, name: &'n str) -> &'n str {
        if self.0.contains(name) { name } else { OTHER }
    }
}
