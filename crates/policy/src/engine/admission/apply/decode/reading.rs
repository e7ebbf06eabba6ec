//! How objects are read.

/// How an object that was changed is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// As JSON, in which a field that no API server had yet is an error.
    Strict,
    /// As JSON.
    Lenient,
    /// As values of an expression, which convert more freely: numbers that are too large wrap
    /// (`FromUnstructured` of `apimachinery/pkg/runtime/converter.go`).
    Values,
}
