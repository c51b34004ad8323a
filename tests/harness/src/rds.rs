//! RDS with IAM authentication: a TLS proxy in front of a real server that accepts every connection. It checks the
//! token of each connection:
//! <https://www.postgresql.org/docs/current/protocol-message-formats.html>

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::postgres::Base;
use super::sigv4::Presigned;
use super::tls::Tls;

/// A token that a client sent, and why it was rejected.
#[derive(Clone, Debug)]
pub struct Token {
    pub text: String,
    pub fault: Option<&'static str>,
}

pub struct Rds {
    port: u16,
    tokens: Arc<Mutex<Vec<Token>>>,
    cut: Arc<Notify>,
    certificate: PathBuf,
    _directory: TempDir,
    _running: JoinSet<()>,
}

impl Rds {
    /// A proxy in front of the server of this database.
    pub async fn in_front_of(base: &Base) -> Self {
        let (tls, directory) = (Tls::of_all_tests().await, tempfile::tempdir().unwrap());
        let certificate = tls.authority_in(&directory);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, behind) = (listener.local_addr().unwrap().port(), base.port);
        let (tokens, cut) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let (seen, told) = (Arc::clone(&tokens), Arc::clone(&cut));
        let mut running = JoinSet::new();
        running.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let (seen, told) = (Arc::clone(&seen), Arc::clone(&told));
                connections.spawn(async move {
                    tokio::select! {
                        _ended = pass(near, tls, port, behind, &seen) => {}
                        () = told.notified() => {}
                    }
                });
            }
        });
        Self { port, tokens, cut, certificate, _directory: directory, _running: running }
    }

    pub fn url(&self, base: &Base) -> String {
        let roots = self.certificate.to_str().unwrap();
        format!("{}?sslmode=verify-full&sslrootcert={roots}", base.url_by(self.port))
    }

    pub fn tokens(&self) -> Vec<Token> {
        self.tokens.lock().unwrap().clone()
    }

    /// Closes all open connections.
    pub fn cut(&self) {
        self.cut.notify_waiters();
    }
}

async fn pass(
    mut near: TcpStream,
    tls: &Tls,
    port: u16,
    behind: u16,
    tokens: &Mutex<Vec<Token>>,
) -> std::io::Result<()> {
    assert_eq!(read(&mut near).await?, 80_877_103_u32.to_be_bytes(), "an SSLRequest");
    near.write_all(b"S").await?;
    let mut near = tls.acceptor.accept(near).await?;
    let startup = read(&mut near).await?;
    // AuthenticationCleartextPassword
    near.write_all(b"R\0\0\0\x08\0\0\0\x03").await?;
    assert_eq!(near.read_u8().await?, b'p');
    let password = read(&mut near).await?;
    let text = String::from_utf8(password[..password.len() - 1].to_vec()).unwrap();
    let fault = fault(&text, port);
    tokens.lock().unwrap().push(Token { text, fault });
    if fault.is_some() {
        let error = b"SFATAL\0VFATAL\0C28000\0MPAM authentication failed for user \"app\"\0\0";
        let length = u32::try_from(error.len()).unwrap() + 4;
        near.write_all(&[&b"E"[..], &length.to_be_bytes(), error].concat()).await?;
        return near.shutdown().await;
    }
    let mut far = TcpStream::connect(("127.0.0.1", behind)).await?;
    let length = u32::try_from(startup.len()).unwrap() + 4;
    far.write_all(&[&length.to_be_bytes()[..], &startup].concat()).await?;
    copy_bidirectional(&mut near, &mut far).await.map(drop)
}

/// Reads the content of a message.
async fn read(from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Vec<u8>> {
    let length = usize::try_from(from.read_u32().await?).unwrap();
    let mut content = vec![0; length - 4];
    from.read_exact(&mut content).await?;
    Ok(content)
}

/// The fault for which RDS would reject a token.
fn fault(token: &str, port: u16) -> Option<&'static str> {
    let Some(request) = Presigned::new(token) else { return Some("not a presigned request") };
    let now = SystemTime::now();
    [
        (request.host == format!("127.0.0.1:{port}"), "another server"),
        (request.parameter("Action") == "connect", "another action"),
        (request.parameter("DBUser") == "app", "another user"),
        (request.scope().ends_with("/eu-central-1/rds-db/aws4_request"), "another region or service"),
        (request.parameter("X-Amz-Expires") == "900", "not valid for 15 minutes"),
        (request.signed_at() <= now && now < request.ends_at(), "not yet valid, or expired"),
        (request.is_signed_with("test"), "wrong signature"),
    ]
    .into_iter()
    .find_map(|(holds, fault)| (!holds).then_some(fault))
}
