//! The messages that prepare statements and execute them with parameters.

use std::sync::Arc;

use super::connection::Connection;
use super::error::{Result, SqlError};
use super::execution::Core;
use super::sql::commands::{self, Command, Kind, Parsed};
use super::sql::plan::{Column, Statement};
use super::value::{Type, Value};
use super::wire::Body;
use crate::lock;

pub(super) struct Prepared {
    pub(super) parsed: Parsed,
    /// `None` of a command.
    pub(super) statement: Option<Statement>,
}

/// A prepared statement with its parameters. `None` is the empty statement.
pub(super) struct Portal {
    prepared: Option<Arc<Prepared>>,
    parameters: Vec<Value>,
    formats: Vec<i16>,
}

impl Prepared {
    /// The columns of its rows, if it returns rows.
    pub(super) fn columns(&self) -> Option<&[Column]> {
        match (&self.statement, &self.parsed.kind) {
            (Some(statement), _) => {
                let returns =
                    !statement.columns.is_empty() || statement.writes.is_none_or(|kind| kind.starts_with("SELECT"));
                returns.then_some(&statement.columns)
            }
            (None, _) => None,
        }
    }

    fn parameters(&self) -> &[Type] {
        self.statement.as_ref().map_or(&[], |statement| &statement.parameters)
    }
}

impl Core {
    pub(super) fn parse(&mut self, body: &mut Body<'_>) -> Result<()> {
        let (name, text) = (body.text()?, body.text()?);
        let types = (0..body.int2()?).map(|_| Type::of_oid(body.int4()?.cast_unsigned())).collect::<Result<_>>()?;
        let mut statements = commands::parse(&text)?;
        if statements.len() > 1 {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(SqlError::new("42601", message).by("exec_parse_message"));
        }
        if !name.is_empty() && self.prepared.contains_key(&name) {
            return Err(SqlError::new("42P05", format!("prepared statement \"{name}\" already exists")));
        }
        match statements.pop() {
            Some(parsed) => {
                let prepared = self.prepare(parsed, types)?;
                self.bound.remove(&name);
                self.prepared.insert(name, Arc::new(prepared));
            }
            None => return Err(SqlError::unsupported("an empty prepared statement")),
        }
        self.replies.message(b'1', &[]);
        Ok(())
    }

    fn prepared(&self, name: &str) -> Result<Arc<Prepared>> {
        let missing = || SqlError::new("26000", format!("prepared statement \"{name}\" does not exist"));
        self.prepared.get(name).cloned().ok_or_else(|| missing().by("FetchPreparedStatement"))
    }

    pub(super) fn bind(&mut self, body: &mut Body<'_>) -> Result<()> {
        let (portal, name) = (body.text()?, body.text()?);
        let prepared = self.prepared(&name)?;
        self.check_block(&prepared)?;
        if !self.bound.insert(name) {
            let mut shared = lock(&self.server.shared);
            if shared.is_pooled {
                shared.kept.push(prepared.parsed.text.clone());
            }
        }
        self.begin_if_needed();
        let parameters = body.values(prepared.parameters())?;
        let formats = body.formats()?;
        self.portals.insert(portal, Portal { prepared: Some(prepared), parameters, formats });
        self.replies.message(b'2', &[]);
        Ok(())
    }

    /// An error if the block has failed and this statement does not end it.
    fn check_block(&self, prepared: &Prepared) -> Result<()> {
        let ends =
            matches!(prepared.parsed.kind, Kind::Command(Command::Commit | Command::Rollback | Command::RollbackTo(_)));
        if ends { Ok(()) } else { self.check_not_failed() }
    }

    pub(super) fn describe(&mut self, body: &mut Body<'_>) -> Result<()> {
        let (kind, name) = (body.byte()?, body.text()?);
        let (prepared, formats) = if kind == b'S' {
            let prepared = self.prepared(&name)?;
            self.replies.parameters(prepared.parameters());
            (prepared, Vec::new())
        } else {
            let portal =
                self.portals.get(&name).and_then(|portal| Some((portal.prepared.clone()?, portal.formats.clone())));
            portal.ok_or_else(|| no_portal(&name))?
        };
        match prepared.columns() {
            Some(columns) => self.replies.columns(columns, &formats),
            None => self.replies.message(b'n', &[]),
        }
        Ok(())
    }

    pub(super) async fn execute(&mut self, body: &mut Body<'_>, connection: &mut Connection) -> Result<()> {
        let (name, limit) = (body.text()?, body.int4()?);
        if limit != 0 {
            return Err(SqlError::unsupported("a limit of rows"));
        }
        let Portal { prepared, parameters, formats } = self.portals.remove(&name).ok_or_else(|| no_portal(&name))?;
        let Some(prepared) = prepared else { return Err(no_portal(&name)) };
        self.check_block(&prepared)?;
        self.run(&prepared, &parameters, Some(&formats), connection).await
    }

    pub(super) fn close(&mut self, body: &mut Body<'_>) -> Result<()> {
        let (kind, name) = (body.byte()?, body.text()?);
        if kind == b'S' {
            self.prepared.remove(&name);
        } else {
            self.portals.remove(&name);
        }
        self.replies.message(b'3', &[]);
        Ok(())
    }
}

fn no_portal(name: &str) -> SqlError {
    SqlError::new("34000", format!("portal \"{name}\" does not exist"))
}
