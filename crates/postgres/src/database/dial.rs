//! Opens connections, with TLS if the URL requires it, and with a second login if the first was rejected.

use std::error::Error;
use std::future::poll_fn;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use deadpool::managed::{Manager, Metrics, RecycleError, RecycleResult};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use idempotent_sqs::credentials::{self, CredentialsSource, Login, session_has_ended};

use super::connection::Connection;
#[cfg(feature = "simulation")]
use super::simulation;
use super::{DatabaseError, DatabaseSettings, DatabaseUrl, roots};
use crate::sqlstate;

/// Opens connections for the pool.
pub(super) struct Dialer {
    url: DatabaseUrl,
    timeout: Duration,
    credentials: Option<Arc<dyn CredentialsSource>>,
    /// Initialized at its first use, because loading the certificates takes longer than connecting.
    tls: OnceLock<MakeRustlsConnect>,
}

impl Manager for Dialer {
    type Type = Connection;
    type Error = DatabaseError;

    async fn create(&self) -> Result<Connection, DatabaseError> {
        let Some(source) = &self.credentials else {
            return self.dial(None).await?.map_err(not_connected);
        };
        // Outside the timeout of the connection: the source may call AWS, and has its own timeout.
        let login = credentials::login(&**source, None).await.map_err(unreachable)?;
        let rejected = match self.dial(Some(&login)).await? {
            Err(error) if is_login_rejected(&error) => error,
            outcome => return outcome.map_err(not_connected),
        };
        let other = credentials::login(&**source, Some(&login)).await.map_err(unreachable)?;
        let outcome = if other == login { Err(rejected) } else { self.dial(Some(&other)).await? };
        outcome.map_err(|error| {
            if is_login_rejected(&error) {
                unreachable(format!("{} ({})", source.advice(), reason(&error)))
            } else {
                not_connected(error)
            }
        })
    }

    async fn recycle(&self, connection: &mut Connection, _: &Metrics) -> RecycleResult<DatabaseError> {
        if connection.client.is_closed() {
            return Err(RecycleError::message("the connection was closed"));
        }
        let longest = self.credentials.as_ref().and_then(|source| source.max_session());
        if longest.is_some_and(|longest| session_has_ended(connection.opened, longest)) {
            return Err(RecycleError::message("its session has ended"));
        }
        Ok(())
    }
}

impl Dialer {
    pub(super) fn new(settings: DatabaseSettings) -> Self {
        let DatabaseSettings { url, timeout, connections: _, credentials } = settings;
        Self { url, timeout, credentials, tls: OnceLock::new() }
    }

    /// Opens a connection to the first host that accepts it. The inner error is one of the server or the driver.
    async fn dial(&self, login: Option<&Login>) -> Result<Result<Connection, tokio_postgres::Error>, DatabaseError> {
        let tls = if self.url.uses_tls() { Some(self.tls()?) } else { None };
        let (ends, mut outcome) = (Instant::now() + self.timeout, Err(not_in_time(self.timeout)));
        let hosts = &self.url.configs;
        let left = (1..=u32::try_from(hosts.len()).unwrap_or(u32::MAX)).rev();
        for (host, left) in hosts.iter().zip(left) {
            // An equal share of the time that is left, because a host that does not reply uses all of its own.
            let share = ends.saturating_duration_since(Instant::now()) / left;
            let dialed = timeout(share, Box::pin(self.dial_host(host, login, tls.clone()))).await;
            let dialed = dialed.unwrap_or_else(|_elapsed| Err(not_in_time(self.timeout)));
            if matches!(dialed, Ok(Ok(_))) {
                return dialed;
            }
            // The error of a standby, for example, says less than that of the primary.
            if !matches!(&outcome, Ok(Err(error)) if is_about_user(error)) {
                outcome = dialed;
            }
        }
        outcome
    }

    async fn dial_host(
        &self,
        host: &Config,
        login: Option<&Login>,
        tls: Option<MakeRustlsConnect>,
    ) -> Result<Result<Connection, tokio_postgres::Error>, DatabaseError> {
        let config = self.config(host, login);
        #[cfg(feature = "simulation")]
        if let Some(dial) = simulation::dial() {
            return connect(simulation::connect(&config, dial)).await;
        }
        match tls {
            Some(tls) => connect(config.connect(tls)).await,
            None => connect(config.connect(NoTls)).await,
        }
    }

