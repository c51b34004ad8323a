//! The tables and views that a statement may name, and their columns.

use sqlparser::ast::ConflictTarget;

use super::bind::{ScopeColumn, name};
use super::plan::{Column, Rows};
use crate::postgres::definitions::TABLES;
use crate::postgres::error::{Result, SqlError};
use crate::postgres::value::Type;

pub(super) struct Source {
    pub(super) rows: Rows,
    pub(super) columns: Vec<ScopeColumn>,
}

/// The columns of `pg_stat_activity` that a statement may name.
pub(in crate::postgres) const ACTIVITY: [(&str, Type); 11] = [
    ("datname", Type::Name),
    ("pid", Type::Int4),
    ("usesysid", Type::Oid),
    ("usename", Type::Name),
    ("application_name", Type::Text),
    ("xact_start", Type::Timestamptz),
    ("state", Type::Text),
    ("backend_xid", Type::Xid),
    ("backend_xmin", Type::Xid),
    ("query", Type::Text),
    ("backend_type", Type::Text),
];

/// The columns that each table has after its own: `ctid`, `xmin` and `tableoid`.
const SYSTEM: [(&str, Type); 3] = [("ctid", Type::Tid), ("xmin", Type::Xid), ("tableoid", Type::Oid)];

pub(super) fn find(table_name: &str, alias: Option<String>, with: &[(String, Vec<Column>)]) -> Result<Source> {
    let source = alias.clone().unwrap_or_else(|| table_name.to_owned());
    if let Some(index) = with.iter().position(|(name, _)| name == table_name) {
        return Ok(Source { rows: Rows::With(index), columns: columns(&source, &with[index].1) });
    }
    if table_name == "pg_stat_activity" {
        let columns = ACTIVITY.map(|(name, ty)| column(&source, name, ty, false)).into();
        return Ok(Source { rows: Rows::Activity, columns });
    }
    if table_name == "pg_prepared_statements" {
        let columns = ["name", "statement"].map(|name| column(&source, name, Type::Text, false)).into();
        return Ok(Source { rows: Rows::Prepared, columns });
    }
    let (table, columns) = table(table_name, alias)?;
    Ok(Source { rows: Rows::Table(table), columns })
}

/// A table of this name, and its columns.
pub(super) fn table(name: &str, alias: Option<String>) -> Result<(usize, Vec<ScopeColumn>)> {
    let Some(table) = TABLES.iter().position(|table| table.name == name) else {
        return Err(SqlError::new("42P01", format!("relation \"{name}\" does not exist")).by("parserOpenTable"));
    };
    let source = alias.unwrap_or_else(|| name.to_owned());
    let own = TABLES[table].columns.iter().map(|known| column(&source, known.name, known.ty, false));
    Ok((table, own.chain(SYSTEM.map(|(name, ty)| column(&source, name, ty, true))).collect()))
}

/// The row that `ON CONFLICT DO UPDATE` would have inserted.
pub(super) fn excluded(table: usize) -> impl Iterator<Item = ScopeColumn> {
    TABLES[table].columns.iter().map(|known| column("excluded", known.name, known.ty, false))
}

pub(super) fn columns(source: &str, columns: &[Column]) -> Vec<ScopeColumn> {
    columns.iter().map(|known| column(source, &known.name, known.ty, false)).collect()
}

fn column(source: &str, name: &str, ty: Type, is_system: bool) -> ScopeColumn {
    ScopeColumn { source: source.to_owned(), name: name.to_owned(), ty, is_system }
}

/// An error unless the target is the primary key.
pub(super) fn check_conflict_target(table: usize, target: Option<&ConflictTarget>) -> Result<()> {
    let definition = &TABLES[table];
    let is_key = match target {
        None => true,
        Some(ConflictTarget::Columns { columns, predicate: None }) => {
            let mut named: Vec<_> = columns.iter().map(name).collect();
            let mut key: Vec<_> = definition.key.iter().map(|column| definition.columns[*column].name).collect();
            named.sort();
            key.sort_unstable();
            !key.is_empty() && named == key
        }
        Some(other) => return Err(SqlError::unsupported(other.to_string())),
    };
    let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
    if is_key { Ok(()) } else { Err(SqlError::new("42P10", message)) }
}
