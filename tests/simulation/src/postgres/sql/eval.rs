//! Evaluates expressions.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::operators::{
    any, as_bool, calculate, compare, extract_epoch, is_like, make_interval, optional, out_of_range,
};
use super::plan::{Expr, Function};
use super::run::Run;
use crate::postgres::error::{Result, SqlError};
use crate::postgres::tables::Tables;
use crate::postgres::time;
use crate::postgres::value::{Type, Value};

/// The row of a query, within those of the queries around it.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) row: &'a [Value],
    pub(super) aggregates: &'a [Value],
    pub(super) outer: Option<&'a Frame<'a>>,
}

impl<'a> Frame<'a> {
    pub(super) fn of(row: &'a [Value]) -> Self {
        Self { row, aggregates: &[], outer: None }
    }
}

/// What functions know of the session.
pub(in crate::postgres) struct Surroundings {
    /// When the transaction and the statement began, and now, µs since 1970.
    pub(in crate::postgres) transaction_us: i64,
    pub(in crate::postgres) statement_us: i64,
    pub(in crate::postgres) pid: i64,
    pub(in crate::postgres) user: String,
    pub(in crate::postgres) database: String,
    pub(in crate::postgres) version: String,
    pub(in crate::postgres) settings: crate::postgres::settings::Settings,
    pub(in crate::postgres) activity: Vec<Vec<Value>>,
    /// The rows of `pg_prepared_statements`.
    pub(in crate::postgres) prepared: Vec<Vec<Value>>,
    /// How long `pg_sleep` still sleeps.
    pub(in crate::postgres) sleeps_us: AtomicU64,
    /// Number of advisory locks of the session.
    pub(in crate::postgres) advisory_locks: AtomicUsize,
}

