//! Proves that nobody is allowed what an AuthorizationInvariant forbids, or finds breaches.

use super::difference::{Changed, changed_bindings};
use super::grants::granted;
use super::pieces::RegionsOfSet;
use super::region::Region;
use super::witness::Witness;
use super::{ProofLimitError, WorkLimit};
use crate::authorization::index::BoundRole;
use crate::authorization::{AuthorizationInvariant, PolicySet};
use crate::model::{Cause, Decision, Time, Validity};

/// The maximum of breaches of one invariant that are listed, each by another object.
pub const MAX_BREACHES: usize = 10;

/// Requests that an invariant forbids, and that are allowed or not proved to be denied.
#[derive(Debug, Clone)]
pub struct Breach {
    /// The requests. Its conditions must have the outcomes that it lists.
    pub region: Region,
    /// One of these requests that is allowed; `None` if none was found, because expressions decide.
    pub witness: Option<Witness>,
    /// The object that allows the witness.
    pub cause: Option<Cause<'static>>,
}

/// Proofs of invariants for a policy set, or for a change of one.
pub struct InvariantProof<'s> {
    /// The set before the change, if there is one.
    old: Option<RegionsOfSet<'s>>,
    new: RegionsOfSet<'s>,
    now: Time,
    limit: WorkLimit<'s>,
}

/// The result of a proof.
#[derive(Debug, Clone)]
pub enum InvariantStatus {
    /// Nobody is allowed what the invariant forbids.
    Holds,
    /// There are breaches, or requests that are not proved to be denied: at most [`MAX_BREACHES`].
    Broken(Vec<Breach>),
    /// The result depends on something unknown.
    Undecided(String),
    /// The limit was reached.
    Unproven(ProofLimitError),
}

/// What bindings grant whose roles are not in the policy set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownRoles {
    /// Nothing: the set contains all roles that exist.
    GrantNothing,
    /// It is unknown, because roles also exist elsewhere.
    Undecided,
}

// === impl Breach ===

impl Breach {
    fn is_same_as(&self, other: &Self) -> bool {
        self.cause == other.cause
            && (self.cause.is_some() || self.region.conditions == other.region.conditions)
    }
}

// === impl InvariantProof ===

impl<'s> InvariantProof<'s> {
    /// Proofs for what `set` allows.
    ///
    /// # Errors
    /// The limit is reached.
    pub fn of_set(set: &'s PolicySet, now: Time, limit: WorkLimit<'s>) -> Result<Self, ProofLimitError> {
        Ok(Self {
            old: None,
            new: RegionsOfSet::new(set, Some(now), limit)?,
            now,
            limit,
        })
    }

    /// Proofs for what `new` allows and `old` does not.
    ///
    /// # Errors
    /// The limit is reached.
    pub fn of_change(
        old: &'s PolicySet,
        new: &'s PolicySet,
        now: Time,
        limit: WorkLimit<'s>,
    ) -> Result<Self, ProofLimitError> {
        Ok(Self {
            old: Some(RegionsOfSet::new(old, Some(now), limit)?),
            new: RegionsOfSet::new(new, Some(now), limit)?,
            now,
            limit,
        })
    }

    /// Whether `invariant` holds; for a change, whether the change breaks it.
    #[must_use]
    pub fn status(&self, invariant: &AuthorizationInvariant, roles: UnknownRoles) -> InvariantStatus {
        let unknown = |unknown: bool| match roles {
            UnknownRoles::Undecided if unknown => self.unknown_grant(invariant),
            _ => Ok(None),
        };
        let status = self.breaches(invariant).and_then(|breaches| {
            let unknown = unknown(breaches.is_empty())?;
            Ok(match (breaches.is_empty(), unknown) {
                (false, _) => InvariantStatus::Broken(breaches),
                (true, Some(unknown)) => InvariantStatus::Undecided(unknown),
                (true, None) => InvariantStatus::Holds,
            })
        });
        status.unwrap_or_else(InvariantStatus::Unproven)
    }

