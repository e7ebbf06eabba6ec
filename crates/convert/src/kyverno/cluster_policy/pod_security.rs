//! `validate.podSecurity`: the checks of the Pod Security Standards, except what `exclude` names.
//!
//! These are the checks of 1.34, which Kyverno 1.18 uses as the latest; `restricted` includes those
//! of `baseline`. From the errors of a Pod, Kyverno removes each that a Pod of only the matching
//! containers has, too (`pkg/pss/evaluate.go`).

mod checks;

use checks::Where::{Containers, ContainersOrPod, Items, Pod};
use checks::{ANY_VOLUME, CHECKS, Check, CheckedField};
use serde_json::{Value, json};

use super::matching::{any_wildcard, texts};
use super::scope::Scope;
use crate::conversion;
use crate::conversion::Refusal;
use crate::kyverno::expression::CelCondition;

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Controls that can only be excluded for images.
const OF_CONTAINERS: [&str; 5] = [
    "Capabilities",
    "Privileged Containers",
    "Host Ports",
    "/proc Mount Type",
    "Privilege Escalation",
];

/// Controls that can only be excluded for whole Pods.
const OF_PODS: [&str; 4] = ["Host Namespaces", "HostPath Volumes", "Sysctls", "Volume Types"];

/// A Pod in CEL: its spec, its metadata and all its containers.
#[derive(Debug, Clone)]
pub(crate) struct PodParts {
    spec: &'static str,
    containers: &'static str,
    metadata: String,
}

/// An item of `exclude`.
struct Exclusion<'w> {
    control: &'w str,
    images: Vec<&'w str>,
    field: &'w str,
    values: Vec<&'w str>,
}

/// The conditions that a Pod must meet, and the messages if it does not.
pub(crate) fn checks(
    written: &Value,
    object: &str,
    scope: &Scope,
) -> Result<Vec<(CelCondition, String)>, Refusal> {
    conversion::unknown(written, &["level", "version", "exclude"])?;
    let is_restricted = match written["level"].as_str() {
        Some("restricted") => true,
        Some("baseline") => false,
        _ => {
            return conversion::of(
                "level",
                "it checks nothing: a level is `baseline` or `restricted`",
            );
        }
    };
    let version = written["version"].as_str().unwrap_or_default();
    if !matches!(version, "" | "latest" | "v1.34") {
        return conversion::of(
            "version",
            "only the checks of `latest`, which are those of `v1.34`, are converted",
        );
    }
    let pod = PodParts::of(object, scope)?;
    let exclusions = exclusions(&written["exclude"])?;
    let checks = CHECKS
        .iter()
        .filter(|check| is_restricted || !check.is_restricted);
    checks
        .map(|check| {
            let condition = check.passes(&exclusions, &pod)?;
            let level = written["level"].as_str().unwrap_or_default();
            Ok((
                condition,
                format!("Pod Security {level}: forbidden {}", check.message),
            ))
        })
        .collect()
}

/// The variables that the checks of `object` use.
pub(crate) fn variables(object: &str, scope: &Scope) -> Result<Vec<Value>, Refusal> {
    let pod = PodParts::of(object, scope)?;
    let name = |variable: &str| variable.trim_start_matches("variables.").to_owned();
    let (spec, _) = places(object, scope)?;
    let lists = LISTS.map(|list| format!("{}.?{list}.orValue([])", pod.spec));
    Ok(vec![
        json!({"name": name(pod.spec), "expression": format!("{spec}.orValue({{}})")}),
        json!({"name": name(pod.containers), "expression": lists.join(" + ")}),
    ])
}

/// The spec and metadata of the Pod in an object, as optionals.
fn places(object: &str, scope: &Scope) -> Result<(String, String), Refusal> {
    let mut all = scope.kinds.iter().map(|kind| match kind {
        Some([_, _, kind]) => match kind.as_str() {
            "Pod" => Some(("spec", "metadata")),
            "DaemonSet" | "Deployment" | "Job" | "StatefulSet" | "ReplicaSet" | "ReplicationController" => {
                Some(("spec.?template.?spec", "spec.?template.?metadata"))
            }
            // Kyverno uses the metadata of the Job.
            "CronJob" => Some((
                "spec.?jobTemplate.?spec.?template.?spec",
                "spec.?jobTemplate.?metadata",
            )),
            _ => None,
        },
        None => None,
    });
    let first = all.next().flatten();
    match first {
        Some((spec, metadata)) if all.all(|other| other == first) => {
            Ok((format!("{object}.?{spec}"), format!("{object}.?{metadata}")))
        }
        _ => Err(Refusal::whole(
            "it is about Pods, or about what makes Pods: write a rule for each kind",
        )),
    }
}

