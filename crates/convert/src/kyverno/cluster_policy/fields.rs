//! The fields of ClusterPolicies and PolicyExceptions, and how each is converted.
//!
//! A field that is not listed is refused, and others are refused for the reason given here. The
//! reference page is made from this list.

use FieldConversion::{Becomes, Nothing, Refused};
use Part::{Context, Exception, Filter, Mutate, Resources, Rule, Spec, Validate};
use serde_json::Value;

use crate::conversion;
use crate::conversion::Refusal;

/// A part of a policy that has fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Spec,
    Rule,
    Filter,
    Resources,
    Context,
    Validate,
    Mutate,
    Exception,
}

/// How a field is converted.
#[derive(Debug, Clone, Copy)]
enum FieldConversion {
    Becomes(&'static str),
    /// It has no effect on what is admitted.
    Nothing,
    /// Why it is not converted.
    Refused(&'static str),
}

const FIELDS: [(Part, &str, FieldConversion); 69] = [
    (
        Spec,
        "rules",
        Becomes(
            "a policy each, named `POLICY`, or `POLICY-RULE` where there are several, with a binding; if one is refused, so is the policy",
        ),
    ),
    (
        Spec,
        "applyRules",
        Becomes("nothing with `All`; `One` is refused where there are several rules"),
    ),
    (Spec, "failurePolicy", Becomes("`failurePolicy`")),
    (
        Spec,
        "validationFailureAction",
        Becomes(
            "`validationActions`: `[Deny]` of `Enforce`; `[Audit]` of `Audit`, with `emitWarning` `[Warn, Audit]`",
        ),
    ),
    (
        Spec,
        "validationFailureActionOverrides",
        Becomes(
            "a binding `POLICY-override-N` each, whose `namespaceSelector` selects its namespaces; refused with wildcards, with both kinds of selection in one, and for kinds that are not known to be in namespaces",
        ),
    ),
    (Spec, "emitWarning", Becomes("`Warn` beside `Audit`")),
    (Spec, "admission", Becomes("nothing; `false` is refused")),
    (Spec, "background", Nothing),
    (Spec, "schemaValidation", Nothing),
    (Spec, "webhookTimeoutSeconds", Nothing),
    (
        Spec,
        "webhookConfiguration",
        Becomes("`failurePolicy`, and `matchConditions`"),
    ),
    (Spec, "generateExisting", Nothing),
    (Spec, "generateExistingOnPolicyUpdate", Nothing),
    (Spec, "mutateExistingOnPolicyUpdate", Nothing),
    (Rule, "name", Becomes("the end of the policy's name")),
    (Rule, "context", Becomes("see `context[]`")),
    (
        Rule,
        "match",
        Becomes(
            "`matchConstraints`, and match conditions; of `namespaceSelector` a part of each expression, since match conditions do not know of the namespace",
        ),
    ),
    (Rule, "exclude", Becomes("match conditions")),
    (Rule, "celPreconditions", Becomes("`matchConditions`")),
    (
        Rule,
        "preconditions",
        Becomes("a match condition, or fewer operations where they ask for `request.operation` alone"),
    ),
    (Rule, "validate", Becomes("a ValidatingAdmissionPolicy")),
    (
        Rule,
        "mutate",
        Becomes(
            "a MutatingAdmissionPolicy; of several rules the names have their numbers, since policies run in the order of their names",
        ),
    ),
    (Rule, "skipBackgroundRequests", Nothing),
    (Rule, "reportProperties", Nothing),
    (
        Rule,
        "generate",
        Refused("admission policies create no objects: keep a controller for it"),
    ),
    (
        Rule,
        "imageExtractors",
        Refused("admission policies verify no images: keep a webhook that does"),
    ),
    (
        Rule,
        "verifyImages",
        Refused("admission policies verify no images: keep a webhook that does"),
    ),
    (Filter, "any", Becomes("any of the filters")),
    (Filter, "all", Becomes("all of the filters")),
    (Filter, "resources", Becomes("see `resources`")),
    (
        Filter,
        "subjects",
        Becomes("a match condition over `request.userInfo`"),
    ),
    (
        Filter,
        "roles",
        Refused(
            "Kyverno looks up which roles are bound to the user, which no request says: name the subjects of the bindings in `subjects`",
        ),
    ),
    (
        Filter,
        "clusterRoles",
        Refused(
            "Kyverno looks up which roles are bound to the user, which no request says: name the subjects of the bindings in `subjects`",
        ),
    ),
    (
        Resources,
        "kinds",
        Becomes("`resources`; of a custom resource all of its group and a match condition for the kind"),
    ),
    (Resources, "name", Becomes("a match condition, with wildcards")),
    (Resources, "names", Becomes("a match condition, with wildcards")),
    (
        Resources,
        "namespaces",
        Becomes("a match condition, with wildcards"),
    ),
    (
        Resources,
        "annotations",
        Becomes("a match condition, with wildcards"),
    ),
    (
        Resources,
        "selector",
        Becomes("a match condition, with wildcards"),
    ),
    (
        Resources,
        "namespaceSelector",
        Becomes("a part of each expression, over `namespaceObject`"),
    ),
    (Resources, "operations", Becomes("`operations`")),
    (Context, "name", Becomes("the name that queries know it by")),
    (
        Context,
        "variable",
        Becomes("its value where it is named, or its `default`"),
    ),
    (
        Context,
        "configMap",
        Becomes(
            "`paramKind` and `paramRef`, with `parameterNotFoundAction: Deny`; one for each rule, whose name does not depend on the request",
        ),
    ),
    (
        Context,
        "apiCall",
        Refused("admission policies make no calls: give what is asked for as a parameter"),
    ),
    (
        Context,
        "imageRegistry",
        Refused("admission policies ask no registry: keep a webhook that does"),
    ),
    (
        Context,
        "globalReference",
        Refused("admission policies have no global values: give it as a parameter"),
    ),
    (
        Validate,
        "message",
        Becomes("`message`, on one line; variables in it stay as they are written"),
    ),
    (
        Validate,
        "failureAction",
        Becomes("`validationActions`, before those of the policy"),
    ),
    (
        Validate,
        "failureActionOverrides",
        Becomes("as `validationFailureActionOverrides`"),
    ),
    (
        Validate,
        "allowExistingViolations",
        Becomes(
            "for an update that is enforced: an object that failed before may keep failing, unless the rule has `preconditions` or `subjects`",
        ),
    ),
    (
        Validate,
        "pattern",
        Becomes(
            "one expression, with all anchors that do not add (`()`, `=()`, `^()`, `X()`, `<()`), wildcards, operators, ranges, quantities, durations, `\\|` and `&`",
        ),
    ),
    (
        Validate,
        "anyPattern",
        Becomes("one expression: a pattern passes, or none fails"),
    ),
    (
        Validate,
        "deny",
        Becomes("one expression over `conditions`: `any`, `all`, the old list, every operator"),
    ),
    (
        Validate,
        "foreach",
        Becomes(
            "`all()` over the list, nested too, with `preconditions`, `context`, `deny`, `pattern`, `anyPattern` and `elementScope`; refused with `elementIndex`",
        ),
    ),
    (
        Validate,
        "cel",
        Becomes(
            "`validations`, `variables`, `auditAnnotations`, `paramKind`, and `paramRef` of the binding; always `failurePolicy: Fail`, since Kyverno fails what has an error",
        ),
    ),
    (
        Validate,
        "podSecurity",
        Becomes(
            "a validation for each check of the level, as Kubernetes 1.34 has them, with `exclude` by `controlName`, `images`, `restrictedField` and `values`",
        ),
    ),
    (
        Validate,
        "manifests",
        Refused("admission policies verify no signatures: keep a webhook that does"),
    ),
    (
        Validate,
        "assert",
        Refused("assertions are not converted: write them in CEL"),
    ),
    (
        Mutate,
        "patchStrategicMerge",
        Becomes(
            "a JSONPatch, with `()`, `<()` and `+()`; of containers, volumes, `env` and other lists with a merge key the patched elements come first, as in Kyverno, and all other lists are replaced; refused with `null`, and with lists of two merge keys (`ports`)",
        ),
    ),
    (
        Mutate,
        "mutateExistingOnPolicyUpdate",
        Refused("admission policies change no existing objects"),
    ),
    (
        Mutate,
        "targets",
        Refused("admission policies change the object of the request alone: keep a controller for it"),
    ),
    (
        Mutate,
        "foreach",
        Becomes(
            "`transformList` over the list, nested too, with `order`, `preconditions`, `context` and `elementIndex`; refused where a loop looks at what a loop before it changed",
        ),
    ),
    (
        Mutate,
        "patchesJson6902",
        Becomes(
            "a JSONPatch of `add`, `replace` and `remove`, with the missing parents that Kyverno makes, and without the removal of what is missing; `reinvocationPolicy: Never` where it appends or reads what it changes; refused where an operation changes what one before it changed, and with variables that are not between double quotes",
        ),
    ),
    (
        Exception,
        "exceptions",
        Becomes("the rules that get the condition; they must be converted together with it"),
    ),
    (
        Exception,
        "match",
        Becomes(
            "a match condition, of which nothing that it names must hold; refused with `operations` and `namespaceSelector`",
        ),
    ),
    (Exception, "background", Nothing),
    (
        Exception,
        "conditions",
        Refused("a condition of an exception is not converted: ask for it in `match`"),
    ),
    (
        Exception,
        "podSecurity",
        Refused("controls are excluded in the policy: write them into `validate.podSecurity.exclude`"),
    ),
];

/// Refuses the first field of `object` that cannot be converted.
pub(crate) fn check(part: Part, object: &Value) -> Result<(), Refusal> {
    let is_there = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    for (name, value) in object.as_object().into_iter().flatten() {
        let known = FIELDS
            .iter()
            .find(|(own, field, _)| *own == part && field == name);
        match known {
            None => return conversion::of(name, "this field has no counterpart"),
            Some((.., Refused(reason))) if is_there(value) => return conversion::of(name, *reason),
            Some(_) => {}
        }
    }
    Ok(())
}

/// Each field with its path, and how it is converted, in Markdown.
pub(crate) fn reference() -> impl Iterator<Item = (String, String)> {
    FIELDS.iter().map(|(part, name, fate)| {
        let place = match part {
            Spec => "spec.",
            Rule => "spec.rules[].",
            Filter => "match, exclude: ",
            Resources => "resources.",
            Context => "context[].",
            Validate => "validate.",
            Mutate => "mutate.",
            Exception => "PolicyException: spec.",
        };
        let fate = match fate {
            Becomes(what) => (*what).to_owned(),
            Nothing => "nothing: it changes no answer".to_owned(),
            Refused(reason) => format!("refused: {reason}"),
        };
        (format!("{place}{name}"), fate)
    })
}
