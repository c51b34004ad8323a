//! ElastiCache with IAM authentication: a TLS proxy in front of a real server. It replaces a valid token by the
//! server's password, and any other token by a wrong password.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::redis::{Redis, connect, free_port};
use super::sigv4::Presigned;
use super::soon;
use super::tls::Tls;

/// The only user of a cache.
pub const USER: &str = "payments";

/// Name of every cache.
pub const CACHE: &str = "idempotency";

/// The user by which a test sets up the cluster.
const ADMIN: &str = "admin";

/// Options of the servers of a cluster.
const CLUSTER: &[&str] = &["--cluster-enabled", "yes"];

/// Password of the real server.
const PASSWORD: &str = "server-password";

/// A token that a client sent.
#[derive(Clone, Debug)]
pub struct Token {
    pub text: String,
    pub connected_at: SystemTime,
    /// In whole seconds.
    pub signed_at: SystemTime,
    /// Why it was rejected; `None` if it is valid.
    pub fault: Option<&'static str>,
}

/// One node: the proxy and its server.
pub struct Node {
    port: u16,
    tokens: Arc<watch::Sender<Vec<Token>>>,
    cut: Arc<Notify>,
    server: Redis,
    _running: JoinSet<()>,
}

/// A cache: one server, or a cluster of two.
pub struct ElastiCache {
    pub nodes: Vec<Node>,
    certificate: PathBuf,
    _directory: TempDir,
}

impl ElastiCache {
    pub async fn start() -> Self {
        Self::of(1, false, &[]).await
    }

    /// A serverless cache: a cluster with one address.
    pub async fn start_serverless() -> Self {
        let cache = Self::of(1, true, CLUSTER).await;
        let node = &cache.nodes[0];
        node.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
        super::until(async || node.command(&["CLUSTER", "INFO"]).await.contains("cluster_state:ok")).await;
        cache
    }

    pub async fn start_cluster() -> Self {
        let cluster = Self::of(2, false, CLUSTER).await;
        let (first, second) = (&cluster.nodes[0], &cluster.nodes[1]);
        for (node, slots) in [(first, ["0", "8191"]), (second, ["8192", "16383"])] {
            node.command(&["CLUSTER", "ADDSLOTSRANGE", slots[0], slots[1]]).await;
        }
        let (port, bus) = (second.server.port().to_string(), second.bus().await);
        first.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await;
        for node in &cluster.nodes {
            super::until(async || node.command(&["CLUSTER", "INFO"]).await.contains("cluster_state:ok")).await;
        }
        cluster
    }

    async fn of(nodes: usize, serverless: bool, options: &[&str]) -> Self {
        let (tls, directory) = (Tls::of_all_tests().await, tempfile::tempdir().unwrap());
        let certificate = tls.authority_in(&directory);
        let mut cache = Self { nodes: Vec::new(), certificate, _directory: directory };
        for _ in 0..nodes {
            cache.nodes.push(Node::start(tls.acceptor.clone(), serverless, options).await);
        }
        cache
    }

    pub fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.nodes[0].port)
    }

    /// Path of the certificate authority that a function must trust.
    pub fn certificate(&self) -> &str {
        self.certificate.to_str().unwrap()
    }
}

impl Node {
    async fn start(acceptor: TlsAcceptor, serverless: bool, options: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (front, bus) = (port.to_string(), free_port().to_string());
        let in_a_cluster =
            ["--cluster-announce-port", &front, "--cluster-port", &bus, "--cluster-announce-bus-port", &bus];
        let password = format!(">{PASSWORD}");
        let others = ["--user", ADMIN, "on", &password, "~*", "+@all", "--user", "default", "off"];
        let user = ["--user", USER, &password];
        let server = Redis::start_with(&[options, &in_a_cluster, &others, &user, &rights()].concat()).await;
        let (tokens, cut) = (Arc::new(watch::Sender::new(Vec::new())), Arc::new(Notify::new()));
        let (behind, seen, told) = (server.port(), Arc::clone(&tokens), Arc::clone(&cut));
        let mut running = JoinSet::new();
        running.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let (acceptor, seen, told) = (acceptor.clone(), Arc::clone(&seen), Arc::clone(&told));
                connections.spawn(async move {
                    tokio::select! {
                        () = pass(near, &acceptor, behind, serverless, &seen) => {}
                        () = told.notified() => {}
                    }
                });
            }
        });
        Self { port, tokens, cut, server, _running: running }
    }

    /// Closes all open connections.
    pub fn cut(&self) {
        self.cut.notify_waiters();
    }

    pub fn tokens(&self) -> Vec<Token> {
        self.tokens.borrow().clone()
    }

    /// Waits for a token on a connection opened since this time, and returns all tokens.
    pub async fn tokens_since(&self, time: SystemTime) -> Vec<Token> {
        let mut tokens = self.tokens.subscribe();
        soon(tokens.wait_for(|tokens| tokens.iter().any(|token| token.connected_at >= time))).await.unwrap().clone()
    }

    /// Sends a command to the server as its administrator.
    async fn command(&self, command: &[&str]) -> String {
        let url = format!("redis://{ADMIN}:{PASSWORD}@127.0.0.1:{}", self.server.port());
        let mut connection = connect(url).await;
        redis::cmd(command[0]).arg(&command[1..]).query_async(&mut connection).await.unwrap()
    }

    async fn bus(&self) -> String {
        let nodes = self.command(&["CLUSTER", "NODES"]).await;
        nodes.split(['@', ',', ' ']).nth(2).unwrap().to_owned()
    }
}

