//! The CEL environment of admission expressions: variables and compilation.
//!
//! Variables have fixed slots, so that expressions of different policies can be evaluated with one
//! activation. The slot of a variable that an expression may not use has a name that is not a valid
//! identifier.
//!
//! Follows `apiserver/pkg/admission/plugin/cel/{compile,composition}.go`.

use std::sync::Arc;

use portcullis_cel::{AdmissionVariables, CompileBudget, CompileError, PerVersion, Program, Type, Version};

/// `object`: the new object.
pub(crate) const OBJECT: usize = 0;
/// `oldObject`: the existing object.
pub(crate) const OLD_OBJECT: usize = 1;
/// `request`.
pub(crate) const REQUEST: usize = 2;
/// `namespaceObject`: the Namespace of the object.
pub(crate) const NAMESPACE_OBJECT: usize = 3;
/// `params`: the parameter.
pub(crate) const PARAMS: usize = 4;
/// `authorizer`, for access checks.
pub(crate) const AUTHORIZER: usize = 5;
/// `authorizer.requestResource`: the access check for the resource of the request.
pub(crate) const REQUEST_RESOURCE: usize = 6;

/// A compiled expression, with its text.
#[derive(Debug)]
pub struct Expression {
    text: String,
    program: Program,
}

/// The CEL environments in which the expressions of one policy are compiled.
#[derive(Debug, Clone)]
pub struct ExpressionEnvironment {
    with_authorizer: portcullis_cel::Environment,
    without_authorizer: portcullis_cel::Environment,
    variables: Vec<PolicyVariable>,
}

/// One of `spec.variables`.
#[derive(Debug, Clone)]
pub(crate) struct PolicyVariable {
    pub(crate) name: String,
    pub(crate) slot: usize,
    pub(crate) expression: Arc<Expression>,
}

// === impl Expression ===

impl Expression {
    /// The expression as written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) const fn program(&self) -> &Program {
        &self.program
    }

    pub(crate) fn into_program(self) -> Program {
        self.program
    }
}

// === impl ExpressionEnvironment ===

impl ExpressionEnvironment {
    /// Creates an environment with the functions of `version`, the variables of admission
    /// expressions, and `params` if the policy has a `paramKind`.
    #[must_use]
    pub fn new(version: Version, has_params: bool) -> Self {
        static PLAIN: PerVersion<ExpressionEnvironment> = PerVersion::new();
        static WITH_PARAMS: PerVersion<ExpressionEnvironment> = PerVersion::new();
        let made = if has_params { &WITH_PARAMS } else { &PLAIN };
        let make = |version| Self {
            with_authorizer: environment(version, has_params, true),
            without_authorizer: environment(version, has_params, false),
            variables: Vec::new(),
        };
        made.of(version, make).clone()
    }

    /// The Kubernetes version whose CEL functions are available.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.with_authorizer.version()
    }

    /// Returns an environment in which `object` and `oldObject` have this type. Only for finding
    /// expressions that can never work, as the type checker of an API server does.
    #[must_use]
    pub fn for_objects_of(self, object: &Type) -> Self {
        let typed = |environment: portcullis_cel::Environment| {
            environment
                .variable("object", object.clone())
                .variable("oldObject", object.clone())
        };
        Self {
            with_authorizer: typed(self.with_authorizer),
            without_authorizer: typed(self.without_authorizer),
            variables: self.variables,
        }
    }

    /// Returns an environment for mutations, in which expressions can create `JSONPatch` and
    /// `Object` values.
    #[must_use]
    pub fn for_mutations(self) -> Self {
        Self {
            with_authorizer: self.with_authorizer.mutation(),
            ..self
        }
    }

    /// Adds one of `spec.variables`, which later expressions may use.
    ///
    /// # Errors
    ///
    /// Why the expression does not compile.
    pub fn add_variable(
        &mut self,
        name: &str,
        text: &str,
        budget: &CompileBudget<'_>,
    ) -> Result<(), CompileError> {
        let program = self
            .with_authorizer
            .compile_within(text, &[], budget)?
            .named(name);
        let before = self.with_authorizer.variables();
        self.declare(name, declared(program.output()), program.depth());
        let slot = self.with_authorizer.slot(&format!("variables.{name}"));
        let expression = Arc::new(Expression {
            text: text.to_owned(),
            program,
        });
        if let Some(slot) = slot {
            if slot < before {
                self.variables.retain(|variable| variable.slot != slot);
            }
            self.variables.push(PolicyVariable {
                name: name.to_owned(),
                slot,
                expression,
            });
        }
        Ok(())
    }

    /// Declares `variables.NAME` although its expression does not compile, so that uses of it are
    /// not reported as further errors.
    pub fn declare_uncompiled_variable(&mut self, name: &str) {
        self.declare(name, Type::Dyn, 0);
    }

    /// Compiles an expression of type bool.
    ///
    /// # Errors
    ///
    /// Why the expression does not compile.
    pub fn condition(&self, text: &str, budget: &CompileBudget<'_>) -> Result<Expression, CompileError> {
        compile(&self.with_authorizer, text, &[Type::Bool], budget)
    }

    /// Compiles a `messageExpression`, of type string and without `authorizer`.
    ///
    /// # Errors
    ///
    /// Why the expression does not compile.
    pub fn message(&self, text: &str, budget: &CompileBudget<'_>) -> Result<Expression, CompileError> {
        compile(&self.without_authorizer, text, &[Type::String], budget)
    }

    /// Compiles the `valueExpression` of an audit annotation, of type string or null.
    ///
    /// # Errors
    ///
    /// Why the expression does not compile.
    pub fn annotation(&self, text: &str, budget: &CompileBudget<'_>) -> Result<Expression, CompileError> {
        compile(&self.with_authorizer, text, &[Type::String, Type::Null], budget)
    }

    /// Compiles the expression of a `jsonPatch`, of type list of `JSONPatch`.
    ///
    /// # Errors
    ///
    /// Why the expression does not compile.
    pub fn json_patch(&self, text: &str, budget: &CompileBudget<'_>) -> Result<Expression, CompileError> {
        // Object types are equal if their names are equal.
        compile(
            &self.with_authorizer,
            text,
            &[Type::list(Type::object("JSONPatch", []))],
            budget,
        )
    }

    /// Compiles the expression of an `applyConfiguration`, of type `Object`.
    ///
    /// # Errors
    ///
    /// Why the expression does not compile.
    pub fn apply_configuration(
        &self,
        text: &str,
        budget: &CompileBudget<'_>,
    ) -> Result<Expression, CompileError> {
        let expected = [Type::object("Object", [])];
        compile(&self.with_authorizer, text, &expected, budget)
    }

    pub(crate) const fn cel(&self) -> &portcullis_cel::Environment {
        &self.with_authorizer
    }

    pub(crate) fn variables(&self) -> &[PolicyVariable] {
        &self.variables
    }

    fn declare(&mut self, name: &str, of: Type, depth: u32) {
        for environment in [&mut self.with_authorizer, &mut self.without_authorizer] {
            environment.add_lazy_variable(name, of.clone(), depth);
        }
    }
}

