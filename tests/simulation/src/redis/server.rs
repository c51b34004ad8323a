//! One server. `faults` has what happens to it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::cluster::{Member, PORT, are_of_several_slots};
use super::crash::Crash;
use super::keyspace::Keyspace;
use super::process::Process;
use super::resp::{Command, Reply, take_command};
use super::script::{Script, Scripts};
use crate::lock;
use crate::logins::{DEFAULT_USER, Logins};
use crate::network::{self, Accepted};
use crate::servers::Version;
use crate::trace::event;

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// A server. Clones share it.
#[derive(Clone)]
pub struct Server {
    name: String,
    pub(super) state: Arc<Mutex<State>>,
    pub(super) scripts: Arc<Mutex<Scripts>>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) keyspace: Keyspace,
    pub(super) process: Process,
    member: Option<Member>,
    pub(super) is_full: bool,
    pub(super) is_replica: bool,
    /// The reply to each script.
    pub(super) refusal: Option<&'static str>,
    /// The reply to each script without declared keys.
    pub(super) shared_refusal: Option<&'static str>,
    running: Running,
    /// Whether clients may log in with these arguments of AUTH. Without this, they need no login.
    accepts: Option<Accepts>,
    /// The reply to INFO. Without this, it is that of a safe server.
    info: Option<Reply>,
    /// The version of each start, again and again.
    pub(super) versions: VecDeque<Version>,
    pub(super) crash: Option<Crash>,
}

type Accepts = Arc<dyn Fn(&[Vec<u8>]) -> bool + Send + Sync>;

/// The script that is being executed.
#[derive(Default)]
struct Running {
    client: String,
    asking: bool,
    /// Whether a command that needs memory is rejected.
    lacks_memory: bool,
}

impl Server {
    /// Starts a server with this name.
    pub fn start(name: &str) -> Self {
        Self::start_in(name, None)
    }

    pub(super) fn start_in(name: &str, member: Option<Member>) -> Self {
        let state = Arc::new(Mutex::new(State { member, ..State::default() }));
        let of_scripts = Arc::clone(&state);
        let scripts = Scripts::new(move |command| lock(&of_scripts).execute_in_script(&command));
        let scripts = Arc::new(Mutex::new(scripts.expect("the library is valid Lua")));
        let server = Self { name: name.to_owned(), state, scripts };
        server.listen();
        server
    }

