//! Type unification: which types are assignable, and the values of type variables (cel-go
//! `checker/types.go`).

use std::sync::Arc;

use crate::types::Type;

/// The first number of a checker's own type variable: below are the parameters
/// of signatures.
const FIRST: u32 = 1 << 16;

/// What the type variables stand for, as far as that is known.
#[derive(Debug, Clone, Default)]
pub(super) struct Bindings(Vec<Option<Type>>);

impl Bindings {
    /// A type variable that nothing is known of.
    pub(super) fn fresh(&mut self) -> Type {
        let number = FIRST + u32::try_from(self.0.len()).unwrap_or_default();
        self.0.push(None);
        Type::Param(number)
    }

    /// The types of a signature, its parameters replaced by type variables.
    pub(super) fn instantiate<const N: usize>(&mut self, types: [&[Type]; N]) -> [Vec<Type>; N] {
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
        let Type::Param(number) = variable else {
            return None;
        };
        self.0.get(number.checked_sub(FIRST)? as usize)?.as_ref()
    }

    fn bind(&mut self, variable: &Type, to: Type) {
        let Type::Param(number) = variable else { return };
        if let Some(own) = number
            .checked_sub(FIRST)
            .and_then(|index| self.0.get_mut(index as usize))
        {
            *own = Some(to);
        }
    }

    /// Replaces type variables by what they stand for; those that stand for
    /// nothing yet by `dyn`, if `to_dyn`.
    pub(super) fn substitute(&self, of: &Type, to_dyn: bool) -> Type {
        if let Some(bound) = self.find(of) {
            return self.substitute(bound, to_dyn);
        }
        match of {
            Type::Param(_) if to_dyn => Type::Dyn,
            Type::List(item) => Type::list(self.substitute(item, to_dyn)),
            Type::Optional(inner) => Type::optional(self.substitute(inner, to_dyn)),
            Type::Type(inner) => Type::of_type(self.substitute(inner, to_dyn)),
            Type::Map(entry) => Type::map(
                self.substitute(&entry.0, to_dyn),
                self.substitute(&entry.1, to_dyn),
            ),
            of => of.clone(),
        }
    }

    /// Whether a value of type `from` may stand where `to` is expected; if so,
    /// remembers what that says of type variables.
    pub(super) fn assign(&mut self, from: &Type, to: &Type) -> bool {
        self.assign_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    /// Like [`Bindings::assign`], all or none.
    pub(super) fn assign_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        let mut attempt = self.clone();
        let fits =
            from.len() == to.len() && from.iter().zip(to).all(|(from, to)| attempt.assignable(from, to));
        if fits {
            *self = attempt;
        }
        fits
    }

    fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        if matches!(to, Type::Param(_)) {
            match self.substitutes(from, to) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if matches!(from, Type::Param(_)) {
            return self.substitutes(to, from).0;
        }
        match (from, to) {
            (Type::Dyn, _) | (_, Type::Dyn) | (Type::Type(_), Type::Type(_)) => true,
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            (Type::List(from), Type::List(to)) | (Type::Optional(from), Type::Optional(to)) => {
                self.assignable(from, to)
            }
            (Type::Map(from), Type::Map(to)) => {
                self.assignable(&from.0, &to.0) && self.assignable(&from.1, &to.1)
            }
            (from, to) => from == to,
        }
    }

    /// Whether `of` may be what `variable` stands for, and whether that stood
    /// for something already.
    fn substitutes(&mut self, of: &Type, variable: &Type) -> (bool, bool) {
        if of == variable {
            return (true, true);
        }
        let Some(bound) = self.find(variable).cloned() else {
            let free = self.is_free_of(variable, of);
            if free {
                self.bind(variable, of.clone());
            }
            return (free, false);
        };
        if *of == bound {
            return (true, true);
        }
        if !self.assignable(of, &bound) {
            return (false, true);
        }
        let general = most_general(of, &bound).clone();
        if self.is_free_of(variable, &general) {
            self.bind(variable, general);
        }
        (true, true)
    }

    /// Whether `variable` does not occur within `of`.
    fn is_free_of(&self, variable: &Type, of: &Type) -> bool {
        if variable == of {
            return false;
        }
        match of {
            Type::Param(_) => self.find(of).is_none_or(|bound| self.is_free_of(variable, bound)),
            Type::List(inner) | Type::Optional(inner) | Type::Type(inner) => self.is_free_of(variable, inner),
            Type::Map(entry) => self.is_free_of(variable, &entry.0) && self.is_free_of(variable, &entry.1),
            _ => true,
        }
    }
}

const fn is_nullable(of: &Type) -> bool {
    matches!(
        of,
        Type::Null | Type::Opaque(_) | Type::Optional(_) | Type::Object(_) | Type::Duration | Type::Timestamp
    )
}

/// The more general of two types that fit each other.
pub(super) fn most_general<'t>(left: &'t Type, right: &'t Type) -> &'t Type {
    if is_equal_or_less_specific(left, right) {
        left
    } else {
        right
    }
}

fn is_equal_or_less_specific(left: &Type, right: &Type) -> bool {
    match (left, right) {
        (Type::Dyn | Type::Param(_), _) | (Type::Type(_), Type::Type(_)) => true,
        (_, Type::Dyn | Type::Param(_)) => false,
        (Type::List(left), Type::List(right)) | (Type::Optional(left), Type::Optional(right)) => {
            is_equal_or_less_specific(left, right)
        }
        (Type::Map(left), Type::Map(right)) => {
            is_equal_or_less_specific(&left.0, &right.0) && is_equal_or_less_specific(&left.1, &right.1)
        }
        (left, right) => left == right,
    }
}

/// The type within an optional, and whether it was one.
pub(super) fn unwrap_optional(of: &Type) -> (Type, bool) {
    match of {
        Type::Optional(inner) => (Arc::unwrap_or_clone(Arc::clone(inner)), true),
        of => (of.clone(), false),
    }
}
