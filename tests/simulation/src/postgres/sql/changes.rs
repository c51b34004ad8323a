//! Resolves the names and types of `INSERT`, `UPDATE` and `DELETE`.

use sqlparser::ast::{
    self, Delete as DeleteAst, FromTable, Insert as InsertAst, ObjectName, OnConflictAction, OnInsert, SelectItem,
    SetExpr, TableFactor, TableObject, TableWithJoins, Update as UpdateAst,
};

use super::bind::{Binder, Scope, ScopeColumn, Typed, name};
use super::plan::{Column, Delete, Expr, Insert, OnConflict, Plan, Query, Rows, Update};
use super::source;
use super::statements::table_name;
use crate::postgres::definitions::TABLES;
use crate::postgres::error::{Result, SqlError};
use crate::postgres::value::{Type, Value};

impl Binder {
    pub(super) fn insert(&mut self, insert: &InsertAst) -> Result<(Plan, Vec<Column>)> {
        let TableObject::TableName(table_ast) = &insert.table else {
            return Err(SqlError::unsupported(insert.to_string()));
        };
        let alias = insert.table_alias.as_ref().map(|alias| name(&alias.alias));
        let (table, columns) = source::table(&table_name(table_ast)?, alias)?;
        let definition = &TABLES[table];
        let targets: Vec<_> = if insert.columns.is_empty() {
            (0..definition.columns.len()).collect()
        } else {
            insert.columns.iter().map(|column| target(table, column)).collect::<Result<_>>()?
        };
        let source = insert.source.as_ref().map(|source| self.source(source, table, &targets)).transpose()?;
        let scope = Scope { columns: columns.clone(), ..Scope::default() };
        let conflict = match &insert.on {
            None => OnConflict::Fail,
            Some(OnInsert::OnConflict(conflict)) => {
                source::check_conflict_target(table, conflict.conflict_target.as_ref())?;
                match &conflict.action {
                    OnConflictAction::DoNothing => OnConflict::Nothing,
                    OnConflictAction::DoUpdate(_) if conflict.conflict_target.is_none() => {
                        let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
                        return Err(SqlError::new("42601", message));
                    }
                    OnConflictAction::DoUpdate(update) => {
                        let mut both = Scope { columns: columns.clone(), ..Scope::default() };
                        both.columns.extend(source::excluded(table));
                        let assignments = self.assignments(table, &update.assignments, &both)?;
                        let filter =
                            update.selection.as_ref().map(|filter| self.condition(filter, &both)).transpose()?;
                        OnConflict::Update { assignments, filter }
                    }
                }
            }
            Some(other) => return Err(SqlError::unsupported(other.to_string())),
        };
        let (returning, columns) = self.returning(insert.returning.as_deref(), &scope)?;
        Ok((Plan::Insert(Insert { table, targets, source, conflict, returning }), columns))
    }

    /// The values to insert. Literals and parameters have the types of their columns.
    fn source(&mut self, source: &ast::Query, table: usize, targets: &[usize]) -> Result<Query> {
        let types = targets.iter().map(|column| TABLES[table].columns[*column].ty);
        if let SetExpr::Values(values) = &*source.body {
            for (value, ty) in values.rows.iter().flat_map(|row| row.content.iter().zip(types.clone())) {
                let value = self.expr(value, &Scope::default())?;
                if value.ty == Type::Unknown && matches!(value.expr, Expr::Parameter(_)) {
                    self.coerce(value, ty)?;
                }
            }
        }
        let mut query = self.query(source, None)?;
        let (given, wanted) = (query.columns.len(), targets.len());
        if given > wanted || (given < wanted && wanted != TABLES[table].columns.len()) {
            let more =
                if given > wanted { "expressions than target columns" } else { "target columns than expressions" };
            return Err(SqlError::new("42601", format!("INSERT has more {more}")));
        }
        let types: Vec<_> = types.collect();
        if let Rows::Values(rows) = &mut query.rows {
            for row in rows {
                for (index, (value, ty)) in row.iter_mut().zip(&types).enumerate() {
                    let expr = std::mem::replace(value, Expr::Value(Value::Null));
                    let from = query.columns[index].ty;
                    *value = self.assign(Typed { expr, ty: from }, *ty)?;
                }
            }
        } else {
            for (index, (value, ty)) in query.output.iter_mut().zip(&types).enumerate() {
                let expr = std::mem::replace(value, Expr::Value(Value::Null));
                // A literal or parameter that nothing has given a type.
                let is_unknown = matches!(&expr, Expr::Value(Value::Text(_) | Value::Null))
                    || matches!(&expr, Expr::Parameter(number) if self.parameters[*number] == Type::Unknown);
                let from = if is_unknown { Type::Unknown } else { query.columns[index].ty };
                *value = self.assign(Typed { expr, ty: from }, *ty)?;
            }
        }
        Ok(query)
    }

