//! JMESPath in CEL.
//!
//! In Kyverno, a key that is missing in a map is an error, which most operators treat as null; a
//! field of a value that is not a map is null. So a query becomes two expressions: one that is null
//! if a key is missing, and one that fails. All other errors are errors of both.

use serde_json::Value;

use super::functions::is_false;
use super::jmespath::QueryNode;
use super::scope::{
    ANY, BOOL, Known, LIST, MAP, NULL, Scope, Shape, TEXT, Term, field_type, is_of_texts, item_type, listed,
    shape_of,
};
use crate::conversion::Refusal;
use crate::kyverno::expression::{field, literal, optional_field};
use portcullis_cel::Type;

/// The most bytes of the expression for one query.
const MAX_QUERY_BYTES: usize = 20_000;
enum Place {
    Context,
    Request,
    Value(Box<Term>),
}
// === impl Scope ===

impl Scope {
    /// The result of the query for `base`.
    ///
    /// # Errors
    ///
    /// The query cannot be converted.
    pub(crate) fn of_term(&self, node: &QueryNode, base: &Term) -> Result<Term, Refusal> {
        self.value(node, &Place::Value(Box::new(base.clone())))
    }

    /// The result of the query.
    ///
    /// # Errors
    ///
    /// The query cannot be converted.
    pub(crate) fn term(&self, node: &QueryNode) -> Result<Term, Refusal> {
        match self.place(node, &Place::Context)? {
            Place::Value(term) => Ok(*term),
            Place::Context | Place::Request => {
                Err(Refusal::whole("the request as a whole has no counterpart"))
            }
        }
    }

    fn value(&self, node: &QueryNode, current: &Place) -> Result<Term, Refusal> {
        match self.place(node, current)? {
            Place::Value(term) if term.or_null.len() > MAX_QUERY_BYTES => Err(Refusal::whole(
                "it becomes too long an expression: split it into several conditions",
            )),
            Place::Value(term) => Ok(*term),
            Place::Context | Place::Request => {
                Err(Refusal::whole("the request as a whole has no counterpart"))
            }
        }
    }