    /// Sets who may log in, and the version of each start, again and again. Without this, clients need no login.
    pub fn configure(&self, logins: &Logins, versions: &[Version]) {
        let mut state = lock(&self.state);
        let logins = logins.clone();
        state.accepts =
            logins.are_required().then(|| Arc::new(move |login: &[Vec<u8>]| logins.accept_arguments(login)) as _);
        state.versions = versions.iter().copied().collect();
        lock(&self.scripts).set_version(state.version());
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Requires this user and password of each connection.
    pub fn require_login(&self, user: Option<String>, password: String) {
        let expected = [user.unwrap_or_else(|| DEFAULT_USER.to_owned()), password].map(String::into_bytes);
        let accepts = move |login: &[Vec<u8>]| match login {
            [password] => expected[0] == DEFAULT_USER.as_bytes() && *password == expected[1],
            login => *login == expected,
        };
        lock(&self.state).accepts = Some(Arc::new(accepts));
    }

    /// Sets the reply to INFO. An error is one if it is `Err`.
    pub fn set_info(&self, info: Result<String, String>) {
        lock(&self.state).info = Some(info.map_or_else(Reply::Error, Reply::bulk));
    }

    pub(super) fn listen(&self) {
        let (server, mut streams) = (self.clone(), network::listen(&self.name));
        tokio::spawn(async move {
            while let Some(accepted) = streams.recv().await {
                tokio::spawn(server.clone().serve(accepted));
            }
        });
    }

    async fn serve(self, Accepted { client, mut stream }: Accepted) {
        let (mut received, mut asking) = (Vec::with_capacity(16_384), false);
        let accepts = lock(&self.state).accepts.clone();
        let mut is_logged_in = accepts.is_none();
        while stream.read_buf(&mut received).await.is_ok_and(|count| count > 0) {
            let (mut replies, mut commands) = (Vec::new(), Vec::new());
            while let Some(command) = take_command(&mut received) {
                let asked = std::mem::replace(&mut asking, false);
                let reply = if command[0].eq_ignore_ascii_case(b"ASKING") {
                    asking = true;
                    Reply::ok()
                } else if command[0].eq_ignore_ascii_case(b"AUTH") {
                    is_logged_in = accepts.as_ref().is_some_and(|accepts| accepts(&command[1..]));
                    if is_logged_in { Reply::ok() } else { Reply::error(WRONG_PASSWORD) }
                } else if is_logged_in {
                    self.execute(&command, asked, &client)
                } else {
                    Reply::error("NOAUTH Authentication required.")
                };
                reply.encode(&mut replies);
                commands.push(command);
            }
            if self.crashes(&commands) {
                return;
            }
            if stream.write_all(&replies).await.is_err() {
                return;
            }
        }
    }

    fn execute(&self, command: &Command, asking: bool, client: &str) -> Reply {
        let name = command[0].to_ascii_uppercase();
        match (&*name, &command[1..]) {
            (b"PING", []) => Reply::Status("PONG".to_owned()),
            (b"CLIENT" | b"SELECT" | b"READONLY", _) => Reply::ok(),
            (b"INFO", _) => {
                let state = lock(&self.state);
                let (version, process) = (state.version().name(), state.process.info(&self.name));
                let safe = || {
                    let in_cluster = u8::from(state.member.is_some());
                    let rest = format!("role:master\r\naof_enabled:1\r\ncluster_enabled:{in_cluster}\r\n");
                    Reply::bulk(format!("redis_version:{version}\r\n{process}{rest}"))
                };
                state.info.clone().unwrap_or_else(safe)
            }
            (b"ROLE", []) if lock(&self.state).is_replica => {
                let primary = [Reply::bulk("slave"), Reply::bulk("another"), Reply::Integer(PORT.into())];
                Reply::Array(primary.into_iter().chain([Reply::bulk("connected"), Reply::Integer(1)]).collect())
            }
            (b"ROLE", []) => Reply::Array(vec![Reply::bulk("master"), Reply::Integer(1), Reply::Array(Vec::new())]),
            (b"CLUSTER", [what]) if what.eq_ignore_ascii_case(b"SLOTS") => match &lock(&self.state).member {
                Some(member) => member.ranges(client),
                None => Reply::error("ERR This instance has cluster support disabled"),
            },
            (b"CLUSTER", [what]) if what.eq_ignore_ascii_case(b"NODES") => match &lock(&self.state).member {
                Some(member) => member.nodes(client),
                None => Reply::error("ERR This instance has cluster support disabled"),
            },
            (b"SCAN", arguments) => {
                let state = lock(&self.state);
                state.process.scan(&self.name, state.keyspace.live_keys(), arguments)
            }
            (b"EVAL" | b"EVALSHA", [script, count, rest @ ..]) => {
                if let Some(refusal) = lock(&self.state).refusal {
                    return Reply::error(refusal);
                }
                let script = if name == b"EVAL" {
                    lock(&self.scripts).load(&String::from_utf8_lossy(script))
                } else {
                    let script = lock(&self.scripts).get(&String::from_utf8_lossy(script));
                    script.ok_or_else(|| Reply::error("NOSCRIPT No matching script. Please use EVAL."))
                };
                let count = std::str::from_utf8(count).ok().and_then(|count| count.parse().ok());
                if let Some(refusal) = lock(&self.state).shared_refusal.filter(|_| count == Some(0)) {
                    return Reply::error(refusal);
                }
                match (script, count) {
                    (Ok(script), Some(count)) if count <= rest.len() => {
                        let (keys, arguments) = rest.split_at(count);
                        self.run(&script, keys, arguments, asking, client)
                    }
                    (Err(reply), _) => reply,
                    _ => Reply::error("ERR Number of keys can't be greater than number of args"),
                }
            }
            (_, arguments) => lock(&self.state).execute(&name, arguments, asking, client),
        }
    }

    fn run(&self, script: &Script, keys: &[Vec<u8>], arguments: &[Vec<u8>], asking: bool, client: &str) -> Reply {
        {
            let mut state = lock(&self.state);
            if let Some(rejected) = state.redirects(keys, asking, client).or_else(|| state.rejects(script)) {
                return rejected;
            }
            let allows_oom = script.flags.as_ref().is_some_and(|flags| flags.iter().any(|flag| flag == "allow-oom"));
            let lacks_memory = state.is_full && !allows_oom;
            state.running = Running { client: client.to_owned(), asking, lacks_memory };
        }
        let reply = lock(&self.scripts).run(script, keys, arguments);
        event(|| {
            let texts: Vec<_> = keys.iter().chain(arguments).map(|text| String::from_utf8_lossy(text)).collect();
            format!("{}: {texts:?} → {reply:?}", self.name)
        });
        reply
    }
}

impl State {
    pub(super) fn version(&self) -> Version {
        self.versions.front().copied().unwrap_or_default()
    }

