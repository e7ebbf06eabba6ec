//! Example requests of a region.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::condition::{ExtraRequirements, Field, NamespaceLabelRequirements, Side};
use super::region::Region;
use super::sets::groups_of_account;
use crate::authorization::PolicySet;
use crate::authorization::matching::selectable_namespace;
use crate::model::{Attributes, ResourceAttributes, Target, Time, User};

/// The preferred values of open fields.
const VERBS: [&str; 6] = ["get", "list", "create", "update", "delete", "watch"];
const RESOURCES: [&str; 3] = ["pods", "configmaps", "secrets"];
/// The maximum of requests that are tried if expressions decide.
const MAX_CANDIDATES: usize = 300;

/// An example request that demonstrates a statement about a region.
#[derive(Debug, Clone)]
pub struct Witness {
    /// The request.
    pub attributes: Attributes<'static>,
    /// The time of the request.
    pub at: Time,
    /// The labels of its namespace, if it depends on labels that the policy set does not know.
    pub namespace_labels: Option<BTreeMap<String, String>>,
}

impl Witness {
    /// The first request of `region` for which `shown` returns something. `sets` are evaluated with
    /// the namespace labels of the region.
    pub(crate) fn find<T, const N: usize>(
        region: &Region,
        at: Time,
        sets: [&PolicySet; N],
        shown: impl Fn(&Attributes<'static>, [&PolicySet; N]) -> Option<T>,
    ) -> Option<(Self, T)> {
        let labels = region.namespace_labels().possible().ok()??;
        region.candidates().into_iter().find_map(|attributes| {
            let name = match &attributes.target {
                Target::Resource(request) => selectable_namespace(request),
                Target::NonResource { .. } => "",
            };
            let labelled = labels.as_ref().filter(|_| !name.is_empty());
            let labelled = labelled.map(|labels| sets.map(|set| set.with_namespace(name, labels)));
            let found = match &labelled {
                Some(sets) => shown(&attributes, sets.each_ref()),
                None => shown(&attributes, sets),
            };
            let namespace_labels = labelled.and(labels.clone());
            found.map(|found| {
                let witness = Self {
                    attributes,
                    at,
                    namespace_labels,
                };
                (witness, found)
            })
        })
    }
}

impl Region {
    /// The requirements of its conditions on the labels of a namespace that the policy set does not
    /// know.
    #[must_use]
    pub fn namespace_labels(&self) -> NamespaceLabelRequirements<'_> {
        let mut asked = NamespaceLabelRequirements {
            within: Vec::new(),
            not_within: Vec::new(),
            may_be_known: true,
            may_be_unknown: true,
        };
        for (condition, outcomes) in &self.conditions {
            let Some(selector) = condition.selector() else {
                continue;
            };
            match (outcomes.holds, outcomes.fails) {
                (true, false) => asked.within.push(selector),
                (false, true) => asked.not_within.push(selector),
                (true, true) => {}
                (false, false) => asked.may_be_known = false,
            }
            asked.may_be_unknown &= outcomes.errors;
        }
        asked
    }

    /// The keys of `extra` in its conditions.
    pub(crate) fn extra_keys(&self) -> BTreeSet<&str> {
        let conditions = self.conditions.iter();
        let keys = conditions.filter_map(|(condition, _)| Some(condition.extra()?.0));
        keys.collect()
    }

    /// The requirements of its conditions on a key of the user's `extra`.
    pub(crate) fn extra(&self, key: &str) -> ExtraRequirements<'_> {
        let mut asked = ExtraRequirements {
            values: Vec::new(),
            may_be_there: true,
            may_be_absent: true,
        };
        for (condition, outcomes) in &self.conditions {
            let Some((_, test)) = condition.extra().filter(|(of, _)| *of == key) else {
                continue;
            };
            match (test, outcomes.holds, outcomes.fails) {
                (None, holds, fails) => {
                    asked.may_be_there &= holds;
                    asked.may_be_absent &= fails;
                    continue;
                }
                (Some(_), false, false) => asked.may_be_there = false,
                (Some(_), true, true) => {}
                (Some(test), holds, _) => asked.values.push((test, holds)),
            }
            asked.may_be_absent &= outcomes.errors;
        }
        asked
    }
}

