//! Logins at Redis: a password that is replaced, or a token for each connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use history::{Rng, monotonic_us};
use idempotent_sqs::RedisSettings;
use idempotent_sqs::credentials::{CredentialsSource, Login, LoginFuture};
use tokio::time::sleep;

use crate::network;
use crate::plan::Plan;
use crate::servers::{LoginKind, Servers};
use crate::trace::event;

/// How long a token is valid: longer than it takes to open a connection. ElastiCache's are valid for 15 minutes.
const TOKEN_LASTS_US: u64 = 2_000_000;

/// The user of a connection that names none.
pub const DEFAULT_USER: &str = "default";

/// What the servers accept. Clones share it.
#[derive(Clone, Debug)]
pub struct Logins {
    kind: LoginKind,
    user: Option<String>,
    max_session: Option<Duration>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// The number of the password that the servers accept.
    accepted: u64,
    /// The number of the password that sources read.
    stored: u64,
    /// When each token was issued, µs.
    tokens: Vec<u64>,
    /// The clients for whose next connection a login was provided.
    provided: Vec<String>,
    rng: Rng,
}

impl Logins {
    pub fn new(servers: &Servers, seed: u64) -> Self {
        let rng = Rng::new(seed ^ 0xa074);
        let state = State { accepted: 0, stored: 0, tokens: Vec::new(), provided: Vec::new(), rng };
        let Servers { logins, user, max_session, .. } = servers.clone();
        Self { kind: logins, user, max_session, state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn are_required(&self) -> bool {
        self.kind != LoginKind::None
    }

    /// Whether the servers accept this login.
    fn accept(&self, user: Option<&str>, password: &str) -> bool {
        let state = self.lock();
        user.unwrap_or(DEFAULT_USER) == self.user.as_deref().unwrap_or(DEFAULT_USER)
            && match self.kind {
                LoginKind::None => false,
                LoginKind::Password => password == password_of(state.accepted),
                LoginKind::Token => {
                    let number = password.strip_prefix("token").and_then(|number| number.parse::<usize>().ok());
                    let issued_us = number.and_then(|number| state.tokens.get(number));
                    issued_us.is_some_and(|issued_us| monotonic_us() < issued_us + TOKEN_LASTS_US)
                }
            }
    }

    /// Whether the servers accept these arguments of AUTH.
    pub fn accept_arguments(&self, arguments: &[Vec<u8>]) -> bool {
        let texts: Vec<_> = arguments.iter().map(|text| String::from_utf8_lossy(text)).collect();
        match &*texts {
            [password] => self.accept(None, password),
            [user, password] => self.accept(Some(user), password),
            _ => false,
        }
    }

    /// The servers accept another password from now on.
    pub fn replace_password(&self) {
        event(|| "FAULT the password is replaced".to_owned());
        self.lock().accepted += 1;
    }

    /// Sources read the accepted password from now on.
    pub fn store_password(&self) {
        let state = &mut *self.lock();
        state.stored = state.accepted;
    }

    /// The clients for whose connections a login was provided up to now, once for each.
    pub fn provided(&self) -> Vec<String> {
        self.lock().provided.clone()
    }

    /// The settings of a client that connects to this server first.
    pub fn settings(&self, plan: &Plan, server: &str, client: &str, namespace: &str) -> RedisSettings {
        let url = format!("redis://{}", network::address(server, client));
        let mut settings = RedisSettings::new(url.parse().expect("this is a valid URL"), namespace);
        settings.cluster = plan.servers > 1;
        settings.credentials = self.source(client);
        settings
    }

    /// The source of a process. `None` if no login is required.
    fn source(&self, client: &str) -> Option<Arc<dyn CredentialsSource>> {
        let (logins, client) = (self.clone(), client.to_owned());
        self.are_required().then(|| Arc::new(Source { logins, client, cached: tokio::sync::Mutex::default() }) as _)
    }
}

fn password_of(number: u64) -> String {
    format!("password{number}")
}

/// As the sources of AWS: a password is read once, and again after it was rejected; each token is new.
#[derive(Debug)]
struct Source {
    logins: Logins,
    client: String,
    cached: tokio::sync::Mutex<Option<String>>,
}

impl Source {
    async fn password(&self, rejected: Option<&Login>) -> String {
        if self.logins.kind == LoginKind::Token {
            let tokens = &mut self.logins.lock().tokens;
            tokens.push(monotonic_us());
            return format!("token{}", tokens.len() - 1);
        }
        let mut cached = self.cached.lock().await;
        let rejected = rejected.map(|login| &login.password);
        cached.take_if(|known| Some(&*known) == rejected);
        if cached.is_none() {
            let takes = self.logins.lock().rng.ms(1..30);
            sleep(takes).await;
            *cached = Some(password_of(self.logins.lock().stored));
        }
        cached.clone().unwrap_or_default()
    }
}

impl CredentialsSource for Source {
    fn login<'a>(&'a self, rejected: Option<&'a Login>) -> LoginFuture<'a> {
        Box::pin(async move {
            let login = Login { user: self.logins.user.clone(), password: self.password(rejected).await };
            if rejected != Some(&login) {
                self.logins.lock().provided.push(self.client.clone());
            }
            Ok(login)
        })
    }

    fn max_session(&self) -> Option<Duration> {
        self.logins.max_session
    }
}
