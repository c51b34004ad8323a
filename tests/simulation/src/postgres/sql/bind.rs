//! Resolves the names and types of expressions.

use std::cell::{Cell, RefCell};

use sqlparser::ast::{self, CastKind, DataType, Ident, UnaryOperator};

use super::pairs::comparison;
use super::plan::{Aggregate, Column, Comparison, Expr, Function};
use crate::postgres::error::{Result, SqlError};
use crate::postgres::value::{Type, Value};

/// What is known of a statement while its names are resolved.
#[derive(Default)]
pub(super) struct Binder {
    pub(super) parameters: Vec<Type>,
    /// The names and columns of the statements of `WITH`.
    pub(super) with: Vec<(String, Vec<Column>)>,
    pub(super) needs_xid: bool,
}

/// The columns that an expression may name.
#[derive(Default)]
pub(super) struct Scope<'a> {
    pub(super) columns: Vec<ScopeColumn>,
    /// The aggregates of the query, where they are allowed.
    pub(super) aggregates: RefCell<Option<Vec<Aggregate>>>,
    /// The columns that are named outside of aggregates.
    pub(super) named: RefCell<Vec<usize>>,
    pub(super) in_aggregate: Cell<bool>,
    pub(super) outer: Option<&'a Scope<'a>>,
}

#[derive(Clone, Debug)]
pub(super) struct ScopeColumn {
    pub(super) source: String,
    pub(super) name: String,
    pub(super) ty: Type,
    /// Whether `*` leaves it out.
    pub(super) is_system: bool,
}

pub(super) struct Typed {
    pub(super) expr: Expr,
    pub(super) ty: Type,
}

