//! Type unification: which types are assignable, and the values of type variables (cel-go
//! `checker/types.go`).
//!
//! Types share their parts, and type variables stand for types with type variables: what is a few
//! nodes in memory can be a tree of any size. No type is built that is larger than
//! [`MAX_TYPE_SIZE`], and every step of a walk is counted.

use std::sync::Arc;

use crate::cost::{CompileBudget, Exhaustion};
use crate::types::Type;

/// How many parts a type may have. A shared part counts wherever it occurs.
const MAX_TYPE_SIZE: usize = 1000;

/// How deep types may nest.
const MAX_TYPE_DEPTH: u32 = 250;

/// The first number of a checker's own type variable: below are the parameters
/// of signatures.
const FIRST: u32 = 1 << 16;

/// The types to which type variables are bound.
#[derive(Debug)]
pub(crate) struct Bindings<'b> {
    types: Vec<Option<Type>>,
    /// The former types of the variables that the current assignment bound, so that it can be undone.
    replaced: Vec<(usize, Option<Type>)>,
    budget: &'b CompileBudget<'b>,
}

/// The result of a walk over types, unless it exceeded a limit.
type TypeWalk<T> = Result<T, Exhaustion>;

impl<'b> Bindings<'b> {
    pub(crate) const fn new(budget: &'b CompileBudget<'b>) -> Self {
        Self {
            types: Vec::new(),
            replaced: Vec::new(),
            budget,
        }
    }

    /// The budget that every walk is charged to.
    pub(crate) const fn budget(&self) -> &'b CompileBudget<'b> {
        self.budget
    }

    /// A new type variable, which is not bound.
    pub(crate) fn fresh(&mut self) -> Type {
        let number = FIRST + u32::try_from(self.types.len()).unwrap_or_default();
        self.types.push(None);
        Type::Param(number)
    }

    /// The types of a signature, its parameters replaced by type variables.
    pub(crate) fn instantiate<const N: usize>(&mut self, types: [&[Type]; N]) -> [Vec<Type>; N] {
        let mut known = Vec::new();
        types.map(|types| types.iter().map(|of| self.renamed(of, &mut known)).collect())
    }

    fn renamed(&mut self, of: &Type, known: &mut Vec<(u32, Type)>) -> Type {
        match of {
            Type::Param(number) => match known.iter().find(|(own, _)| own == number) {
                Some((_, variable)) => variable.clone(),
                None => {
                    let variable = self.fresh();
                    known.push((*number, variable.clone()));
                    variable
                }
            },
            Type::List(item) => Type::list(self.renamed(item, known)),
            Type::Optional(inner) => Type::optional(self.renamed(inner, known)),
            Type::Type(inner) => Type::of_type(self.renamed(inner, known)),
            Type::Map(entry) => Type::map(self.renamed(&entry.0, known), self.renamed(&entry.1, known)),
            of => of.clone(),
        }
    }

    fn find(&self, variable: &Type) -> Option<&Type> {
        self.types.get(index(variable)?)?.as_ref()
    }

    fn bind(&mut self, variable: &Type, to: Type) {
        let Some(index) = index(variable) else { return };
        if let Some(own) = self.types.get_mut(index) {
            self.replaced.push((index, own.replace(to)));
        }
    }

    /// Replaces type variables by the types to which they are bound, and unbound ones by `dyn` if `to_dyn`.
    pub(crate) fn substitute(&self, of: &Type, to_dyn: bool) -> TypeWalk<Type> {
        let mut parts = 0;
        let substituted = self.substituted(of, to_dyn, &mut parts, 0)?;
        Ok(substituted.unwrap_or_else(|| of.clone()))
    }

