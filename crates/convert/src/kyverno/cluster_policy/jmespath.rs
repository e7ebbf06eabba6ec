//! Parses JMESPath as `github.com/kyverno/go-jmespath` does, which is an operator-precedence
//! parser.

use serde_json::Value;

/// The most bytes of an expression.
const MAX_EXPRESSION_BYTES: usize = 4096;

/// How deep expressions may nest.
const MAX_DEPTH: usize = 30;

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum QueryNode {
    /// `@`
    Current,
    Literal(Value),
    Field(String),
    /// `left.right`, and `left[0]`
    Sub(Box<QueryNode>, Box<QueryNode>),
    /// `[0]`
    Index(i64),
    /// `left[]` without the projection of its elements
    Flatten(Box<QueryNode>),
    /// A projection of each element of a list.
    Projection(Box<QueryNode>, Box<QueryNode>),
    /// A projection of each value of a map.
    ValueProjection(Box<QueryNode>, Box<QueryNode>),
    /// A list, the projection of its elements, and the condition on elements.
    Filter(Box<QueryNode>, Box<QueryNode>, Box<QueryNode>),
    List(Vec<QueryNode>),
    Hash(Vec<(String, QueryNode)>),
    Compare(Comparator, Box<QueryNode>, Box<QueryNode>),
    And(Box<QueryNode>, Box<QueryNode>),
    Or(Box<QueryNode>, Box<QueryNode>),
    Not(Box<QueryNode>),
    Pipe(Box<QueryNode>, Box<QueryNode>),
    Call(String, Vec<QueryNode>),
    /// A string literal that contains variables, as its index in the strings that
    /// [`parse_with_texts`] returns.
    Text(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
}

#[derive(Debug, Clone, PartialEq)]
enum QueryToken {
    Name(String),
    Quoted(String),
    Literal(Value),
    /// A string in quotes that contains variables.
    Text(String),
    Number(i64),
    /// An operator or bracket.
    Sign(&'static str),
    End,
}

/// Operators and brackets; longer ones come before their prefixes.
const SIGNS: [&str; 23] = [
    "[?", "[]", "||", "&&", "==", "!=", "<=", ">=", "[", "]", "{", "}", "(", ")", ",", ":", ".", "*", "@",
    "|", "<", ">", "!",
];

/// Parses an expression without variables.
///
/// # Errors
///
/// The expression is invalid, too long, or too deep.
pub(crate) fn parse(text: &str) -> Result<QueryNode, String> {
    match parse_with_texts(text)? {
        (node, texts) if texts.is_empty() => Ok(node),
        _ => Err("a variable within a query has no counterpart here: write one query".to_owned()),
    }
}

/// Parses an expression, and returns it with the strings in single quotes that contain variables,
/// in order.
///
/// # Errors
///
/// The expression is invalid, too long, or too deep.
pub(crate) fn parse_with_texts(text: &str) -> Result<(QueryNode, Vec<String>), String> {
    if text.len() > MAX_EXPRESSION_BYTES {
        return Err(format!("an expression has at most {MAX_EXPRESSION_BYTES} bytes"));
    }
    let mut parser = QueryParser {
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
        texts: Vec::new(),
    };
    let node = parser.expression(0)?;
    match parser.peek() {
        QueryToken::End => Ok((node, parser.texts)),
        token => Err(unexpected(token)),
    }
}

/// The length in bytes of the variable at the start of `text`; `None` if there is none, or it has
/// no end.
pub(crate) fn variable_length(text: &str) -> Option<usize> {
    let mut open = 0_usize;
    text.starts_with("{{").then_some(())?;
    for (at, character) in text.char_indices() {
        match character {
            '{' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            let length = at + 1;
            return text.get(..length)?.ends_with("}}").then_some(length);
        }
    }
    None
}

fn unexpected(token: &QueryToken) -> String {
    match token {
        QueryToken::End => "the expression ends too early".to_owned(),
        QueryToken::Sign(sign) => format!("`{sign}` is not expected here"),
        QueryToken::Name(name) | QueryToken::Quoted(name) => format!("`{name}` is not expected here"),
        QueryToken::Number(number) => format!("`{number}` is not expected here"),
        QueryToken::Literal(literal) => format!("`{literal}` is not expected here"),
        QueryToken::Text(text) => format!("`{text}` is not expected here"),
    }
}

fn tokens(text: &str) -> Result<Vec<QueryToken>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, after) = token(first, rest)?;
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens.push(QueryToken::End);
    Ok(tokens)
}

