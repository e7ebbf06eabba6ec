//! Values of the libraries.

/// A value of a library: a quantity, an address, a question to the authorizer.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Opaque<'a> {
    #[doc(hidden)]
    Reserved(std::marker::PhantomData<&'a ()>),
}

impl Opaque<'_> {
    /// The name of its type.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Reserved(_) => "reserved",
        }
    }
}

impl Opaque<'_> {
    /// The same value with nothing borrowed.
    #[must_use]
    pub fn into_owned(self) -> Opaque<'static> {
        Opaque::Reserved(std::marker::PhantomData)
    }
}

impl PartialEq for Opaque<'_> {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}