impl Region {
    /// An example request. Disregarding conditions, all requests of the region are decided like
    /// this one. `None` if the region is empty.
    #[must_use]
    pub fn example(&self) -> Option<Attributes<'static>> {
        let user = self.user()?;
        if self.is_path {
            let path = self.text(Side::Path, &["/metrics", "/healthz"], "/other")?;
            let verb = self.text(Side::Verb, &VERBS, "other")?;
            let target = Target::NonResource {
                path: path.into(),
                verb: verb.into(),
            };
            return Some(Attributes { user, target });
        }
        let namespaces = match self.side(Side::Resource).contains("namespaces") {
            true => ["", "default"],
            false => ["default", ""],
        };
        let resource = ResourceAttributes {
            verb: self.text(Side::Verb, &VERBS, "other")?.into(),
            namespace: self.text(Side::Namespace, &namespaces, "other")?.into(),
            group: self
                .text(Side::ApiGroup, &["", "apps"], "other.example.com")?
                .into(),
            resource: self.text(Side::Resource, &RESOURCES, "others")?.into(),
            subresource: self.text(Side::Subresource, &[""], "other")?.into(),
            name: self.text(Side::Name, &[""], "other")?.into(),
            selectors: self.selectors.widest(),
            version: self.text_of_field(Field::Version)?.into(),
            ..ResourceAttributes::default()
        };
        Some(Attributes {
            user,
            target: Target::Resource(Box::new(resource)),
        })
    }

    /// Example requests with different values in the fields that the expressions of its conditions
    /// compare.
    pub(crate) fn candidates(&self) -> Vec<Attributes<'static>> {
        let texts: Vec<String> = self
            .conditions
            .iter()
            .flat_map(|(condition, _)| literals(&condition.text))
            .collect();
        let mut regions = vec![self.clone()];
        for side in Side::ALL {
            for at in 0..regions.len() {
                let Some(region) = regions.get(at).cloned() else {
                    break;
                };
                let named = texts.iter().filter(|text| region.side(side).contains(text));
                let with =
                    named.filter_map(|text| region.with(side, &super::TextSet::exact([text.as_str()])));
                let room = MAX_CANDIDATES.saturating_sub(regions.len());
                let with: Vec<Self> = with.take(room).collect();
                regions.extend(with);
            }
        }
        let plain: Vec<Attributes<'static>> = regions.iter().filter_map(Self::example).collect();
        let with_groups = plain.iter().filter(|_| !self.is_service_account).flat_map(|one| {
            let free = texts.iter().filter(|text| !self.groups.none.contains(text));
            free.map(|group| {
                let mut one = one.clone();
                one.user.groups.push(group.clone().into());
                one
            })
        });
        plain
            .iter()
            .cloned()
            .chain(with_groups.take(MAX_CANDIDATES))
            .collect()
    }

    /// A string of a side that passes the conditions: one of `preferred`, otherwise one that is
    /// named or made with `stem`, otherwise the shortest.
    fn text(&self, side: Side, preferred: &[&str], stem: &str) -> Option<String> {
        let (texts, field) = (self.side(side), Field::Side(side));
        let usual = preferred.iter().filter(|text| texts.contains(text));
        let usual = usual.map(|text| (*text).to_owned());
        let mut examples = usual.chain(texts.example(&[], stem));
        let passing = examples.find(|text| self.passes(field, text));
        passing.or_else(|| self.possible_text(field).ok().flatten())
    }

    /// Does this for a field that rules do not distinguish.
    fn text_of_field(&self, field: Field) -> Option<String> {
        match self.passes(field, "") {
            true => Some(String::new()),
            false => self.possible_text(field).ok().flatten(),
        }
    }

    fn user(&self) -> Option<User<'static>> {
        let users = self.side(Side::User);
        if self.is_service_account {
            // NAMESPACE:NAME, unless the prefix already contains it.
            let is_whole = |prefix: &str| prefix.matches(':').count() >= 3;
            let prefix = users.within().prefixes.first();
            let stem = if prefix.is_some_and(|prefix| is_whole(prefix)) {
                "other"
            } else {
                "other:other"
            };
            let name = self.text(Side::User, &["system:serviceaccount:default:default"], stem)?;
            let groups = groups_of_account(&name)
                .unwrap_or_default()
                .map(Into::into)
                .into_iter();
            return self.with_extra(User {
                groups: groups.filter(|group: &Cow<'_, str>| !group.is_empty()).collect(),
                name: name.into(),
                uid: self.text_of_field(Field::Uid)?.into(),
                ..User::default()
            });
        }
        let mut groups: Vec<String> = self.groups.all.exact.iter().map(ToString::to_string).collect();
        for prefix in &self.groups.all.prefixes {
            let others = super::TextSet::all_but(self.groups.none.clone());
            let begin = others.intersection(&super::TextSet::of(super::Patterns::prefixes([prefix.clone()])));
            if !groups.iter().any(|group| group.starts_with(&**prefix)) {
                groups.push(begin.example(&[], "other")?);
            }
        }
        self.with_extra(User {
            name: self.text(Side::User, &[], "somebody")?.into(),
            groups: groups.into_iter().map(Into::into).collect(),
            uid: self.text_of_field(Field::Uid)?.into(),
            ..User::default()
        })
    }

    /// `user` with values for each required key of `extra`.
    fn with_extra(&self, mut user: User<'static>) -> Option<User<'static>> {
        for key in self.extra_keys() {
            if let Some(values) = self.extra(key).possible().ok()?? {
                let values = values.into_iter().map(Cow::Owned).collect();
                user.extra.push((Cow::Owned(key.to_owned()), values));
            }
        }
        Some(user)
    }
}

