//! Builds CEL from parts: conditions with operator precedence, literals, keys, wildcards.

use std::fmt::Write;

/// The precedence of the outermost operator of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Precedence {
    Choice,
    Or,
    And,
    Relation,
    Primary,
}

/// A boolean expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CelCondition {
    text: String,
    rank: Precedence,
}

/// A condition, and whether its evaluation may fail.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FallibleCondition {
    pub(crate) condition: CelCondition,
    pub(crate) may_fail: bool,
}

// === impl CelCondition ===

impl CelCondition {
    pub(crate) fn constant(value: bool) -> Self {
        Self::primary(value.to_string())
    }

    /// A call or a name, which never needs parentheses.
    pub(crate) fn primary(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            rank: Precedence::Primary,
        }
    }

    /// A comparison.
    pub(crate) fn relation(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            rank: Precedence::Relation,
        }
    }

    /// Whether the condition is the constant `value`.
    pub(crate) fn is(&self, value: bool) -> bool {
        self.text == if value { "true" } else { "false" }
    }

    /// The length in bytes.
    pub(crate) const fn len(&self) -> usize {
        self.text.len()
    }

    /// The conjunction of conditions.
    pub(crate) fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        Self::joined(parts, true)
    }

    /// The disjunction of conditions.
    pub(crate) fn any(parts: impl IntoIterator<Item = Self>) -> Self {
        Self::joined(parts, false)
    }

    /// `then` if this condition holds, otherwise `otherwise`.
    pub(crate) fn choice(&self, then: &Self, otherwise: &Self) -> Self {
        if self.is(true) || self.is(false) {
            return if self.is(true) {
                then.clone()
            } else {
                otherwise.clone()
            };
        }
        if then.is(true) && otherwise.is(false) {
            return self.clone();
        }
        Self {
            text: format!(
                "{} ? {} : {}",
                self.within(Precedence::Or),
                then.within(Precedence::Or),
                otherwise.within(Precedence::Choice)
            ),
            rank: Precedence::Choice,
        }
    }

    /// The same condition with each `name` replaced by an expression that needs no parentheses.
    pub(crate) fn replaced(&self, name: char, value: &str) -> Self {
        Self {
            text: self.text.replace(name, value),
            rank: self.rank,
        }
    }

    /// How often `name` occurs.
    pub(crate) fn count(&self, name: char) -> usize {
        self.text.matches(name).count()
    }

    /// Whether the condition is a single comparison or call.
    pub(crate) fn is_comparison(&self) -> bool {
        self.rank >= Precedence::Relation
    }

    /// Whether the condition contains a macro, which evaluates its body several times.
    pub(crate) fn has_macro(&self) -> bool {
        [".exists(", ".all(", ".map("]
            .iter()
            .any(|name| self.text.contains(name))
    }

    fn joined(parts: impl IntoIterator<Item = Self>, is_all: bool) -> Self {
        let mut kept: Vec<Self> = Vec::new();
        for part in parts {
            if part.is(!is_all) {
                return part;
            }
            if !part.is(is_all) && !kept.contains(&part) {
                kept.push(part);
            }
        }
        if kept.len() < 2 {
            return kept.pop().unwrap_or_else(|| Self::constant(is_all));
        }
        let (rank, operator) = if is_all {
            (Precedence::And, " && ")
        } else {
            (Precedence::Or, " || ")
        };
        let parts: Vec<String> = kept.iter().map(|part| part.within(rank)).collect();
        Self {
            text: parts.join(operator),
            rank,
        }
    }

    pub(crate) fn not(self) -> Self {
        if self.is(true) || self.is(false) {
            return Self::constant(self.is(false));
        }
        let inner = self
            .text
            .strip_prefix('!')
            .filter(|_| self.rank == Precedence::Primary);
        match inner {
            Some(inner) if !inner.starts_with('(') => Self::primary(inner),
            _ => Self::primary(format!("!{}", self.within(Precedence::Primary))),
        }
    }

    fn within(&self, outer: Precedence) -> String {
        if self.rank < outer {
            format!("({})", self.text)
        } else {
            self.text.clone()
        }
    }
}

// === impl FallibleCondition ===

impl FallibleCondition {
    pub(crate) fn infallible(condition: CelCondition) -> Self {
        Self {
            condition,
            may_fail: false,
        }
    }

