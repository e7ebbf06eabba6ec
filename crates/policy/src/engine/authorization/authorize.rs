//! Entry points of a policy set: each decides with one walk, recorded or not.

use super::trace::{Observer, Trace};
use super::walk::{Quiet, Recording, Walk, WalkRequest};
use super::{Authorization, PolicySet, Unmatched};
use crate::engine::{Attributes, Time};

impl PolicySet {
    /// Decides, as at `now`.
    #[must_use]
    pub fn authorize<'s>(&'s self, attributes: &Attributes<'_>, now: Time) -> Authorization<'s> {
        self.authorize_observed(attributes, now, &mut ())
    }

    /// Decides, and reports to `observer` the result of each policy that was evaluated.
    pub fn authorize_observed<'s>(
        &'s self,
        attributes: &Attributes<'_>,
        now: Time,
        observer: &mut impl Observer,
    ) -> Authorization<'s> {
        let request = WalkRequest::new(self, attributes, now);
        Walk::new(&request, Quiet(observer)).decide().0
    }

    /// Decides by the same walk, and says of everything considered why it did
    /// or did not apply. Linear in the policies and in the user's bindings.
    #[must_use]
    pub fn explain<'s>(&'s self, attributes: &Attributes<'_>, now: Time) -> (Authorization<'s>, Trace) {
        let request = WalkRequest::new(self, attributes, now);
        let (authorization, recording) = Walk::new(&request, Recording::default()).decide();
        (authorization, recording.0)
    }

    /// Says why nothing decided; meaningful where [`PolicySet::authorize`] has
    /// no opinion. Linear in the user's bindings and the policies that allow,
    /// and bounded: it looks at no more than a few thousand rules.
    #[must_use]
    pub fn unmatched(&self, attributes: &Attributes<'_>, now: Time) -> Unmatched {
        let request = WalkRequest::new(self, attributes, now);
        Walk::new(&request, Quiet(&mut ())).unmatched()
    }
}
