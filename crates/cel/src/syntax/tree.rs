//! The syntax tree.

/// An expression and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    /// The byte of the text that it is known by: an operator's own, a name's first.
    pub(crate) at: usize,
    /// How deep the tree below it is, itself included.
    pub(crate) depth: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ExprKind {
    Literal(Literal),
    Ident(String),
    /// `operand.field`, `operand.?field`
    Select {
        operand: Box<Expr>,
        field: String,
        optional: bool,
    },
    /// `operand[index]`, `operand[?index]`
    Index {
        operand: Box<Expr>,
        index: Box<Expr>,
        optional: bool,
    },
    /// A function or an operator such as `_+_`.
    Call {
        target: Option<Box<Expr>>,
        function: String,
        arguments: Vec<Expr>,
    },
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Conditional(Box<[Expr; 3]>),
    List(Vec<ItemExpr>),
    Map(Vec<EntryExpr>),
    Struct {
        name: String,
        fields: Vec<FieldExpr>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ItemExpr {
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EntryExpr {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FieldExpr {
    pub(crate) name: String,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
    pub(crate) at: usize,
}

impl Expr {
    /// The name that it spells, if it is names joined by points.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        let mut names = Vec::new();
        let mut expr = self;
        while let ExprKind::Select {
            operand,
            field,
            optional: false,
        } = &expr.kind
        {
            names.push(field.as_str());
            expr = operand;
        }
        names.push(expr.ident()?);
        names.reverse();
        Some(names.join("."))
    }

    /// How deep the tree below it is, itself included.
    pub(crate) const fn depth(&self) -> u32 {
        self.depth
    }

    /// The name, if it is a single one.
    pub(crate) fn ident(&self) -> Option<&str> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name),
            _ => None,
        }
    }

    pub(crate) fn children_depth<'e>(children: impl IntoIterator<Item = &'e Self>) -> u32 {
        children
            .into_iter()
            .map(|child| child.depth)
            .max()
            .unwrap_or_default()
    }
}