fn token(first: char, rest: &str) -> Result<(QueryToken, &str), String> {
    let while_it = |is_part: fn(char) -> bool, from: usize| {
        let length = rest.get(from..).unwrap_or_default().find(|part| !is_part(part));
        rest.split_at(length.map_or(rest.len(), |length| length + from))
    };
    match first {
        'a'..='z' | 'A'..='Z' | '_' => {
            let (name, after) = while_it(|part| part.is_ascii_alphanumeric() || part == '_', 0);
            Ok((QueryToken::Name(name.to_owned()), after))
        }
        '0'..='9' | '-' => {
            let (number, after) = while_it(|part| part.is_ascii_digit(), 1);
            let number = number.parse().map_err(|_| format!("`{number}` is no number"))?;
            Ok((QueryToken::Number(number), after))
        }
        '\'' => {
            let (written, after) = quoted(rest, '\'')?;
            let text = written.replace("\\'", "'");
            let token = match text.contains("{{") {
                true => QueryToken::Text(text),
                false => QueryToken::Literal(text.into()),
            };
            Ok((token, after))
        }
        '`' => {
            let (written, after) = quoted(rest, '`')?;
            let json = written.replace("\\`", "`");
            let value = serde_json::from_str(json.trim()).map_err(|_| format!("`{json}` is no JSON"))?;
            Ok((QueryToken::Literal(value), after))
        }
        '"' => {
            let (written, after) = quoted(rest, '"')?;
            let name = serde_json::from_str(&format!("\"{written}\""))
                .map_err(|_| format!("`{written}` is no name"))?;
            Ok((QueryToken::Quoted(name), after))
        }
        _ => SIGNS
            .iter()
            .find_map(|sign| Some((QueryToken::Sign(sign), rest.strip_prefix(sign)?)))
            .ok_or_else(|| format!("`{first}` is not expected here")),
    }
}

/// Splits off the text between two `sign`s. Those within variables do not count, and between single
/// quotes, every backslash before a `sign` escapes it.
fn quoted(text: &str, sign: char) -> Result<(&str, &str), String> {
    let inner = text.strip_prefix(sign).unwrap_or(text);
    let mut is_escaped = false;
    let mut end_of_variable = 0;
    for (at, character) in inner.char_indices() {
        if at < end_of_variable {
            continue;
        }
        let variable = inner.get(at..).filter(|_| sign == '\'').and_then(variable_length);
        if let Some(length) = variable {
            end_of_variable = at + length;
            continue;
        }
        if character == sign && !is_escaped {
            let (written, after) = inner.split_at(at);
            return Ok((written, after.strip_prefix(sign).unwrap_or(after)));
        }
        is_escaped = character == '\\' && (sign == '\'' || !is_escaped);
    }
    Err(format!("a `{sign}` is missing"))
}

struct QueryParser {
    tokens: Vec<QueryToken>,
    at: usize,
    depth: usize,
    texts: Vec<String>,
}

/// The binding power of a token after an expression.
fn power(token: &QueryToken) -> u8 {
    match token {
        QueryToken::Sign(sign) => match *sign {
            "|" => 1,
            "||" => 2,
            "&&" => 3,
            "==" | "!=" | "<" | "<=" | ">" | ">=" => 5,
            "[]" => 9,
            "*" => 20,
            "[?" => 21,
            "." => 40,
            "{" => 50,
            "[" => 55,
            "(" => 60,
            _ => 0,
        },
        _ => 0,
    }
}

fn comparator(sign: &str) -> Option<Comparator> {
    Some(match sign {
        "==" => Comparator::Equal,
        "!=" => Comparator::NotEqual,
        "<" => Comparator::Less,
        "<=" => Comparator::LessOrEqual,
        ">" => Comparator::More,
        ">=" => Comparator::MoreOrEqual,
        _ => return None,
    })
}

type ParsedQuery = Result<QueryNode, String>;

// === impl QueryParser ===

impl QueryParser {
    fn peek(&self) -> &QueryToken {
        self.tokens.get(self.at).unwrap_or(&QueryToken::End)
    }

