//! What operators and functions result in.

use std::cmp::Ordering;

use super::plan::{Arithmetic, Comparison};
use crate::postgres::error::{Result, SqlError};
use crate::postgres::time;
use crate::postgres::value::{Interval, Type, Value};

pub(super) fn as_bool(value: &Value) -> Option<bool> {
    if let Value::Bool(value) = value { Some(*value) } else { None }
}

pub(super) fn optional(value: Option<bool>) -> Value {
    value.map_or(Value::Null, Value::Bool)
}

/// Whether one of them is true. Unknown if none is, and one is unknown.
pub(super) fn any(values: &[Option<bool>]) -> Value {
    if values.contains(&Some(true)) { Value::Bool(true) } else { optional((!values.contains(&None)).then_some(false)) }
}

pub(super) fn compare(op: Comparison, left: &Value, right: &Value) -> Option<bool> {
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

pub(super) fn out_of_range(ty: Type) -> SqlError {
    match ty {
        Type::Timestamptz => SqlError::new("22008", "timestamp out of range"),
        Type::Int2 => SqlError::new("22003", "smallint out of range"),
        Type::Int4 => SqlError::new("22003", "integer out of range"),
        Type::Int8 => SqlError::new("22003", "bigint out of range"),
        _ => SqlError::new("22003", "value out of range"),
    }
}

pub(super) fn calculate(op: Arithmetic, ty: Type, left: Value, right: Value) -> Result<Value> {
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

pub(super) fn make_interval(arguments: &[Value]) -> Result<Interval> {
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
pub(super) fn extract_epoch(value: &Value) -> Result<Value> {
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

pub(super) fn is_like(text: &[u8], pattern: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'%', rest @ ..] => (0..=text.len()).any(|from| is_like(&text[from..], rest)),
        [b'_', rest @ ..] => !text.is_empty() && is_like(&text[1..], rest),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => {
            text.first() == Some(literal) && is_like(&text[1..], rest)
        }
    }
}