impl Run<'_> {
    pub(super) fn eval(&self, tables: &Tables, expr: &Expr, frame: &Frame<'_>) -> Result<Value> {
        let eval = |expr: &Expr| self.eval(tables, expr, frame);
        let truth = |expr: &Expr| Ok(as_bool(&self.eval(tables, expr, frame)?));
        Ok(match expr {
            Expr::Value(value) => value.clone(),
            Expr::Parameter(number) => self.parameters.get(*number).cloned().unwrap_or(Value::Null),
            Expr::Column { up, index } => {
                let mut frame = frame;
                for _ in 0..*up {
                    frame = frame.outer.unwrap_or(frame);
                }
                frame.row.get(*index).cloned().unwrap_or(Value::Null)
            }
            Expr::Aggregate(index) => frame.aggregates[*index].clone(),
            Expr::And(left, right) => match truth(left)? {
                Some(false) => Value::Bool(false),
                left => match (left, truth(right)?) {
                    (_, Some(false)) => Value::Bool(false),
                    (Some(true), Some(true)) => Value::Bool(true),
                    _ => Value::Null,
                },
            },
            Expr::Or(left, right) => match truth(left)? {
                Some(true) => Value::Bool(true),
                left => match (left, truth(right)?) {
                    (_, Some(true)) => Value::Bool(true),
                    (Some(false), Some(false)) => Value::Bool(false),
                    _ => Value::Null,
                },
            },
            Expr::Not(inner) => optional(truth(inner)?.map(|value| !value)),
            Expr::IsNull(inner) => Value::Bool(eval(inner)?.is_null()),
            Expr::Is(inner, value) => Value::Bool(truth(inner)? == Some(*value)),
            Expr::IsDistinct(left, right) => Value::Bool(match (eval(left)?, eval(right)?) {
                (Value::Null, Value::Null) => false,
                (left, right) => left.equals(&right) != Some(true),
            }),
            Expr::Compare(op, left, right) => optional(compare(*op, &eval(left)?, &eval(right)?)),
            Expr::Calculate(op, ty, left, right) => calculate(*op, *ty, eval(left)?, eval(right)?)?,
            Expr::Negate(inner) => match eval(inner)? {
                Value::Int(number) => Value::Int(number.checked_neg().ok_or_else(|| out_of_range(Type::Int8))?),
                Value::Float(number) => Value::Float(-number),
                Value::Null => Value::Null,
                other => return Err(SqlError::unsupported(("-", other))),
            },
            Expr::Like(text, pattern) => match (eval(text)?, eval(pattern)?) {
                (Value::Text(text), Value::Text(pattern)) => Value::Bool(is_like(text.as_bytes(), pattern.as_bytes())),
                _ => Value::Null,
            },
            Expr::Row(items) => Value::Row(items.iter().map(eval).collect::<Result<_>>()?),
            Expr::Case(when, other) => {
                for (condition, then) in when {
                    if truth(condition)? == Some(true) {
                        return eval(then);
                    }
                }
                other.as_ref().map_or(Ok(Value::Null), |other| eval(other))?
            }
            Expr::Call(function, arguments) => self.call(*function, arguments, &eval)?,
            Expr::Cast(inner, ty) => eval(inner)?.cast(*ty)?,
            Expr::Exists(query) => Value::Bool(!self.rows(tables, query, Some(frame))?.is_empty()),
            Expr::Scalar(query) => {
                let mut rows = self.rows(tables, query, Some(frame))?;
                if rows.len() > 1 {
                    return Err(SqlError::new(
                        "21000",
                        "more than one row returned by a subquery used as an expression",
                    ));
                }
                rows.pop().and_then(|row| row.into_iter().next()).unwrap_or(Value::Null)
            }
            Expr::Array(query) => {
                let rows = self.rows(tables, query, Some(frame))?;
                Value::Array(rows.into_iter().filter_map(|row| row.into_iter().next()).collect())
            }
            Expr::InList(left, list) => {
                let left = eval(left)?;
                let equal: Vec<_> = list.iter().map(|item| Ok(left.equals(&eval(item)?))).collect::<Result<_>>()?;
                any(&equal)
            }
            Expr::InQuery(left, query) => {
                let left = eval(left)?;
                let rows = self.rows(tables, query, Some(frame))?;
                any(&rows.into_iter().map(|row| left.equals(&Value::Row(row))).collect::<Vec<_>>())
            }
            Expr::Any(op, left, right) => match (eval(left)?, eval(right)?) {
                (left, Value::Array(items)) => {
                    any(&items.iter().map(|item| compare(*op, &left, item)).collect::<Vec<_>>())
                }
                _ => Value::Null,
            },
        })
    }

    fn call(&self, function: Function, exprs: &[Expr], eval: &dyn Fn(&Expr) -> Result<Value>) -> Result<Value> {
        let Surroundings { transaction_us, statement_us, pid, user, database, version, settings, .. } =
            self.surroundings;
        let (sleeps_us, advisory_locks) = (&self.surroundings.sleeps_us, &self.surroundings.advisory_locks);
        // It does not evaluate what comes after the first value.
        if function == Function::Coalesce {
            for expr in exprs {
                let value = eval(expr)?;
                if !value.is_null() {
                    return Ok(value);
                }
            }
            return Ok(Value::Null);
        }
        let arguments: Vec<Value> = exprs.iter().map(eval).collect::<Result<_>>()?;
        let extreme = |order: Ordering| {
            let better = |best: Value, next: &Value| match next.compare(&best) {
                Some(found) if found != order => best,
                None if next.is_null() => best,
                _ => next.clone(),
            };
            arguments.iter().fold(Value::Null, better)
        };
        let is_strict = !matches!(function, Function::Least | Function::Greatest | Function::NullIf);
        if is_strict && arguments.iter().any(Value::is_null) {
            return Ok(Value::Null);
        }
        let length = |length: usize| Value::Int(i64::try_from(length).unwrap_or(i64::MAX));
        Ok(match (function, arguments.as_slice()) {
            (Function::Now, _) => Value::Time(*transaction_us),
            (Function::StatementTimestamp, _) => Value::Time(*statement_us),
            (Function::ClockTimestamp, _) => Value::Time(self.now_us),
            (Function::MakeInterval, arguments) => Value::Interval(make_interval(arguments)?),
            (Function::CurrentSetting, [Value::Text(name), rest @ ..]) => match settings.shown(name) {
                Some(text) => Value::Text(text),
                None if rest.first().is_some_and(Value::is_true) => Value::Null,
                None => {
                    let message = format!("unrecognized configuration parameter \"{name}\"");
                    return Err(SqlError::new("42704", message).by("find_option"));
                }
            },
            (Function::Least, _) => extreme(Ordering::Less),
            (Function::Greatest, _) => extreme(Ordering::Greater),
            (Function::NullIf, [left, right]) => {
                if left.equals(right) == Some(true) {
                    Value::Null
                } else {
                    left.clone()
                }
            }
            (Function::OctetLength, [Value::Bytea(bytes)]) => length(bytes.len()),
            (Function::OctetLength, [Value::Text(text)]) => length(text.len()),
            (Function::Length, [Value::Text(text)]) => length(text.chars().count()),
            (Function::Lower, [Value::Text(text)]) => Value::Text(text.to_ascii_lowercase()),
            (Function::Upper, [Value::Text(text)]) => Value::Text(text.to_ascii_uppercase()),
            (Function::ExtractEpoch, [value]) => extract_epoch(value)?,
            (Function::CurrentXactId, _) => {
                Value::Int(self.snapshot.me.and_then(|xid| i64::try_from(xid).ok()).unwrap_or_default())
            }
            (Function::BackendPid, _) => Value::Int(*pid),
            (Function::Sleep, [seconds]) => {
                let us = seconds.as_float().and_then(time::seconds_us).unwrap_or(0);
                sleeps_us.fetch_add(us.try_into().unwrap_or(0), Relaxed);
                Value::Void
            }
            (Function::CurrentDatabase, _) => Value::text(database),
            (Function::CurrentUser, _) => Value::text(user),
            (Function::Version, _) => Value::Text(format!("PostgreSQL {version} (simulated)")),
            (Function::IsInRecovery, _) => Value::Bool(false),
            // Each session takes locks of its own, so none waits.
            (Function::AdvisoryLock, [Value::Int(key)]) if key == pid => {
                advisory_locks.fetch_add(1, Relaxed);
                Value::Void
            }
            (Function::AdvisoryUnlockAll, _) => {
                advisory_locks.store(0, Relaxed);
                Value::Void
            }
            (function, arguments) => return Err(SqlError::unsupported((function, arguments))),
        })
    }
}
