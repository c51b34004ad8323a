//! Commands, and the begin and end of transactions.

use std::borrow::Cow;

use tokio::time::Instant;

use super::error::{Result, SqlError};
use super::execution::{Block, Core};
use super::settings::Lasts;
use super::shared::Crash;
use super::sql::commands::{self, Command};
use super::sql::plan::Column;
use super::value::{Type, Value};
use crate::lock;

impl Core {
    pub(super) fn check_not_failed(&self) -> Result<()> {
        let message = "current transaction is aborted, commands ignored until end of transaction block";
        if self.block == Block::Failed { Err(SqlError::new("25P02", message).by("exec_simple_query")) } else { Ok(()) }
    }

    /// Executes a command and returns its tag.
    #[expect(clippy::too_many_lines, reason = "an arm for each command")]
    pub(super) fn command(&mut self, command: &Command) -> Result<Cow<'static, str>> {
        let tag = match command {
            Command::Begin { read_only } => {
                if self.block == Block::None {
                    self.begin_if_needed();
                    self.block = Block::Open;
                } else {
                    self.replies.warning("25001", "there is already a transaction in progress");
                }
                self.set_read_only(*read_only)?;
                "BEGIN"
            }
            Command::Commit => match self.block {
                Block::Failed => {
                    self.roll_back();
                    "ROLLBACK"
                }
                block => {
                    if block == Block::None {
                        self.replies.warning("25P01", "there is no transaction in progress");
                    }
                    self.commit()?;
                    "COMMIT"
                }
            },
            Command::Rollback => {
                if self.block == Block::None {
                    self.replies.warning("25P01", "there is no transaction in progress");
                }
                self.roll_back();
                "ROLLBACK"
            }
            Command::Savepoint(name) => {
                self.require_block("SAVEPOINT")?;
                if let Some(transaction) = &mut self.transaction {
                    transaction.savepoint(name.clone(), &lock(&self.server.shared).tables, self.settings.clone());
                }
                "SAVEPOINT"
            }
            Command::RollbackTo(name) => {
                self.require_block("ROLLBACK TO SAVEPOINT")?;
                let mut shared = lock(&self.server.shared);
                let transaction = self.transaction.as_mut();
                let before = transaction.and_then(|transaction| transaction.roll_back_to(name, &mut shared.tables));
                self.settings.roll_back(before.ok_or_else(|| no_savepoint(name))?);
                shared.ended.notify_waiters();
                self.block = Block::Open;
                "ROLLBACK"
            }
            Command::Release(name) => {
                self.require_block("RELEASE SAVEPOINT")?;
                if !self.transaction.as_mut().is_some_and(|transaction| transaction.release(name)) {
                    return Err(no_savepoint(name));
                }
                "RELEASE"
            }
            Command::Set { name, value, lasts } => {
                self.set(name, value.as_deref(), *lasts)?;
                "SET"
            }
            Command::SetTransaction { read_only } => {
                self.set_read_only(*read_only)?;
                "SET"
            }
            Command::Reset(name) => {
                self.set(name, None, Lasts::Session)?;
                "RESET"
            }
            Command::ResetAll => {
                self.settings.reset_all();
                "RESET"
            }
            Command::ResetUser => "RESET",
            Command::Show(name) => {
                let value = self.shown(name)?;
                let columns = [Column { name: name.clone(), ty: Type::Text }];
                self.replies.columns(&columns, &[]);
                self.replies.row(&[Value::Text(value)], &columns, &[])?;
                "SHOW"
            }
            Command::Discard(what) => return self.discard(what).map(Cow::Owned),
            Command::CloseAll => "CLOSE CURSOR ALL",
            Command::Unlisten => "UNLISTEN",
            Command::Deallocate(None) => {
                self.prepared.clear();
                self.prepared_by_sql = 0;
                "DEALLOCATE ALL"
            }
            Command::Deallocate(Some(name)) => {
                if self.prepared.remove(name).is_none() {
                    return Err(SqlError::new("26000", format!("prepared statement \"{name}\" does not exist")));
                }
                "DEALLOCATE"
            }
            Command::Prepare { name, statement } => {
                let parsed = commands::parse(statement)?.pop().ok_or_else(|| SqlError::unsupported(statement))?;
                let prepared = self.prepare(parsed, Vec::new())?;
                if self.prepared.contains_key(name) {
                    return Err(SqlError::new("42P05", format!("prepared statement \"{name}\" already exists")));
                }
                self.prepared.insert(name.clone(), prepared.into());
                self.prepared_by_sql += 1;
                "PREPARE"
            }
        };
        Ok(Cow::Borrowed(tag))
    }

    fn discard(&mut self, what: &str) -> Result<String> {
        match what {
            "all" if self.is_in_block() => {
                return Err(SqlError::new("25001", "DISCARD ALL cannot run inside a transaction block"));
            }
            "all" => {
                self.prepared.clear();
                (self.prepared_by_sql, self.advisory_locks) = (0, 0);
                self.settings.reset_all();
            }
            "plans" | "sequences" | "temp" | "temporary" => {}
            _ => return Err(SqlError::new("42601", format!("syntax error at or near \"{what}\""))),
        }
        Ok(format!("DISCARD {}", if what == "temporary" { "TEMP".to_owned() } else { what.to_uppercase() }))
    }

    fn require_block(&self, what: &str) -> Result<()> {
        let message = || format!("{what} can only be used in transaction blocks");
        if self.is_in_block() { Ok(()) } else { Err(SqlError::new("25P01", message()).by("RequireTransactionBlock")) }
    }

    fn set(&mut self, name: &str, value: Option<&str>, lasts: Lasts) -> Result<()> {
        if name.eq_ignore_ascii_case("transaction_read_only") {
            let is_on = value.map(|value| Value::parse(value, Type::Bool)).transpose()?;
            return self.set_read_only(is_on.map(|is_on| is_on.is_true()));
        }
        if lasts == Lasts::Transaction && !self.is_in_block() {
            self.replies.warning("25P01", "SET LOCAL can only be used in transaction blocks");
        }
        self.begin_if_needed();
        self.settings.set(name, value, lasts)?;
        match name.to_lowercase().as_str() {
            "transaction_timeout" => {
                let timeout = self.settings.timeout("transaction_timeout");
                self.transaction_ends = timeout.map(|timeout| Instant::now() + timeout);
            }
            name @ ("client_encoding" | "application_name") => {
                let value = self.settings.shown(name).unwrap_or_default();
                self.replies.parameter(name, &value);
            }
            _ => {}
        }
        Ok(())
    }

    fn set_read_only(&mut self, read_only: Option<bool>) -> Result<()> {
        let is_read_only = lock(&self.server.shared).is_read_only;
        let (Some(read_only), Some(transaction)) = (read_only, &mut self.transaction) else { return Ok(()) };
        if transaction.is_read_only && !read_only && transaction.command > 0 {
            let message = "transaction read-write mode must be set before any query";
            return Err(SqlError::new("25001", message).by("check_transaction_read_only"));
        }
        if is_read_only && !read_only {
            let message = "cannot set transaction read-write mode during recovery";
            return Err(SqlError::new("0A000", message).by("check_transaction_read_only"));
        }
        transaction.is_read_only = read_only;
        Ok(())
    }

    fn shown(&self, name: &str) -> Result<String> {
        let is_read_only = self.transaction.as_ref().is_some_and(|transaction| transaction.is_read_only);
        match name {
            "transaction_read_only" => Ok(if is_read_only { "on" } else { "off" }.to_owned()),
            "transaction_isolation" | "transactionisolationlevel" => Ok("read committed".to_owned()),
            name => self.settings.shown(name).ok_or_else(|| {
                SqlError::new("42704", format!("unrecognized configuration parameter \"{name}\"")).by("find_option")
            }),
        }
    }

    /// Commits the transaction, if there is one.
    pub(super) fn commit(&mut self) -> Result<()> {
        let Some(transaction) = self.transaction.take() else { return Ok(()) };
        self.block = Block::None;
        self.transaction_ends = None;
        let mut shared = lock(&self.server.shared);
        let is_next = |(host, _): &mut (String, Crash)| transaction.xid.is_some() && *host == self.host;
        let crash = shared.crash.take_if(is_next).map(|(_, crash)| crash);
        if let Some(xid) = transaction.xid {
            if crash == Some(Crash::BeforeCommit) {
                shared.tables.abort(xid);
            } else {
                shared.tables.commit(xid);
            }
        }
        self.end(&mut shared);
        drop(shared);
        self.settings.commit();
        if crash.is_some() {
            self.server.crash();
            self.has_crashed = true;
            return Err(SqlError::fatal("57P01", "the server has crashed"));
        }
        Ok(())
    }

    pub(super) fn roll_back(&mut self) {
        self.block = Block::None;
        self.transaction_ends = None;
        let Some(transaction) = self.transaction.take() else { return };
        let mut shared = lock(&self.server.shared);
        if let Some(xid) = transaction.xid {
            shared.tables.abort(xid);
        }
        self.end(&mut shared);
        drop(shared);
        self.settings.roll_back(transaction.settings);
    }

    fn end(&self, shared: &mut super::shared::Shared) {
        if let Some(session) = shared.sessions.get_mut(&self.pid) {
            session.transaction_us = None;
        }
        shared.ended.notify_waiters();
    }

    /// At the end of a query or at a Sync, a transaction without a block ends.
    pub(super) fn end_implicit(&mut self, outcome: Result<()>) -> Result<()> {
        let outcome = match outcome {
            Ok(()) if self.block == Block::None => self.commit(),
            outcome => outcome,
        };
        outcome.or_else(|error| self.fail(error))
    }

    /// A statement has failed. The error is returned if it ends the session.
    pub(super) fn fail(&mut self, error: SqlError) -> Result<()> {
        if error.is_fatal {
            return Err(error);
        }
        self.replies.error(&error);
        if self.block == Block::None {
            self.roll_back();
            return Ok(());
        }
        self.block = Block::Failed;
        // Nothing holds an aborted transaction against its time.
        self.transaction_ends = None;
        if let Some(transaction) = &mut self.transaction {
            let mut shared = lock(&self.server.shared);
            let before = transaction.fail(&mut shared.tables);
            shared.ended.notify_waiters();
            drop(shared);
            self.settings.roll_back(before);
        }
        Ok(())
    }
}

fn no_savepoint(name: &str) -> SqlError {
    SqlError::new("3B001", format!("savepoint \"{name}\" does not exist")).by("ReleaseSavepoint")
}