    /// `None` if the type does not change.
    fn substituted(&self, of: &Type, to_dyn: bool, parts: &mut usize, depth: u32) -> TypeWalk<Option<Type>> {
        *parts += 1;
        self.step(depth)?;
        if *parts > MAX_TYPE_SIZE {
            return Err(Exhaustion::Type);
        }
        let mut bound = of;
        while let Some(next) = self.find(bound) {
            self.budget.charge_steps(1)?;
            bound = next;
        }
        let mut part = |of: &Type| self.substituted(of, to_dyn, parts, depth + 1);
        let substituted = match bound {
            Type::Param(_) if to_dyn => Some(Type::Dyn),
            Type::List(item) => part(item)?.map(Type::list),
            Type::Optional(inner) => part(inner)?.map(Type::optional),
            Type::Type(inner) => part(inner)?.map(Type::of_type),
            Type::Map(entry) => match (part(&entry.0)?, part(&entry.1)?) {
                (None, None) => None,
                (key, value) => Some(Type::map(
                    key.unwrap_or_else(|| entry.0.clone()),
                    value.unwrap_or_else(|| entry.1.clone()),
                )),
            },
            _ => None,
        };
        let is_bound = !std::ptr::eq(bound, of);
        Ok(substituted.or_else(|| is_bound.then(|| bound.clone())))
    }

    /// Returns the type, if it is not too large.
    pub(crate) fn sized(&self, of: Type) -> TypeWalk<Type> {
        self.measure(&of, &mut 0, 0)?;
        Ok(of)
    }

    fn measure(&self, of: &Type, parts: &mut usize, depth: u32) -> TypeWalk<()> {
        *parts += 1;
        self.step(depth)?;
        if *parts > MAX_TYPE_SIZE {
            return Err(Exhaustion::Type);
        }
        match of {
            Type::List(inner) | Type::Optional(inner) | Type::Type(inner) => {
                self.measure(inner, parts, depth + 1)
            }
            Type::Map(entry) => {
                self.measure(&entry.0, parts, depth + 1)?;
                self.measure(&entry.1, parts, depth + 1)
            }
            _ => Ok(()),
        }
    }

    /// Counts one step of a walk, at this depth of a type.
    fn step(&self, depth: u32) -> TypeWalk<()> {
        self.budget.charge_steps(1)?;
        if depth > MAX_TYPE_DEPTH {
            return Err(Exhaustion::Type);
        }
        Ok(())
    }

