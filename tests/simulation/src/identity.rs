//! The sources of logins at AWS: how often they ask AWS, which login they return, and what an error says:
//! docs/identity.md.
//!
//! - `tokens`: IAM authentication tokens of ElastiCache and RDS
//! - `secrets`: passwords in Secrets Manager
//! - `silence`: a source that never returns a login

mod secrets;
mod silence;
mod tokens;

use futures_util::future::join_all;
use idempotent_sqs::aws::CREDENTIALS_TIMEOUT;
use idempotent_sqs::credentials::{CredentialsSource, Login, login};
use idempotent_sqs::idempotency::error_chain;
use tokio::time::Instant;

pub use secrets::read_secrets;
pub use silence::wait_for_login;
pub use tokens::sign_tokens;

/// Number of sources of each kind, and of the times at which each is asked.
const SOURCES: usize = 4;
const TIMES: usize = 8;

/// The region of the process.
const REGION: &str = "eu-central-1";

/// No error may contain this part of passwords and secret keys.
const HIDDEN: &str = "hidden";

/// Asks for so many logins at the same time. Returns each one, or its error with the causes, and adds to `wrong` if
/// they take too long or if an error has a secret.
async fn logins(
    source: &dyn CredentialsSource,
    rejected: Option<&Login>,
    callers: usize,
    wrong: &mut Vec<String>,
) -> Vec<Result<Login, String>> {
    let begun = Instant::now();
    let logins = join_all((0..callers).map(|_| login(source, rejected))).await;
    let longest = CREDENTIALS_TIMEOUT * u32::try_from(callers).unwrap_or(u32::MAX);
    if begun.elapsed() > longest {
        wrong.push(format!("{callers} logins took {:?}", begun.elapsed()));
    }
    let logins: Vec<_> = logins.into_iter().map(|login| login.map_err(|error| error_chain(&*error))).collect();
    wrong
        .extend(logins.iter().filter_map(|login| login.as_ref().err()).filter(|error| error.contains(HIDDEN)).cloned());
    logins
}

/// What an answer must be: a login, or an error that contains one of these texts.
#[derive(Clone, Debug)]
enum Expected<L> {
    Login(L),
    Error(&'static [&'static str]),
}
