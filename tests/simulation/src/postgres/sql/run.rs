//! Executes queries.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::eval::{Frame, Surroundings};
use super::plan::{Aggregate, AggregateKind, Groups, Order, Query, Rows};
use crate::postgres::definitions::TABLES;
use crate::postgres::error::{Result, SqlError};
use crate::postgres::locks::Shared;
use crate::postgres::tables::{Ctid, Snapshot, Tables, Version};
use crate::postgres::transaction::Transaction;
use crate::postgres::value::Value;

pub(in crate::postgres) type Row = Vec<Value>;

/// A statement that is being executed.
pub(in crate::postgres) struct Run<'a> {
    pub(in crate::postgres) shared: &'a Arc<Mutex<Shared>>,
    pub(in crate::postgres) transaction: &'a mut Transaction,
    pub(in crate::postgres) surroundings: &'a Surroundings,
    pub(in crate::postgres) parameters: &'a [Value],
    pub(in crate::postgres) snapshot: Snapshot,
    pub(in crate::postgres) now_us: i64,
    pub(in crate::postgres) lock_timeout: Option<Duration>,
    /// The rows of the statements of `WITH`.
    pub(in crate::postgres) with: Vec<Vec<Row>>,
}

/// A row of a query with the values that it is sorted by, and its place if it is one of a table.
pub(super) struct Candidate {
    pub(super) ctid: Ctid,
    pub(super) by: Vec<Value>,
    pub(super) output: Row,
}

/// A row of a table, with its system columns.
pub(super) fn full_row(table: usize, ctid: Ctid, version: &Version) -> Row {
    let xmin = i64::try_from(version.xmin).unwrap_or(i64::MAX);
    let table_oid = TABLES[table].oid.saturating_add_unsigned(ctid.partition as u64);
    let system = [Value::Tid(ctid.place), Value::Int(xmin), Value::Int(table_oid)];
    version.row.iter().cloned().chain(system).collect()
}