    fn place(&self, node: &QueryNode, current: &Place) -> Result<Place, Refusal> {
        let term = match node {
            QueryNode::Current => {
                return Ok(match current {
                    Place::Context => Place::Context,
                    Place::Request => Place::Request,
                    Place::Value(term) => Place::Value(term.clone()),
                });
            }
            QueryNode::Field(name) => match current {
                Place::Context => return self.variable(name),
                Place::Request => self.of_request(name)?,
                Place::Value(base) => self.member(base, name),
            },
            QueryNode::Sub(left, right) => {
                let left = self.place(left, current)?;
                if let QueryNode::Index(index) = **right {
                    let Place::Value(base) = left else {
                        return Err(Refusal::whole("the request is no list"));
                    };
                    return Ok(Place::Value(Box::new(self.item(&base, index))));
                }
                // The result for a missing value is an error, which most operators treat as null.
                match (&left, &**right) {
                    (_, QueryNode::Field(_)) => self.value(right, &left)?,
                    (Place::Value(base), _) if base.or_error.is_some() => self.of_found(base, right)?,
                    _ => self.value(right, &left)?,
                }
            }
            QueryNode::Index(index) => match current {
                Place::Value(base) => self.item(base, *index),
                _ => return Err(Refusal::whole("the request is no list")),
            },
            QueryNode::Literal(value) => Term::constant(value),
            QueryNode::Text(index) => self.texts.get(*index).cloned().ok_or_else(|| {
                Refusal::whole("a variable within a query has no counterpart here: write one query")
            })?,
            QueryNode::Flatten(left) => {
                let left = self.value(left, current)?.without_error()?;
                self.flattened(&left)
            }
            QueryNode::Projection(left, right) => {
                let left = self.value(left, current)?;
                self.projected(&left, right, None)?
            }
            QueryNode::Filter(left, right, condition) => {
                let left = self.value(left, current)?.without_error()?;
                self.projected(&left, right, Some(condition))?
            }
            QueryNode::ValueProjection(left, right) => {
                let left = self.value(left, current)?.without_error()?;
                let values = Term::new(
                    self.evaluated_once(&left.or_null, |map| {
                        let (name, body) = self.with_loop_variable(|key| format!("{map}[{key}]"));
                        format!("(type({map}) == map ? dyn({map}.map({name}, {body})) : null)")
                    }),
                    LIST | NULL,
                );
                self.projected(&values, right, None)?
            }
            QueryNode::List(nodes) => self.list(nodes, current)?,
            QueryNode::Hash(entries) => self.hash(entries, current)?,
            QueryNode::Compare(comparator, left, right) => {
                let left = self.value(left, current)?;
                let right = self.value(right, current)?;
                self.compared(*comparator, &left, &right)?
            }
            QueryNode::Or(left, right) => {
                let left = self.value(left, current)?;
                let right = self.value(right, current)?;
                self.either(&left, &right)
            }
            QueryNode::And(left, right) => {
                let left = self.value(left, current)?;
                let right = self.value(right, current)?;
                let whole = |right: &str| {
                    self.evaluated_once(&left.or_null, |name| {
                        format!("({} ? dyn({right}) : dyn({name}))", self.is_true(&left, name))
                    })
                };
                let mut term = Term::new(whole(&right.or_null), left.shape | right.shape);
                if left.is_only(BOOL) && right.is_only(BOOL) && !left.is_fallible {
                    term = Term::new(format!("({} && {})", left.or_null, right.or_null), BOOL);
                }
                term.or_error = right.or_error.as_deref().map(whole);
                term.is_fallible = left.is_fallible || right.is_fallible;
                term
            }
            QueryNode::Not(inner) => {
                let inner = self.value(inner, current)?;
                let mut term = Term::new(format!("!{}", self.truth(&inner)), BOOL);
                term.is_fallible = inner.is_fallible;
                term
            }
            QueryNode::Pipe(left, right) => {
                let mut left = self.value(left, current)?;
                left.or_error = None;
                left.path = None;
                let fallible = left.is_fallible;
                let mut term = self.value(right, &Place::Value(Box::new(left)))?;
                term.or_error = None;
                term.is_fallible |= fallible;
                term
            }
            QueryNode::Call(name, arguments) => {
                let arguments: Vec<Term> = arguments
                    .iter()
                    .map(|argument| self.value(argument, current))
                    .collect::<Result<_, _>>()?;
                self.called(name, &arguments)?
            }
        };
        Ok(Place::Value(Box::new(term)))
    }

    /// A name that is not selected from a value.
    fn variable(&self, name: &str) -> Result<Place, Refusal> {
        if let Some((_, known)) = self.names.iter().rev().find(|(known, _)| known == name) {
            return known
                .clone()
                .map(|term| Place::Value(Box::new(term)))
                .map_err(Refusal::whole);
        }
        let service_account = |part: usize| {
            format!(
                "[request.userInfo.username].map(u, u.size() > 22 ? u.substring(22).split(':') : []).map(g, g.size() > 1 ? \
                 g[{part}] : '')[0]"
            )
        };
        match name {
            "request" => Ok(Place::Request),
            "serviceAccountName" => Ok(Place::Value(Box::new(Term::new(service_account(1), TEXT)))),
            "serviceAccountNamespace" => Ok(Place::Value(Box::new(Term::new(service_account(0), TEXT)))),
            "images" => Err(Refusal::whole(
                "CEL takes no names of images apart: compare `image` with a pattern",
            )),
            "" => Err(Refusal::whole(
                "`\"\"` names a field in JMESPath, and is no text: write `''`",
            )),
            _ => Err(Refusal::whole(format!("there is no variable `{name}`"))),
        }
    }

