//! Resolves the names and types of statements.

use sqlparser::ast::{
    self, GroupByExpr, LimitClause, LockType, NonBlock, ObjectName, OrderByKind, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins,
};

use super::bind::{Binder, Scope, ScopeColumn, Typed, name};
use super::functions::{column_name, named};
use super::plan::{Column, Expr, Groups, Lock, Order, Plan, Query, Rows, Statement};
use super::source::{self, Source};
use crate::postgres::error::{Result, SqlError};
use crate::postgres::value::Type;

/// Resolves a statement whose first parameters have these types.
pub(in crate::postgres) fn resolve(statement: &ast::Statement, parameters: Vec<Type>) -> Result<Statement> {
    let mut binder = Binder { parameters, ..Binder::default() };
    let (mut with, mut writes) = (Vec::new(), None);
    let (plan, columns) = match statement {
        ast::Statement::Query(query) => {
            for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
                let is_plain = query.with.as_ref().is_some_and(|with| !with.recursive) && cte.alias.columns.is_empty();
                if !is_plain {
                    return Err(SqlError::unsupported(statement.to_string()));
                }
                let (plan, columns) = binder.plan(&cte.query, true)?;
                if !matches!(&plan, Plan::Query(query) if query.lock.is_none()) {
                    writes = Some("SELECT");
                }
                binder.with.push((name(&cte.alias.name), columns));
                with.push(plan);
            }
            binder.plan(query, false)?
        }
        other => binder.write(other)?,
    };
    writes = match &plan {
        Plan::Query(query) if query.lock.is_some() => Some("SELECT FOR UPDATE"),
        Plan::Query(_) => writes,
        Plan::Insert(_) => Some("INSERT"),
        Plan::Update(_) => Some("UPDATE"),
        Plan::Delete(_) => Some("DELETE"),
    };
    for ty in &mut binder.parameters {
        if *ty == Type::Unknown {
            *ty = Type::Text;
        }
    }
    let columns = named(columns.into_iter().map(|column| (column.name, column.ty)).collect());
    let Binder { parameters, needs_xid, .. } = binder;
    Ok(Statement { with, plan, parameters, columns, writes, needs_xid })
}

impl Binder {
    fn plan(&mut self, query: &ast::Query, is_with: bool) -> Result<(Plan, Vec<Column>)> {
        match &*query.body {
            SetExpr::Insert(statement) | SetExpr::Update(statement) | SetExpr::Delete(statement) => {
                self.write(statement)
            }
            _ if is_with => {
                let query = self.query(query, None)?;
                let columns = query.columns.clone();
                Ok((Plan::Query(query), columns))
            }
            _ => {
                let query = self.body(query, None)?;
                let columns = query.columns.clone();
                Ok((Plan::Query(query), columns))
            }
        }
    }

    /// A query within a statement.
    pub(super) fn query(&mut self, query: &ast::Query, outer: Option<&Scope<'_>>) -> Result<Query> {
        if query.with.is_some() {
            return Err(SqlError::unsupported("WITH within a statement"));
        }
        let bound = self.body(query, outer)?;
        if bound.lock.is_some() && outer.is_some() {
            return Err(SqlError::unsupported("FOR UPDATE within an expression"));
        }
        Ok(bound)
    }

