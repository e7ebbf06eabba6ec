//! The environment of expressions: variables, functions, types; and the variables that Kubernetes
//! declares: for admission (apiserver `pkg/admission/plugin/cel/compile.go`) and for match conditions
//! of authorization webhooks (apiserver `pkg/authorization/cel/compile.go`).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock};

use super::function::Overload;
use super::library::{self, AUTHORIZER, RESOURCE_CHECK};
use super::program::Program;
use super::types::ObjectType;
use super::types::Type::{self, Bool, Dyn, Int, String as Str, Timestamp};
use super::{CompileError, check};
use crate::cost::CompileBudget;

/// A minor version of Kubernetes 1, which determines the libraries of CEL and the behaviour of cel-go.
///
/// It stands for the environment in which an API server of this version evaluates stored expressions
/// (`StoredExpressions` of apiserver `pkg/cel/environment`). New expressions are compiled there without what this
/// version added, so that the version before can run them, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32);

/// A value for each version, made when it is first needed.
pub struct PerVersion<T>([OnceLock<T>; PLACES]);

/// The number of versions from [`Version::OLDEST`] to [`Version::NEWEST`].
const PLACES: usize = (Version::NEWEST.0 - Version::OLDEST.0 + 1) as usize;

/// The variables, functions and types that an expression is compiled against.
#[derive(Debug, Clone)]
pub struct Environment {
    version: Version,
    functions: Arc<Functions>,
    /// Shared by the environments of all policies that add nothing to it.
    declared: Arc<DeclaredNames>,
    mutation: bool,
}

/// The variables and types of an environment.
#[derive(Debug, Clone, Default)]
struct DeclaredNames {
    variables: Vec<Declaration>,
    slots: HashMap<Arc<str>, usize>,
    types: BTreeMap<Arc<str>, Arc<ObjectType>>,
}

pub(crate) type Functions = HashMap<&'static str, Vec<Arc<Overload>>>;

#[derive(Debug, Clone)]
pub(crate) struct Declaration {
    pub(crate) of: Type,
    pub(crate) lazy: bool,
    /// The depth of the variable's expression; 0 if it is not an expression.
    pub(crate) depth: u32,
}

static FUNCTIONS: PerVersion<Arc<Functions>> = PerVersion::new();

/// What an admission policy may name besides `object`, `oldObject`, `request`
/// and `namespaceObject`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AdmissionVariables {
    /// `params`: the policy names a parameter kind.
    pub params: bool,
    /// `authorizer` and `authorizer.requestResource`.
    pub authorizer: bool,
}

impl Environment {
    /// The environment of the expressions of a policy, and of the match conditions of a webhook. The policy's own
    /// variables are added with [`Environment::add_lazy_variable`].
    #[must_use]
    pub fn admission(version: Version, variables: AdmissionVariables) -> Self {
        let mut environment = Self::new(version)
            .variable("object", Dyn)
            .variable("oldObject", Dyn)
            .variable("request", admission_request())
            .variable("namespaceObject", namespace());
        if variables.params {
            environment = environment.variable("params", Dyn);
        }
        if variables.authorizer {
            environment = environment
                .variable("authorizer", AUTHORIZER)
                .variable("authorizer.requestResource", RESOURCE_CHECK);
        }
        environment
    }

    /// The environment of a condition on a SubjectAccessReview, in which `request` is the spec in v1 shape.
    #[must_use]
    pub fn authorization(version: Version) -> Self {
        Self::new(version).variable("request", subject_access_review_spec())
    }
}

fn texts() -> Type {
    Type::list(Str)
}

fn texts_by_name() -> Type {
    Type::map(Str, texts())
}

fn strings<const N: usize>(name: &str, fields: [&str; N]) -> Type {
    Type::object(name, fields.map(|field| (field, Str)))
}

/// `request` of admission: neither uid nor objects, which are variables.
fn admission_request() -> Type {
    let kind = || strings("kubernetes.GroupVersionKind", ["group", "version", "kind"]);
    let resource = || {
        strings(
            "kubernetes.GroupVersionResource",
            ["group", "version", "resource"],
        )
    };
    let user = Type::object(
        "kubernetes.UserInfo",
        [
            ("username", Str),
            ("uid", Str),
            ("groups", texts()),
            ("extra", texts_by_name()),
        ],
    );
    Type::object(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", Str),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", Str),
            ("name", Str),
            ("namespace", Str),
            ("operation", Str),
            ("userInfo", user),
            ("dryRun", Bool),
            ("options", Dyn),
        ],
    )
}

