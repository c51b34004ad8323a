//! Resolves calls of functions, aggregates and `CASE`.

use sqlparser::ast::{self, CaseWhen, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::bind::{Binder, Scope, Typed, name};
use super::plan::{Aggregate, AggregateKind, Column, Expr, Function};
use crate::postgres::error::{Result, SqlError};
use crate::postgres::value::{Type, Value};

impl Binder {
    pub(super) fn function(&mut self, function: &ast::Function, scope: &Scope<'_>) -> Result<Typed> {
        let unsupported = || SqlError::unsupported(function.to_string());
        let called = function.name.0.last().and_then(|part| part.as_ident()).map(name).ok_or_else(unsupported)?;
        if function.over.is_some() || !function.within_group.is_empty() || function.null_treatment.is_some() {
            return Err(unsupported());
        }
        let list = match &function.args {
            FunctionArguments::Subquery(query) if called == "array" => {
                let query = self.query(query, Some(scope))?;
                return Ok(Typed { expr: Expr::Array(Box::new(query)), ty: Type::Array });
            }
            FunctionArguments::None => &[][..],
            FunctionArguments::List(list) if list.duplicate_treatment.is_none() && list.clauses.is_empty() => {
                &list.args
            }
            FunctionArguments::Subquery(_) | FunctionArguments::List(_) => return Err(unsupported()),
        };
        let aggregate = match called.as_str() {
            "count" => Some(AggregateKind::Count),
            "min" => Some(AggregateKind::Min),
            "max" => Some(AggregateKind::Max),
            "sum" => Some(AggregateKind::Sum),
            _ => None,
        };
        if let Some(kind) = aggregate {
            return self.aggregate(kind, list, function.filter.as_deref(), scope);
        }
        if function.filter.is_some() {
            return Err(unsupported());
        }
        if called == "make_interval" {
            return self.make_interval(list, scope);
        }
        let arguments = list.iter().map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => self.expr(expr, scope),
            _ => Err(unsupported()),
        });
        let arguments: Vec<_> = arguments.collect::<Result<_>>()?;
        self.call(&called, arguments)
    }

    fn call(&mut self, called: &str, arguments: Vec<Typed>) -> Result<Typed> {
        use Function as F;
        let is_each_of = |types: &[Type]| {
            types.len() == arguments.len()
                && types.iter().zip(&arguments).all(|(ty, argument)| {
                    argument.ty == Type::Unknown
                        || *ty == argument.ty
                        || (ty.is_text() && argument.ty.is_text())
                        || (ty.is_number() && argument.ty.rank() != 0 && argument.ty.rank() <= ty.rank())
                })
        };
        let known: &[(&str, &[Type], F, Type)] = &[
            ("now", &[], F::Now, Type::Timestamptz),
            ("transaction_timestamp", &[], F::Now, Type::Timestamptz),
            ("current_timestamp", &[], F::Now, Type::Timestamptz),
            ("clock_timestamp", &[], F::ClockTimestamp, Type::Timestamptz),
            ("statement_timestamp", &[], F::StatementTimestamp, Type::Timestamptz),
            ("current_setting", &[Type::Text], F::CurrentSetting, Type::Text),
            ("current_setting", &[Type::Text, Type::Bool], F::CurrentSetting, Type::Text),
            ("octet_length", &[Type::Bytea], F::OctetLength, Type::Int4),
            ("octet_length", &[Type::Text], F::OctetLength, Type::Int4),
            ("length", &[Type::Bytea], F::OctetLength, Type::Int4),
            ("length", &[Type::Text], F::Length, Type::Int4),
            ("lower", &[Type::Text], F::Lower, Type::Text),
            ("upper", &[Type::Text], F::Upper, Type::Text),
            ("pg_current_xact_id", &[], F::CurrentXactId, Type::Xid8),
            ("txid_current", &[], F::CurrentXactId, Type::Int8),
            ("pg_backend_pid", &[], F::BackendPid, Type::Int4),
            ("pg_sleep", &[Type::Float8], F::Sleep, Type::Void),
            ("current_database", &[], F::CurrentDatabase, Type::Name),
            ("current_user", &[], F::CurrentUser, Type::Name),
            ("session_user", &[], F::CurrentUser, Type::Name),
            ("version", &[], F::Version, Type::Text),
            ("pg_is_in_recovery", &[], F::IsInRecovery, Type::Bool),
            ("pg_advisory_lock", &[Type::Int8], F::AdvisoryLock, Type::Void),
            ("pg_advisory_unlock_all", &[], F::AdvisoryUnlockAll, Type::Void),
        ];
        let found = known.iter().find(|(name, types, ..)| *name == called && is_each_of(types));
        if let Some((_, types, function, ty)) = found {
            self.needs_xid |= *function == F::CurrentXactId;
            let arguments = types.iter().zip(arguments).map(|(ty, argument)| Ok(self.coerce(argument, *ty)?.expr));
            return Ok(Typed { expr: Expr::Call(*function, arguments.collect::<Result<_>>()?), ty: *ty });
        }
        let function = match called {
            "least" => F::Least,
            "greatest" => F::Greatest,
            "coalesce" => F::Coalesce,
            "nullif" if arguments.len() == 2 => F::NullIf,
            // The crate and the works call few functions. Another one may exist in PostgreSQL.
            _ => return Err(SqlError::unsupported(("function", called))),
        };
        let (arguments, ty) = self.unify(arguments)?;
        Ok(Typed { expr: Expr::Call(function, arguments), ty })
    }

    /// These as expressions of one type, and the type.
    fn unify(&mut self, typed: Vec<Typed>) -> Result<(Vec<Expr>, Type)> {
        let highest = |ty: Type, next: Type| match (ty, next) {
            (Type::Unknown, next) => next,
            (ty, next) if next.rank() > ty.rank() && ty.is_number() => next,
            (ty, _) => ty,
        };
        let ty = typed.iter().fold(Type::Unknown, |ty, next| highest(ty, next.ty));
        let ty = if ty == Type::Unknown { Type::Text } else { ty };
        let exprs = typed.into_iter().map(|typed| Ok(self.coerce(typed, ty)?.expr)).collect::<Result<_>>()?;
        Ok((exprs, ty))
    }

    fn make_interval(&mut self, list: &[FunctionArg], scope: &Scope<'_>) -> Result<Typed> {
        const NAMES: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];
        let mut arguments = NAMES.map(|_| Expr::Value(Value::Int(0)));
        for (at, argument) in list.iter().enumerate() {
            let (at, expr) = match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => (Some(at), expr),
                FunctionArg::Named { name: field, arg: FunctionArgExpr::Expr(expr), .. } => {
                    (NAMES.iter().position(|known| *known == name(field)), expr)
                }
                FunctionArg::ExprNamed {
                    name: ast::Expr::Identifier(field), arg: FunctionArgExpr::Expr(expr), ..
                } => (NAMES.iter().position(|known| *known == name(field)), expr),
                _ => (None, &ast::Expr::Value(ast::Value::Null.into())),
            };
            let at = at.filter(|at| *at < NAMES.len());
            let at = at.ok_or_else(|| SqlError::new("42883", "function make_interval does not exist"))?;
            let typed = self.expr(expr, scope)?;
            let ty = if NAMES[at] == "secs" { Type::Float8 } else { Type::Int4 };
            arguments[at] = self.coerce(typed, ty)?.expr;
        }
        Ok(Typed { expr: Expr::Call(Function::MakeInterval, arguments.into()), ty: Type::Interval })
    }

    fn aggregate(
        &mut self,
        kind: AggregateKind,
        list: &[FunctionArg],
        filter: Option<&ast::Expr>,
        scope: &Scope<'_>,
    ) -> Result<Typed> {
        if scope.aggregates.borrow().is_none() || scope.in_aggregate.get() {
            return Err(SqlError::new("42803", "aggregate functions are not allowed here"));
        }
        scope.in_aggregate.set(true);
        let filter = filter.map(|filter| self.condition(filter, scope)).transpose();
        let of = match (kind, list) {
            (AggregateKind::Count, [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]) => Ok(None),
            (_, [FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))]) => self.expr(expr, scope).map(Some),
            _ => Err(SqlError::unsupported(("arguments of", kind))),
        };
        scope.in_aggregate.set(false);
        let (filter, of) = (filter?, of?);
        let ty = match (kind, of.as_ref().map(|of| of.ty)) {
            (AggregateKind::Count, _) | (AggregateKind::Sum, Some(Type::Int2 | Type::Int4)) => Type::Int8,
            (AggregateKind::Sum, Some(Type::Int8)) => Type::Numeric,
            (_, ty) => ty.unwrap_or(Type::Unknown),
        };
        let aggregate = Aggregate { kind, of: of.map(|of| of.expr), filter };
        let mut aggregates = scope.aggregates.borrow_mut();
        let aggregates = aggregates.get_or_insert_default();
        aggregates.push(aggregate);
        Ok(Typed { expr: Expr::Aggregate(aggregates.len() - 1), ty })
    }

    pub(super) fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        conditions: &[CaseWhen],
        other: Option<&ast::Expr>,
        scope: &Scope<'_>,
    ) -> Result<Typed> {
        if operand.is_some() {
            return Err(SqlError::unsupported("CASE with an operand"));
        }
        let when = conditions.iter().map(|when| self.condition(&when.condition, scope));
        let when: Vec<_> = when.collect::<Result<_>>()?;
        let then = conditions.iter().map(|when| &when.result).chain(other);
        let then: Vec<_> = then.map(|result| self.expr(result, scope)).collect::<Result<_>>()?;
        let (mut then, ty) = self.unify(then)?;
        let other = other.and_then(|_| then.pop()).map(Box::new);
        Ok(Typed { expr: Expr::Case(when.into_iter().zip(then).collect(), other), ty })
    }
}

