//! Resolves operators, of which one side says what type the other has.

use sqlparser::ast::{self, BinaryOperator};

use super::bind::{Binder, Scope, Typed, boolean, boxed};
use super::plan::{Arithmetic, Column, Comparison, Expr};
use crate::postgres::error::{Result, SqlError};
use crate::postgres::value::{Type, Value};

impl Binder {
    /// Two expressions that are compared.
    pub(super) fn pair(&mut self, left: &ast::Expr, right: &ast::Expr, scope: &Scope<'_>) -> Result<(Typed, Typed)> {
        if let (ast::Expr::Tuple(left), ast::Expr::Tuple(right)) = (left, right) {
            if left.len() != right.len() {
                return Err(SqlError::new("42601", "unequal number of entries in row expressions"));
            }
            let pairs = left.iter().zip(right).map(|(left, right)| self.pair(left, right, scope));
            let pairs = pairs.collect::<Result<Vec<_>>>()?.into_iter().map(|(left, right)| (left.expr, right.expr));
            let (left, right) = pairs.unzip();
            return Ok((
                Typed { expr: Expr::Row(left), ty: Type::Row },
                Typed { expr: Expr::Row(right), ty: Type::Row },
            ));
        }
        let (left, right) = (self.expr(left, scope)?, self.expr(right, scope)?);
        self.alike(left, right)
    }

    pub(super) fn alike(&mut self, left: Typed, right: Typed) -> Result<(Typed, Typed)> {
        match (left.ty, right.ty) {
            (Type::Unknown, Type::Unknown) => Ok((self.coerce(left, Type::Text)?, self.coerce(right, Type::Text)?)),
            (Type::Unknown, ty) => Ok((self.coerce(left, ty)?, right)),
            (ty, Type::Unknown) => Ok((left, self.coerce(right, ty)?)),
            (one, other) if one.compares_with(other) => Ok((left, right)),
            (one, other) => {
                let message = format!("operator does not exist: {} = {}", one.name(), other.name());
                Err(SqlError::new("42883", message).by("op_error"))
            }
        }
    }

    /// The left side of `IN`, whose values have the types of these columns.
    pub(super) fn row(&mut self, expr: &ast::Expr, columns: &[Column], scope: &Scope<'_>) -> Result<Expr> {
        let items = if let ast::Expr::Tuple(items) = expr { items.as_slice() } else { std::slice::from_ref(expr) };
        if items.len() != columns.len() {
            return Err(SqlError::new("42601", "subquery has a wrong number of columns"));
        }
        let bind = |(item, column): (&ast::Expr, &Column)| {
            let item = self.expr(item, scope)?;
            let other = Typed { expr: Expr::Value(Value::Null), ty: column.ty };
            Ok(self.alike(item, other)?.0.expr)
        };
        Ok(Expr::Row(items.iter().zip(columns).map(bind).collect::<Result<_>>()?))
    }

    pub(super) fn binary(
        &mut self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        scope: &Scope<'_>,
    ) -> Result<Typed> {
        if let BinaryOperator::And | BinaryOperator::Or = op {
            let (left, right) = (Box::new(self.condition(left, scope)?), Box::new(self.condition(right, scope)?));
            let is_and = *op == BinaryOperator::And;
            return Ok(boolean(if is_and { Expr::And(left, right) } else { Expr::Or(left, right) }));
        }
        if let Some(op) = comparison(op) {
            let (left, right) = self.pair(left, right, scope)?;
            return Ok(boolean(Expr::Compare(op, boxed(left), boxed(right))));
        }
        let op = match op {
            BinaryOperator::Plus => Arithmetic::Add,
            BinaryOperator::Minus => Arithmetic::Subtract,
            BinaryOperator::Multiply => Arithmetic::Multiply,
            BinaryOperator::Divide => Arithmetic::Divide,
            BinaryOperator::Modulo => Arithmetic::Modulo,
            BinaryOperator::StringConcat => Arithmetic::Concatenate,
            other => return Err(SqlError::unsupported(other.to_string())),
        };
        let (left, right) = (self.expr(left, scope)?, self.expr(right, scope)?);
        self.calculate(op, left, right)
    }

    pub(super) fn calculate(&mut self, op: Arithmetic, left: Typed, right: Typed) -> Result<Typed> {
        use Type::{Interval, Timestamptz, Unknown};
        let (left, right) = match (left.ty, right.ty) {
            (Unknown, Unknown) | (_, _) if op == Arithmetic::Concatenate => {
                (self.coerce(left, Type::Text)?, self.coerce(right, Type::Text)?)
            }
            (Unknown, ty) => (self.coerce(left, ty)?, right),
            (ty, Unknown) => (left, self.coerce(right, ty)?),
            _ => (left, right),
        };
        let ty = match (op, left.ty, right.ty) {
            (Arithmetic::Concatenate, _, _) => Type::Text,
            (Arithmetic::Add | Arithmetic::Subtract, Timestamptz, Interval)
            | (Arithmetic::Add, Interval, Timestamptz) => Timestamptz,
            (Arithmetic::Subtract, Timestamptz, Timestamptz)
            | (Arithmetic::Add | Arithmetic::Subtract, Interval, Interval) => Interval,
            (_, one, other) if one.is_number() && other.is_number() => {
                if one.rank() > other.rank() {
                    one
                } else {
                    other
                }
            }
            (_, one, other) => {
                let message = format!("operator does not exist: {} {op:?} {}", one.name(), other.name());
                return Err(SqlError::new("42883", message).by("op_error"));
            }
        };
        Ok(Typed { expr: Expr::Calculate(op, ty, boxed(left), boxed(right)), ty })
    }
}

pub(super) fn comparison(op: &BinaryOperator) -> Option<Comparison> {
    Some(match op {
        BinaryOperator::Eq => Comparison::Equal,
        BinaryOperator::NotEq => Comparison::NotEqual,
        BinaryOperator::Lt => Comparison::Less,
        BinaryOperator::LtEq => Comparison::LessOrEqual,
        BinaryOperator::Gt => Comparison::Greater,
        BinaryOperator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}
