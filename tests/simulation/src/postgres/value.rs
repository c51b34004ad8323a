//! Values and their types, and how they are compared and converted.

use std::cmp::Ordering;

use super::error::{Result, SqlError};
use super::time;
pub(super) use super::types::Type;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// Of each integer type, and of object and transaction ids.
    Int(i64),
    Float(f64),
    Text(String),
    Bytea(Vec<u8>),
    /// µs since 1970.
    Time(i64),
    Interval(Interval),
    /// The place of a row.
    Tid(u64),
    Row(Vec<Value>),
    Array(Vec<Value>),
    Void,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) months: i32,
    pub(super) days: i32,
    pub(super) us: i64,
}

impl Interval {
    /// Its length for comparisons, with months of 30 days.
    pub(super) fn total_us(self) -> i128 {
        let days = i128::from(self.months) * 30 + i128::from(self.days);
        days * 86_400_000_000 + i128::from(self.us)
    }
}

impl Value {
    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    pub(super) fn is_true(&self) -> bool {
        matches!(self, Self::Bool(true))
    }

    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    #[expect(clippy::cast_precision_loss, reason = "as the server does")]
    pub(super) fn as_float(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// The order of two values, unless one of them is NULL.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Null, _) | (_, Self::Null) => None,
            (Self::Bool(left), Self::Bool(right)) => Some(left.cmp(right)),
            (Self::Int(left), Self::Int(right)) | (Self::Time(left), Self::Time(right)) => Some(left.cmp(right)),
            (Self::Text(left), Self::Text(right)) => Some(left.as_bytes().cmp(right.as_bytes())),
            (Self::Bytea(left), Self::Bytea(right)) => Some(left.cmp(right)),
            (Self::Tid(left), Self::Tid(right)) => Some(left.cmp(right)),
            (Self::Interval(left), Self::Interval(right)) => Some(left.total_us().cmp(&right.total_us())),
            // The first values that differ decide, as in a comparison of rows.
            (Self::Row(left), Self::Row(right)) | (Self::Array(left), Self::Array(right)) => {
                for (left, right) in left.iter().zip(right) {
                    match left.compare(right) {
                        Some(Ordering::Equal) => {}
                        other => return other,
                    }
                }
                Some(left.len().cmp(&right.len()))
            }
            (left, right) => Some(left.as_float()?.total_cmp(&right.as_float()?)),
        }
    }

    /// Whether they are equal, unless that depends on a NULL.
    pub(super) fn equals(&self, other: &Self) -> Option<bool> {
        let (Self::Row(left), Self::Row(right)) = (self, other) else {
            return Some(self.compare(other)? == Ordering::Equal);
        };
        let pairs: Vec<_> = left.iter().zip(right).map(|(left, right)| left.equals(right)).collect();
        if pairs.contains(&Some(false)) {
            Some(false)
        } else {
            pairs.into_iter().collect::<Option<Vec<_>>>().map(|_| true)
        }
    }

    /// Converts to this type.
    pub(super) fn cast(self, to: Type) -> Result<Self> {
        let range = |least: i64, most: i64, number: i64| {
            let error = || SqlError::new("22003", format!("{} out of range", to.name()));
            if (least..=most).contains(&number) { Ok(Self::Int(number)) } else { Err(error()) }
        };
        match (self, to) {
            (Self::Null, _) => Ok(Self::Null),
            (Self::Int(number), Type::Int2) => range(i16::MIN.into(), i16::MAX.into(), number),
            (Self::Int(number), Type::Int4) => range(i32::MIN.into(), i32::MAX.into(), number),
            (Self::Int(number), Type::Int8 | Type::Oid | Type::Xid | Type::Xid8) => Ok(Self::Int(number)),
            (number @ Self::Int(_), Type::Float8 | Type::Numeric) => {
                Ok(number.as_float().map_or(Self::Null, Self::Float))
            }
            (Self::Float(number), Type::Float8 | Type::Numeric) => Ok(Self::Float(number)),
            #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
            (Self::Float(number), Type::Int2 | Type::Int4 | Type::Int8) => {
                if !(-9.2e18..9.2e18).contains(&number) {
                    return Err(SqlError::new("22003", format!("{} out of range", to.name())));
                }
                Self::Int(number.round_ties_even() as i64).cast(to)
            }
            (Self::Bool(value), Type::Int4) => Ok(Self::Int(value.into())),
            (Self::Text(text), Type::Text | Type::Name | Type::Unknown) => Ok(Self::Text(text)),
            (Self::Text(text), to) => Self::parse(&text, to),
            (value, Type::Text) => Ok(Self::Text(value.to_text())),
            (value @ Self::Bool(_), Type::Bool)
            | (value @ Self::Bytea(_), Type::Bytea)
            | (value @ Self::Time(_), Type::Timestamptz)
            | (value @ Self::Interval(_), Type::Interval)
            | (value @ Self::Tid(_), Type::Tid) => Ok(value),
            (value, to) => Err(SqlError::unsupported(("cast", value, to))),
        }
    }

    /// The value that is written so.
    pub(super) fn parse(text: &str, ty: Type) -> Result<Self> {
        let invalid = |code| SqlError::new(code, format!("invalid input syntax for type {}: \"{text}\"", ty.name()));
        let trimmed = text.trim();
        match ty {
            Type::Unknown | Type::Text | Type::Name => Ok(Self::text(text)),
            Type::Bool => match trimmed.to_ascii_lowercase().as_str() {
                "t" | "true" | "yes" | "on" | "1" => Ok(Self::Bool(true)),
                "f" | "false" | "no" | "off" | "0" => Ok(Self::Bool(false)),
                _ => Err(invalid("22P02")),
            },
            Type::Int2 | Type::Int4 | Type::Int8 | Type::Oid | Type::Xid | Type::Xid8 => {
                Self::Int(trimmed.parse().map_err(|_| invalid("22P02"))?).cast(ty)
            }
            Type::Float8 | Type::Numeric => Ok(Self::Float(trimmed.parse().map_err(|_| invalid("22P02"))?)),
            Type::Bytea => Ok(Self::Bytea(parse_bytea(text).ok_or_else(|| invalid("22P02"))?)),
            Type::Timestamptz => Ok(Self::Time(time::parse(trimmed).ok_or_else(|| invalid("22007"))?)),
            Type::Interval => Ok(Self::Interval(time::parse_interval(trimmed).ok_or_else(|| invalid("22007"))?)),
            Type::Tid | Type::Void | Type::Row | Type::Array => Err(SqlError::unsupported(("text of", ty))),
        }
    }

    /// As text that the server sends.
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Null | Self::Void => String::new(),
            Self::Bool(value) => if *value { "t" } else { "f" }.to_owned(),
            Self::Int(number) => number.to_string(),
            Self::Float(number) if number.is_infinite() => {
                if *number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
            }
            Self::Float(number) => number.to_string(),
            Self::Text(text) => text.clone(),
            Self::Bytea(bytes) => bytes.iter().fold("\\x".to_owned(), |text, byte| format!("{text}{byte:02x}")),
            Self::Time(us) => time::to_text(*us),
            Self::Interval(interval) => time::interval_text(*interval),
            Self::Tid(tid) => format!("({},{})", tid / 100, tid % 100 + 1),
            Self::Row(values) => format!("({})", values.iter().map(Self::to_text).collect::<Vec<_>>().join(",")),
            Self::Array(values) => format!("{{{}}}", values.iter().map(Self::to_text).collect::<Vec<_>>().join(",")),
        }
    }
}

fn parse_bytea(text: &str) -> Option<Vec<u8>> {
    let Some(digits) = text.strip_prefix("\\x") else {
        return (!text.contains('\\')).then(|| text.as_bytes().to_vec());
    };
    let digits: Vec<u8> =
        digits.bytes().map(|digit| char::from(digit).to_digit(16)?.try_into().ok()).collect::<Option<_>>()?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