impl Run<'_> {
    /// The rows of a query, which locks none.
    pub(super) fn rows(&self, tables: &Tables, query: &Query, outer: Option<&Frame<'_>>) -> Result<Vec<Row>> {
        let mut candidates = self.candidates(tables, query, outer)?;
        let (limit, offset) = self.limit(tables, query)?;
        candidates.drain(..offset.min(candidates.len()));
        candidates.truncate(limit);
        Ok(candidates.into_iter().map(|candidate| candidate.output).collect())
    }

    /// The largest number of rows, and how many are left out before them.
    pub(super) fn limit(&self, tables: &Tables, query: &Query) -> Result<(usize, usize)> {
        let mut numbers = [usize::MAX, 0];
        for (number, expr) in numbers.iter_mut().zip([&query.limit, &query.offset]) {
            let Some(expr) = expr else { continue };
            if let Value::Int(value) = self.eval(tables, expr, &Frame::of(&[]))? {
                let negative = |_| SqlError::new("2201W", "LIMIT must not be negative");
                *number = usize::try_from(value).map_err(negative)?;
            }
        }
        Ok((numbers[0], numbers[1]))
    }

    /// All rows of a query in their order.
    pub(super) fn candidates(
        &self,
        tables: &Tables,
        query: &Query,
        outer: Option<&Frame<'_>>,
    ) -> Result<Vec<Candidate>> {
        let mut rows: Vec<(Ctid, Row)> = Vec::new();
        for (ctid, row) in self.source(tables, &query.rows, outer)? {
            if self.passes(tables, query.filter.as_ref(), &Frame { row: &row, aggregates: &[], outer })? {
                rows.push((ctid, row));
            }
        }
        let mut candidates = Vec::new();
        if let Some(groups) = &query.groups {
            for group in self.groups(tables, groups, rows, outer)? {
                let aggregates = groups.aggregates.iter().map(|of| self.aggregate(tables, of, &group, outer));
                let aggregates = aggregates.collect::<Result<Vec<_>>>()?;
                let row = group.first().map_or(&[][..], Vec::as_slice);
                let frame = Frame { row, aggregates: &aggregates, outer };
                if self.passes(tables, groups.having.as_ref(), &frame)? {
                    candidates.push(self.candidate(tables, query, Ctid::default(), &frame)?);
                }
            }
        } else {
            for (ctid, row) in &rows {
                candidates.push(self.candidate(tables, query, *ctid, &Frame { row, aggregates: &[], outer })?);
            }
        }
        candidates.sort_by(|left, right| in_order(&query.order, &left.by, &right.by));
        Ok(candidates)
    }

    pub(super) fn candidate(&self, tables: &Tables, query: &Query, ctid: Ctid, frame: &Frame<'_>) -> Result<Candidate> {
        let by = query.order.iter().map(|order| self.eval(tables, &order.by, frame)).collect::<Result<_>>()?;
        let output = query.output.iter().map(|expr| self.eval(tables, expr, frame)).collect::<Result<_>>()?;
        Ok(Candidate { ctid, by, output })
    }

    pub(super) fn passes(
        &self,
        tables: &Tables,
        filter: Option<&super::plan::Expr>,
        frame: &Frame<'_>,
    ) -> Result<bool> {
        filter.map_or(Ok(true), |filter| Ok(self.eval(tables, filter, frame)?.is_true()))
    }

    fn source(&self, tables: &Tables, rows: &Rows, outer: Option<&Frame<'_>>) -> Result<Vec<(Ctid, Row)>> {
        let without_place = |rows: Vec<Row>| rows.into_iter().map(|row| (Ctid::default(), row)).collect();
        Ok(match rows {
            Rows::One => without_place(vec![Vec::new()]),
            Rows::Table(table) => {
                let visible = tables.visible(*table, self.snapshot);
                visible.map(|(ctid, version)| (ctid, full_row(*table, ctid, version))).collect()
            }
            Rows::With(index) => without_place(self.with[*index].clone()),
            Rows::Activity => without_place(self.surroundings.activity.clone()),
            Rows::Prepared => without_place(self.surroundings.prepared.clone()),
            Rows::Query(query) => without_place(self.rows(tables, query, outer)?),
            Rows::Values(rows) => {
                let frame = Frame { row: &[], aggregates: &[], outer };
                let row = |exprs: &Vec<_>| exprs.iter().map(|expr| self.eval(tables, expr, &frame)).collect();
                without_place(rows.iter().map(row).collect::<Result<_>>()?)
            }
        })
    }

    fn groups(
        &self,
        tables: &Tables,
        groups: &Groups,
        rows: Vec<(Ctid, Row)>,
        outer: Option<&Frame<'_>>,
    ) -> Result<Vec<Vec<Row>>> {
        // Without GROUP BY there is one group, even of no row.
        if groups.by.is_empty() {
            return Ok(vec![rows.into_iter().map(|(_, row)| row).collect()]);
        }
        let mut found: Vec<(Vec<Value>, Vec<Row>)> = Vec::new();
        for (_, row) in rows {
            let frame = Frame { row: &row, aggregates: &[], outer };
            let by: Vec<_> = groups.by.iter().map(|by| self.eval(tables, by, &frame)).collect::<Result<_>>()?;
            match found.iter_mut().find(|(known, _)| *known == by) {
                Some((_, rows)) => rows.push(row),
                None => found.push((by, vec![row])),
            }
        }
        Ok(found.into_iter().map(|(_, rows)| rows).collect())
    }

    fn aggregate(
        &self,
        tables: &Tables,
        Aggregate { kind, of, filter }: &Aggregate,
        rows: &[Row],
        outer: Option<&Frame<'_>>,
    ) -> Result<Value> {
        let (mut count, mut result) = (0_i64, Value::Null);
        for row in rows {
            let frame = Frame { row, aggregates: &[], outer };
            if !self.passes(tables, filter.as_ref(), &frame)? {
                continue;
            }
            let value = of.as_ref().map(|of| self.eval(tables, of, &frame)).transpose()?;
            let Some(value) = value else {
                count += 1;
                continue;
            };
            if value.is_null() {
                continue;
            }
            count += 1;
            let is_next = match kind {
                AggregateKind::Min => value.compare(&result).is_none_or(|order| order == Ordering::Less),
                AggregateKind::Max => value.compare(&result).is_none_or(|order| order == Ordering::Greater),
                AggregateKind::Sum | AggregateKind::Count => false,
            };
            if is_next {
                result = value;
            } else if let AggregateKind::Sum = kind {
                result = match (result, value) {
                    (Value::Null, value) => value,
                    (Value::Int(sum), Value::Int(value)) => Value::Int(sum.saturating_add(value)),
                    (sum, value) => Value::Float(sum.as_float().unwrap_or(0.0) + value.as_float().unwrap_or(0.0)),
                };
            }
        }
        Ok(if let AggregateKind::Count = kind { Value::Int(count) } else { result })
    }
}

fn in_order(order: &[Order], left: &[Value], right: &[Value]) -> Ordering {
    for (Order { descending, nulls_first, .. }, (left, right)) in order.iter().zip(left.iter().zip(right)) {
        let first = |is_left: bool| if is_left == *nulls_first { Ordering::Less } else { Ordering::Greater };
        let found = match (left.is_null(), right.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) => first(true),
            (false, true) => first(false),
            (false, false) => {
                let found = left.compare(right).unwrap_or(Ordering::Equal);
                if *descending { found.reverse() } else { found }
            }
        };
        if found != Ordering::Equal {
            return found;
        }
    }
    Ordering::Equal
}
