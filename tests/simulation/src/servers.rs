//! What a seed chooses of the servers of Redis: how clients log in, their versions, and whether they crash.

use std::time::Duration;

use history::Rng;

/// How clients log in: <https://redis.io/docs/latest/operate/oss_and_stack/management/security/acl/>.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginKind {
    None,
    /// One password, which is replaced at times.
    Password,
    /// Each connection has a token of its own, which is valid for a short time.
    Token,
}

/// A version, as far as scripts depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// Redis 6.2: no flags in the first line of a script, and errors of commands are texts.
    Six,
    /// A release candidate of Redis 7.0, which does not know every flag.
    Candidate,
    #[default]
    Eight,
}

#[derive(Clone, Debug)]
pub struct Servers {
    pub logins: LoginKind,
    /// The user of a login. `None` is the default user.
    pub user: Option<String>,
    /// How long a session may last, if there is a limit.
    pub max_session: Option<Duration>,
    /// The version of each start of a server, again and again.
    pub versions: Vec<Version>,
    /// Whether servers crash right after they have executed a command.
    pub crash: bool,
    /// Whether servers refuse calls at times, as they do while they load their records.
    pub refuses: bool,
    /// Whether many messages are sent, received and processed at once, so that their records share calls in a cluster.
    pub shares_calls: bool,
}

impl Servers {
    /// These choices have random numbers of their own: the other choices of a seed do not depend on them.
    pub fn of(seed: u64, servers: usize, is_quiet: bool) -> Self {
        use Version::{Candidate, Eight, Six};
        let rng = &mut Rng::new(seed ^ 0x106e);
        let logins = *rng.pick(&[LoginKind::None, LoginKind::None, LoginKind::Password, LoginKind::Token]);
        let session = rng.ms(2000..8000);
        let versions: &[&[Version]] =
            &[&[Eight], &[Eight], &[Eight], &[Eight], &[Six], &[Six, Eight], &[Eight, Six], &[Candidate]];
        Self {
            logins,
            user: (logins == LoginKind::Token || rng.happens(500)).then(|| "payments".to_owned()),
            max_session: (logins == LoginKind::Token).then_some(session),
            versions: rng.pick(versions).to_vec(),
            crash: rng.happens(if servers > 1 { 800 } else { 400 }) && !is_quiet,
            shares_calls: rng.happens(600) && servers > 1,
            refuses: rng.happens(300) && !is_quiet,
        }
    }
}