    fn of_request(&self, name: &str) -> Result<Term, Refusal> {
        let mut term = match name {
            "object" | "oldObject" => {
                let is_old = name == "oldObject";
                let value = if is_old { &self.old_object } else { &self.object };
                let mut term = Term::new(value, if is_old { MAP | NULL } else { MAP });
                term.path = Some((value.clone(), value.clone()));
                term.null_root = (value == "oldObject").then(|| value.clone());
                term.known = Known::Object;
                term.types.clone_from(&self.types);
                return Ok(term);
            }
            "operation" => {
                let mut term = match &self.operation {
                    Some(operation) => Term::constant(&operation.as_str().into()),
                    None => Term::new("request.operation", TEXT),
                };
                term.is_plain = true;
                return Ok(term);
            }
            "userInfo" | "kind" | "resource" | "requestKind" | "requestResource" => {
                let path = format!("request.{name}");
                let mut term = Term::new(&path, MAP);
                term.path = Some((path.clone(), path));
                term.known = Known::Request;
                return Ok(term);
            }
            "namespace" | "name" | "subResource" | "requestSubResource" => {
                Term::new(format!("request.?{name}.orValue(dyn(null))"), TEXT | NULL)
            }
            "uid" => Term::new("request.uid", TEXT),
            "roles" | "clusterRoles" => {
                return Err(Refusal::whole(
                    "Kyverno looks up which roles are bound to the user, which no request says: ask for groups",
                ));
            }
            _ => return Err(Refusal::whole(format!("`request.{name}` has no counterpart"))),
        };
        if name != "uid" {
            term.or_error = Some(format!("request.{name}"));
            term.is_never_null = true;
            term.path = Some((format!("request.?{name}"), format!("request.{name}")));
        }
        term.is_plain = name == "namespace";
        Ok(term)
    }

    /// The field `key` of a value.
    fn member(&self, base: &Term, key: &str) -> Term {
        let (known, shape) = match (base.known, key) {
            (Known::Object | Known::ConfigMap, "metadata") => (Known::Metadata, MAP | NULL),
            (Known::ConfigMap, "data") => (Known::Texts, MAP | NULL),
            (Known::Object, "kind" | "apiVersion") => (Known::Nothing, TEXT | NULL),
            (Known::Metadata, "labels" | "annotations") => (Known::Texts, MAP | NULL),
            (Known::Metadata, "name" | "namespace" | "generateName" | "uid") | (Known::Texts, _) => {
                (Known::Nothing, TEXT | NULL)
            }
            (Known::Request, "groups") => (Known::Nothing, LIST | NULL),
            (Known::Request, "extra") => (Known::Texts, MAP | NULL),
            (Known::Request, _) => (Known::Nothing, TEXT | NULL),
            _ => (Known::Nothing, ANY),
        };
        let types: Vec<Type> = base.types.iter().map(|of| field_type(of, key)).collect();
        let shape = match shape_of(&types) {
            Some(declared) if shape == ANY => declared | NULL,
            _ => shape,
        };
        let is_map = base.known != Known::Nothing || self.is_typed && base.path.is_some();
        let mut term = Term::new("", shape);
        term.known = known;
        term.has_strings = base.known == Known::Request && key == "groups" || is_of_texts(&types);
        term.types = types;
        term.is_fallible = base.is_fallible;
        term.is_nested = !self.is_typed && base.known != Known::Request;
        term.null_root.clone_from(&base.null_root);
        if let Some((optional, plain)) = &base.path {
            let path = (optional_field(optional, key), field(plain, key));
            let or_null = format!("{}.orValue(dyn(null))", path.0);
            let nullable = |condition: &str| format!("({condition} ? dyn({}) : null)", path.1);
            (term.or_null, term.or_error) = match (is_map, &base.null_root) {
                (true, None) => (or_null, Some(path.1.clone())),
                (true, Some(root)) => (or_null, Some(nullable(&format!("{root} != null")))),
                (false, _) => (
                    format!("(type({}) == map ? dyn({or_null}) : null)", base.or_null),
                    Some(nullable(&format!("type({}) == map", base.as_whole_query()))),
                ),
            };
            // A value of a known list type is a list or absent.
            if self.is_typed || base.known == Known::Request {
                term.or_empty = Some(format!("{}.orValue([])", path.0));
            }
            term.path = Some(path);
            let is_told = !matches!(base.known, Known::Nothing | Known::Object) || known != Known::Nothing;
            term.is_never_null = base.null_root.is_none() && (self.is_typed || is_told);
            return term;
        }
        let of_map = |found: &str, name: &str| format!("(type({name}) == map ? dyn({found}) : null)");
        term.or_null = self.evaluated_once(&base.or_null, |name| {
            of_map(&format!("{}.orValue(dyn(null))", optional_field(name, key)), name)
        });
        term.or_error =
            Some(self.evaluated_once(base.as_whole_query(), |name| of_map(&field(name, key), name)));
        term
    }