fn compile(
    environment: &portcullis_cel::Environment,
    text: &str,
    expected: &[Type],
    budget: &CompileBudget<'_>,
) -> Result<Expression, CompileError> {
    let program = environment.compile_within(text, expected, budget)?;
    Ok(Expression {
        text: text.to_owned(),
        program,
    })
}

/// The declared type of a variable whose expression has type `of`: types of libraries become `dyn`
/// (`convertCelTypeToDeclType`).
fn declared(of: &Type) -> Type {
    match of {
        Type::List(item) => Type::list(declared(item)),
        Type::Map(entry) => Type::map(declared(&entry.0), declared(&entry.1)),
        Type::Null
        | Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::String
        | Type::Bytes
        | Type::Duration
        | Type::Timestamp => of.clone(),
        _ => Type::Dyn,
    }
}

fn environment(version: Version, has_params: bool, has_authorizer: bool) -> portcullis_cel::Environment {
    // A name that is not an identifier reserves the slot of an unavailable variable.
    let params = if has_params { "params" } else { "-params" };
    let [authorizer, resource] = if has_authorizer {
        ["authorizer", "authorizer.requestResource"]
    } else {
        ["-authorizer", "-authorizer.requestResource"]
    };
    portcullis_cel::Environment::admission(version, AdmissionVariables::default())
        .variable(params, Type::Dyn)
        .variable(authorizer, Type::Opaque("kubernetes.authorization.Authorizer"))
        .variable(resource, Type::Opaque("kubernetes.authorization.ResourceCheck"))
}

// Which parts of a review an expression may read.

/// Whether an expression may read one of these places of a review. A place is a path from the
/// request, such as `["object", "spec", "replicas"]`.
#[must_use]
pub fn may_read(program: &Program, places: &[Vec<String>]) -> bool {
    let reads = program.reads();
    let slot_of = |part: &String| match part.as_str() {
        "object" => Some(OBJECT),
        "oldObject" => Some(OLD_OBJECT),
        _ => None,
    };
    places.iter().any(|place| {
        let slot = place.first().and_then(slot_of);
        reads.iter().any(|read| match slot {
            Some(slot) => read.slot == slot && read.may_depend_on(place.get(1..).unwrap_or_default()),
            None => read.slot == REQUEST && read.may_depend_on(place),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_stand_at_the_same_places_everywhere() {
        for has_authorizer in [true, false] {
            let environment = environment(Version::NEWEST, true, has_authorizer);
            for (name, slot) in [
                ("object", OBJECT),
                ("oldObject", OLD_OBJECT),
                ("request", REQUEST),
                ("namespaceObject", REQUEST + 1),
                ("params", AUTHORIZER - 1),
            ] {
                assert_eq!(environment.slot(name), Some(slot), "{name}");
            }
        }
        let environment = environment(Version::NEWEST, false, true);
        assert_eq!(environment.slot("authorizer"), Some(AUTHORIZER));
        assert_eq!(
            environment.slot("authorizer.requestResource"),
            Some(REQUEST_RESOURCE)
        );
    }

    #[test]
    fn messages_cannot_ask_the_authorizer() {
        let (asks, environment) = (
            "authorizer.path('/x').check('get')",
            ExpressionEnvironment::new(Version::NEWEST, false),
        );
        assert!(
            environment
                .condition(&format!("{asks}.allowed()"), &CompileBudget::new())
                .is_ok()
        );
        assert!(
            environment
                .message(&format!("{asks}.reason()"), &CompileBudget::new())
                .is_err()
        );
    }

    #[test]
    fn only_mutations_escape_keys() {
        let text = "jsonpatch.escapeKey('a/b') == 'a~1b'";
        assert!(
            ExpressionEnvironment::new(Version::NEWEST, false)
                .condition(text, &CompileBudget::new())
                .is_err()
        );
        assert!(
            ExpressionEnvironment::new(Version::NEWEST, false)
                .for_mutations()
                .condition(text, &CompileBudget::new())
                .is_ok()
        );
    }
}
