//! What operators join: literals, names, lists, maps, objects.

use super::{Parse, Parser, SyntaxFault};
use crate::syntax::lexer::Token;
use crate::syntax::{EntryExpr, Expr, ExprKind, FieldExpr, ItemExpr, Literal, RESERVED, lexer};

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

    /// A name, a keyword, or a function called by its name. A leading point
    /// means the outermost scope, which is the only one there is.
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