/// `namespaceObject`: its metadata has no fields that are for the API server's own use.
fn namespace() -> Type {
    let metadata = Type::object(
        "kubernetes.NamespaceMetadata",
        [
            ("name", Str),
            ("generateName", Str),
            ("namespace", Str),
            ("labels", Type::map(Str, Str)),
            ("annotations", Type::map(Str, Str)),
            ("UID", Str),
            ("creationTimestamp", Timestamp),
            ("deletionGracePeriodSeconds", Int),
            ("deletionTimestamp", Timestamp),
            ("generation", Int),
            ("resourceVersion", Str),
            ("finalizers", texts()),
        ],
    );
    let condition = Type::object(
        "kubernetes.NamespaceCondition",
        [
            ("status", Str),
            ("type", Str),
            ("lastTransitionTime", Timestamp),
            ("message", Str),
            ("reason", Str),
        ],
    );
    let status = Type::object(
        "kubernetes.NamespaceStatus",
        [("conditions", Type::list(condition)), ("phase", Str)],
    );
    let spec = Type::object("kubernetes.NamespaceSpec", [("finalizers", texts())]);
    Type::object(
        "kubernetes.Namespace",
        [("metadata", metadata), ("spec", spec), ("status", status)],
    )
}

/// `request` of authorization.
fn subject_access_review_spec() -> Type {
    let requirement = || {
        Type::object(
            "kubernetes.SelectorRequirement",
            [("key", Str), ("operator", Str), ("values", texts())],
        )
    };
    let selector = |name| {
        Type::object(
            name,
            [("rawSelector", Str), ("requirements", Type::list(requirement()))],
        )
    };
    let resource = Type::object(
        "kubernetes.ResourceAttributes",
        [
            ("namespace", Str),
            ("verb", Str),
            ("group", Str),
            ("version", Str),
            ("resource", Str),
            ("subresource", Str),
            ("name", Str),
            ("fieldSelector", selector("kubernetes.FieldSelectorAttributes")),
            ("labelSelector", selector("kubernetes.LabelSelectorAttributes")),
        ],
    );
    Type::object(
        "kubernetes.SubjectAccessReviewSpec",
        [
            ("resourceAttributes", resource),
            (
                "nonResourceAttributes",
                strings("kubernetes.NonResourceAttributes", ["path", "verb"]),
            ),
            ("user", Str),
            ("groups", texts()),
            ("extra", texts_by_name()),
            ("uid", Str),
        ],
    )
}

// === impl Version ===

impl Version {
    /// The oldest version that is known; older ones are treated as this one.
    pub const OLDEST: Self = Self(28);

    /// The newest version that is known; newer ones are treated as this one.
    pub const NEWEST: Self = Self(37);

    /// The versions that are reproduced exactly, with every unit of cost. Earlier ones have an older cel-go: only
    /// their libraries are known.
    pub const EXACT: [Self; 4] = [Self(34), Self(35), Self(36), Self::NEWEST];

    /// The first version with cel-go 0.29, where some functions are stricter or cost something else. Earlier ones
    /// are treated as having cel-go 0.26.
    pub(crate) const CEL_GO_0_29: Self = Self(37);

    /// Kubernetes 1.`minor`.
    #[must_use]
    pub const fn new(minor: u32) -> Self {
        Self(minor)
    }

    /// The 37 of Kubernetes 1.37.
    #[must_use]
    pub const fn minor(self) -> u32 {
        self.0
    }

    /// This version, or the nearest supported one.
    fn known(self) -> Self {
        self.clamp(Self::OLDEST, Self::NEWEST)
    }
}

/// The newest that is known.
impl Default for Version {
    fn default() -> Self {
        Self::NEWEST
    }
}

/// `1.37`.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.0)
    }
}

// === impl PerVersion ===

impl<T> Default for PerVersion<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> PerVersion<T> {
    /// No value is made yet.
    #[must_use]
    pub const fn new() -> Self {
        Self([const { OnceLock::new() }; PLACES])
    }

    /// The value for `version`, or for the nearest version that is known, which is passed to `make`.
    pub fn of(&self, version: Version, make: impl FnOnce(Version) -> T) -> &T {
        let version = version.known();
        let place = (version.0 - Version::OLDEST.0) as usize;
        #[expect(clippy::indexing_slicing, reason = "a known version is from OLDEST to NEWEST")]
        self.0[place].get_or_init(|| make(version))
    }
}

// === impl Environment ===

impl Environment {
    /// The functions of Kubernetes in this version, and no variables yet.
    #[must_use]
    pub fn new(version: Version) -> Self {
        let functions = FUNCTIONS.of(version, |version| Arc::new(library::functions(version)));
        Self {
            version,
            functions: Arc::clone(functions),
            declared: Arc::default(),
            mutation: false,
        }
    }

    /// Adds a variable, whose name may contain dots.
    #[must_use]
    pub fn variable(mut self, name: &str, of: Type) -> Self {
        let declaration = Declaration {
            of,
            lazy: false,
            depth: 0,
        };
        Arc::make_mut(&mut self.declared).add(name, declaration);
        self
    }