fn exclusions(written: &Value) -> Result<Vec<Exclusion<'_>>, Refusal> {
    let mut all: Vec<Exclusion<'_>> = Vec::new();
    for (index, one) in written.as_array().into_iter().flatten().enumerate() {
        let exclusion = Exclusion::read(one).and_then(|exclusion| {
            let counts_errors = exclusion.images.is_empty() && exclusion.field.is_empty()
                || OF_PODS.contains(&exclusion.control)
                || exclusion.control == "Host Ports";
            let is_again = all.iter().any(|other| {
                other.control == exclusion.control && other.images.is_empty() == exclusion.images.is_empty()
            });
            match counts_errors && is_again {
                true => conversion::of(
                    "controlName",
                    "Kyverno counts what several exclusions of it let through: write one",
                ),
                false => Ok(exclusion),
            }
        });
        all.push(exclusion.map_err(|refusal| refusal.within_index(index).within("exclude"))?);
    }
    Ok(all)
}

// === impl Check ===

impl Check {
    fn passes(&self, exclusions: &[Exclusion<'_>], pod: &PodParts) -> Result<CelCondition, Refusal> {
        let of_control = || exclusions.iter().filter(|one| one.control == self.control);
        let of_images: Vec<&Exclusion<'_>> = of_control().filter(|one| !one.images.is_empty()).collect();
        let of_pods: Vec<&Exclusion<'_>> = of_control().filter(|one| one.images.is_empty()).collect();
        let mut all = Vec::new();
        for field in self.fields {
            all.push(match field.place {
                Containers | ContainersOrPod(_) => field.of_containers(&of_images, &of_pods, pod)?,
                Pod | Items(_) => field.of_pod(&of_pods, pod),
            });
        }
        let unless = self
            .unless
            .map(|unless| CelCondition::relation(pod.named(unless)));
        Ok(CelCondition::any(
            unless.into_iter().chain([CelCondition::all(all)]),
        ))
    }
}

// === impl CheckedField ===

impl CheckedField {
    fn good(&self, pod: &PodParts) -> CelCondition {
        CelCondition::relation(pod.named(self.bad)).not()
    }

