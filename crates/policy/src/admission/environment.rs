//! The CEL environment of admission expressions: variables and compilation.
//!
//! Variables have fixed slots, so that expressions of different policies can be evaluated
//! with one activation. If a variable is not available to an expression, its slot has a
//! name that cannot be written.
//!
//! Facts: `apiserver/pkg/admission/plugin/cel/{compile,composition}.go`.

use std::sync::Arc;

use portcullis_cel::{AdmissionVariables, CompileBudget, CompileError, PerVersion, Program, Type, Version};

/// The object that is to be: `object`.
pub(crate) const OBJECT: usize = 0;
/// The object that is: `oldObject`.
pub(crate) const OLD_OBJECT: usize = 1;
/// The question: `request`.
pub(crate) const REQUEST: usize = 2;
/// The namespace that the object lives in: `namespaceObject`.
pub(crate) const NAMESPACE_OBJECT: usize = 3;
/// The parameter: `params`.
pub(crate) const PARAMS: usize = 4;
/// Who answers questions about access: `authorizer`.
pub(crate) const AUTHORIZER: usize = 5;
/// The question whether the user may do this to the request's resource:
/// `authorizer.requestResource`.
pub(crate) const REQUEST_RESOURCE: usize = 6;

/// An expression, compiled.
#[derive(Debug)]
pub struct Expression {
    text: String,
    program: Program,
}

/// What the expressions of one policy are compiled against.
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
    /// As written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(crate) const fn program(&self) -> &Program {
        &self.program
    }

    /// What it was compiled to.
    pub(crate) fn into_program(self) -> Program {
        self.program
    }
}

// === impl ExpressionEnvironment ===

impl ExpressionEnvironment {
    /// The functions of `version`, the variables of every admission expression, and `params`
    /// where the policy has a `paramKind`.
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

    /// The version of which it has the functions.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.with_authorizer.version()
    }

    /// The same where `object` and `oldObject` are of a type that is known: only to find what
    /// can never work, as an API server's type checker does.
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

    /// The same with what mutations may make: patches and objects.
    #[must_use]
    pub fn mutation(self) -> Self {
        Self {
            with_authorizer: self.with_authorizer.mutation(),
            ..self
        }
    }

    /// Adds one of `spec.variables`, which later expressions may name.
    ///
    /// # Errors
    ///
    /// What is wrong with the expression.
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

    /// Lets `variables.NAME` be named although its own expression is at fault,
    /// so that this is reported once.
    pub fn add_faulty_variable(&mut self, name: &str) {
        self.declare(name, Type::Dyn, 0);
    }

    /// An expression that must be true or false.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn condition(&self, text: &str, budget: &CompileBudget<'_>) -> Result<Expression, CompileError> {
        compile(&self.with_authorizer, text, &[Type::Bool], budget)
    }

    /// A `messageExpression`: text, and no authorizer.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn message(&self, text: &str, budget: &CompileBudget<'_>) -> Result<Expression, CompileError> {
        compile(&self.without_authorizer, text, &[Type::String], budget)
    }

    /// The `valueExpression` of an audit annotation: text or null.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn annotation(&self, text: &str, budget: &CompileBudget<'_>) -> Result<Expression, CompileError> {
        compile(&self.with_authorizer, text, &[Type::String, Type::Null], budget)
    }

    /// A `jsonPatch`: a list of `JSONPatch`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn json_patch(&self, text: &str, budget: &CompileBudget<'_>) -> Result<Expression, CompileError> {
        // Object types are the same if their names are.
        compile(
            &self.with_authorizer,
            text,
            &[Type::list(Type::object("JSONPatch", []))],
            budget,
        )
    }

    /// An `applyConfiguration`: an `Object`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
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

/// What other expressions know of a variable of type `of`: the types of
/// libraries are lost on the way (`convertCelTypeToDeclType`).
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
    // A name that no expression can write keeps the place of what is not to be had.
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

// Which parts of a review an expression may look at.

/// Whether an expression may look at what lies at one of these places of a review: the steps
/// from the request, such as `["object", "spec", "replicas"]`.
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
            Some(slot) => read.slot == slot && read.touches(place.get(1..).unwrap_or_default()),
            None => read.slot == REQUEST && read.touches(place),
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
                .mutation()
                .condition(text, &CompileBudget::new())
                .is_ok()
        );
    }
}