    /// Combines this condition with `next`, which only counts if this one does not have the value
    /// `decides`.
    fn then(self, next: Self, decides: bool) -> Self {
        let [first, second] = [self.condition, next.condition];
        let condition = match (self.may_fail, decides) {
            (false, true) => CelCondition::any([first, second]),
            (false, false) => CelCondition::all([first, second]),
            (true, true) => first.choice(&CelCondition::constant(true), &second),
            (true, false) => first.choice(&second, &CelCondition::constant(false)),
        };
        Self {
            condition,
            may_fail: self.may_fail || next.may_fail,
        }
    }

    pub(crate) fn and(self, next: Self) -> Self {
        self.then(next, false)
    }

    pub(crate) fn or(self, next: Self) -> Self {
        self.then(next, true)
    }

    pub(crate) fn not(self) -> Self {
        Self {
            condition: self.condition.not(),
            may_fail: self.may_fail,
        }
    }
}

impl std::fmt::Display for CelCondition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

// Writes literals and selections.

/// A CEL string literal.
pub(crate) fn literal(text: &str) -> String {
    let mut written = String::with_capacity(text.len() + 2);
    written.push('\'');
    for character in text.chars() {
        match character {
            '\\' => written.push_str("\\\\"),
            '\'' => written.push_str("\\'"),
            '\n' => written.push_str("\\n"),
            '\r' => written.push_str("\\r"),
            '\t' => written.push_str("\\t"),
            control if control.is_control() => {
                // Writing to a String cannot fail.
                let _ = write!(written, "\\u{:04x}", u32::from(control));
            }
            other => written.push(other),
        }
    }
    written.push('\'');
    written
}

/// A CEL list of string literals, such as `['a', 'b']`.
pub(crate) fn literals<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    let texts: Vec<String> = texts.into_iter().map(literal).collect();
    format!("[{}]", texts.join(", "))
}

/// The condition that `value` is one of `texts`.
pub(crate) fn one_of(value: &str, texts: &[&str]) -> CelCondition {
    match texts {
        [] => CelCondition::constant(false),
        [text] => CelCondition::relation(format!("{value} == {}", literal(text))),
        texts => CelCondition::relation(format!("{value} in {}", literals(texts.iter().copied()))),
    }
}

/// Words that are not identifiers in CEL.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// Whether `key` can be selected as a field.
pub(crate) fn is_identifier(key: &str) -> bool {
    let mut characters = key.chars();
    // `namespace` is reserved, but can be selected.
    characters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|character| character.is_ascii_alphanumeric() || character == '_')
        && (key == "namespace" || !RESERVED.contains(&key))
}

/// The selection of the field `key` from `map`, which fails if there is none.
pub(crate) fn field(map: &str, key: &str) -> String {
    match is_identifier(key) {
        true => format!("{map}.{key}"),
        false => format!("{map}[{}]", literal(key)),
    }
}

/// The optional selection of the field `key` from `map`, which may be an optional itself.
pub(crate) fn optional_field(map: &str, key: &str) -> String {
    match is_identifier(key) {
        true => format!("{map}.?{key}"),
        false => format!("{map}[?{}]", literal(key)),
    }
}

/// The condition that `map` has the key.
pub(crate) fn has_field(map: &str, key: &str) -> CelCondition {
    match is_identifier(key) {
        true => CelCondition::primary(format!("has({map}.{key})")),
        false => CelCondition::relation(format!("{} in {map}", literal(key))),
    }
}

// Wildcards as in Kyverno's `ext/wildcard`: `*` matches any characters, `?` one character.

/// Whether `pattern` contains wildcards.
pub(crate) fn has_wildcard(pattern: &str) -> bool {
    pattern.contains(['*', '?'])
}

/// The condition that the string `value` matches the wildcard pattern.
pub(crate) fn matches_wildcard(value: &str, pattern: &str) -> CelCondition {
    let inner = pattern.trim_matches('*');
    let stars = (pattern.starts_with('*'), pattern.ends_with('*'));
    if pattern == "*" {
        return CelCondition::constant(true);
    }
    if pattern == "?*" || pattern == "*?" {
        return CelCondition::relation(format!("{value} != ''"));
    }
    if !has_wildcard(pattern) {
        return CelCondition::relation(format!("{value} == {}", literal(pattern)));
    }
    if !has_wildcard(inner) && !inner.is_empty() {
        let call = match stars {
            (true, true) => "contains",
            (true, false) => "endsWith",
            (false, _) => "startsWith",
        };
        return CelCondition::primary(format!("{value}.{call}({})", literal(inner)));
    }
    CelCondition::primary(format!(
        "{value}.matches({})",
        literal(&regular_expression(pattern))
    ))
}

