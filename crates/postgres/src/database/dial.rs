//! Makes connections: TLS where the URL asks for it, and a second try where the password has changed.

use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use deadpool::managed::{Manager, Metrics, RecycleError, RecycleResult};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Config, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use idempotent_sqs::credentials::{CredentialsSource, Login};

use super::connection::Connection;
use super::{DatabaseError, DatabaseSettings, DatabaseUrl};

/// Makes connections for the pool.
pub(super) struct Dialler {
    url: DatabaseUrl,
    timeout: Duration,
    credentials: Option<Arc<dyn CredentialsSource>>,
    /// Made at the first use: loading certificates takes longer than connecting.
    tls: OnceLock<MakeRustlsConnect>,
}

impl Manager for Dialler {
    type Type = Connection;
    type Error = DatabaseError;

    async fn create(&self) -> Result<Connection, DatabaseError> {
        let Some(source) = &self.credentials else {
            return self.dial(None).await?.map_err(not_connected);
        };
        // Before the clock of a dial starts: AWS may take longer than PostgreSQL, and is bounded by itself.
        let login = source.login(None).await.map_err(unreachable)?;
        let refused = match self.dial(Some(&login)).await? {
            Err(error) if is_refusal(&error) => error,
            outcome => return outcome.map_err(not_connected),
        };
        let other = source.login(Some(&login)).await.map_err(unreachable)?;
        let outcome = if other == login { Err(refused) } else { self.dial(Some(&other)).await? };
        outcome.map_err(|error| {
            if is_refusal(&error) {
                unreachable(format!("{} ({})", source.advice(), reason(&error)))
            } else {
                not_connected(error)
            }
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
            if self.url.uses_tls() {
                let tls = self.tls()?;
                connect(&config, tls).await
            } else {
                connect(&config, NoTls).await
            }
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

async fn connect<T>(config: &Config, tls: T) -> Result<Result<Connection, tokio_postgres::Error>, DatabaseError>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, connection) = match config.connect(tls).await {
        Ok(connected) => connected,
        Err(error) => return Ok(Err(error)),
    };
    let version = connection.parameter("server_version").unwrap_or_default();
    let major = major(version);
    if major.is_some_and(|major| major < OLDEST) {
        return Err(unreachable(format!("its version is {version}, and {OLDEST} or newer is needed")));
    }
    let ends_transactions = major.is_some_and(|major| major >= ENDS_TRANSACTIONS);
    // Whoever waits for a reply hears how it ended.
    let task = tokio::spawn(async move { drop(connection.await) });
    Ok(Ok(Connection::new(client, task, ends_transactions)))
}

/// The first part of a version such as `15.18 (Debian 15.18-0+deb12u1)` or `17beta1`.
fn major(version: &str) -> Option<u32> {
    version.split(|digit: char| !digit.is_ascii_digit()).next()?.parse().ok()
}

/// The first version that has `client_connection_check_interval`.
const OLDEST: u32 = 14;

/// The first version that has `transaction_timeout`.
const ENDS_TRANSACTIONS: u32 = 17;

/// A server that takes no more connections is within reach of those that stand.
fn not_connected(error: tokio_postgres::Error) -> DatabaseError {
    if error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS) { error.into() } else { unreachable(reason(&error)) }
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

#[cfg(test)]
mod tests {
    use super::major;

    #[test]
    fn a_version_of_any_form_is_read() {
        let versions =
            ["9.6.24", "13.22 (Debian 13.22-0+deb11u1)", "14.0", "15.4", "17beta1", "18devel", "", "unknown"];
        let majors = [Some(9), Some(13), Some(14), Some(15), Some(17), Some(18), None, None];
        assert_eq!(versions.map(major), majors);
    }
}