    fn body(&mut self, query: &ast::Query, outer: Option<&Scope<'_>>) -> Result<Query> {
        if query.fetch.is_some() || query.for_clause.is_some() || !query.pipe_operators.is_empty() {
            return Err(SqlError::unsupported(query.to_string()));
        }
        let select = match &*query.body {
            SetExpr::Select(select) => select,
            SetExpr::Values(values) => return self.values(values, outer),
            SetExpr::Query(inner) if query.order_by.is_none() && query.limit_clause.is_none() => {
                return self.query(inner, outer);
            }
            other => return Err(SqlError::unsupported(other.to_string())),
        };
        let GroupByExpr::Expressions(group_by, modifiers) = &select.group_by else {
            return Err(SqlError::unsupported(query.to_string()));
        };
        if select.distinct.is_some()
            || select.into.is_some()
            || !select.named_window.is_empty()
            || !modifiers.is_empty()
        {
            return Err(SqlError::unsupported(query.to_string()));
        }
        let (rows, columns) = self.from(&select.from, outer)?;
        let scope = Scope { columns, outer, ..Scope::default() };
        let filter = select.selection.as_ref().map(|filter| self.condition(filter, &scope)).transpose()?;
        let by: Vec<_> = group_by.iter().map(|by| Ok(self.expr(by, &scope)?.expr)).collect::<Result<_>>()?;
        scope.named.take();
        scope.aggregates.replace(Some(Vec::new()));
        let (output, columns) = self.output(&select.projection, &scope)?;
        let having = select.having.as_ref().map(|having| self.condition(having, &scope)).transpose()?;
        let order = self.order(query, &select.projection, &scope)?;
        let aggregates = scope.aggregates.take().unwrap_or_default();
        let is_grouped = !aggregates.is_empty() || !by.is_empty() || having.is_some();
        let is_by = |index: &usize| by.iter().any(|by| matches!(by, Expr::Column { up: 0, index: at } if at == index));
        if is_grouped && !scope.named.borrow().iter().all(is_by) {
            return Err(SqlError::new("42803", "a column must appear in the GROUP BY clause or be aggregated"));
        }
        let groups = is_grouped.then_some(Groups { by, aggregates, having });
        let (limit, offset) = self.limit(query)?;
        let lock = lock_of(query, &rows, groups.is_some())?;
        Ok(Query { rows, filter, groups, output, order, limit, offset, lock, columns })
    }

    fn values(&mut self, values: &ast::Values, outer: Option<&Scope<'_>>) -> Result<Query> {
        let scope = Scope { outer, ..Scope::default() };
        let (mut rows, mut types) = (Vec::new(), Vec::new());
        for row in &values.rows {
            let row: Vec<_> = row.content.iter().map(|value| self.expr(value, &scope)).collect::<Result<_>>()?;
            types.resize(row.len(), Type::Unknown);
            for (ty, value) in types.iter_mut().zip(&row) {
                *ty = if *ty == Type::Unknown { value.ty } else { *ty };
            }
            rows.push(row);
        }
        let unify = |row: Vec<Typed>| {
            let values = row.into_iter().zip(&types).map(|(value, ty)| Ok(self.coerce(value, *ty)?.expr));
            values.collect::<Result<Vec<_>>>()
        };
        let rows = rows.into_iter().map(unify).collect::<Result<Vec<_>>>()?;
        let columns = (1..).zip(&types).map(|(number, ty)| Column { name: format!("column{number}"), ty: *ty });
        let output = (0..types.len()).map(|index| Expr::Column { up: 0, index }).collect();
        let (columns, rows) = (columns.collect(), Rows::Values(rows));
        let (limit, offset) = (None, None);
        Ok(Query { rows, filter: None, groups: None, output, order: Vec::new(), limit, offset, lock: None, columns })
    }

    fn from(&mut self, from: &[TableWithJoins], outer: Option<&Scope<'_>>) -> Result<(Rows, Vec<ScopeColumn>)> {
        let relation = match from {
            [] => return Ok((Rows::One, Vec::new())),
            [TableWithJoins { relation, joins }] if joins.is_empty() => relation,
            _ => return Err(SqlError::unsupported("a join")),
        };
        match relation {
            TableFactor::Table { name: table, alias, args: None, .. } => {
                let alias = alias.as_ref().map(|alias| name(&alias.name));
                let Source { rows, columns } = source::find(&table_name(table)?, alias, &self.with)?;
                Ok((rows, columns))
            }
            TableFactor::Derived { lateral: false, subquery, alias, .. } => {
                let query = self.query(subquery, outer)?;
                let alias = alias.as_ref().map(|alias| name(&alias.name)).unwrap_or_default();
                let columns = source::columns(&alias, &query.columns);
                Ok((Rows::Query(Box::new(query)), columns))
            }
            other => Err(SqlError::unsupported(other.to_string())),
        }
    }