#[cfg(test)]
thread_local! {
    /// Compiled conditions, by their text.
    static COMPILED: std::cell::RefCell<
        std::collections::HashMap<std::sync::Arc<str>, Option<crate::authorization::condition::Condition>>,
    > = std::cell::RefCell::default();
}

#[cfg(test)]
impl Region {
    /// Whether it contains a request for a namespace with these labels. Conditions are compiled and
    /// evaluated.
    pub(crate) fn contains(
        &self,
        attributes: &Attributes<'_>,
        at: Time,
        labels: Option<&BTreeMap<String, String>>,
    ) -> bool {
        use crate::authorization::condition::{Condition, RequestActivation};
        use crate::authorization::matching::Narrowness;

        let user = &attributes.user;
        let texts: Vec<(Side, &str)> = match &attributes.target {
            Target::NonResource { path, verb } => vec![(Side::Path, path), (Side::Verb, verb)],
            Target::Resource(request) => vec![
                (Side::Verb, &request.verb),
                (Side::ApiGroup, &request.group),
                (Side::Resource, &request.resource),
                (Side::Subresource, &request.subresource),
                (Side::Namespace, &request.namespace),
                (Side::Name, &request.name),
            ],
        };
        let no_selectors = crate::model::Selectors::default();
        let selectors = match &attributes.target {
            Target::Resource(request) => &request.selectors,
            Target::NonResource { .. } => &no_selectors,
        };
        let narrowness = Narrowness::new(selectors);
        let has = |patterns: &super::Patterns| {
            let has = |prefix: &str| user.groups.iter().any(|group| group.starts_with(prefix));
            let exact = patterns
                .exact
                .iter()
                .map(|group| user.groups.iter().any(|own| **own == **group));
            exact
                .chain(patterns.prefixes.iter().map(|prefix| has(prefix)))
                .collect::<Vec<_>>()
        };
        let activation = RequestActivation::new(attributes);
        let condition_holds =
            |(condition, outcomes): &(super::condition::RegionCondition, super::Outcomes)| {
                if let Some(selector) = condition.selector() {
                    return match labels.map(|labels| selector.matches(|key| labels.get(key))) {
                        Some(true) => outcomes.holds,
                        Some(false) => outcomes.fails,
                        None => outcomes.errors,
                    };
                }
                // The text describes an unknown role, which allows nothing here.
                let Ok(condition) = Condition::compile(portcullis_cel::Version::NEWEST, "c", &condition.text)
                else {
                    return false;
                };
                match condition.evaluate(&activation) {
                    Ok(true) => outcomes.holds,
                    Ok(false) => outcomes.fails,
                    Err(_) => outcomes.errors,
                }
            };
        self.is_path == matches!(attributes.target, Target::NonResource { .. })
            && self.is_service_account == user.name.starts_with("system:serviceaccount:")
            && self.side(Side::User).contains(&user.name)
            && texts.iter().all(|(side, text)| self.side(*side).contains(text))
            && has(&self.groups.all).iter().all(|has| *has)
            && !has(&self.groups.none).iter().any(|has| *has)
            && self
                .selectors
                .within
                .iter()
                .all(|selectors| narrowness.implies(selectors))
            && !self
                .selectors
                .not_within
                .iter()
                .any(|selectors| narrowness.implies(selectors))
            && self.period.contains(at)
            && self.conditions.iter().all(condition_holds)
    }
}

/// The string literals in an expression.
fn literals(expression: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find(['\'', '"']) {
        let quote = rest.get(start..=start).unwrap_or_default();
        let Some((text, after)) = rest.get(start + 1..).and_then(|rest| rest.split_once(quote)) else {
            break;
        };
        texts.push(text.to_owned());
        rest = after;
    }
    texts.sort();
    texts.dedup();
    texts
}
