//! Authenticates each connection to Redis.
//!
//! A connection may be opened by this store, or by the cluster client itself, minutes later or after the process was
//! frozen. Both request a login from the source of credentials, so no connection uses an old one. The connections to a
//! cluster that this store opens together share one. If the process is frozen meanwhile and the login expires, the
//! server rejects it, and a new one is requested.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt as _};
use redis::{BasicAuth, ConnectionInfo, ErrorKind, RedisError, RedisResult, StreamingCredentialsProvider};
use tokio::task;
use tokio::time::timeout;

use crate::credentials::{self, CredentialsSource, Login};

/// User of a connection without a user name: <https://redis.io/docs/latest/commands/auth/>
const DEFAULT_USER: &str = "default";

/// The same server with this login, or with that of its URL.
pub(super) fn signed_in(server: ConnectionInfo, login: Option<&Login>) -> ConnectionInfo {
    let Some(login) = login else { return server };
    let settings = server.redis_settings().clone().set_username(user(login)).set_password(&login.password);
    server.set_redis_settings(settings)
}

fn user(login: &Login) -> &str {
    login.user.as_deref().unwrap_or(DEFAULT_USER)
}

/// Longest time for a source to return a login: every call waits for it. A second more than the sources of AWS take,
/// whose errors say what to check.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(4);

/// The login of a new connection.
pub(super) async fn login(source: &dyn CredentialsSource, rejected: Option<&Login>) -> RedisResult<Login> {
    let login = timeout(LOGIN_TIMEOUT, credentials::login(source, rejected)).await;
    let in_time = login.unwrap_or_else(|_elapsed| {
        Err(format!("the source of logins for Redis returned none within {} s", LOGIN_TIMEOUT.as_secs()).into())
    });
    in_time.map_err(|error| io::Error::other(error).into())
}

/// Provides the logins of the connections to a cluster's nodes. Clones share them.
///
/// While this store opens the connection to the cluster, all connections use the login that was passed to
/// [`give`](Self::give). For a connection that the cluster client opens later, the source is asked, within the timeout
/// of that connection. If the source takes longer, the call fails, and its next try opens the connection to the cluster
/// anew.
#[derive(Clone)]
pub(super) struct ClusterLogins {
    source: Arc<dyn CredentialsSource>,
    /// The login of the connections that are being opened.
    opening: Arc<Mutex<Weak<Login>>>,
}

impl ClusterLogins {
    pub(super) fn new(source: Arc<dyn CredentialsSource>) -> Self {
        Self { source, opening: Arc::default() }
    }

    /// Uses this login for each new connection, for as long as it is not dropped.
    pub(super) fn give(&self, login: &Arc<Login>) {
        *self.opening.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(login);
    }

    async fn login(&self) -> RedisResult<Login> {
        let given = self.opening.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        match given {
            Some(given) => Ok((*given).clone()),
            None => login(&*self.source, None).await,
        }
    }
}

impl StreamingCredentialsProvider for ClusterLogins {
    /// Yields one login, and only to the task that opens the connection. The client library also subscribes in a task
    /// of its own, which would authenticate the connection again: a connection whose session has ended is replaced
    /// instead.
    fn subscribe(&self) -> Pin<Box<dyn Stream<Item = RedisResult<BasicAuth>> + Send + 'static>> {
        let (logins, opened_by) = (self.clone(), task::try_id());
        let login = async move {
            if task::try_id() != opened_by {
                return pending().await;
            }
            let login = logins.login().await?;
            Ok(BasicAuth::new(user(&login).to_owned(), login.password))
        };
        // The client would log the end of the stream as an error of the connection.
        stream::once(login).chain(stream::pending()).boxed()
    }
}

/// Whether the server rejected the login.
pub(super) fn is_rejected(error: &RedisError) -> bool {
    // The cluster client keeps only the text of the error, and so does the selection of a database, which is sent
    // together with the login.
    let is_in_text =
        |detail: &str| detail.contains("AuthenticationFailed") || detail.contains("Authentication required");
    error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
        || error.detail().is_some_and(is_in_text)
}
