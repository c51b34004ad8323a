//! The password of a user, which is replaced now and then.

use std::sync::{Arc, Mutex};

use harness::torture::tally::lock;
use idempotent_sqs::credentials::{CredentialsSource, Login, LoginFuture};

use super::kind::User;

/// The password that the server accepts.
#[derive(Clone, Debug)]
pub(crate) struct Passwords(Arc<Mutex<String>>);

impl Passwords {
    pub(crate) fn new(password: &str) -> Self {
        Self(Arc::new(Mutex::new(password.to_owned())))
    }

    /// The server accepts another one from now on.
    pub(crate) fn replace(&self, password: &str) {
        password.clone_into(&mut lock(&self.0));
    }

    /// The source of one owner.
    pub(crate) fn source(&self) -> Cached {
        Cached { current: self.clone(), known: Mutex::new(lock(&self.0).clone()) }
    }
}

/// Returns the password that it knows until that is rejected.
#[derive(Debug)]
pub(crate) struct Cached {
    current: Passwords,
    known: Mutex<String>,
}

impl CredentialsSource for Cached {
    fn login<'a>(&'a self, rejected: Option<&'a Login>) -> LoginFuture<'a> {
        let current = lock(&self.current.0).clone();
        let mut known = lock(&self.known);
        if rejected.is_some_and(|rejected| rejected.password == *known) {
            *known = current;
        }
        let login = Login { user: Some(User::Payer.name().to_owned()), password: known.clone() };
        Box::pin(async move { Ok(login) })
    }
}
