//! Waits for rows that other transactions hold.

use super::eval::Frame;
use super::plan::{Expr, Lock, Query, Rows};
use super::run::{Row, Run, full_row};
use crate::lock;
use crate::postgres::definitions::TABLES;
use crate::postgres::error::{Result, SqlError};
use crate::postgres::locks::wait_for;
use crate::postgres::tables::{Ctid, Tables, Target, Xid};
use crate::postgres::value::Value;

/// A row that is locked, with the place of its newest version.
pub(super) struct Acquired {
    pub(super) ctid: Ctid,
    pub(super) row: Row,
}

impl Run<'_> {
    /// Locks rows in their order, until there are as many as the limit allows.
    pub(super) async fn lock_rows(&mut self, query: &Query, how: Lock) -> Result<Vec<Row>> {
        let Rows::Table(table) = query.rows else { return Err(SqlError::unsupported("FOR UPDATE without a table")) };
        let (candidates, (limit, offset)) = {
            let shared = lock(self.shared);
            (self.candidates(&shared.tables, query, None)?, self.limit(&shared.tables, query)?)
        };
        let mut rows = Vec::new();
        for candidate in candidates {
            if rows.len() == limit.saturating_add(offset) {
                break;
            }
            let Some(Acquired { ctid, row }) =
                self.acquire(table, candidate.ctid, query.filter.as_ref(), how, "locking").await?
            else {
                continue;
            };
            let shared = &mut *lock(self.shared);
            let by = self.transaction.xid(&mut shared.tables);
            shared.tables.lock(table, ctid, by);
            rows.push(self.candidate(&shared.tables, query, ctid, &Frame::of(&row))?.output);
        }
        rows.drain(..offset.min(rows.len()));
        Ok(rows)
    }

    /// Waits until no other transaction holds the row. `None` if the newest version of it does not pass the filter, or
    /// if it was deleted. The row is not locked yet: the caller does not wait before it locks or writes.
    pub(super) async fn acquire(
        &mut self,
        table: usize,
        ctid: Ctid,
        filter: Option<&Expr>,
        how: Lock,
        doing: &str,
    ) -> Result<Option<Acquired>> {
        let mut newest = ctid;
        loop {
            let holder = {
                let shared = &mut *lock(self.shared);
                match shared.tables.target(table, newest, self.transaction.xid) {
                    Target::Free => {
                        let Some(version) = shared.tables.version(table, newest) else { return Ok(None) };
                        let row = full_row(table, newest, version);
                        let passes = newest == ctid || self.passes(&shared.tables, filter, &Frame::of(&row))?;
                        return Ok(passes.then_some(Acquired { ctid: newest, row }));
                    }
                    Target::Deleted => return Ok(None),
                    Target::Updated(next) => {
                        newest = next;
                        continue;
                    }
                    Target::Busy(holder) => {
                        self.transaction.xid(&mut shared.tables);
                        holder
                    }
                }
            };
            match how {
                Lock::Skip => return Ok(None),
                Lock::Fail => {
                    let message = format!("could not obtain lock on row in relation \"{}\"", TABLES[table].name);
                    return Err(SqlError::new("55P03", message).by("heap_lock_tuple"));
                }
                Lock::Wait => {
                    let me = self.transaction.xid;
                    let is_held = |tables: &Tables| matches!(tables.target(table, newest, me), Target::Busy(other) if other == holder);
                    self.wait(holder, (table, newest, doing), is_held).await?;
                }
            }
        }
    }

    /// Waits for the transaction `holder`, as long as it holds something.
    pub(super) async fn wait(
        &self,
        holder: Xid,
        (table, ctid, doing): (usize, Ctid, &str),
        is_held: impl Fn(&Tables) -> bool,
    ) -> Result<()> {
        let place = Value::Tid(ctid.place).to_text();
        let context = format!("while {doing} tuple {place} in relation \"{}\"", TABLES[table].name);
        wait_for(self.shared, self.transaction, holder, self.lock_timeout, context, is_held).await
    }
}