    fn config(&self, host: &Config, login: Option<&Login>) -> Config {
        let mut config = host.clone();
        config.connect_timeout(self.timeout);
        // Ends the connection if the peer does not acknowledge data for this long.
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
        let roots = roots::trusted(&self.url)
            .map_err(|error| unreachable(format!("sslrootcert is not a readable PEM file ({error})")))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unreachable)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // `sslnegotiation=direct` requires it: https://www.postgresql.org/docs/17/protocol-flow.html#PROTOCOL-FLOW-SSL
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(self.tls.get_or_init(|| MakeRustlsConnect::new(config)).clone())
    }
}

async fn connect<S, T>(
    connecting: impl Future<Output = Result<(Client, tokio_postgres::Connection<S, T>), tokio_postgres::Error>>,
) -> Result<Result<Connection, tokio_postgres::Error>, DatabaseError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let opened = SystemTime::now();
    let (client, mut connection) = match connecting.await {
        Ok(connected) => connected,
        Err(error) => return Ok(Err(error)),
    };
    let version = connection.parameter("server_version").unwrap_or_default();
    let major = major(version);
    if major.is_some_and(|major| major < OLDEST_VERSION) {
        return Err(unreachable(format!("its version is {version}; upgrade it to {OLDEST_VERSION} or newer")));
    }
    let has_transaction_timeout = major.is_some_and(|major| major >= TRANSACTION_TIMEOUT_VERSION);
    // Its error is also returned to the callers that wait for replies. It is not awaited as a future, because that logs
    // the notices of the server, which may have values of rows.
    let drive = async move { while let Some(Ok(_)) = poll_fn(|context| connection.poll_message(context)).await {} };
    Ok(Ok(Connection::new(client, tokio::spawn(drive), opened, has_transaction_timeout)))
}

/// The first part of a version such as `15.18 (Debian 15.18-0+deb12u1)` or `17beta1`.
fn major(version: &str) -> Option<u32> {
    version.split(|digit: char| !digit.is_ascii_digit()).next()?.parse().ok()
}

/// The first version that has `client_connection_check_interval`.
const OLDEST_VERSION: u32 = 14;

/// The first version that has `transaction_timeout`.
const TRANSACTION_TIMEOUT_VERSION: u32 = 17;

/// `too_many_connections` is not an outage: open connections still work.
fn not_connected(error: tokio_postgres::Error) -> DatabaseError {
    if code(&error) == Some(sqlstate::TOO_MANY_CONNECTIONS) { error.into() } else { unreachable(reason(&error)) }
}

/// Whether the server can be reached and refuses this login, or has too many connections.
fn is_about_user(error: &tokio_postgres::Error) -> bool {
    is_login_rejected(error) || code(error) == Some(sqlstate::TOO_MANY_CONNECTIONS)
}

/// Whether the server rejects the user or the password.
fn is_login_rejected(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|error| match error.code().code() {
        sqlstate::INVALID_PASSWORD | sqlstate::INVALID_AUTHORIZATION_SPECIFICATION => true,
        // All errors of PgBouncer at the login have this code.
        sqlstate::PROTOCOL_VIOLATION => error.message().contains("authentication failed"),
        _ => false,
    })
}

fn code(error: &tokio_postgres::Error) -> Option<&str> {
    error.code().map(SqlState::code)
}

/// The message of the driver with its cause, or that of the server with its SQLSTATE.
fn reason(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(server), _) => format!("{} ({})", server.message(), server.code().code()),
        (None, Some(cause)) => format!("{error} ({cause})"),
        (None, None) => error.to_string(),
    }
}

/// No connection could be opened within this time.
pub(super) fn not_in_time(timeout: Duration) -> DatabaseError {
    unreachable(format!("no connection within {} ms", timeout.as_millis()))
}

fn unreachable(reason: impl Into<Box<dyn Error + Send + Sync>>) -> DatabaseError {
    DatabaseError::Unreachable(Arc::from(reason.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_parsed() {
        let versions =
            ["9.6.24", "13.22 (Debian 13.22-0+deb11u1)", "14.0", "15.4", "17beta1", "18devel", "", "unknown"];
        let majors = [Some(9), Some(13), Some(14), Some(15), Some(17), Some(18), None, None];
        assert_eq!(versions.map(major), majors);
    }
}
