//! Parses tokens into a syntax tree. This part handles operators and selections.

use super::lexer::{self, Lexer, SpannedToken, Token};
use super::{
    EntryExpr, Expr, ExprKind, FieldExpr, ItemExpr, Literal, MAX_DEPTH, MAX_LENGTH, MAX_NESTING, RESERVED,
    position,
};
use crate::CompileError;

/// Parses an expression.
pub(crate) fn parse(text: &str) -> Result<Expr, CompileError> {
    if text.chars().count() > MAX_LENGTH {
        let message = format!("expression code point size exceeds limit: more than {MAX_LENGTH}");
        return Err(CompileError::new(message, (1, 1)));
    }
    let mut parser = Parser {
        text,
        lexer: Lexer::new(text),
        token: SpannedToken::END,
        nesting: 0,
    };
    parser
        .parse()
        .map_err(|fault| CompileError::new(fault.message, position(text, fault.at)))
}

struct SyntaxFault {
    at: usize,
    message: String,
}

type Parse = Result<Expr, SyntaxFault>;

struct Parser<'t> {
    text: &'t str,
    lexer: Lexer<'t>,
    /// The next token.
    token: SpannedToken,
    nesting: u32,
}

impl SpannedToken {
    const END: Self = Self {
        token: Token::End,
        from: 0,
        to: 0,
    };
}

// === impl Parser ===

impl<'t> Parser<'t> {
    fn parse(&mut self) -> Parse {
        self.advance()?;
        let expr = self.expr()?;
        if self.token.token != Token::End {
            return Err(self.unexpected("<EOF>"));
        }
        Ok(expr)
    }

    fn advance(&mut self) -> Result<SpannedToken, SyntaxFault> {
        let next = self
            .lexer
            .next()
            .map_err(|(at, message)| SyntaxFault { at, message })?;
        Ok(std::mem::replace(&mut self.token, next))
    }