pub(super) fn name(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

pub(super) fn boxed(typed: Typed) -> Box<Expr> {
    Box::new(typed.expr)
}

pub(super) fn boolean(expr: Expr) -> Typed {
    Typed { expr, ty: Type::Bool }
}

impl Binder {
    #[expect(clippy::too_many_lines, reason = "an arm for each kind")]
    pub(super) fn expr(&mut self, expr: &ast::Expr, scope: &Scope<'_>) -> Result<Typed> {
        use ast::Expr as E;
        Ok(match expr {
            E::Identifier(column) => column_of(scope, None, &name(column))?,
            E::CompoundIdentifier(names) => match names.as_slice() {
                [source, column] => column_of(scope, Some(&name(source)), &name(column))?,
                _ => return Err(SqlError::unsupported(expr.to_string())),
            },
            E::Value(value) => self.literal(&value.value)?,
            E::Nested(inner) => self.expr(inner, scope)?,
            E::TypedString(text) => {
                let ast::Value::SingleQuotedString(value) = &text.value.value else {
                    return Err(SqlError::unsupported(expr.to_string()));
                };
                let ty = type_of(&text.data_type)?;
                Typed { expr: Expr::Value(Value::parse(value, ty)?), ty }
            }
            E::Interval(interval) => match (&*interval.value, &interval.leading_field) {
                (E::Value(value), None) => {
                    let text = value.clone().into_string().unwrap_or_default();
                    Typed { expr: Expr::Value(Value::parse(&text, Type::Interval)?), ty: Type::Interval }
                }
                _ => return Err(SqlError::unsupported(expr.to_string())),
            },
            E::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr: inner, data_type, .. } => {
                let ty = type_of(data_type)?;
                let inner = self.expr(inner, scope)?;
                self.cast(inner, ty)?
            }
            E::UnaryOp { op: UnaryOperator::Not, expr } => boolean(Expr::Not(Box::new(self.condition(expr, scope)?))),
            E::UnaryOp { op: UnaryOperator::Minus, expr } => {
                let Typed { expr, ty } = self.expr(expr, scope)?;
                Typed { expr: Expr::Negate(Box::new(expr)), ty }
            }
            E::BinaryOp { left, op, right } => self.binary(left, op, right, scope)?,
            E::IsNull(inner) => boolean(Expr::IsNull(self.known(inner, scope)?)),
            E::IsNotNull(inner) => boolean(Expr::Not(Box::new(Expr::IsNull(self.known(inner, scope)?)))),
            E::IsTrue(inner) => boolean(Expr::Is(Box::new(self.condition(inner, scope)?), true)),
            E::IsFalse(inner) => boolean(Expr::Is(Box::new(self.condition(inner, scope)?), false)),
            E::IsNotTrue(inner) => {
                boolean(Expr::Not(Box::new(Expr::Is(Box::new(self.condition(inner, scope)?), true))))
            }
            E::IsNotFalse(inner) => {
                boolean(Expr::Not(Box::new(Expr::Is(Box::new(self.condition(inner, scope)?), false))))
            }
            E::IsDistinctFrom(left, right) | E::IsNotDistinctFrom(left, right) => {
                let (left, right) = self.pair(left, right, scope)?;
                let distinct = Expr::IsDistinct(boxed(left), boxed(right));
                let is_negated = matches!(expr, E::IsNotDistinctFrom(..));
                boolean(if is_negated { Expr::Not(Box::new(distinct)) } else { distinct })
            }
            E::Between { expr, negated, low, high } => {
                let (left, low) = self.pair(expr, low, scope)?;
                let (again, high) = self.pair(expr, high, scope)?;
                let low = Expr::Compare(Comparison::GreaterOrEqual, boxed(left), boxed(low));
                let high = Expr::Compare(Comparison::LessOrEqual, boxed(again), boxed(high));
                negate(Expr::And(Box::new(low), Box::new(high)), *negated)
            }
            E::Like { negated, any: false, expr, pattern, escape_char: None } => {
                let (text, pattern) = self.pair(expr, pattern, scope)?;
                negate(Expr::Like(boxed(text), boxed(pattern)), *negated)
            }
            E::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), scope)?
            }
            E::Exists { subquery, negated } => {
                negate(Expr::Exists(Box::new(self.query(subquery, Some(scope))?)), *negated)
            }
            E::Subquery(query) => {
                let query = self.query(query, Some(scope))?;
                let [Column { ty, .. }] = query.columns[..] else {
                    return Err(SqlError::new("42601", "subquery must return only one column"));
                };
                Typed { expr: Expr::Scalar(Box::new(query)), ty }
            }
            E::In { expr, target: ast::InTarget::List(list), negated, .. } => {
                let left = self.expr(expr, scope)?;
                let list: Vec<_> = list.iter().map(|item| self.expr(item, scope)).collect::<Result<_>>()?;
                let ty = list.iter().fold(left.ty, |ty, item| if ty == Type::Unknown { item.ty } else { ty });
                let list = list.into_iter().map(|item| Ok(self.coerce(item, ty)?.expr)).collect::<Result<_>>()?;
                negate(Expr::InList(boxed(self.coerce(left, ty)?), list), *negated)
            }
            E::In { expr, target: ast::InTarget::Subquery(query), negated, .. } => {
                let query = self.query(query, Some(scope))?;
                let left = self.row(expr, &query.columns, scope)?;
                negate(Expr::InQuery(Box::new(left), Box::new(query)), *negated)
            }
            E::AnyOp { left, compare_op, right, .. } => {
                let (left, right) = (self.expr(left, scope)?, self.expr(right, scope)?);
                if right.ty != Type::Array {
                    return Err(SqlError::unsupported(expr.to_string()));
                }
                let op = comparison(compare_op).ok_or_else(|| SqlError::unsupported(expr.to_string()))?;
                boolean(Expr::Any(op, boxed(left), boxed(right)))
            }
            E::Tuple(items) => {
                let items = items.iter().map(|item| Ok(self.expr(item, scope)?.expr)).collect::<Result<_>>()?;
                Typed { expr: Expr::Row(items), ty: Type::Row }
            }
            E::Extract { field: ast::DateTimeField::Epoch, expr, .. } => {
                let of = self.expr(expr, scope)?;
                let of = if of.ty == Type::Unknown { self.coerce(of, Type::Timestamptz)? } else { of };
                Typed { expr: Expr::Call(Function::ExtractEpoch, vec![of.expr]), ty: Type::Numeric }
            }
            E::Function(function) => self.function(function, scope)?,
            E::Collate { expr, collation } if collation.to_string().contains('C') => self.expr(expr, scope)?,
            other => return Err(SqlError::unsupported(other.to_string())),
        })
    }

    fn literal(&mut self, value: &ast::Value) -> Result<Typed> {
        let (value, ty) = match value {
            ast::Value::Number(text, _) => match text.parse::<i64>() {
                Ok(number) => (Value::Int(number), if i32::try_from(number).is_ok() { Type::Int4 } else { Type::Int8 }),
                Err(_) => (Value::parse(text, Type::Numeric)?, Type::Numeric),
            },
            ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => {
                (Value::text(text), Type::Unknown)
            }
            ast::Value::Boolean(value) => (Value::Bool(*value), Type::Bool),
            ast::Value::Null => (Value::Null, Type::Unknown),
            ast::Value::Placeholder(text) => {
                let number: usize = text.trim_start_matches('$').parse().unwrap_or(0);
                if number == 0 {
                    return Err(SqlError::new("42P02", format!("there is no parameter {text}")));
                }
                if self.parameters.len() < number {
                    self.parameters.resize(number, Type::Unknown);
                }
                return Ok(Typed { expr: Expr::Parameter(number - 1), ty: self.parameters[number - 1] });
            }
            other => return Err(SqlError::unsupported(other.to_string())),
        };
        Ok(Typed { expr: Expr::Value(value), ty })
    }

    /// An expression of this type, if it is unknown or a number or text of another one.
    pub(super) fn coerce(&mut self, typed: Typed, ty: Type) -> Result<Typed> {
        let expr = match (typed.expr, typed.ty) {
            (expr, from) if from == ty || ty == Type::Unknown => return Ok(Typed { expr, ty: from }),
            (Expr::Value(value), Type::Unknown) => Expr::Value(value.cast(ty)?),
            (Expr::Parameter(number), Type::Unknown) => {
                // It may have got a type since.
                if self.parameters[number] == Type::Unknown {
                    self.parameters[number] = ty;
                }
                let from = self.parameters[number];
                return self.coerce(Typed { expr: Expr::Parameter(number), ty: from }, ty);
            }
            (expr, Type::Unknown) => Expr::Cast(Box::new(expr), ty),
            (expr, from) if from.compares_with(ty) => Expr::Cast(Box::new(expr), ty),
            (_, from) => {
                let message = format!("expression is of type {}, not {}", from.name(), ty.name());
                return Err(SqlError::new("42804", message));
            }
        };
        Ok(Typed { expr, ty })
    }

    fn cast(&mut self, typed: Typed, ty: Type) -> Result<Typed> {
        let is_unknown = typed.ty == Type::Unknown && matches!(typed.expr, Expr::Value(_) | Expr::Parameter(_));
        if is_unknown {
            return self.coerce(typed, ty);
        }
        let is_allowed = typed.ty.compares_with(ty)
            || ty == Type::Text
            || matches!((typed.ty, ty), (Type::Xid8, Type::Xid) | (Type::Bool, Type::Int4) | (Type::Text, _));
        if is_allowed || typed.ty == Type::Unknown {
            return Ok(Typed { expr: Expr::Cast(boxed(typed), ty), ty });
        }
        Err(SqlError::new("42846", format!("cannot cast type {} to {}", typed.ty.name(), ty.name())))
    }

    pub(super) fn condition(&mut self, expr: &ast::Expr, scope: &Scope<'_>) -> Result<Expr> {
        let typed = self.expr(expr, scope)?;
        Ok(self.coerce(typed, Type::Bool)?.expr)
    }

    /// An expression whose type is text if nothing says which.
    fn known(&mut self, expr: &ast::Expr, scope: &Scope<'_>) -> Result<Box<Expr>> {
        let typed = self.expr(expr, scope)?;
        let ty = if typed.ty == Type::Unknown { Type::Text } else { typed.ty };
        Ok(boxed(self.coerce(typed, ty)?))
    }
}