/// The access string of docs/identity.md, without a command that requires Redis 7.2. A client continues if it may not
/// send that command.
fn rights() -> Vec<&'static str> {
    let rights = include_str!("../../../docs/identity.md").split("--access-string \"").nth(1).unwrap();
    rights.split('"').next().unwrap().split(' ').filter(|right| *right != "+client|setinfo").collect()
}

async fn pass(
    near: TcpStream,
    acceptor: &TlsAcceptor,
    behind: u16,
    serverless: bool,
    tokens: &watch::Sender<Vec<Token>>,
) {
    let connected_at = SystemTime::now();
    // A client that does not trust the certificate ends the connection here.
    let Ok(near) = acceptor.accept(near).await else { return };
    let Ok(mut far) = TcpStream::connect(("127.0.0.1", behind)).await else { return };
    let (mut from_near, mut to_near) = tokio::io::split(near);
    let (mut from_far, mut to_far) = far.split();
    let commands = async {
        while let Some(mut command) = read_command(&mut from_near).await {
            if let [name, user, token] = command.as_mut_slice()
                && name.eq_ignore_ascii_case(b"AUTH")
            {
                let text = String::from_utf8(token.clone()).unwrap();
                let fault = fault(&String::from_utf8_lossy(user), &text, serverless);
                *token = if fault.is_none() { PASSWORD } else { "no password" }.into();
                let signed_at = Presigned::new(&text).map_or(SystemTime::UNIX_EPOCH, |token| token.signed_at());
                tokens.send_modify(|tokens| tokens.push(Token { text, connected_at, signed_at, fault }));
            }
            let mut passed = format!("*{}\r\n", command.len()).into_bytes();
            for word in &command {
                passed.extend([format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat());
            }
            if to_far.write_all(&passed).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = commands => {}
        _ = tokio::io::copy(&mut from_far, &mut to_near) => {}
    }
}

/// The fault for which ElastiCache would reject a token.
fn fault(user: &str, token: &str, serverless: bool) -> Option<&'static str> {
    let Some(request) = Presigned::new(token) else { return Some("not a presigned request") };
    let now = SystemTime::now();
    let kind = if serverless { "ServerlessCache" } else { "" };
    [
        (request.host == CACHE, "another cache"),
        (request.parameter("Action") == "connect", "another action"),
        (request.parameter("ResourceType") == kind, "another kind of cache"),
        (user == USER && request.parameter("User") == USER, "another user"),
        (request.scope().ends_with("/eu-central-1/elasticache/aws4_request"), "another region or service"),
        (request.parameter("X-Amz-Expires") == "900", "not valid for 15 minutes"),
        (request.signed_at() <= now && now < request.ends_at(), "not yet valid, or expired"),
        (request.is_signed_with("test"), "wrong signature"),
    ]
    .into_iter()
    .find_map(|(holds, fault)| (!holds).then_some(fault))
}

/// Reads the next command.
async fn read_command(from: &mut (impl AsyncRead + Unpin)) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    for _ in 0..read_number(from, b'*').await? {
        let mut word = vec![0; read_number(from, b'$').await? + 2];
        from.read_exact(&mut word).await.ok()?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Some(words)
}

async fn read_number(from: &mut (impl AsyncRead + Unpin), mark: u8) -> Option<usize> {
    assert_eq!(from.read_u8().await.ok()?, mark);
    let mut number = 0;
    loop {
        match from.read_u8().await.ok()? {
            b'\r' => {}
            b'\n' => return Some(number),
            digit => number = 10 * number + usize::from(digit - b'0'),
        }
    }
}