    fn lexeme(&self, token: SpannedToken) -> &'t str {
        self.text.get(token.from..token.to).unwrap_or_default()
    }

    fn unexpected(&self, expected: &str) -> SyntaxFault {
        let found = match self.token.token {
            Token::End => "<EOF>",
            _ => self.lexeme(self.token),
        };
        let message = format!("Syntax error: mismatched input '{found}' expecting {expected}");
        SyntaxFault {
            at: self.token.from,
            message,
        }
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.token.token, Token::Sign(own) if own == sign)
    }

    /// Consumes `sign` if it is next, and returns its position.
    fn take(&mut self, sign: &str) -> Result<Option<usize>, SyntaxFault> {
        if !self.is(sign) {
            return Ok(None);
        }
        self.advance().map(|token| Some(token.from))
    }

    fn expect(&mut self, sign: &str) -> Result<usize, SyntaxFault> {
        match self.take(sign)? {
            Some(at) => Ok(at),
            None => Err(self.unexpected(&format!("'{sign}'"))),
        }
    }

    fn node(&self, kind: ExprKind, at: usize, children: u32) -> Parse {
        let depth = children + 1;
        if depth > MAX_DEPTH {
            return Err(too_deep(at, MAX_DEPTH));
        }
        Ok(Expr { kind, at, depth })
    }

    fn expr(&mut self) -> Parse {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return Err(too_deep(self.token.from, MAX_NESTING));
        }
        let expr = self.binary(OR)?;
        let expr = if self.is("?") {
            self.conditional(expr)
        } else {
            Ok(expr)
        };
        self.nesting -= 1;
        expr
    }

    fn conditional(&mut self, condition: Expr) -> Parse {
        let at = self.expect("?")?;
        let truthy = self.binary(OR)?;
        self.expect(":")?;
        let falsy = self.expr()?;
        let depth = Expr::children_depth([&condition, &truthy, &falsy]);
        self.node(
            ExprKind::Conditional(Box::new([condition, truthy, falsy])),
            at,
            depth,
        )
    }

    /// Parses operands joined by binary operators that bind at least as tightly as `level`.
    fn binary(&mut self, level: u8) -> Parse {
        let mut left = self.unary()?;
        while let Some((sign, function, own)) = self.operator(level) {
            let at = self.expect(sign)?;
            let right = self.binary(own + 1)?;
            left = match own {
                OR => self.logic(left, right, at, true),
                AND => self.logic(left, right, at, false),
                _ => self.operation(function, vec![left, right], at),
            }?;
        }
        Ok(left)
    }

    /// The next token, if it is a binary operator that binds at least as tightly as `level`.
    fn operator(&self, level: u8) -> Option<(&'static str, &'static str, u8)> {
        let Token::Sign(next) = self.token.token else {
            return None;
        };
        OPERATORS
            .into_iter()
            .find(|(sign, _, own)| *sign == next && *own >= level)
    }

    /// The terms of a chain become operands of one expression, so that a long chain is not deep.
    fn logic(&self, left: Expr, right: Expr, at: usize, or: bool) -> Parse {
        let depth = right.depth;
        match (left.kind, or) {
            (ExprKind::Or(mut terms), true) => {
                terms.push(right);
                self.node(ExprKind::Or(terms), left.at, depth.max(left.depth - 1))
            }
            (ExprKind::And(mut terms), false) => {
                terms.push(right);
                self.node(ExprKind::And(terms), left.at, depth.max(left.depth - 1))
            }
            (kind, or) => {
                let terms = vec![
                    Expr {
                        kind,
                        at: left.at,
                        depth: left.depth,
                    },
                    right,
                ];
                let kind = if or {
                    ExprKind::Or(terms)
                } else {
                    ExprKind::And(terms)
                };
                self.node(kind, at, depth.max(left.depth))
            }
        }
    }

    fn operation(&self, function: &str, arguments: Vec<Expr>, at: usize) -> Parse {
        let depth = Expr::children_depth(&arguments);
        self.node(
            ExprKind::Call {
                target: None,
                function: function.into(),
                arguments,
            },
            at,
            depth,
        )
    }

    /// Parses `!` and `-`, which cancel out in pairs.
    fn unary(&mut self) -> Parse {
        for (sign, function) in [("!", "!_"), ("-", "-_")] {
            if !self.is(sign) {
                continue;
            }
            let at = self.expect(sign)?;
            if sign == "-" && matches!(self.token.token, Token::Int | Token::Double) {
                let literal = self.number(true)?;
                return self.selections(literal);
            }
            let mut count = 1;
            while self.take(sign)?.is_some() {
                count += 1;
            }
            let operand = self.member()?;
            return if count % 2 == 0 {
                Ok(operand)
            } else {
                self.operation(function, vec![operand], at)
            };
        }
        self.member()
    }

    fn member(&mut self) -> Parse {
        let primary = self.primary()?;
        self.selections(primary)
    }

    /// Parses the selections from `expr`: `.field`, `.function()`, `[index]`, and `{…}` if `expr`
    /// is the name of a type.
    fn selections(&mut self, mut expr: Expr) -> Parse {
        loop {
            if let Some(at) = self.take(".")? {
                expr = self.selection(expr, at)?;
            } else if let Some(at) = self.take("[")? {
                let optional = self.take("?")?.is_some();
                let index = self.expr()?;
                self.expect("]")?;
                let depth = Expr::children_depth([&expr, &index]);
                let kind = ExprKind::Index {
                    operand: Box::new(expr),
                    index: Box::new(index),
                    optional,
                };
                expr = self.node(kind, at, depth)?;
            } else if self.is("{")
                && let Some(name) = expr.qualified_name()
            {
                expr = self.object(name)?;
            } else {
                return Ok(expr);
            }
        }
    }

    fn selection(&mut self, operand: Expr, at: usize) -> Parse {
        let optional = self.take("?")?.is_some();
        let name = self.name()?;
        let depth = operand.depth;
        if !optional && self.is("(") {
            let open = self.expect("(")?;
            let arguments = self.arguments()?;
            let depth = depth.max(Expr::children_depth(&arguments));
            let kind = ExprKind::Call {
                target: Some(Box::new(operand)),
                function: name.into(),
                arguments,
            };
            return self.node(kind, open, depth);
        }
        self.node(
            ExprKind::Select {
                operand: Box::new(operand),
                field: name.into(),
                optional,
            },
            at,
            depth,
        )
    }

    fn name(&mut self) -> Result<&'t str, SyntaxFault> {
        let name = self.lexeme(self.token);
        if self.token.token != Token::Ident || matches!(name, "true" | "false" | "null") {
            return Err(self.unexpected("IDENTIFIER"));
        }
        self.advance()?;
        Ok(name)
    }

    /// Parses arguments up to and including the `)`; the `(` is already consumed.
    fn arguments(&mut self) -> Result<Vec<Expr>, SyntaxFault> {
        let mut arguments = Vec::new();
        while !self.is(")") || !arguments.is_empty() {
            arguments.push(self.expr()?);
            if self.take(",")?.is_none() {
                break;
            }
        }
        self.expect(")")?;
        Ok(arguments)
    }
}

const OR: u8 = 0;
const AND: u8 = 1;

/// Binary operators with their functions and precedences.
const OPERATORS: [(&str, &str, u8); 14] = [
    ("||", "_||_", OR),
    ("&&", "_&&_", AND),
    ("<", "_<_", 2),
    ("<=", "_<=_", 2),
    (">=", "_>=_", 2),
    (">", "_>_", 2),
    ("==", "_==_", 2),
    ("!=", "_!=_", 2),
    ("in", "@in", 2),
    ("+", "_+_", 3),
    ("-", "_-_", 3),
    ("*", "_*_", 4),
    ("/", "_/_", 4),
    ("%", "_%_", 4),
];

fn too_deep(at: usize, limit: u32) -> SyntaxFault {
    SyntaxFault {
        at,
        message: format!("expression recursion limit exceeded: {limit}"),
    }
}

// Parses operands: literals, names, lists, maps, objects.