    fn advance(&mut self) -> QueryToken {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek(), QueryToken::Sign(next) if *next == sign);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        match self.takes(sign) {
            true => Ok(()),
            false => Err(format!("`{sign}` is missing")),
        }
    }

    fn expression(&mut self, least: u8) -> ParsedQuery {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("an expression nests at most {MAX_DEPTH} deep"));
        }
        let mut left = self.first()?;
        while power(self.peek()) > least {
            left = self.follow(left)?;
        }
        self.depth -= 1;
        Ok(left)
    }

    /// Parses the beginning of an expression.
    fn first(&mut self) -> ParsedQuery {
        match self.advance() {
            QueryToken::Literal(value) => Ok(QueryNode::Literal(value)),
            QueryToken::Text(text) => {
                self.texts.push(text);
                Ok(QueryNode::Text(self.texts.len() - 1))
            }
            QueryToken::Name(name) | QueryToken::Quoted(name) => Ok(QueryNode::Field(name)),
            QueryToken::Sign(sign) => match sign {
                "@" => Ok(QueryNode::Current),
                "!" => Ok(QueryNode::Not(Box::new(self.expression(45)?))),
                "(" => {
                    let inner = self.expression(0)?;
                    self.expect(")")?;
                    Ok(inner)
                }
                "*" => self.values(QueryNode::Current, 20),
                "[]" => self.flattened(QueryNode::Current),
                "[?" => self.filter(QueryNode::Current),
                "{" => self.hash(),
                "[" => match self.peek() {
                    QueryToken::Number(_) => self.index(QueryNode::Current),
                    QueryToken::Sign(":") => Err(SLICE.to_owned()),
                    QueryToken::Sign("*") if self.tokens.get(self.at + 1) == Some(&QueryToken::Sign("]")) => {
                        self.at += 2;
                        self.each(QueryNode::Current)
                    }
                    _ => self.list(),
                },
                _ => Err(unexpected(&QueryToken::Sign(sign))),
            },
            token => Err(unexpected(&token)),
        }
    }

    /// Parses what follows `left`.
    fn follow(&mut self, left: QueryNode) -> ParsedQuery {
        let token = self.advance();
        let QueryToken::Sign(sign) = token else {
            return Err(unexpected(&token));
        };
        let boxed = |node| Box::new(node);
        match sign {
            "." if self.takes("*") => self.values(left, 40),
            "." => Ok(QueryNode::Sub(boxed(left), boxed(self.after_dot(40)?))),
            "|" => Ok(QueryNode::Pipe(boxed(left), boxed(self.expression(1)?))),
            "||" => Ok(QueryNode::Or(boxed(left), boxed(self.expression(2)?))),
            "&&" => Ok(QueryNode::And(boxed(left), boxed(self.expression(3)?))),
            "(" => match left {
                QueryNode::Field(name) => self.call(name),
                _ => Err(unexpected(&QueryToken::Sign("("))),
            },
            "[]" => self.flattened(left),
            "[?" => self.filter(left),
            "[" => match self.peek() {
                QueryToken::Number(_) => self.index(left),
                QueryToken::Sign("*") => {
                    self.at += 1;
                    self.expect("]")?;
                    self.each(left)
                }
                _ => Err(SLICE.to_owned()),
            },
            sign => match comparator(sign) {
                Some(comparator) => Ok(QueryNode::Compare(
                    comparator,
                    boxed(left),
                    boxed(self.expression(5)?),
                )),
                None => Err(unexpected(&QueryToken::Sign(sign))),
            },
        }
    }

    fn after_dot(&mut self, least: u8) -> ParsedQuery {
        match self.peek() {
            QueryToken::Name(_) | QueryToken::Quoted(_) | QueryToken::Sign("*") => self.expression(least),
            QueryToken::Sign("[") => {
                self.at += 1;
                self.list()
            }
            QueryToken::Sign("{") => {
                self.at += 1;
                self.hash()
            }
            token => Err(unexpected(token)),
        }
    }

    fn index(&mut self, left: QueryNode) -> ParsedQuery {
        let QueryToken::Number(index) = self.advance() else {
            return Err(SLICE.to_owned());
        };
        if !self.takes("]") {
            return Err(SLICE.to_owned());
        }
        Ok(QueryNode::Sub(Box::new(left), Box::new(QueryNode::Index(index))))
    }

    /// Parses the projection of each element.
    fn taken(&mut self, least: u8) -> Result<Box<QueryNode>, String> {
        let taken = match self.peek() {
            token if power(token) < 10 => QueryNode::Current,
            QueryToken::Sign("[" | "[?") => self.expression(least)?,
            QueryToken::Sign(".") => {
                self.at += 1;
                self.after_dot(least)?
            }
            token => return Err(unexpected(token)),
        };
        Ok(Box::new(taken))
    }

    fn each(&mut self, left: QueryNode) -> ParsedQuery {
        Ok(QueryNode::Projection(Box::new(left), self.taken(20)?))
    }

    fn flattened(&mut self, left: QueryNode) -> ParsedQuery {
        let flattened = Box::new(QueryNode::Flatten(Box::new(left)));
        Ok(QueryNode::Projection(flattened, self.taken(9)?))
    }

    fn values(&mut self, left: QueryNode, least: u8) -> ParsedQuery {
        Ok(QueryNode::ValueProjection(Box::new(left), self.taken(least)?))
    }

    fn filter(&mut self, left: QueryNode) -> ParsedQuery {
        let condition = Box::new(self.expression(0)?);
        self.expect("]")?;
        let taken = match self.peek() {
            QueryToken::Sign("[]") => Box::new(QueryNode::Current),
            _ => self.taken(21)?,
        };
        Ok(QueryNode::Filter(Box::new(left), taken, condition))
    }

    fn list(&mut self) -> ParsedQuery {
        Ok(QueryNode::List(self.listed("]")?))
    }

    fn call(&mut self, name: String) -> ParsedQuery {
        if self.takes(")") {
            return Ok(QueryNode::Call(name, Vec::new()));
        }
        Ok(QueryNode::Call(name, self.listed(")")?))
    }

    fn listed(&mut self, end: &str) -> Result<Vec<QueryNode>, String> {
        let mut nodes = vec![self.expression(0)?];
        while self.takes(",") {
            nodes.push(self.expression(0)?);
        }
        self.expect(end)?;
        Ok(nodes)
    }

    fn hash(&mut self) -> ParsedQuery {
        let mut entries = Vec::new();
        loop {
            match self.advance() {
                QueryToken::Name(name) | QueryToken::Quoted(name) => {
                    self.expect(":")?;
                    entries.push((name, self.expression(0)?));
                }
                token => return Err(unexpected(&token)),
            }
            if !self.takes(",") {
                self.expect("}")?;
                return Ok(QueryNode::Hash(entries));
            }
        }
    }
}