    fn of_pod(&self, exclusions: &[&Exclusion<'_>], pod: &PodParts) -> CelCondition {
        let mut passes = vec![self.good(pod)];
        for exclusion in exclusions {
            let of_type = exclusion
                .field
                .strip_prefix("spec.")
                .and_then(|field| field.strip_prefix(ANY_VOLUME));
            passes.push(match (exclusion.field, of_type) {
                ("", _) => CelCondition::constant(true),
                (_, Some(kind)) if self.path == ANY_VOLUME => CelCondition::primary(format!("has(i.{kind})")),
                (field, _) if field.strip_prefix("spec.") == Some(self.path) => exclusion.values(self, pod),
                _ => CelCondition::constant(false),
            });
        }
        let passes = CelCondition::any(passes);
        match self.place {
            Items(list) if !passes.is(true) => {
                CelCondition::primary(format!("{}.all(i, {passes})", pod.named(list)))
            }
            _ => passes,
        }
    }

    fn of_containers(
        &self,
        exclusions: &[&Exclusion<'_>],
        of_pods: &[&Exclusion<'_>],
        pod: &PodParts,
    ) -> Result<CelCondition, Refusal> {
        let is_whole = |exclusion: &&Exclusion<'_>| exclusion.field.is_empty();
        if let (ContainersOrPod(of_empty), true) = (self.place, of_pods.iter().any(is_whole)) {
            if exclusions.is_empty() {
                return Ok(self.all_but_one_container(of_empty, pod));
            }
            if !exclusions
                .iter()
                .any(|one| is_whole(one) && one.images.contains(&"*"))
            {
                return conversion::of(
                    "exclude",
                    "an exclusion without `images` also lets one container through, whichever Kyverno meets first: \
                     give it a `restrictedField`",
                );
            }
        }
        let passes = |list: Option<&str>| {
            let excluded = exclusions.iter().map(|one| one.of_container(self, list, pod));
            CelCondition::any([self.good(pod)].into_iter().chain(excluded))
        };
        let all = |containers: &str, passes: &CelCondition| match passes.is(true) {
            true => passes.clone(),
            false => CelCondition::primary(format!("{containers}.all(c, {passes})")),
        };
        Ok(match exclusions.iter().all(is_whole) {
            true => all(pod.containers, &passes(None)),
            false => CelCondition::all(
                LISTS.map(|list| all(&format!("{}.?{list}.orValue([])", pod.spec), &passes(Some(list)))),
            ),
        })
    }

    /// In Kyverno, a Pod of one empty container fails too, which removes one error of the
    /// containers.
    fn all_but_one_container(&self, of_empty: &str, pod: &PodParts) -> CelCondition {
        let good = self.good(pod);
        let others = ["initContainers", "ephemeralContainers"]
            .map(|list| CelCondition::primary(format!("{}.?{list}.orValue([]).all(c, {good})", pod.spec)));
        let containers = format!("{}.?containers.orValue([])", pod.spec);
        let all = CelCondition::primary(format!("{containers}.all(c, {good})"));
        let but_one = CelCondition::all([
            CelCondition::relation(pod.named(of_empty)),
            CelCondition::relation(format!(
                "{containers}.filter(c, {}).size() == 1",
                pod.named(self.bad)
            )),
        ]);
        CelCondition::all(others.into_iter().chain([CelCondition::any([all, but_one])]))
    }
}

// === impl Exclusion ===

impl<'w> Exclusion<'w> {
    fn read(written: &'w Value) -> Result<Self, Refusal> {
        conversion::unknown(written, &["controlName", "images", "restrictedField", "values"])?;
        let exclusion = Self {
            control: written["controlName"].as_str().unwrap_or_default(),
            images: texts(&written["images"]).collect(),
            field: written["restrictedField"].as_str().unwrap_or_default(),
            values: texts(&written["values"]).collect(),
        };
        let control = exclusion.control;
        let fields = CHECKS
            .iter()
            .filter(|check| check.control == control && !control.is_empty());
        let mut fields = fields.flat_map(|check| check.fields).peekable();
        if fields.peek().is_none() {
            return conversion::of(
                "controlName",
                format!("`{control}` is no control of Pod Security"),
            );
        }
        if OF_CONTAINERS.contains(&control) && exclusion.images.is_empty() {
            return conversion::of("images", "Kyverno asks for images with this control");
        }
        if OF_PODS.contains(&control) && !exclusion.images.is_empty() {
            return conversion::of("images", "Kyverno takes no images with this control");
        }
        if exclusion.field.is_empty() != exclusion.values.is_empty() {
            return conversion::of(
                "restrictedField",
                "Kyverno asks for `restrictedField` and `values` together",
            );
        }
        if !exclusion.field.is_empty() && !fields.any(|field| exclusion.names(field)) {
            return conversion::of(
                "restrictedField",
                "it names no field of this control, or one of containers without `images`",
            );
        }
        Ok(exclusion)
    }

    /// Whether `restrictedField` names this field.
    fn names(&self, field: &CheckedField) -> bool {
        let Some(path) = self.field.strip_prefix("spec.") else {
            return false;
        };
        match field.place {
            Pod | Items(_) if !self.images.is_empty() || field.path.is_empty() => false,
            Items(_) if field.path == ANY_VOLUME => path.strip_prefix(ANY_VOLUME).is_some_and(|kind| {
                !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric())
            }),
            Pod | Items(_) => path == field.path,
            Containers | ContainersOrPod(_) => {
                !self.images.is_empty()
                    && LISTS
                        .iter()
                        .any(|list| path == format!("{list}[*].{}", field.path))
            }
        }
    }

    /// The condition that every forbidden value is one of `values`.
    fn values(&self, field: &CheckedField, pod: &PodParts) -> CelCondition {
        match any_wildcard("v", &self.values) {
            matches if self.values.is_empty() || matches.is(true) => CelCondition::constant(true),
            matches => CelCondition::primary(format!("{}.all(v, {matches})", pod.named(field.values))),
        }
    }

    /// The condition that the exclusion applies to the container `c` in the list.
    fn of_container(&self, field: &CheckedField, list: Option<&str>, pod: &PodParts) -> CelCondition {
        let is_field = self.field.is_empty()
            || list.is_some_and(|list| self.field == format!("spec.{list}[*].{}", field.path));
        CelCondition::all([
            CelCondition::constant(is_field),
            any_wildcard("c.?image.orValue('')", &self.images),
            self.values(field, pod),
        ])
    }
}

// === impl PodParts ===

impl PodParts {
    fn of(object: &str, scope: &Scope) -> Result<Self, Refusal> {
        let (_, metadata) = places(object, scope)?;
        let [spec, containers] = match object {
            "oldObject" => ["variables.oldPod", "variables.oldContainers"],
            _ => ["variables.pod", "variables.containers"],
        };
        Ok(Self {
            spec,
            containers,
            metadata: format!("{metadata}.orValue({{}})"),
        })
    }

    fn named(&self, text: &str) -> String {
        text.replace('$', self.spec).replace('#', &self.metadata)
    }
}