impl Parser<'_> {
    pub(crate) fn primary(&mut self) -> Parse {
        match self.token.token {
            Token::Ident => self.ident(""),
            Token::Int | Token::Uint | Token::Double => self.number(false),
            Token::String | Token::Bytes => self.text(),
            Token::Sign("(") => {
                self.advance()?;
                let expr = self.expr()?;
                self.expect(")")?;
                Ok(expr)
            }
            Token::Sign("[") => self.list(),
            Token::Sign("{") => self.map(),
            Token::Sign(".") => {
                self.advance()?;
                if self.token.token != Token::Ident {
                    return Err(self.unexpected("IDENTIFIER"));
                }
                self.ident(".")
            }
            _ => Err(self.unexpected("an expression")),
        }
    }

    /// Parses a name, a keyword, or a call of a function without a target. A leading dot refers to
    /// the outermost scope, which is the only one.
    fn ident(&mut self, prefix: &str) -> Parse {
        let token = self.advance()?;
        let name = self.lexeme(token);
        let literal = match name {
            "true" => Some(Literal::Bool(true)),
            "false" => Some(Literal::Bool(false)),
            "null" => Some(Literal::Null),
            _ => None,
        };
        if let Some(literal) = literal.filter(|_| prefix.is_empty()) {
            return self.node(ExprKind::Literal(literal), token.from, 0);
        }
        if RESERVED.contains(&name) {
            return Err(SyntaxFault {
                at: token.from,
                message: format!("reserved identifier: {name}"),
            });
        }
        let Some(open) = self.take("(")? else {
            return self.node(ExprKind::Ident(format!("{prefix}{name}")), token.from, 0);
        };
        let arguments = self.arguments()?;
        self.operation(name, arguments, open)
    }

    pub(crate) fn number(&mut self, negative: bool) -> Parse {
        let token = self.advance()?;
        let lexeme = self.lexeme(token);
        let sign = if negative { "-" } else { "" };
        let literal = match token.token {
            Token::Double => {
                let double = format!("{sign}{lexeme}")
                    .parse()
                    .ok()
                    .filter(|double: &f64| double.is_finite());
                double.map(Literal::Double).ok_or("invalid double literal")
            }
            Token::Uint => {
                let digits = lexeme.get(..lexeme.len() - 1).unwrap_or_default();
                let uint = match digits.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16),
                    None => digits.parse(),
                };
                uint.map(Literal::Uint).map_err(|_| "invalid uint literal")
            }
            _ => {
                let int = match lexeme.strip_prefix("0x") {
                    Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16),
                    None => format!("{sign}{lexeme}").parse(),
                };
                int.map(Literal::Int).map_err(|_| "invalid int literal")
            }
        };
        let literal = literal.map_err(|message| SyntaxFault {
            at: token.from,
            message: message.into(),
        })?;
        self.node(ExprKind::Literal(literal), token.from, 0)
    }

    fn text(&mut self) -> Parse {
        let token = self.advance()?;
        let lexeme = self.lexeme(token);
        let literal = match token.token {
            Token::Bytes => lexer::bytes(lexeme).map(Literal::Bytes),
            _ => lexer::string(lexeme).map(Literal::String),
        };
        let literal = literal.map_err(|message| SyntaxFault {
            at: token.from,
            message,
        })?;
        self.node(ExprKind::Literal(literal), token.from, 0)
    }

    fn list(&mut self) -> Parse {
        let at = self.expect("[")?;
        let mut items = Vec::new();
        while !self.is("]") {
            let optional = self.take("?")?.is_some();
            items.push(ItemExpr {
                value: self.expr()?,
                optional,
            });
            if self.take(",")?.is_none() {
                break;
            }
        }
        self.expect("]")?;
        let depth = Expr::children_depth(items.iter().map(|item| &item.value));
        self.node(ExprKind::List(items), at, depth)
    }

    fn map(&mut self) -> Parse {
        let at = self.expect("{")?;
        let mut entries = Vec::new();
        while !self.is("}") {
            let optional = self.take("?")?.is_some();
            let key = self.expr()?;
            self.expect(":")?;
            entries.push(EntryExpr {
                key,
                value: self.expr()?,
                optional,
            });
            if self.take(",")?.is_none() {
                break;
            }
        }
        self.expect("}")?;
        let depth = Expr::children_depth(entries.iter().flat_map(|entry| [&entry.key, &entry.value]));
        self.node(ExprKind::Map(entries), at, depth)
    }

    pub(crate) fn object(&mut self, name: String) -> Parse {
        let at = self.expect("{")?;
        let mut fields = Vec::new();
        while !self.is("}") {
            let optional = self.take("?")?.is_some();
            let field = self.name()?;
            let at = self.expect(":")?;
            fields.push(FieldExpr {
                name: field.into(),
                value: self.expr()?,
                optional,
                at,
            });
            if self.take(",")?.is_none() {
                break;
            }
        }
        self.expect("}")?;
        let depth = Expr::children_depth(fields.iter().map(|field| &field.value));
        self.node(ExprKind::Struct { name, fields }, at, depth)
    }
}