/// Whether `text` matches the wildcard pattern.
pub(crate) fn is_wildcard_match(pattern: &str, text: &str) -> bool {
    let mut reached = vec![true];
    reached.extend(text.chars().map(|_| false));
    // Whether the pattern read so far matches the first 0, 1, 2, … characters.
    for part in pattern.chars() {
        let mut next = Vec::with_capacity(reached.len());
        let mut any_before = false;
        let before = std::iter::once(None).chain(text.chars().map(Some));
        let mut previous = false;
        for (is_reached, character) in reached.iter().copied().zip(before) {
            any_before |= is_reached;
            next.push(match part {
                '*' => any_before,
                '?' => previous,
                part => previous && character == Some(part),
            });
            previous = is_reached;
        }
        reached = next;
    }
    reached.last().copied().unwrap_or_default()
}

fn regular_expression(pattern: &str) -> String {
    let mut expression = "(?s)^".to_owned();
    for character in pattern.chars() {
        match character {
            '*' => expression.push_str(".*"),
            '?' => expression.push('.'),
            special if "\\.+()|[]{}^$".contains(special) => {
                expression.push('\\');
                expression.push(special);
            }
            other => expression.push(other),
        }
    }
    expression.push('$');
    expression
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(text: &str) -> CelCondition {
        CelCondition::primary(text)
    }

    #[test]
    fn parentheses_stand_where_they_are_needed() {
        let or = CelCondition::any([primary("a"), primary("b")]);
        let and = CelCondition::all([or.clone(), primary("c")]);
        assert_eq!(and.to_string(), "(a || b) && c");
        assert_eq!(
            CelCondition::any([and.clone(), primary("d")]).to_string(),
            "(a || b) && c || d"
        );
        assert_eq!(or.clone().not().to_string(), "!(a || b)");
        assert_eq!(primary("a").not().not().to_string(), "a");
        assert_eq!(or.not().not().to_string(), "!!(a || b)");
    }

    #[test]
    fn what_is_known_is_left_out() {
        let known = |value| CelCondition::constant(value);
        assert_eq!(CelCondition::all([known(true), primary("a")]).to_string(), "a");
        assert_eq!(
            CelCondition::all([known(false), primary("a")]).to_string(),
            "false"
        );
        assert_eq!(CelCondition::any([known(true), primary("a")]).to_string(), "true");
        assert_eq!(CelCondition::any([primary("a"), primary("a")]).to_string(), "a");
        assert_eq!(CelCondition::any([]).to_string(), "false");
        assert_eq!(known(true).not().to_string(), "false");
    }

    #[test]
    fn texts_and_keys_are_quoted() {
        assert_eq!(literal("a'b\\c\n\u{1}"), "'a\\'b\\\\c\\n\\u0001'");
        assert_eq!(field("o", "a_b"), "o.a_b");
        assert_eq!(field("o", "a/b"), "o['a/b']");
        assert_eq!(field("o", "in"), "o['in']");
        assert_eq!(optional_field("o.?a", "b.c"), "o.?a[?'b.c']");
        assert_eq!(has_field("o", "x").to_string(), "has(o.x)");
        assert_eq!(has_field("o", "x-y").to_string(), "'x-y' in o");
    }

    #[test]
    fn texts_match_wildcards() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*c?", "abbcd", true),
            ("a*c?", "abbc", false),
            ("?", "ä", true),
            ("", "a", false),
            ("*b", "abab", true),
        ] {
            assert_eq!(is_wildcard_match(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn wildcards_become_the_plainest_call() {
        let cases = [
            ("*", "true"),
            ("?*", "v != ''"),
            ("a", "v == 'a'"),
            ("a*", "v.startsWith('a')"),
            ("*a", "v.endsWith('a')"),
            ("*a*", "v.contains('a')"),
            ("a*b", "v.matches('(?s)^a.*b$')"),
            ("*.?", "v.matches('(?s)^.*\\\\..$')"),
            ("**", "v.matches('(?s)^.*.*$')"),
            ("", "v == ''"),
        ];
        for (pattern, expected) in cases {
            assert_eq!(matches_wildcard("v", pattern).to_string(), expected, "{pattern}");
        }
    }
}