    fn redirects(&self, keys: &[Vec<u8>], asking: bool, client: &str) -> Option<Reply> {
        self.member.as_ref()?.redirects(&self.keyspace, keys, asking, client)
    }

    /// The error if a script with these flags is not started.
    fn rejects(&self, script: &Script) -> Option<Reply> {
        let flags = script.flags.as_ref()?;
        if self.is_replica {
            return Some(Reply::error("READONLY Can not run script with write flag on readonly replica."));
        }
        let allows_oom = flags.iter().any(|flag| flag == "allow-oom");
        let why = "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'";
        (self.is_full && !allows_oom).then(|| Reply::error(why))
    }

    fn execute(&mut self, name: &[u8], arguments: &[Vec<u8>], asking: bool, client: &str) -> Reply {
        let Some(keys) = Keyspace::keys_of(name, arguments) else {
            return Reply::error(format!("ERR unknown command '{}'", String::from_utf8_lossy(name)));
        };
        if let Some(redirection) = self.redirects(keys, asking, client) {
            return redirection;
        }
        if self.is_replica && Keyspace::writes(name) {
            return Reply::error("READONLY You can't write against a read only replica.");
        }
        if self.is_full && Keyspace::needs_memory(name) {
            return Reply::error("OOM command not allowed when used memory > 'maxmemory'.");
        }
        self.keyspace.execute(name, arguments)
    }

    fn execute_in_script(&mut self, command: &[Vec<u8>]) -> Reply {
        let name = command[0].to_ascii_uppercase();
        let Running { client, asking, lacks_memory } = &self.running;
        let (client, asking, lacks_memory) = (client.clone(), *asking, *lacks_memory);
        let version = self.version();
        let Some(keys) = Keyspace::keys_of(&name, &command[1..]) else {
            return version.error_in_script("ERR Unknown Redis command called from script");
        };
        if self.member.is_some() && are_of_several_slots(keys) {
            // As nodes with Valkey 9.0 and 9.1 do until they are restarted.
            self.refusal = Some("ERR the node refuses scripts, because one had a command with keys of several slots");
        }
        if self.redirects(keys, asking, &client).is_some() {
            return version.error_in_script("ERR Script attempted to access a non local key in a cluster node");
        }
        let is_full = std::mem::replace(&mut self.is_full, lacks_memory);
        let reply = self.execute(&name, &command[1..], asking, &client);
        self.is_full = is_full;
        // After its first write, a script may always write, so that it is never executed in part.
        if Keyspace::writes(&name) && !matches!(reply, Reply::Error(_)) {
            self.running.lacks_memory = false;
        }
        match reply {
            Reply::Error(text) if text.starts_with("OOM") || text.starts_with("READONLY") => {
                version.error_in_script(&text)
            }
            reply => reply,
        }
    }
}