fn negate(expr: Expr, negated: bool) -> Typed {
    boolean(if negated { Expr::Not(Box::new(expr)) } else { expr })
}

pub(super) fn type_of(ty: &DataType) -> Result<Type> {
    Type::of_name(&ty.to_string().to_lowercase())
}

/// A column of the innermost scope that has one of this name.
fn column_of(scope: &Scope<'_>, source: Option<&str>, name: &str) -> Result<Typed> {
    let mut inner = Some(scope);
    let mut up = 0;
    while let Some(scope) = inner {
        let is_named =
            |column: &ScopeColumn| column.name == name && source.is_none_or(|source| column.source == source);
        let mut found = scope.columns.iter().enumerate().filter(|(_, column)| is_named(column));
        if let Some((index, column)) = found.next() {
            if found.next().is_some() {
                let message = format!("column reference \"{name}\" is ambiguous");
                return Err(SqlError::new("42702", message).by("errorAmbiguousColumn"));
            }
            if !scope.in_aggregate.get() {
                scope.named.borrow_mut().push(index);
            }
            return Ok(Typed { expr: Expr::Column { up, index }, ty: column.ty });
        }
        (inner, up) = (scope.outer, up + 1);
    }
    match source {
        Some(source) if !knows(scope, source) => {
            Err(SqlError::new("42P01", format!("missing FROM-clause entry for table \"{source}\""))
                .by("errorMissingRTE"))
        }
        _ => Err(SqlError::new("42703", format!("column \"{name}\" does not exist")).by("errorMissingColumn")),
    }
}

fn knows(scope: &Scope<'_>, source: &str) -> bool {
    scope.columns.iter().any(|column| column.source == source) || scope.outer.is_some_and(|outer| knows(outer, source))
}
