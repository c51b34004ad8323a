//! Executes statements that write or lock rows, and so may wait for other transactions.

use super::acquire::Acquired;
use super::eval::Frame;
use super::plan::{Delete, Expr, Insert, Lock, OnConflict, Plan, Statement, Update};
use super::run::{Row, Run, full_row};
use crate::lock;
use crate::postgres::definitions::{Default, INBOX, KEEPS_ROW, TABLES};
use crate::postgres::error::{Result, SqlError};
use crate::postgres::tables::{Conflict, Ctid, Tables, Target};
use crate::postgres::value::Value;

/// What a statement returns: its rows, if it has any, and the number of rows that it read or wrote.
pub(in crate::postgres) struct Outcome {
    pub(in crate::postgres) rows: Vec<Row>,
    pub(in crate::postgres) affected: usize,
    pub(in crate::postgres) tag: &'static str,
}

impl Run<'_> {
    pub(in crate::postgres) async fn execute(&mut self, statement: &Statement) -> Result<Outcome> {
        for plan in &statement.with {
            let rows = self.execute_plan(plan).await?.rows;
            self.with.push(rows);
        }
        self.execute_plan(&statement.plan).await
    }

    async fn execute_plan(&mut self, plan: &Plan) -> Result<Outcome> {
        match plan {
            Plan::Query(query) => {
                let rows = match query.lock {
                    Some(how) => self.lock_rows(query, how).await?,
                    None => self.rows(&lock(self.shared).tables, query, None)?,
                };
                Ok(Outcome { affected: rows.len(), rows, tag: "SELECT" })
            }
            Plan::Insert(insert) => self.insert(insert).await,
            Plan::Update(update) => self.update(update).await,
            Plan::Delete(delete) => self.delete(delete).await,
        }
    }

    async fn insert(&mut self, insert: &Insert) -> Result<Outcome> {
        let source = match &insert.source {
            Some(query) if query.lock.is_some() => return Err(SqlError::unsupported("INSERT … FOR UPDATE")),
            Some(query) => self.rows(&lock(self.shared).tables, query, None)?,
            None => vec![Vec::new()],
        };
        let (mut rows, mut affected) = (Vec::new(), 0);
        for values in source {
            let row = self.new_row(insert, values)?;
            if let Some(ctid) = self.insert_row(insert, row).await? {
                affected += 1;
                self.return_row(insert.table, ctid, insert.returning.as_ref(), &mut rows)?;
            }
        }
        Ok(Outcome { rows, affected, tag: "INSERT" })
    }

    /// A row of these values, and of the defaults of other columns.
    fn new_row(&self, insert: &Insert, values: Row) -> Result<Row> {
        let definition = &TABLES[insert.table];
        let mut row = vec![None; definition.columns.len()];
        for (column, value) in insert.targets.iter().zip(values) {
            row[*column] = Some(value);
        }
        let default = |column: &crate::postgres::definitions::Column| match column.default {
            Default::Null => Value::Null,
            Default::Now => Value::Time(self.surroundings.transaction_us),
            Default::Serial => Value::Int(lock(self.shared).tables.next_serial(insert.table)),
        };
        let columns = row.into_iter().zip(definition.columns);
        let row: Row = columns.map(|(value, column)| value.unwrap_or_else(|| default(column))).collect();
        check_row(insert.table, &row)?;
        Ok(row)
    }

    /// Returns where the row is, if it was inserted or has replaced another one.
    async fn insert_row(&mut self, insert: &Insert, row: Row) -> Result<Option<Ctid>> {
        let table = insert.table;
        loop {
            let (holder, ctid) = {
                let shared = &mut *lock(self.shared);
                match shared.tables.conflict(table, &row, self.transaction.xid) {
                    Conflict::None => {
                        let writer = self.transaction.writer(&mut shared.tables);
                        return Ok(Some(shared.tables.insert(table, row, writer)));
                    }
                    Conflict::Open(holder) => {
                        // Without ON CONFLICT, the row is written before its key is compared.
                        if matches!(insert.conflict, OnConflict::Fail) {
                            self.transaction.xid(&mut shared.tables);
                        }
                        (holder, shared.tables.all[table].next_ctid(&row))
                    }
                    Conflict::Row(ctid) => {
                        match (&insert.conflict, shared.tables.target(table, ctid, self.transaction.xid)) {
                            (OnConflict::Fail, _) => return Err(duplicate_key(table)),
                            (OnConflict::Nothing, _) => return Ok(None),
                            (OnConflict::Update { .. }, Target::Busy(holder)) => {
                                self.transaction.xid(&mut shared.tables);
                                (holder, ctid)
                            }
                            (OnConflict::Update { assignments, filter }, _) => {
                                return self.replace(
                                    &mut shared.tables,
                                    table,
                                    ctid,
                                    row,
                                    (assignments, filter.as_ref()),
                                );
                            }
                        }
                    }
                }
            };
            let me = self.transaction.xid;
            let is_held = |tables: &Tables| match tables.conflict(table, &row, me) {
                Conflict::Open(other) => other == holder,
                Conflict::Row(ctid) => {
                    matches!(tables.target(table, ctid, me), Target::Busy(other) if other == holder)
                }
                Conflict::None => false,
            };
            self.wait(holder, (table, ctid, "inserting index"), is_held).await?;
        }
    }

    /// `ON CONFLICT DO UPDATE` of a row that no other transaction holds.
    fn replace(
        &mut self,
        tables: &mut Tables,
        table: usize,
        ctid: Ctid,
        excluded: Row,
        (assignments, filter): (&[(usize, Expr)], Option<&Expr>),
    ) -> Result<Option<Ctid>> {
        let writer = self.transaction.writer(tables);
        let Some(version) = tables.version(table, ctid) else { return Ok(None) };
        if Tables::is_of_command(version, writer) {
            let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
            return Err(SqlError::new("21000", message).by("ExecOnConflictUpdate"));
        }
        let mut both = full_row(table, ctid, version);
        both.extend(excluded);
        if !self.passes(tables, filter, &Frame::of(&both))? {
            // The row stays locked.
            tables.lock(table, ctid, writer.xid);
            return Ok(None);
        }
        let row = self.changed(tables, table, assignments, &both)?;
        if self.keeps_rows(table) {
            tables.lock(table, ctid, writer.xid);
            return Ok(None);
        }
        Ok(Some(tables.update(table, ctid, row, writer)))
    }

    /// The row with these assignments, which read `from`.
    fn changed(&self, tables: &Tables, table: usize, assignments: &[(usize, Expr)], from: &[Value]) -> Result<Row> {
        let mut row = from[..TABLES[table].columns.len()].to_vec();
        for (column, expr) in assignments {
            if TABLES[table].key.contains(column) {
                return Err(SqlError::unsupported("the update of a primary key"));
            }
            row[*column] = self.eval(tables, expr, &Frame::of(from))?;
        }
        check_row(table, &row)?;
        Ok(row)
    }

    async fn update(&mut self, Update { table, assignments, filter, returning }: &Update) -> Result<Outcome> {
        let (mut rows, mut affected) = (Vec::new(), 0);
        for ctid in self.found(*table, filter.as_ref())? {
            let acquired = self.acquire(*table, ctid, filter.as_ref(), Lock::Wait, "updating").await?;
            let Some(Acquired { ctid, row }) = acquired else { continue };
            let next = {
                let shared = &mut *lock(self.shared);
                let writer = self.transaction.writer(&mut shared.tables);
                let row = self.changed(&shared.tables, *table, assignments, &row)?;
                if self.keeps_rows(*table) {
                    shared.tables.lock(*table, ctid, writer.xid);
                    continue;
                }
                shared.tables.update(*table, ctid, row, writer)
            };
            affected += 1;
            self.return_row(*table, next, returning.as_ref(), &mut rows)?;
        }
        Ok(Outcome { rows, affected, tag: "UPDATE" })
    }

    async fn delete(&mut self, Delete { table, filter, returning }: &Delete) -> Result<Outcome> {
        let (mut rows, mut affected) = (Vec::new(), 0);
        for ctid in self.found(*table, filter.as_ref())? {
            let acquired = self.acquire(*table, ctid, filter.as_ref(), Lock::Wait, "deleting").await?;
            let Some(Acquired { ctid, .. }) = acquired else { continue };
            affected += 1;
            self.return_row(*table, ctid, returning.as_ref(), &mut rows)?;
            let shared = &mut *lock(self.shared);
            let writer = self.transaction.writer(&mut shared.tables);
            shared.tables.delete(*table, ctid, writer);
        }
        Ok(Outcome { rows, affected, tag: "DELETE" })
    }

    /// Whether the trigger before an update keeps the rows of this table, which are locked then.
    fn keeps_rows(&self, table: usize) -> bool {
        table == INBOX && self.surroundings.settings.get(KEEPS_ROW) == Some("yes")
    }

    /// Where the rows are that pass the filter.
    fn found(&self, table: usize, filter: Option<&Expr>) -> Result<Vec<Ctid>> {
        let tables = &lock(self.shared).tables;
        let mut found = Vec::new();
        for (ctid, version) in tables.visible(table, self.snapshot) {
            if self.passes(tables, filter, &Frame::of(&full_row(table, ctid, version)))? {
                found.push(ctid);
            }
        }
        Ok(found)
    }

    fn return_row(&self, table: usize, ctid: Ctid, returning: Option<&Vec<Expr>>, rows: &mut Vec<Row>) -> Result<()> {
        let Some(exprs) = returning else { return Ok(()) };
        let tables = &lock(self.shared).tables;
        let Some(version) = tables.version(table, ctid) else { return Ok(()) };
        let row = full_row(table, ctid, version);
        rows.push(exprs.iter().map(|expr| self.eval(tables, expr, &Frame::of(&row))).collect::<Result<_>>()?);
        Ok(())
    }
}

fn check_row(table: usize, row: &[Value]) -> Result<()> {
    let definition = &TABLES[table];
    for (column, value) in definition.columns.iter().zip(row) {
        if column.is_required && value.is_null() {
            let (column, relation) = (column.name, definition.name);
            let message =
                format!("null value in column \"{column}\" of relation \"{relation}\" violates not-null constraint");
            return Err(SqlError { table: Some(relation), ..SqlError::new("23502", message).by("ExecConstraints") });
        }
    }
    Ok(())
}

fn duplicate_key(table: usize) -> SqlError {
    let (constraint, relation) = (TABLES[table].key_name, TABLES[table].name);
    let message = format!("duplicate key value violates unique constraint \"{constraint}\"");
    let error = SqlError::new("23505", message).by("_bt_check_unique");
    SqlError { table: Some(relation), constraint: Some(constraint), ..error }
}