    /// The element at `index` of a list; a negative index counts from the end.
    fn item(&self, base: &Term, index: i64) -> Term {
        let of = |value: &str| {
            self.evaluated_once(value, |list| {
                let at = match index {
                    0.. => index.to_string(),
                    _ => format!("size({list}) - {}", index.unsigned_abs()),
                };
                format!("(type({list}) == list ? dyn({list})[?{at}].orValue(dyn(null)) : null)")
            })
        };
        let mut term = Term::new(of(&base.or_null), ANY);
        term.types = base.types.iter().map(item_type).collect();
        if let Some(shape) = shape_of(&term.types) {
            term.shape = shape | NULL;
        }
        if base.or_error.is_some() {
            term.or_error = Some(of(base.as_whole_query()));
        }
        term.is_fallible = base.is_fallible;
        term
    }

    /// The result of `node` for `base`, if that is present.
    fn of_found(&self, base: &Term, node: &QueryNode) -> Result<Term, Refusal> {
        let mut found = base.clone();
        found.or_null = base.as_whole_query().to_owned();
        found.or_error = None;
        found.or_empty = None;
        found.shape = if self.is_typed {
            base.shape & !NULL
        } else {
            base.shape
        };
        if let Some((_, plain)) = &base.path {
            found.path = Some((plain.clone(), plain.clone()));
        }
        let is_found = match &base.path {
            Some((optional, _)) if self.is_typed => format!("{optional}.hasValue()"),
            _ => format!("{} != null", base.or_null),
        };
        let mut term = self.value(node, &Place::Value(Box::new(found)))?;
        let whole = term.as_whole_query().to_owned();
        let or_null = |value: &str| format!("({is_found} ? dyn({value}) : null)");
        term.without_error = term.without_error.as_deref().map(&or_null);
        term.or_null = or_null(&term.or_null);
        term.or_error = Some(whole);
        term.path = None;
        term.or_empty = None;
        term.shape |= NULL;
        Ok(term)
    }

    fn flattened(&self, left: &Term) -> Term {
        if !left.is_nested {
            return left.clone();
        }
        let flat = |list: &str| {
            let (name, body) = self.with_loop_variable(|element| {
                format!("type({element}) == list ? dyn({element}) : dyn([{element}])")
            });
            // A missing list leaves null, which a projection drops.
            let found = match self.is_typed {
                true => format!(".filter({name}, {name} != null)"),
                false => String::new(),
            };
            format!("{list}.map({name}, {body}).flatten(){found}")
        };
        let mut term = left.clone();
        term.or_error = None;
        term.path = None;
        term.or_empty = left.or_empty.as_deref().map(flat);
        term.or_null = match left.is_only(LIST) {
            true => flat(&left.or_null),
            false => self.evaluated_once(&left.or_null, |list| {
                format!("(type({list}) == list ? dyn({}) : null)", flat(list))
            }),
        };
        term.shape = if left.is_only(LIST) { LIST } else { LIST | NULL };
        term.is_nested = !self.is_typed;
        let inner = left.types.iter().map(item_type);
        let inner = inner.map(|item| {
            if matches!(item, Type::List(_)) {
                item
            } else {
                Type::list(item)
            }
        });
        term.types = inner.collect();
        term.has_strings |= is_of_texts(&term.types);
        term
    }