    /// Whether a value of type `from` is assignable to `to`; if so, keeps what that says of type variables.
    pub(crate) fn assign(&mut self, from: &Type, to: &Type) -> TypeWalk<bool> {
        self.assign_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    /// Like [`Bindings::assign`] for several types, of which all are assigned or none.
    pub(crate) fn assign_all(&mut self, from: &[Type], to: &[Type]) -> TypeWalk<bool> {
        self.replaced.clear();
        let mut fit = from.len() == to.len();
        for (from, to) in from.iter().zip(to) {
            fit = fit && self.assignable(from, to, 0)?;
        }
        if !fit {
            self.undo();
        }
        Ok(fit)
    }

    /// Undoes what the current assignment bound.
    fn undo(&mut self) {
        while let Some((index, before)) = self.replaced.pop() {
            if let Some(own) = self.types.get_mut(index) {
                *own = before;
            }
        }
    }

    fn assignable(&mut self, from: &Type, to: &Type, depth: u32) -> TypeWalk<bool> {
        self.step(depth)?;
        if matches!(to, Type::Param(_)) {
            match self.substitutes(from, to, depth + 1)? {
                (true, _) => return Ok(true),
                (false, true) => return Ok(false),
                (false, false) => {}
            }
        }
        if matches!(from, Type::Param(_)) {
            return Ok(self.substitutes(to, from, depth + 1)?.0);
        }
        match (from, to) {
            (Type::Dyn, _) | (_, Type::Dyn) | (Type::Type(_), Type::Type(_)) => Ok(true),
            (Type::Null, other) | (other, Type::Null) => Ok(is_nullable(other)),
            (Type::List(from), Type::List(to)) | (Type::Optional(from), Type::Optional(to)) => {
                self.assignable(from, to, depth + 1)
            }
            (Type::Map(from), Type::Map(to)) => {
                Ok(self.assignable(&from.0, &to.0, depth + 1)?
                    && self.assignable(&from.1, &to.1, depth + 1)?)
            }
            (from, to) => Ok(is_same_leaf(from, to)),
        }
    }

    /// Whether `variable` may be bound to `of`, and whether it was bound already (cel-go
    /// `isValidTypeSubstitution`).
    fn substitutes(&mut self, of: &Type, variable: &Type, depth: u32) -> TypeWalk<(bool, bool)> {
        if is_same_leaf(of, variable) {
            return Ok((true, true));
        }
        let Some(bound) = self.find(variable).cloned() else {
            let free = self.is_free_of(variable, of, 0)?;
            if free {
                self.bind(variable, of.clone());
            }
            return Ok((free, false));
        };
        if self.is_same(of, &bound)? {
            return Ok((true, true));
        }
        if !self.assignable(of, &bound, depth)? {
            return Ok((false, true));
        }
        let general = self.most_general(of, &bound)?.clone();
        if self.is_free_of(variable, &general, 0)? {
            self.bind(variable, general);
        }
        Ok((true, true))
    }

    /// Whether `variable` does not occur within `of`.
    fn is_free_of(&self, variable: &Type, of: &Type, depth: u32) -> TypeWalk<bool> {
        self.step(depth)?;
        let mut bound = of;
        while !is_same_leaf(variable, bound)
            && let Some(next) = self.find(bound)
        {
            self.budget.charge_steps(1)?;
            bound = next;
        }
        match bound {
            Type::Param(_) => Ok(!is_same_leaf(variable, bound)),
            Type::List(inner) | Type::Optional(inner) | Type::Type(inner) => {
                self.is_free_of(variable, inner, depth + 1)
            }
            Type::Map(entry) => Ok(self.is_free_of(variable, &entry.0, depth + 1)?
                && self.is_free_of(variable, &entry.1, depth + 1)?),
            _ => Ok(true),
        }
    }

    /// Whether both types are the same, without following type variables.
    pub(crate) fn is_same(&self, left: &Type, right: &Type) -> TypeWalk<bool> {
        self.budget.charge_steps(1)?;
        match (left, right) {
            (Type::List(left), Type::List(right))
            | (Type::Optional(left), Type::Optional(right))
            | (Type::Type(left), Type::Type(right)) => {
                Ok(Arc::ptr_eq(left, right) || self.is_same(left, right)?)
            }
            (Type::Map(left), Type::Map(right)) => Ok(Arc::ptr_eq(left, right)
                || self.is_same(&left.0, &right.0)? && self.is_same(&left.1, &right.1)?),
            (left, right) => Ok(is_same_leaf(left, right)),
        }
    }

    /// The more general of two types that fit each other.
    pub(crate) fn most_general<'t>(&self, left: &'t Type, right: &'t Type) -> TypeWalk<&'t Type> {
        Ok(if self.is_equal_or_less_specific(left, right)? {
            left
        } else {
            right
        })
    }

    fn is_equal_or_less_specific(&self, left: &Type, right: &Type) -> TypeWalk<bool> {
        self.budget.charge_steps(1)?;
        match (left, right) {
            (Type::Dyn | Type::Param(_), _) | (Type::Type(_), Type::Type(_)) => Ok(true),
            (_, Type::Dyn | Type::Param(_)) => Ok(false),
            (Type::List(left), Type::List(right)) | (Type::Optional(left), Type::Optional(right)) => {
                self.is_equal_or_less_specific(left, right)
            }
            (Type::Map(left), Type::Map(right)) => Ok(self.is_equal_or_less_specific(&left.0, &right.0)?
                && self.is_equal_or_less_specific(&left.1, &right.1)?),
            (left, right) => Ok(is_same_leaf(left, right)),
        }
    }
}

/// The index of a checker's own type variable in `types`.
fn index(variable: &Type) -> Option<usize> {
    let Type::Param(number) = variable else {
        return None;
    };
    Some(number.checked_sub(FIRST)? as usize)
}

/// Whether both are the same type, and a type without parts.
fn is_same_leaf(left: &Type, right: &Type) -> bool {
    let has_parts = matches!(
        left,
        Type::List(_) | Type::Map(_) | Type::Optional(_) | Type::Type(_)
    );
    !has_parts && left == right
}

const fn is_nullable(of: &Type) -> bool {
    matches!(
        of,
        Type::Null | Type::Opaque(_) | Type::Optional(_) | Type::Object(_) | Type::Duration | Type::Timestamp
    )
}

/// The type within an optional, and whether it was one.
pub(crate) fn unwrap_optional(of: &Type) -> (Type, bool) {
    match of {
        Type::Optional(inner) => (Type::clone(inner), true),
        of => (of.clone(), false),
    }
}