const SLICE: &str = "slices are not converted: name an index or take all with `[]`";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn field(name: &str) -> Box<QueryNode> {
        Box::new(QueryNode::Field(name.to_owned()))
    }

    fn literal(value: Value) -> Box<QueryNode> {
        Box::new(QueryNode::Literal(value))
    }

    #[test]
    fn operators_bind_as_in_go_jmespath() {
        let cases = [
            ("a.\"b-c\"", QueryNode::Sub(field("a"), field("b-c"))),
            (
                "a || 'it\\'s' | @",
                QueryNode::Pipe(
                    Box::new(QueryNode::Or(field("a"), literal("it's".into()))),
                    Box::new(QueryNode::Current),
                ),
            ),
            (
                "a && !b == `1`",
                QueryNode::And(
                    field("a"),
                    Box::new(QueryNode::Compare(
                        Comparator::Equal,
                        Box::new(QueryNode::Not(field("b"))),
                        literal(json!(1)),
                    )),
                ),
            ),
            (
                "a[].b[0]",
                QueryNode::Projection(
                    Box::new(QueryNode::Flatten(field("a"))),
                    Box::new(QueryNode::Sub(field("b"), Box::new(QueryNode::Index(0)))),
                ),
            ),
            (
                "a.keys(@)[]",
                QueryNode::Projection(
                    Box::new(QueryNode::Flatten(Box::new(QueryNode::Sub(
                        field("a"),
                        Box::new(QueryNode::Call("keys".to_owned(), vec![QueryNode::Current])),
                    )))),
                    Box::new(QueryNode::Current),
                ),
            ),
            (
                "a[?b > `2`].c",
                QueryNode::Filter(
                    field("a"),
                    field("c"),
                    Box::new(QueryNode::Compare(
                        Comparator::More,
                        field("b"),
                        literal(json!(2)),
                    )),
                ),
            ),
            (
                "[a, b][]",
                QueryNode::Projection(
                    Box::new(QueryNode::Flatten(Box::new(QueryNode::List(vec![
                        *field("a"),
                        *field("b"),
                    ])))),
                    Box::new(QueryNode::Current),
                ),
            ),
            ("a.*.b", QueryNode::ValueProjection(field("a"), field("b"))),
            ("{x: a}", QueryNode::Hash(vec![("x".to_owned(), *field("a"))])),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn variables_stand_in_single_quotes_with_their_own() {
        let (node, texts) = parse_with_texts("f('a\\'b', 'x{{ y || 'q' }}z', '{{ {a: b} }}')").unwrap();
        let arguments = vec![*literal("a'b".into()), QueryNode::Text(0), QueryNode::Text(1)];
        assert_eq!(node, QueryNode::Call("f".to_owned(), arguments));
        assert_eq!(texts, ["x{{ y || 'q' }}z", "{{ {a: b} }}"]);
        assert!(parse("'{{ y }}'").is_err());
        for text in ["\"{{ y }}\"", "a.{{ y }}"] {
            assert!(
                !parse_with_texts(text).is_ok_and(|(_, texts)| !texts.is_empty()),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for text in [
            "", "a.", "a[", "a[0:1]", "'a", "`{`", "a b", "(a", "{a}", "f(,)", "#", "a.'b'",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&"(".repeat(MAX_DEPTH + 1)).is_err());
        assert!(parse(&"!".repeat(MAX_EXPRESSION_BYTES + 1)).is_err());
    }
}
