//! Reads JMESPath as `github.com/kyverno/go-jmespath` does, which parses by precedence.

use serde_json::Value;

/// How long an expression may be, in bytes.
const MAX_EXPRESSION_BYTES: usize = 4096;

/// How deep expressions may nest.
const MAX_DEPTH: usize = 30;

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    /// `@`
    Current,
    Literal(Value),
    Field(String),
    /// `left.right`, and `left[0]`
    Sub(Box<Node>, Box<Node>),
    /// `[0]`
    Index(i64),
    /// `left[]`, before what is taken of each element
    Flatten(Box<Node>),
    /// What is taken of each element of a list.
    Projection(Box<Node>, Box<Node>),
    /// What is taken of each value of a map.
    ValueProjection(Box<Node>, Box<Node>),
    /// What is taken of each element for which the last holds.
    Filter(Box<Node>, Box<Node>, Box<Node>),
    List(Vec<Node>),
    Hash(Vec<(String, Node)>),
    Compare(Comparator, Box<Node>, Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Pipe(Box<Node>, Box<Node>),
    Call(String, Vec<Node>),
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
enum Token {
    Name(String),
    Quoted(String),
    Literal(Value),
    Number(i64),
    /// An operator or a bracket.
    Sign(&'static str),
    End,
}

/// The signs, the longer ones before those that they begin with.
const SIGNS: [&str; 23] = [
    "[?", "[]", "||", "&&", "==", "!=", "<=", ">=", "[", "]", "{", "}", "(", ")", ",", ":", ".", "*", "@",
    "|", "<", ">", "!",
];

/// Reads the whole text.
///
/// # Errors
///
/// What is no JMESPath, or is too long or deep.
pub(crate) fn parse(text: &str) -> Result<Node, String> {
    if text.len() > MAX_EXPRESSION_BYTES {
        return Err(format!("an expression has at most {MAX_EXPRESSION_BYTES} bytes"));
    }
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
    };
    let node = parser.expression(0)?;
    match parser.peek() {
        Token::End => Ok(node),
        token => Err(unexpected(token)),
    }
}

fn unexpected(token: &Token) -> String {
    match token {
        Token::End => "the expression ends too early".to_owned(),
        Token::Sign(sign) => format!("`{sign}` is not expected here"),
        Token::Name(name) | Token::Quoted(name) => format!("`{name}` is not expected here"),
        Token::Number(number) => format!("`{number}` is not expected here"),
        Token::Literal(literal) => format!("`{literal}` is not expected here"),
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, after) = token(first, rest)?;
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens.push(Token::End);
    Ok(tokens)
}

fn token(first: char, rest: &str) -> Result<(Token, &str), String> {
    let while_it = |is_part: fn(char) -> bool, from: usize| {
        let length = rest.get(from..).unwrap_or_default().find(|part| !is_part(part));
        rest.split_at(length.map_or(rest.len(), |length| length + from))
    };
    match first {
        'a'..='z' | 'A'..='Z' | '_' => {
            let (name, after) = while_it(|part| part.is_ascii_alphanumeric() || part == '_', 0);
            Ok((Token::Name(name.to_owned()), after))
        }
        '0'..='9' | '-' => {
            let (number, after) = while_it(|part| part.is_ascii_digit(), 1);
            let number = number.parse().map_err(|_| format!("`{number}` is no number"))?;
            Ok((Token::Number(number), after))
        }
        '\'' => {
            let (written, after) = quoted(rest, '\'')?;
            Ok((Token::Literal(written.replace("\\'", "'").into()), after))
        }
        '`' => {
            let (written, after) = quoted(rest, '`')?;
            let json = written.replace("\\`", "`");
            let value = serde_json::from_str(json.trim()).map_err(|_| format!("`{json}` is no JSON"))?;
            Ok((Token::Literal(value), after))
        }
        '"' => {
            let (written, after) = quoted(rest, '"')?;
            let name = serde_json::from_str(&format!("\"{written}\""))
                .map_err(|_| format!("`{written}` is no name"))?;
            Ok((Token::Quoted(name), after))
        }
        _ => SIGNS
            .iter()
            .find_map(|sign| Some((Token::Sign(sign), rest.strip_prefix(sign)?)))
            .ok_or_else(|| format!("`{first}` is not expected here")),
    }
}

/// What stands between two of these signs, and what follows.
fn quoted(text: &str, sign: char) -> Result<(&str, &str), String> {
    let inner = text.strip_prefix(sign).unwrap_or(text);
    let mut is_escaped = false;
    for (at, character) in inner.char_indices() {
        if character == sign && !is_escaped {
            let (written, after) = inner.split_at(at);
            return Ok((written, after.strip_prefix(sign).unwrap_or(after)));
        }
        is_escaped = character == '\\' && !is_escaped;
    }
    Err(format!("a `{sign}` is missing"))
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

/// How tightly what follows an expression binds to it.
fn power(token: &Token) -> u8 {
    match token {
        Token::Sign(sign) => match *sign {
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

type Parsed = Result<Node, String>;

// === impl Parser ===

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).unwrap_or(&Token::End)
    }

    fn advance(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek(), Token::Sign(next) if *next == sign);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        match self.takes(sign) {
            true => Ok(()),
            false => Err(format!("`{sign}` is missing")),
        }
    }

    fn expression(&mut self, least: u8) -> Parsed {
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

    /// What begins an expression.
    fn first(&mut self) -> Parsed {
        match self.advance() {
            Token::Literal(value) => Ok(Node::Literal(value)),
            Token::Name(name) | Token::Quoted(name) => Ok(Node::Field(name)),
            Token::Sign(sign) => match sign {
                "@" => Ok(Node::Current),
                "!" => Ok(Node::Not(Box::new(self.expression(45)?))),
                "(" => {
                    let inner = self.expression(0)?;
                    self.expect(")")?;
                    Ok(inner)
                }
                "*" => self.values(Node::Current, 20),
                "[]" => self.flattened(Node::Current),
                "[?" => self.filter(Node::Current),
                "{" => self.hash(),
                "[" => match self.peek() {
                    Token::Number(_) => self.index(Node::Current),
                    Token::Sign(":") => Err(SLICE.to_owned()),
                    Token::Sign("*") if self.tokens.get(self.at + 1) == Some(&Token::Sign("]")) => {
                        self.at += 2;
                        self.each(Node::Current)
                    }
                    _ => self.list(),
                },
                _ => Err(unexpected(&Token::Sign(sign))),
            },
            token => Err(unexpected(&token)),
        }
    }

    /// What follows `left`.
    fn follow(&mut self, left: Node) -> Parsed {
        let token = self.advance();
        let Token::Sign(sign) = token else {
            return Err(unexpected(&token));
        };
        let boxed = |node| Box::new(node);
        match sign {
            "." if self.takes("*") => self.values(left, 40),
            "." => Ok(Node::Sub(boxed(left), boxed(self.after_dot(40)?))),
            "|" => Ok(Node::Pipe(boxed(left), boxed(self.expression(1)?))),
            "||" => Ok(Node::Or(boxed(left), boxed(self.expression(2)?))),
            "&&" => Ok(Node::And(boxed(left), boxed(self.expression(3)?))),
            "(" => match left {
                Node::Field(name) => self.call(name),
                _ => Err(unexpected(&Token::Sign("("))),
            },
            "[]" => self.flattened(left),
            "[?" => self.filter(left),
            "[" => match self.peek() {
                Token::Number(_) => self.index(left),
                Token::Sign("*") => {
                    self.at += 1;
                    self.expect("]")?;
                    self.each(left)
                }
                _ => Err(SLICE.to_owned()),
            },
            sign => match comparator(sign) {
                Some(comparator) => Ok(Node::Compare(comparator, boxed(left), boxed(self.expression(5)?))),
                None => Err(unexpected(&Token::Sign(sign))),
            },
        }
    }

    fn after_dot(&mut self, least: u8) -> Parsed {
        match self.peek() {
            Token::Name(_) | Token::Quoted(_) | Token::Sign("*") => self.expression(least),
            Token::Sign("[") => {
                self.at += 1;
                self.list()
            }
            Token::Sign("{") => {
                self.at += 1;
                self.hash()
            }
            token => Err(unexpected(token)),
        }
    }

    fn index(&mut self, left: Node) -> Parsed {
        let Token::Number(index) = self.advance() else {
            return Err(SLICE.to_owned());
        };
        if !self.takes("]") {
            return Err(SLICE.to_owned());
        }
        Ok(Node::Sub(Box::new(left), Box::new(Node::Index(index))))
    }

    /// What a projection takes of each element.
    fn taken(&mut self, least: u8) -> Result<Box<Node>, String> {
        let taken = match self.peek() {
            token if power(token) < 10 => Node::Current,
            Token::Sign("[" | "[?") => self.expression(least)?,
            Token::Sign(".") => {
                self.at += 1;
                self.after_dot(least)?
            }
            token => return Err(unexpected(token)),
        };
        Ok(Box::new(taken))
    }

    fn each(&mut self, left: Node) -> Parsed {
        Ok(Node::Projection(Box::new(left), self.taken(20)?))
    }

    fn flattened(&mut self, left: Node) -> Parsed {
        let flattened = Box::new(Node::Flatten(Box::new(left)));
        Ok(Node::Projection(flattened, self.taken(9)?))
    }

    fn values(&mut self, left: Node, least: u8) -> Parsed {
        Ok(Node::ValueProjection(Box::new(left), self.taken(least)?))
    }

    fn filter(&mut self, left: Node) -> Parsed {
        let condition = Box::new(self.expression(0)?);
        self.expect("]")?;
        let taken = match self.peek() {
            Token::Sign("[]") => Box::new(Node::Current),
            _ => self.taken(21)?,
        };
        Ok(Node::Filter(Box::new(left), taken, condition))
    }

    fn list(&mut self) -> Parsed {
        Ok(Node::List(self.listed("]")?))
    }

    fn call(&mut self, name: String) -> Parsed {
        if self.takes(")") {
            return Ok(Node::Call(name, Vec::new()));
        }
        Ok(Node::Call(name, self.listed(")")?))
    }

    fn listed(&mut self, end: &str) -> Result<Vec<Node>, String> {
        let mut nodes = vec![self.expression(0)?];
        while self.takes(",") {
            nodes.push(self.expression(0)?);
        }
        self.expect(end)?;
        Ok(nodes)
    }

    fn hash(&mut self) -> Parsed {
        let mut entries = Vec::new();
        loop {
            match self.advance() {
                Token::Name(name) | Token::Quoted(name) => {
                    self.expect(":")?;
                    entries.push((name, self.expression(0)?));
                }
                token => return Err(unexpected(&token)),
            }
            if !self.takes(",") {
                self.expect("}")?;
                return Ok(Node::Hash(entries));
            }
        }
    }
}

const SLICE: &str = "slices are not converted: name an index or take all with `[]`";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn field(name: &str) -> Box<Node> {
        Box::new(Node::Field(name.to_owned()))
    }

    fn literal(value: Value) -> Box<Node> {
        Box::new(Node::Literal(value))
    }

    #[test]
    fn operators_bind_as_in_go_jmespath() {
        let cases = [
            ("a.\"b-c\"", Node::Sub(field("a"), field("b-c"))),
            (
                "a || 'it\\'s' | @",
                Node::Pipe(
                    Box::new(Node::Or(field("a"), literal("it's".into()))),
                    Box::new(Node::Current),
                ),
            ),
            (
                "a && !b == `1`",
                Node::And(
                    field("a"),
                    Box::new(Node::Compare(
                        Comparator::Equal,
                        Box::new(Node::Not(field("b"))),
                        literal(json!(1)),
                    )),
                ),
            ),
            (
                "a[].b[0]",
                Node::Projection(
                    Box::new(Node::Flatten(field("a"))),
                    Box::new(Node::Sub(field("b"), Box::new(Node::Index(0)))),
                ),
            ),
            (
                "a.keys(@)[]",
                Node::Projection(
                    Box::new(Node::Flatten(Box::new(Node::Sub(
                        field("a"),
                        Box::new(Node::Call("keys".to_owned(), vec![Node::Current])),
                    )))),
                    Box::new(Node::Current),
                ),
            ),
            (
                "a[?b > `2`].c",
                Node::Filter(
                    field("a"),
                    field("c"),
                    Box::new(Node::Compare(Comparator::More, field("b"), literal(json!(2)))),
                ),
            ),
            (
                "[a, b][]",
                Node::Projection(
                    Box::new(Node::Flatten(Box::new(Node::List(vec![
                        *field("a"),
                        *field("b"),
                    ])))),
                    Box::new(Node::Current),
                ),
            ),
            ("a.*.b", Node::ValueProjection(field("a"), field("b"))),
            ("{x: a}", Node::Hash(vec![("x".to_owned(), *field("a"))])),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), Ok(expected), "{text}");
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