    /// Adds the variable `variables.NAME`, which is an expression of `depth` levels ([`Program::depth`]). The
    /// levels of an expression and of the variables that it refers to, directly or indirectly, are bounded
    /// together.
    pub fn add_lazy_variable(&mut self, name: &str, of: Type, depth: u32) {
        let declaration = Declaration {
            of,
            lazy: true,
            depth,
        };
        Arc::make_mut(&mut self.declared).add(&format!("variables.{name}"), declaration);
    }

    /// Adds what a mutation may use: the objects `Object{…}`, `Object.spec{…}` and so on, `JSONPatch{…}`, and
    /// `jsonpatch.escapeKey`.
    #[must_use]
    pub fn mutation(mut self) -> Self {
        self.mutation = true;
        let mut functions = (*self.functions).clone();
        for overload in library::mutation() {
            functions
                .entry(overload.name)
                .or_default()
                .push(Arc::new(overload));
        }
        self.functions = Arc::new(functions);
        let patch = [
            ("op", Type::String),
            ("path", Type::String),
            ("from", Type::String),
            ("value", Type::Dyn),
        ];
        Arc::make_mut(&mut self.declared).add_types_of(&Type::object("JSONPatch", patch));
        self
    }

    /// The slot of the variable `name` in an [`super::Activation`].
    #[must_use]
    pub fn slot(&self, name: &str) -> Option<usize> {
        self.declared.slots.get(name).copied()
    }

    /// The number of variables.
    #[must_use]
    pub fn variables(&self) -> usize {
        self.declared.variables.len()
    }

    /// Compiles `expression`. If `expected` is not empty, its static type must be one of them: `dyn` is not
    /// `bool`.
    ///
    /// # Errors
    ///
    /// The first error in the expression, and its position.
    pub fn compile(&self, expression: &str, expected: &[Type]) -> Result<Program, CompileError> {
        self.compile_within(expression, expected, &CompileBudget::new())
    }

    /// Like [`compile`](Self::compile), with a budget that several expressions share.
    ///
    /// # Errors
    ///
    /// The first error in the expression, or the budget is exhausted.
    pub fn compile_within(
        &self,
        expression: &str,
        expected: &[Type],
        budget: &CompileBudget<'_>,
    ) -> Result<Program, CompileError> {
        check::compile(self, expression, expected, budget)
    }

    /// The version that was asked for.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Name, whether it is called on its first argument, and the types of the arguments, of each
    /// overload of each function.
    #[doc(hidden)]
    pub fn overloads(&self) -> impl Iterator<Item = (&'static str, bool, &[Type])> {
        let overloads = self.functions.values().flatten();
        overloads.map(|overload| (overload.name, overload.member, overload.parameters.as_slice()))
    }

    pub(crate) fn functions_of(&self, name: &str) -> Option<&[Arc<Overload>]> {
        self.functions.get(name).map(Vec::as_slice)
    }

    pub(crate) fn find_variable(&self, name: &str) -> Option<(usize, &Declaration)> {
        let slot = *self.declared.slots.get(name)?;
        Some((slot, self.declared.variables.get(slot)?))
    }

    /// Whether any variable is an expression, so that `variables` is defined.
    pub(crate) fn has_lazy_variables(&self) -> bool {
        let mut variables = self.declared.variables.iter();
        variables.any(|declaration| declaration.lazy)
    }

    pub(crate) fn find_type(&self, name: &str) -> Option<Type> {
        if let Some(object) = self.declared.types.get(name) {
            return Some(Type::Object(Arc::clone(object)));
        }
        let open = self.mutation && (name == "Object" || name.starts_with("Object."));
        open.then(|| Type::open_object(name))
            .or_else(|| library::type_named(name))
    }
}

// === impl DeclaredNames ===

impl DeclaredNames {
    fn add(&mut self, name: &str, declaration: Declaration) {
        self.add_types_of(&declaration.of);
        match self.slots.get(name) {
            Some(slot) => {
                if let Some(own) = self.variables.get_mut(*slot) {
                    *own = declaration;
                }
            }
            None => {
                self.slots.insert(Arc::from(name), self.variables.len());
                self.variables.push(declaration);
            }
        }
    }

    /// Registers the object types of `of` by their names.
    fn add_types_of(&mut self, of: &Type) {
        let mut add_types_of = |object: &ObjectType| {
            let name: Arc<str> = Arc::from(object.name());
            self.types.insert(name, Arc::new(object.clone())).is_none()
        };
        match of {
            Type::Object(object) => {
                let _new = add_types_of(object);
                object.visit(&mut add_types_of);
            }
            Type::List(item) => {
                let item = Type::clone(item);
                self.add_types_of(&item);
            }
            _ => {}
        }
    }
}