    pub(super) fn output(&mut self, items: &[SelectItem], scope: &Scope<'_>) -> Result<(Vec<Expr>, Vec<Column>)> {
        let (mut exprs, mut columns) = (Vec::new(), Vec::new());
        for item in items {
            let (expr, alias) = match item {
                SelectItem::UnnamedExpr(expr) => (expr, column_name(expr)),
                SelectItem::ExprWithAlias { expr, alias } => (expr, name(alias)),
                SelectItem::Wildcard(_)
                | SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(_), _) => {
                    let source = match item {
                        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(source), _) => {
                            Some(table_name(source)?)
                        }
                        _ => None,
                    };
                    let is_of = |column: &ScopeColumn| source.as_ref().is_none_or(|source| column.source == *source);
                    for (index, column) in scope.columns.iter().enumerate() {
                        if !column.is_system && is_of(column) {
                            scope.named.borrow_mut().push(index);
                            exprs.push(Expr::Column { up: 0, index });
                            columns.push((column.name.clone(), column.ty));
                        }
                    }
                    continue;
                }
                other => return Err(SqlError::unsupported(other.to_string())),
            };
            let typed = self.expr(expr, scope)?;
            // A parameter that is only returned is a text.
            let ty = if typed.ty == Type::Unknown { Type::Unknown } else { typed.ty };
            columns.push((alias, ty));
            exprs.push(typed.expr);
        }
        Ok((exprs, named(columns)))
    }

    fn order(&mut self, query: &ast::Query, items: &[SelectItem], scope: &Scope<'_>) -> Result<Vec<Order>> {
        let Some(order) = &query.order_by else { return Ok(Vec::new()) };
        let OrderByKind::Expressions(exprs) = &order.kind else { return Err(SqlError::unsupported("ORDER BY ALL")) };
        let bind = |order: &ast::OrderByExpr| {
            // A name is that of an output column first.
            let of_output = |item: &SelectItem| match (item, &order.expr) {
                (SelectItem::ExprWithAlias { expr, alias }, ast::Expr::Identifier(by)) if name(alias) == name(by) => {
                    Some(expr.clone())
                }
                _ => None,
            };
            let expr = items.iter().find_map(of_output).unwrap_or_else(|| order.expr.clone());
            let descending = matches!(order.options.sort, Some(ast::OrderBySort::Desc));
            let nulls_first = order.options.nulls_first.unwrap_or(descending);
            Ok(Order { by: self.expr(&expr, scope)?.expr, descending, nulls_first })
        };
        exprs.iter().map(bind).collect()
    }

    fn limit(&mut self, query: &ast::Query) -> Result<(Option<Expr>, Option<Expr>)> {
        let (limit, offset) = match &query.limit_clause {
            None => (None, None),
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                (limit.as_ref(), offset.as_ref().map(|offset| &offset.value))
            }
            Some(other) => return Err(SqlError::unsupported(other.to_string())),
        };
        let mut bind = |expr: &ast::Expr| {
            let typed = self.expr(expr, &Scope::default())?;
            Ok(self.coerce(typed, Type::Int8)?.expr)
        };
        Ok((limit.map(&mut bind).transpose()?, offset.map(&mut bind).transpose()?))
    }

    fn write(&mut self, statement: &ast::Statement) -> Result<(Plan, Vec<Column>)> {
        match statement {
            ast::Statement::Query(query) => self.plan(query, false),
            ast::Statement::Insert(insert) => self.insert(insert),
            ast::Statement::Update(update) => self.update(update),
            ast::Statement::Delete(delete) => self.delete(delete),
            other => Err(SqlError::unsupported(other.to_string())),
        }
    }
}

fn lock_of(query: &ast::Query, rows: &Rows, is_grouped: bool) -> Result<Option<Lock>> {
    match query.locks.as_slice() {
        [] => Ok(None),
        [lock]
            if lock.lock_type == LockType::Update
                && lock.of.is_none()
                && matches!(rows, Rows::Table(_))
                && !is_grouped =>
        {
            Ok(Some(match lock.nonblock {
                None => Lock::Wait,
                Some(NonBlock::SkipLocked) => Lock::Skip,
                Some(NonBlock::Nowait) => Lock::Fail,
            }))
        }
        _ => Err(SqlError::unsupported(query.to_string())),
    }
}

/// The last part of a name.
pub(super) fn table_name(table: &ObjectName) -> Result<String> {
    let last = table.0.last().and_then(|part| part.as_ident());
    last.map(name).ok_or_else(|| SqlError::unsupported(table.to_string()))
}
