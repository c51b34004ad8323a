//! A connection: TLS where the URL asks for it, and a second try where the password has changed.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use deadpool::managed::{Manager, Metrics, RecycleError, RecycleResult};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, NoTls, Socket, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::identity::Login;

use super::{CredentialsSource, DatabaseError, DatabaseSettings, DatabaseUrl};

/// Makes connections for the pool.
pub(super) struct Dialler {
    url: DatabaseUrl,
    timeout: Duration,
    credentials: Option<Arc<dyn CredentialsSource>>,
    /// Made at the first use: loading certificates takes longer than connecting.
    tls: OnceLock<MakeRustlsConnect>,
}

/// A connection, and the statements that it knows.
pub(super) struct Connection {
    pub(super) client: Client,
    task: JoinHandle<()>,
    statements: Mutex<HashMap<String, Statement>>,
    /// Whether the server can end a transaction by the clock, as since PostgreSQL 17.
    pub(super) ends_transactions: bool,
}

impl Connection {
    /// The statement, prepared at its first use on this connection.
    pub(super) async fn prepared(&self, statement: &str) -> Result<Statement, DatabaseError> {
        if let Some(known) = self.known(statement) {
            return Ok(known);
        }
        let prepared = self.client.prepare(statement).await?;
        self.statements().insert(statement.to_owned(), prepared.clone());
        Ok(prepared)
    }

    /// Have it prepared anew at its next use.
    pub(super) fn forget(&self, statement: &str) {
        self.statements().remove(statement);
    }

    fn known(&self, statement: &str) -> Option<Statement> {
        self.statements().get(statement).cloned()
    }

    fn statements(&self) -> MutexGuard<'_, HashMap<String, Statement>> {
        // Every change is one insert or one removal, so a panic elsewhere cannot have left half of one.
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The socket closes at once, also where a reply is still to come: the server takes that as the end.
impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Manager for Dialler {
    type Type = Connection;
    type Error = DatabaseError;

    async fn create(&self) -> Result<Connection, DatabaseError> {
        let Some(source) = &self.credentials else {
            return self.dial(None).await?.map_err(|error| unreachable(reason(&error)));
        };
        // Before the clock of a dial starts: AWS may take longer than PostgreSQL, and is bounded by itself.
        let login = source.login(&self.url, None).await.map_err(unreachable)?;
        let refused = match self.dial(Some(&login)).await? {
            Err(error) if is_refusal(&error) => error,
            outcome => return outcome.map_err(|error| unreachable(reason(&error))),
        };
        let other = source.login(&self.url, Some(&login)).await.map_err(unreachable)?;
        let outcome = if other == login { Err(refused) } else { self.dial(Some(&other)).await? };
        outcome.map_err(|error| {
            let reason = reason(&error);
            unreachable(if is_refusal(&error) { format!("{} ({reason})", source.advice()) } else { reason })
        })
    }

    async fn recycle(&self, connection: &mut Connection, _: &Metrics) -> RecycleResult<DatabaseError> {
        if connection.client.is_closed() { Err(RecycleError::message("it was closed")) } else { Ok(()) }
    }
}

impl Dialler {
    pub(super) fn new(settings: &DatabaseSettings) -> Self {
        let DatabaseSettings { url, timeout, connections: _, credentials } = settings.clone();
        Self { url, timeout, credentials, tls: OnceLock::new() }
    }

    /// A connection, or how the server came to refuse it.
    async fn dial(&self, login: Option<&Login>) -> Result<Result<Connection, tokio_postgres::Error>, DatabaseError> {
        let config = self.config(login);
        let dial = async {
            Ok(if self.url.uses_tls() {
                let tls = self.tls()?;
                connect(&config, tls).await
            } else {
                connect(&config, NoTls).await
            })
        };
        timeout(self.timeout, dial).await.unwrap_or_else(|_elapsed| Err(unreachable("no connection in time")))
    }

    fn config(&self, login: Option<&Login>) -> Config {
        let mut config = self.url.config.clone();
        config.connect_timeout(self.timeout);
        // What was sent and is not acknowledged for so long will not be: the peer went without a word.
        config.tcp_user_timeout(self.timeout);
        if config.get_application_name().is_none() {
            config.application_name("idempotent-sqs");
        }
        if let Some(Login { user, password }) = login {
            config.password(password);
            if let Some(user) = user {
                config.user(user);
            }
        }
        config
    }

    fn tls(&self) -> Result<MakeRustlsConnect, DatabaseError> {
        if let Some(tls) = self.tls.get() {
            return Ok(tls.clone());
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unreachable)?
            .with_root_certificates(self.roots()?)
            .with_no_client_auth();
        Ok(self.tls.get_or_init(|| MakeRustlsConnect::new(config)).clone())
    }

    fn roots(&self) -> Result<RootCertStore, DatabaseError> {
        let mut roots = RootCertStore::empty();
        let trusted = match &self.url.roots {
            Some(file) => {
                let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
                read.map_err(|error| unreachable(format!("the file of sslrootcert cannot be used ({error})")))?
            }
            None => rustls_native_certs::load_native_certs().certs,
        };
        // A system's store may hold a certificate that is none; the others still count.
        roots.add_parsable_certificates(trusted);
        Ok(roots)
    }
}

async fn connect<T>(config: &Config, tls: T) -> Result<Connection, tokio_postgres::Error>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, connection) = config.connect(tls).await?;
    let version = connection.parameter("server_version").unwrap_or_default();
    let major = version.split(['.', ' ']).next().and_then(|number| number.parse().ok());
    let ends_transactions = major.is_some_and(|major: u32| major >= 17);
    // Whoever waits for a reply hears how it ended.
    let task = tokio::spawn(async move { drop(connection.await) });
    Ok(Connection { client, task, statements: Mutex::default(), ends_transactions })
}

/// Whether the server refuses who we say we are.
fn is_refusal(error: &tokio_postgres::Error) -> bool {
    let refusals = [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION];
    error.code().is_some_and(|code| refusals.contains(code))
}

/// The driver's sentence with its cause; a server's refusal with its code.
fn reason(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(said), _) => format!("{} ({})", said.message(), said.code().code()),
        (None, Some(cause)) => format!("{error} ({cause})"),
        (None, None) => error.to_string(),
    }
}

fn unreachable(reason: impl Into<Box<dyn Error + Send + Sync>>) -> DatabaseError {
    DatabaseError::Unreachable(Arc::from(reason.into()))
}