/// The name of an output column without an alias.
pub(super) fn column_name(expr: &ast::Expr) -> String {
    use ast::Expr as E;
    let of_function = |function: &ast::Function| function.name.0.last().and_then(|part| part.as_ident()).map(name);
    let found = match expr {
        E::Identifier(column) => Some(name(column)),
        E::CompoundIdentifier(names) => names.last().map(name),
        E::Function(function) => of_function(function),
        E::Nested(inner) | E::Collate { expr: inner, .. } => return column_name(inner),
        E::Cast { expr: inner, data_type, .. } => {
            let inner = column_name(inner);
            let of_type = || super::bind::type_of(data_type).map_or("?column?", Type::name).to_owned();
            Some(if inner == "?column?" { of_type() } else { inner })
        }
        E::Case { else_result, .. } => {
            let other = else_result.as_deref().map(column_name).filter(|name| name != "?column?");
            Some(other.unwrap_or_else(|| "case".to_owned()))
        }
        E::Subquery(query) => match &*query.body {
            ast::SetExpr::Select(select) => match select.projection.first() {
                Some(ast::SelectItem::UnnamedExpr(inner)) => return column_name(inner),
                Some(ast::SelectItem::ExprWithAlias { alias, .. }) => Some(name(alias)),
                _ => None,
            },
            _ => None,
        },
        E::Exists { .. } => Some("exists".to_owned()),
        E::Extract { .. } => Some("extract".to_owned()),
        E::Tuple(_) => Some("row".to_owned()),
        E::TypedString(text) => super::bind::type_of(&text.data_type).ok().map(|ty| ty.name().to_owned()),
        E::Interval(_) => Some("interval".to_owned()),
        _ => None,
    };
    found.unwrap_or_else(|| "?column?".to_owned())
}

/// The columns of a result, of which those without a type are texts.
pub(super) fn named(columns: Vec<(String, Type)>) -> Vec<Column> {
    let column = |(name, ty)| Column { name, ty: if ty == Type::Unknown { Type::Text } else { ty } };
    columns.into_iter().map(column).collect()
}