    /// An expression that is stored in a column of this type.
    fn assign(&mut self, typed: Typed, ty: Type) -> Result<Expr> {
        if ty == Type::Text && !matches!(typed.ty, Type::Unknown | Type::Row | Type::Void) && !typed.ty.is_text() {
            return Ok(Expr::Cast(Box::new(typed.expr), ty));
        }
        Ok(self.coerce(typed, ty)?.expr)
    }

    fn assignments(&mut self, table: usize, list: &[ast::Assignment], scope: &Scope<'_>) -> Result<Vec<(usize, Expr)>> {
        let bind = |assignment: &ast::Assignment| {
            let ast::AssignmentTarget::ColumnName(column) = &assignment.target else {
                return Err(SqlError::unsupported(assignment.to_string()));
            };
            let column = target(table, column)?;
            let typed = self.expr(&assignment.value, scope)?;
            Ok((column, self.assign(typed, TABLES[table].columns[column].ty)?))
        };
        list.iter().map(bind).collect()
    }

    pub(super) fn update(&mut self, update: &UpdateAst) -> Result<(Plan, Vec<Column>)> {
        let (table, columns) = match &update.table {
            TableWithJoins { relation, joins } if joins.is_empty() && update.from.is_none() => target_table(relation)?,
            _ => return Err(SqlError::unsupported(update.to_string())),
        };
        let scope = Scope { columns, ..Scope::default() };
        let assignments = self.assignments(table, &update.assignments, &scope)?;
        let filter = update.selection.as_ref().map(|filter| self.condition(filter, &scope)).transpose()?;
        let (returning, columns) = self.returning(update.returning.as_deref(), &scope)?;
        Ok((Plan::Update(Update { table, assignments, filter, returning }), columns))
    }

    pub(super) fn delete(&mut self, delete: &DeleteAst) -> Result<(Plan, Vec<Column>)> {
        let (table, columns) = match &delete.from {
            FromTable::WithFromKeyword(from) if delete.using.is_none() => match from.as_slice() {
                [TableWithJoins { relation, joins }] if joins.is_empty() => target_table(relation)?,
                _ => return Err(SqlError::unsupported(delete.to_string())),
            },
            _ => return Err(SqlError::unsupported(delete.to_string())),
        };
        let scope = Scope { columns, ..Scope::default() };
        let filter = delete.selection.as_ref().map(|filter| self.condition(filter, &scope)).transpose()?;
        let (returning, columns) = self.returning(delete.returning.as_deref(), &scope)?;
        Ok((Plan::Delete(Delete { table, filter, returning }), columns))
    }

    fn returning(
        &mut self,
        items: Option<&[SelectItem]>,
        scope: &Scope<'_>,
    ) -> Result<(Option<Vec<Expr>>, Vec<Column>)> {
        let Some(items) = items else { return Ok((None, Vec::new())) };
        let (exprs, columns) = self.output(items, scope)?;
        Ok((Some(exprs), columns))
    }
}

fn target_table(relation: &TableFactor) -> Result<(usize, Vec<ScopeColumn>)> {
    let TableFactor::Table { name: table, alias, args: None, .. } = relation else {
        return Err(SqlError::unsupported(relation.to_string()));
    };
    source::table(&table_name(table)?, alias.as_ref().map(|alias| name(&alias.name)))
}

fn target(table: usize, column: &ObjectName) -> Result<usize> {
    let (column, definition) = (table_name(column)?, &TABLES[table]);
    definition.columns.iter().position(|known| known.name == column).ok_or_else(|| {
        SqlError::new("42703", format!("column \"{column}\" of relation \"{}\" does not exist", definition.name))
    })
}