    /// A binding that may grant what `invariant` forbids through an unknown role; for a change, a
    /// binding that was added or changed.
    fn unknown_grant(&self, invariant: &AuthorizationInvariant) -> Result<Option<String>, ProofLimitError> {
        let forbidden = self.new.forbidden_by(invariant)?;
        let set = self.new.set();
        let bindings: Vec<&BoundRole> = match &self.old {
            Some(old) => changed_bindings(old.set(), set).1,
            None => set.bindings.iter().collect(),
        };
        let unknown = bindings.into_iter().filter(|bound| bound.role.is_none());
        let unknown = unknown.map(|bound| &*bound.binding).find(|binding| {
            let mut grants = forbidden.iter().flat_map(|within| granted(binding, within));
            grants.next().is_some()
        });
        Ok(unknown.map(|binding| {
            let (role, name) = (&binding.role, &binding.name);
            let place = match binding.namespace.as_str() {
                "" => String::new(),
                namespace => format!("{namespace}/"),
            };
            let kind = binding.kind().as_str();
            format!(
                "the {} `{}`, to which the {kind} `{place}{name}` binds, is not known",
                role.kind, role.name
            )
        }))
    }

    /// The requests that `invariant` forbids and that are allowed; for a change, only those that
    /// were not allowed before. The search ends when [`MAX_BREACHES`] objects are found that allow
    /// some of them.
    ///
    /// # Errors
    /// The limit is reached.
    pub fn breaches(&self, invariant: &AuthorizationInvariant) -> Result<Vec<Breach>, ProofLimitError> {
        let forbidden = self.new.forbidden_by(invariant)?;
        let mut breaches: Vec<Breach> = Vec::new();
        for allowed in self.allowed(&forbidden)? {
            self.limit.check_deadline()?;
            let mut others = self.new.denying(&allowed)?;
            if let Some(old) = &self.old {
                others.extend(self.allowed_by(old, &allowed)?);
            }
            let others: Vec<&Region> = others.iter().collect();
            for part in allowed.without(&others, self.limit)? {
                let breach = self.breach(part);
                if !breaches.iter().any(|known| known.is_same_as(&breach)) {
                    breaches.push(breach);
                }
                if breaches.len() >= MAX_BREACHES {
                    return Ok(breaches);
                }
            }
        }
        Ok(breaches)
    }

    /// The part of `forbidden` that may be allowed, disregarding Denies; for a change, only through
    /// what is different.
    fn allowed(&self, forbidden: &[Region]) -> Result<Vec<Region>, ProofLimitError> {
        let later = Validity {
            not_before: Some(self.now),
            not_after: None,
        };
        let mut starts = Vec::new();
        let mut add = |within: &Region, allowing: Vec<Region>| {
            for allows in &allowing {
                self.limit.check_deadline()?;
                let both = within.intersection(allows);
                starts.extend(both.and_then(|region| region.during(later)));
            }
            Ok::<(), ProofLimitError>(())
        };
        let Some(old) = &self.old else {
            for within in forbidden {
                add(within, self.new.allowing(within)?)?;
            }
            return Ok(starts);
        };
        let changed = Changed::between(old, &self.new, forbidden)?.from(self.now);
        for within in forbidden {
            add(within, changed.added_allows.clone())?;
            for undenied in &changed.removed_denies {
                if let Some(within) = within.intersection(undenied) {
                    add(&within, self.new.allowing(&within)?)?;
                }
            }
        }
        Ok(starts)
    }

    /// The part of `within` that `pieces` allow, and no Deny denies.
    fn allowed_by(&self, pieces: &RegionsOfSet<'_>, within: &Region) -> Result<Vec<Region>, ProofLimitError> {
        let denying = pieces.denying(within)?;
        let denying: Vec<&Region> = denying.iter().collect();
        let mut allowed = Vec::new();
        for allows in pieces.allowing(within)? {
            if let Some(both) = within.intersection(&allows) {
                allowed.extend(both.without(&denying, self.limit)?);
            }
        }
        Ok(allowed)
    }

    fn breach(&self, mut region: Region) -> Breach {
        let at = region.period.not_before.unwrap_or(self.now);
        region.period.not_before = region.period.not_before.filter(|start| *start > self.now);
        let new = self.new.set();
        let old = self.old.as_ref().map_or(new, RegionsOfSet::set);
        let found = Witness::find(&region, at, [old, new], |attributes, [old, new]| {
            let decide = |set: &PolicySet| {
                let answer = set.authorize_observed(attributes, at, self.limit.deadline, &mut ());
                (answer.decision, answer.cause.map(Cause::into_owned))
            };
            let was_allowed = self.old.is_some() && decide(old).0 == Decision::Allow;
            let (decision, cause) = decide(new);
            (decision == Decision::Allow && !was_allowed).then_some(cause)
        });
        match found {
            Some((witness, cause)) => Breach {
                region,
                witness: Some(witness),
                cause,
            },
            None => Breach {
                region,
                witness: None,
                cause: None,
            },
        }
    }
}