    /// A projection of each element of a list for which the condition holds.
    fn projected(
        &self,
        left: &Term,
        right: &QueryNode,
        condition: Option<&QueryNode>,
    ) -> Result<Term, Refusal> {
        let element = self.fresh("e");
        let mut current = left.element(&element);
        current.is_nested = left.is_nested;
        let place = Place::Value(Box::new(current));
        let taken = self.value(right, &place)?;
        let mut fallible = left.is_fallible || taken.is_fallible;
        let filter = match condition {
            None => String::new(),
            Some(condition) => {
                let condition = self.value(condition, &place)?;
                fallible |= condition.is_fallible;
                format!(".filter({element}, {})", self.truth(&condition))
            }
        };
        let is_itself = taken.or_null == element;
        let items = |list: &str| {
            let list = format!("{list}{filter}");
            match (&taken.path, is_itself) {
                _ if taken.is_only(ANY & !NULL) => format!("{list}.map({element}, {})", taken.or_null),
                (_, true) if self.is_typed && left.path.is_some() => list,
                (_, true) => format!("{list}.filter({element}, {element} != null)"),
                (Some((optional, plain)), false) if self.is_typed => {
                    format!("{list}.map({element}, {optional}.hasValue(), {plain})")
                }
                _ => format!(
                    "{list}.map({element}, {}).filter({element}, {element} != null)",
                    taken.or_null
                ),
            }
        };
        let value = match left.is_only(LIST) {
            true => items(&left.or_null),
            false => self.evaluated_once(&left.or_null, |list| {
                format!("(type({list}) == list ? dyn({}) : null)", items(list))
            }),
        };
        let shape = if left.is_only(LIST) { LIST } else { LIST | NULL };
        let mut term = Term::new(value, shape);
        term.or_empty = left.or_empty.as_deref().map(items);
        term.is_fallible = fallible;
        term.is_nested = taken.may_be(LIST) && !is_itself || left.is_nested && is_itself;
        term.has_strings = if is_itself {
            left.has_strings
        } else {
            taken.is_only(TEXT) || taken.is_never_null && taken.is_only(TEXT | NULL)
        };
        term.types = taken.types.into_iter().map(Type::list).collect();
        Ok(term)
    }

    fn list(&self, nodes: &[QueryNode], current: &Place) -> Result<Term, Refusal> {
        let terms: Vec<Term> = nodes
            .iter()
            .map(|node| self.value(node, current))
            .collect::<Result<_, _>>()?;
        let values: Vec<String> = terms.iter().map(|term| term.or_null.clone()).collect();
        let mut term = self.unless_null(listed(&values), LIST, current);
        term.is_fallible = terms.iter().any(|term| term.is_fallible);
        if terms.iter().all(|term| !term.types.is_empty()) {
            term.types = terms
                .into_iter()
                .flat_map(|term| term.types)
                .map(Type::list)
                .collect();
        }
        Ok(term)
    }

    fn hash(&self, entries: &[(String, QueryNode)], current: &Place) -> Result<Term, Refusal> {
        let mut written = Vec::new();
        let mut is_fallible = false;
        for (key, node) in entries {
            let term = self.value(node, current)?;
            is_fallible |= term.is_fallible;
            written.push(format!("{}: dyn({})", literal(key), term.or_null));
        }
        let mut term = self.unless_null(format!("{{{}}}", written.join(", ")), MAP, current);
        term.is_fallible = is_fallible;
        Ok(term)
    }

    /// The result for null is null.
    fn unless_null(&self, made: String, shape: Shape, current: &Place) -> Term {
        match current {
            Place::Value(base) if base.may_be(NULL) => {
                let mut term = Term::new(
                    format!("({} == null ? null : dyn({made}))", base.or_null),
                    shape | NULL,
                );
                term.or_empty = self.is_typed.then_some(made);
                term
            }
            _ => Term::new(made, shape),
        }
    }

    /// `left || right`
    fn either(&self, left: &Term, right: &Term) -> Term {
        if let Some(value) = &left.constant {
            return if is_false(value) {
                right.clone()
            } else {
                left.clone()
            };
        }
        let is_empty_list = right.constant.as_ref() == Some(&Value::Array(Vec::new()));
        let mut term = match (&left.or_empty, &left.path, &right.constant) {
            (Some(or_empty), _, _) if is_empty_list && left.is_only(LIST | NULL) => Term::new(or_empty, LIST),
            (_, Some((path, _)), Some(Value::String(text)))
                if text.is_empty() && left.is_only(TEXT | NULL) =>
            {
                Term::new(format!("{path}.orValue('')"), TEXT)
            }
            _ => Term::new(
                self.evaluated_once(&left.or_null, |name| {
                    format!(
                        "({} ? dyn({name}) : dyn({}))",
                        self.is_true(left, name),
                        right.or_null
                    )
                }),
                left.shape & !NULL | right.shape,
            ),
        };
        term.is_fallible = left.is_fallible || right.is_fallible;
        term.is_nested = left.is_nested || right.constant.is_none() && right.is_nested;
        term.is_plain = left.is_plain && right.is_plain;
        term.has_strings = left.has_strings && (right.has_strings || is_empty_list);
        term
    }
}
