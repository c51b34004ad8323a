//! Evaluates expressions.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::plan::{Arithmetic, Comparison, Expr, Function};
use super::run::Run;
use crate::postgres::error::{Result, SqlError};
use crate::postgres::tables::Tables;
use crate::postgres::time;
use crate::postgres::value::{Interval, Type, Value};

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
    /// How long `pg_sleep` still sleeps.
    pub(in crate::postgres) sleeps_us: AtomicU64,
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
        let Surroundings { transaction_us, statement_us, pid, user, database, version, settings, sleeps_us, .. } =
            self.surroundings;
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
            // No other function takes such a lock.
            (Function::AdvisoryUnlockAll, _) => Value::Void,
            (function, arguments) => return Err(SqlError::unsupported((function, arguments))),
        })
    }
}

pub(super) fn as_bool(value: &Value) -> Option<bool> {
    if let Value::Bool(value) = value { Some(*value) } else { None }
}

fn optional(value: Option<bool>) -> Value {
    value.map_or(Value::Null, Value::Bool)
}

/// Whether one of them is true. Unknown if none is, and one is unknown.
fn any(values: &[Option<bool>]) -> Value {
    if values.contains(&Some(true)) { Value::Bool(true) } else { optional((!values.contains(&None)).then_some(false)) }
}

fn compare(op: Comparison, left: &Value, right: &Value) -> Option<bool> {
    let is = |orders: &[Ordering]| left.compare(right).map(|order| orders.contains(&order));
    match op {
        Comparison::Equal => left.equals(right),
        Comparison::NotEqual => left.equals(right).map(|equal| !equal),
        Comparison::Less => is(&[Ordering::Less]),
        Comparison::LessOrEqual => is(&[Ordering::Less, Ordering::Equal]),
        Comparison::Greater => is(&[Ordering::Greater]),
        Comparison::GreaterOrEqual => is(&[Ordering::Greater, Ordering::Equal]),
    }
}

fn out_of_range(ty: Type) -> SqlError {
    match ty {
        Type::Timestamptz => SqlError::new("22008", "timestamp out of range"),
        Type::Int2 => SqlError::new("22003", "smallint out of range"),
        Type::Int4 => SqlError::new("22003", "integer out of range"),
        Type::Int8 => SqlError::new("22003", "bigint out of range"),
        _ => SqlError::new("22003", "value out of range"),
    }
}

fn calculate(op: Arithmetic, ty: Type, left: Value, right: Value) -> Result<Value> {
    use Value::{Float, Int, Null, Time};
    let error = || out_of_range(ty);
    let by_zero = || SqlError::new("22012", "division by zero").by("int8div");
    Ok(match (op, left, right) {
        (_, Null, _) | (_, _, Null) => Null,
        (Arithmetic::Concatenate, left, right) => Value::Text(left.to_text() + &right.to_text()),
        (Arithmetic::Divide | Arithmetic::Modulo, _, Int(0)) => return Err(by_zero()),
        (Arithmetic::Divide | Arithmetic::Modulo, _, Float(0.0)) => return Err(by_zero().by("float8div")),
        (op, Int(left), Int(right)) if matches!(ty, Type::Int2 | Type::Int4 | Type::Int8) => {
            let result = match op {
                Arithmetic::Add => left.checked_add(right),
                Arithmetic::Subtract => left.checked_sub(right),
                Arithmetic::Multiply => left.checked_mul(right),
                Arithmetic::Divide => left.checked_div(right),
                _ => left.checked_rem(right),
            };
            Int(result.ok_or_else(error)?).cast(ty).map_err(|_| error())?
        }
        (op, left, right) if ty.is_number() => {
            let (Some(left), Some(right)) = (left.as_float(), right.as_float()) else {
                return Err(SqlError::unsupported((op, left, right)));
            };
            Float(match op {
                Arithmetic::Add => left + right,
                Arithmetic::Subtract => left - right,
                Arithmetic::Multiply => left * right,
                Arithmetic::Divide => left / right,
                _ => left % right,
            })
        }
        (Arithmetic::Add, Time(time), Value::Interval(interval))
        | (Arithmetic::Add, Value::Interval(interval), Time(time)) => {
            Time(time::add(time, interval, 1).ok_or_else(error)?)
        }
        (Arithmetic::Subtract, Time(time), Value::Interval(interval)) => {
            Time(time::add(time, interval, -1).ok_or_else(error)?)
        }
        (Arithmetic::Subtract, Time(left), Time(right)) => {
            let infinite = || SqlError::new("22008", "cannot subtract infinite timestamps").by("timestamp_mi");
            Value::Interval(time::difference(left, right).ok_or_else(infinite)?)
        }
        (op, left, right) => return Err(SqlError::unsupported((op, left, right))),
    })
}

fn make_interval(arguments: &[Value]) -> Result<Interval> {
    let out_of_range = || SqlError::new("22008", "interval out of range").by("make_interval");
    let whole = |at: usize| match arguments.get(at) {
        Some(Value::Int(number)) => i32::try_from(*number).map_err(|_| out_of_range()),
        _ => Ok(0),
    };
    let months = whole(0)?.checked_mul(12).and_then(|months| months.checked_add(whole(1).ok()?));
    let days = whole(2)?.checked_mul(7).and_then(|days| days.checked_add(whole(3).ok()?));
    let hours_us = i64::from(whole(4)?) * 3_600_000_000 + i64::from(whole(5)?) * 60_000_000;
    let seconds = arguments.get(6).and_then(Value::as_float).unwrap_or(0.0);
    let us = time::seconds_us(seconds).and_then(|us| us.checked_add(hours_us));
    match (months, days, us) {
        (Some(months), Some(days), Some(us)) => Ok(Interval { months, days, us }),
        _ => Err(out_of_range()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "as the server does for a result of type float8")]
fn extract_epoch(value: &Value) -> Result<Value> {
    Ok(Value::Float(match value {
        Value::Time(time::INFINITY) => f64::INFINITY,
        Value::Time(time::MINUS_INFINITY) => f64::NEG_INFINITY,
        Value::Time(us) => *us as f64 / 1e6,
        Value::Interval(Interval { months, days, us }) => {
            // A year has 365.25 days, and another month 30.
            let days = f64::from(months / 12) * 365.25 + f64::from(months % 12) * 30.0 + f64::from(*days);
            days * 86_400.0 + *us as f64 / 1e6
        }
        other => return Err(SqlError::unsupported(("extract", other))),
    }))
}

fn is_like(text: &[u8], pattern: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'%', rest @ ..] => (0..=text.len()).any(|from| is_like(&text[from..], rest)),
        [b'_', rest @ ..] => !text.is_empty() && is_like(&text[1..], rest),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => {
            text.first() == Some(literal) && is_like(&text[1..], rest)
        }
    }
}
