//! Types of values, as the catalog names them.

use super::error::{Result, SqlError};

/// A type, named as in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// Of a literal in quotes, NULL, or a parameter that is not used yet.
    Unknown,
    Bool,
    Int2,
    Int4,
    Int8,
    Float8,
    Numeric,
    Text,
    Name,
    Bytea,
    Timestamptz,
    Interval,
    Oid,
    Xid,
    Xid8,
    Tid,
    Void,
    Row,
    Array,
}

impl Type {
    pub(super) fn oid(self) -> u32 {
        match self {
            Self::Unknown => 705,
            Self::Bool => 16,
            Self::Bytea => 17,
            Self::Name => 19,
            Self::Int8 => 20,
            Self::Int2 => 21,
            Self::Int4 => 23,
            Self::Text => 25,
            Self::Oid => 26,
            Self::Tid => 27,
            Self::Xid => 28,
            Self::Float8 => 701,
            Self::Timestamptz => 1184,
            Self::Interval => 1186,
            Self::Numeric => 1700,
            Self::Row => 2249,
            Self::Array => 2277,
            Self::Void => 2278,
            Self::Xid8 => 5069,
        }
    }

    pub(super) fn of_oid(oid: u32) -> Result<Self> {
        const KNOWN: [Type; 12] = [
            Type::Bool,
            Type::Bytea,
            Type::Name,
            Type::Int8,
            Type::Int2,
            Type::Int4,
            Type::Text,
            Type::Oid,
            Type::Xid,
            Type::Float8,
            Type::Timestamptz,
            Type::Unknown,
        ];
        match oid {
            0 => Ok(Self::Unknown),
            // varchar
            1043 => Ok(Self::Text),
            oid => KNOWN.into_iter().find(|ty| ty.oid() == oid).ok_or_else(|| SqlError::unsupported(("type", oid))),
        }
    }

    /// As the server names it in messages and as columns.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Bool => "bool",
            Self::Bytea => "bytea",
            Self::Name => "name",
            Self::Int8 => "int8",
            Self::Int2 => "int2",
            Self::Int4 => "int4",
            Self::Text => "text",
            Self::Oid => "oid",
            Self::Tid => "tid",
            Self::Xid => "xid",
            Self::Float8 => "float8",
            Self::Timestamptz => "timestamptz",
            Self::Interval => "interval",
            Self::Numeric => "numeric",
            Self::Row => "record",
            Self::Array => "array",
            Self::Void => "void",
            Self::Xid8 => "xid8",
        }
    }

    pub(super) fn of_name(name: &str) -> Result<Self> {
        Ok(match name.trim_start_matches("pg_catalog.") {
            "bool" | "boolean" => Self::Bool,
            "bytea" => Self::Bytea,
            "name" => Self::Name,
            "int8" | "bigint" => Self::Int8,
            "int2" | "smallint" => Self::Int2,
            "int4" | "integer" | "int" => Self::Int4,
            "text" | "varchar" | "character varying" => Self::Text,
            "oid" | "regclass" => Self::Oid,
            "tid" => Self::Tid,
            "xid" => Self::Xid,
            "xid8" => Self::Xid8,
            "float8" | "double precision" => Self::Float8,
            "timestamptz" | "timestamp with time zone" => Self::Timestamptz,
            "interval" => Self::Interval,
            "numeric" | "decimal" => Self::Numeric,
            other => return Err(SqlError::unsupported(("type", other))),
        })
    }

    pub(super) fn is_number(self) -> bool {
        self.rank() > 0
    }

    /// Of two numbers, an operation has the type of the higher rank.
    pub(super) fn rank(self) -> u8 {
        match self {
            Self::Int2 => 1,
            Self::Int4 => 2,
            Self::Int8 => 3,
            Self::Numeric => 4,
            Self::Float8 => 5,
            _ => 0,
        }
    }

    pub(super) fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Name)
    }

    /// Whether there is an operator `=` for these types.
    pub(super) fn compares_with(self, other: Self) -> bool {
        let is_int4 = |ty| matches!(ty, Self::Int2 | Self::Int4);
        self == other
            || (self.is_number() && other.is_number())
            || (self.is_text() && other.is_text())
            || (self == Self::Xid && is_int4(other))
            || (self == Self::Oid && other.is_number())
            || (self.is_number() && other == Self::Oid)
    }
}
