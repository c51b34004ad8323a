//! Connections that break or go silent, servers that restart or are too old, TLS, and passwords.

use super::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use harness::front::Front;
use harness::redis::{closed_port, free_port};
use idempotent_sqs::credentials::{CredentialsSource, Login, LoginFuture};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A database with this timeout.
fn impatient(url: &str, timeout: Duration) -> Database {
    let mut settings = database_settings(url);
    settings.timeout = timeout;
    Database::new(&settings)
}

fn reason(error: &StoreError) -> String {
    let source = std::error::Error::source(error).unwrap();
    source.to_string()
}

#[tokio::test]
async fn an_unreachable_database_is_not_a_failure_of_the_delivery() {
    let base = base().await;
    let port = free_port();
    let inbox = inbox(Pay::default(), impatient(&base.url_by(port), SECOND));
    let idempotency = flushed();
    for _ in 0..7 {
        let error = try_run(&idempotency, &inbox).await.unwrap_err();
        assert!(error.is_unavailable() && reason(&error).contains("cannot connect to PostgreSQL"), "{error:?}");
    }
    let _front = Front::on(port, base.port).await;
    let report = run(&idempotency, &inbox).await;
    done(&report);
    assert_eq!((report.attempts, report.recovery), (Some(1), false), "the outages were not counted");
}

/// The URL of the database with hosts of these ports.
fn url_by_ports(base: &Base, [first, second]: [u16; 2]) -> String {
    let own = format!("127.0.0.1:{}", base.port);
    base.url().replace(&own, &format!("127.0.0.1:{first},127.0.0.1:{second}"))
}

#[tokio::test]
async fn the_next_host_of_the_url_is_used_if_one_refuses_connections_or_does_not_reply() {
    let (base, silent) = (base().await, TcpListener::bind("127.0.0.1:0").await.unwrap());
    for port in [closed_port(), silent.local_addr().unwrap().port()] {
        let url = url_by_ports(&base, [port, base.port]);
        done(&deliver(&flushed(), &inbox(Pay::default(), impatient(&url, 2 * SECOND)), &url).await);
    }
}

#[tokio::test]
async fn the_next_host_of_the_url_is_used_if_one_refuses_the_user() {
    let (other, base) = (Postgres::start(), base().await);
    // The other server has no such database user.
    let url = url_by_ports(&base, [other.port, base.port]).replace("app@", "payer_of_one_server@");
    base.client.batch_execute("CREATE ROLE payer_of_one_server LOGIN SUPERUSER").await.unwrap();
    done(&run(&flushed(), &inbox(Pay::default(), database(&url))).await);
}

/// Open connections still work, so it is no outage.
#[tokio::test]
async fn that_a_host_has_too_many_connections_is_not_hidden_by_the_error_of_another() {
    let base = base().await;
    let full = server_that_rejects("53300", "sorry, too many clients already").await;
    for ports in [[full, closed_port()], [closed_port(), full]] {
        let inbox = inbox(Pay::default(), database(&url_by_ports(&base, ports)));
        let reason = unavailable(&run(&flushed(), &inbox).await);
        assert!(reason.contains("53300"), "{reason}");
    }
}

#[tokio::test]
async fn the_next_host_of_the_url_is_used_if_one_accepts_no_writes() {
    let (standby, base) = (Postgres::start_with(&["default_transaction_read_only=on"]), base().await);
    let operator = harness::postgres::connect(standby.port, "postgres").await;
    operator.batch_execute("SET default_transaction_read_only = off").await.unwrap();
    operator.batch_execute(&format!("CREATE DATABASE {}", base.name)).await.unwrap();
    let url = url_by_ports(&base, [standby.port, base.port]);
    done(&run(&flushed(), &inbox(Pay::default(), database(&url))).await);
}

#[tokio::test]
async fn a_silent_connection_is_replaced_in_time() {
    let base = base().await;
    let front = Front::to(base.port).await;
    let inbox = inbox(Pay::default(), impatient(&base.url_by(front.port), Duration::from_millis(500)));
    let warm_up = ["a", "b", "c", "d"].map(|key| {
        let inbox = &inbox;
        async move { drop(deliver(&flushed(), inbox, key).await) }
    });
    futures_util::future::join_all(warm_up).await;
    assert!(front.connections() > 1, "one connection alone would not show that the second try opens a new one");
    // Open connections are silent from here on. New ones go to another proxy, as after a failover.
    let other = Front::to(base.port).await;
    front.forward_to(other.port);
    front.freeze();
    let began = Instant::now();
    done(&deliver(&flushed(), &inbox, "after").await);
    assert!(began.elapsed() < 10 * SECOND, "{:?}", began.elapsed());
    assert_eq!(base.count(EFFECTS).await, 5);
}

#[tokio::test]
async fn the_wait_for_a_silent_server_ends_before_the_deadline() {
    let base = base().await;
    let front = Front::to(base.port).await;
    let inbox = inbox(Pay::default(), impatient(&base.url_by(front.port), 60 * SECOND));
    done(&deliver(&flushed(), &inbox, "before").await);
    front.drop_replies(true);
    let (idempotency, began) = (flushed(), Instant::now());
    let short = delivery("pay_1").deadline(Deadline::within(2 * SECOND));
    let error = idempotency.run(&short, &inbox, &Message::default()).await.unwrap_err();
    assert!(error.is_unavailable() && began.elapsed() < 2 * SECOND, "{error:?} after {:?}", began.elapsed());
}

/// Runs a work on a connection that becomes silent while the work waits at the gate. The report must come long before
/// the deadline.
async fn run_into_silence(inbox: &impl Work<Message>, front: &Front, gate: &Gate) -> Report {
    let idempotency = flushed();
    let silence = async {
        gate.reached.notified().await;
        front.drop_replies(true);
        gate.open.notify_one();
    };
    soon(async { tokio::join!(run(&idempotency, inbox), silence) }).await.0
}

#[tokio::test]
async fn a_work_that_fails_on_a_silent_connection_does_not_wait_until_the_deadline() {
    let (base, gate) = (base().await, Arc::new(Gate::default()));
    let front = Front::to(base.port).await;
    let fails: fn() -> WorkError = || WorkError::permanent("no such account");
    let refuses = Pay { after: Some(gate.clone()), fails: Some(fails), ..Pay::default() };
    let inbox = inbox(refuses, impatient(&base.url_by(front.port), 2 * SECOND));
    let (kind, reason) = failure(&run_into_silence(&inbox, &front, &gate).await);
    assert!(kind == UNCERTAIN && reason.contains("did not say whether it had executed COMMIT"), "{reason}");
}

/// Fails permanently, which it cannot record. Waits before it says so.
struct Unrecorded(Arc<Gate>);

impl TransactionalWork<Message> for Unrecorded {
    async fn run(&self, _: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        Err(WorkError::permanent("no such account"))
    }

    async fn record_failure(&self, _: &Transaction, _: &Claim, _: &Message, _: &WorkError) -> Result<(), WorkError> {
        self.0.pass().await;
        Err(WorkError::unavailable("no audit log"))
    }
}

#[tokio::test]
async fn a_rollback_on_a_silent_connection_does_not_wait_until_the_deadline() {
    let (base, gate) = (base().await, Arc::new(Gate::default()));
    let front = Front::to(base.port).await;
    let inbox = inbox(Unrecorded(gate.clone()), impatient(&base.url_by(front.port), 2 * SECOND));
    assert_eq!(unavailable(&run_into_silence(&inbox, &front, &gate).await), "no audit log");
}

#[tokio::test]
async fn a_server_that_restarts_is_not_counted_as_an_attempt() {
    let mut server = Postgres::start();
    let url = {
        let base = Base::on(&server).await;
        base.client.batch_execute(&migration()).await.unwrap();
        base.client.batch_execute("CREATE TABLE effects (key text NOT NULL, fence bigint NOT NULL)").await.unwrap();
        base.url()
    };
    let inbox = inbox(Pay::default(), impatient(&url, 2 * SECOND));
    let idempotency = flushed();
    done(&deliver(&idempotency, &inbox, "before").await);
    server.kill();
    let error = try_run(&idempotency, &inbox).await.unwrap_err();
    assert!(error.is_unavailable());
    server.restart();
    let report = run(&idempotency, &inbox).await;
    done(&report);
    assert_eq!(report.attempts, Some(1));
    duplicate(&deliver(&flushed(), &inbox, "before").await);
}

#[tokio::test]
async fn a_standby_is_unavailable_until_it_is_promoted() {
    let mut server = Postgres::start();
    let base = Base::on(&server).await;
    base.client.batch_execute(&migration()).await.unwrap();
    base.client.batch_execute("CREATE TABLE effects (key text NOT NULL, fence bigint NOT NULL)").await.unwrap();
    base.client.batch_execute("CHECKPOINT").await.unwrap();
    let inbox = inbox(Pay::default(), impatient(&base.url(), 2 * SECOND));
    let idempotency = flushed();
    done(&deliver(&idempotency, &inbox, "before").await);
    server.kill();
    server.put("standby.signal", b"");
    server.restart();
    for _ in 0..7 {
        let error = try_run(&idempotency, &inbox).await.unwrap_err();
        assert!(error.is_unavailable() && reason(&error).contains("25006"), "{error:?}");
    }
    connect(server.port, &base.name).await.execute("SELECT pg_promote()", &[]).await.unwrap();
    let report = run(&idempotency, &inbox).await;
    done(&report);
    assert_eq!(report.attempts, Some(1));
}

#[tokio::test]
async fn a_connection_to_a_server_that_accepts_no_more_writes_is_replaced_within_the_attempt() {
    let (old, base) = (Postgres::start(), base().await);
    connect(old.port, "postgres").await.batch_execute(&format!("CREATE DATABASE {}", base.name)).await.unwrap();
    let operator = connect(old.port, &base.name).await;
    operator.batch_execute(&migration()).await.unwrap();
    operator.batch_execute("CREATE TABLE effects (key text NOT NULL, fence bigint NOT NULL)").await.unwrap();
    let front = Front::to(old.port).await;
    let inbox = inbox(Pay::default(), impatient(&base.url_by(front.port), 2 * SECOND));
    done(&deliver(&flushed(), &inbox, "before").await);
    // The address leads to another server, and the open connection stays on the old one.
    front.forward_to(base.port);
    operator.batch_execute("ALTER SYSTEM SET default_transaction_read_only = on").await.unwrap();
    operator.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let setting = "SELECT current_setting('default_transaction_read_only')";
    until(|| async { operator.query_one(setting, &[]).await.unwrap().get::<_, &str>(0) == "on" }).await;
    done(&run(&flushed(), &inbox).await);
    assert_eq!(base.count(EFFECTS).await, 1);
}

/// A server of this version that accepts logins and then does not reply.
async fn greet_as(version: &'static str) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let length = client.read_u32().await.unwrap();
            client.read_exact(&mut vec![0; length as usize - 4]).await.unwrap();
            // Authenticated; the version; ready for a query.
            let mut greeting = b"R\0\0\0\x08\0\0\0\0S\0\0\0".to_vec();
            let status = format!("server_version\0{version}\0");
            greeting.push(u8::try_from(status.len() + 4).unwrap());
            greeting.extend([status.as_bytes(), b"Z\0\0\0\x05I"].concat());
            client.write_all(&greeting).await.unwrap();
            client.read_to_end(&mut Vec::new()).await.unwrap();
        }
    });
    port
}

#[tokio::test]
async fn a_server_that_is_too_old_is_an_error_that_names_the_required_version() {
    for (version, is_too_old) in [("13.22 (Debian 13.22-0+deb11u1)", true), ("9.6.24", true), ("14.0", false)] {
        let port = greet_as(version).await;
        let url = format!("postgres://app@127.0.0.1:{port}/payments");
        let error = try_run(&flushed(), &inbox(Pay::default(), impatient(&url, SECOND))).await.unwrap_err();
        assert_eq!(reason(&error).contains("14 or newer"), is_too_old, "{version}: {error:?}");
    }
}

#[tokio::test]
async fn tls_verifies_the_root_certificates_and_the_host_name() {
    let directory = tempfile::tempdir().unwrap();
    let files = redis_test::utils::build_keys_and_certs_for_tls(&directory);
    let mut server = Postgres::start();
    let read = |path| std::fs::read(path).unwrap();
    server.put("server.crt", &read(&files.redis_crt));
    server.put("server.key", &read(&files.redis_key));
    server.restart_with(&["ssl=on"]);
    let base = Base::on(&server).await;
    base.client.batch_execute(&migration()).await.unwrap();
    base.client.batch_execute("CREATE TABLE effects (key text NOT NULL, fence bigint NOT NULL)").await.unwrap();
    let roots = files.ca_crt.to_str().unwrap();
    let try_url = |url: String| {
        let inbox = inbox(Pay::default(), impatient(&url, 5 * SECOND));
        async move { try_run(&flushed(), &inbox).await }
    };
    let unknown = try_url(format!("{}?sslmode=verify-full", base.url())).await.unwrap_err();
    assert!(reason(&unknown).contains("certificate"), "{unknown:?}");
    let misnamed = format!("{}?sslmode=require&sslrootcert={roots}", base.url().replace("127.0.0.1", "127.0.0.2"));
    assert!(try_url(misnamed).await.is_err());
    assert_eq!(base.count(EFFECTS).await, 0);
    done(&try_url(format!("{}?sslmode=verify-full&sslrootcert={roots}", base.url())).await.unwrap());
    let missing = try_url(format!("{}?sslmode=verify-full&sslrootcert=/nowhere.pem", base.url())).await.unwrap_err();
    assert!(reason(&missing).contains("sslrootcert"), "{missing:?}");
}

#[tokio::test]
async fn the_current_password_is_fetched_for_each_connection() {
    let mut server = Postgres::start();
    {
        let base = Base::on(&server).await;
        base.client.batch_execute("CREATE ROLE payer LOGIN PASSWORD 'second-secret'").await.unwrap();
    }
    server.put("pg_hba.conf", b"host all payer 127.0.0.1/32 scram-sha-256\nhost all app 127.0.0.1/32 trust\n");
    server.restart_with(&[]);
    let base = Base::on(&server).await;
    base.client.batch_execute(&migration()).await.unwrap();
    let rights = "CREATE TABLE effects (key text NOT NULL, fence bigint NOT NULL); GRANT ALL ON ALL TABLES IN SCHEMA public TO payer";
    base.client.batch_execute(rights).await.unwrap();
    let source = Arc::new(Rotated::default());
    let mut settings = database_settings(&base.url());
    settings.credentials = Some(source.clone());
    let inbox = inbox(Pay::default(), Database::new(&settings));
    *source.password.lock().unwrap() = Err("the secret store is unreachable");
    let error = try_run(&flushed(), &inbox).await.unwrap_err();
    assert!(reason(&error).contains("secret store"), "{error:?}");
    *source.password.lock().unwrap() = Ok("first-secret");
    let error = try_run(&flushed(), &inbox).await.unwrap_err();
    assert!(reason(&error).contains("28P01") && !format!("{error:?}").contains("first-secret"), "{error:?}");
    assert!(reason(&error).contains(source.advice()), "{error:?}");
    *source.password.lock().unwrap() = Ok("second-secret");
    done(&run(&flushed(), &inbox).await);
    let asked = source.asked.load(Ordering::SeqCst);
    done(&deliver(&flushed(), &inbox, "pay_2").await);
    assert_eq!(source.asked.load(Ordering::SeqCst), asked, "an open connection needs no password");
    let login = source.login(None).await.unwrap();
    assert!(!format!("{settings:?} {:?} {login:?}", Database::new(&settings)).contains("secret"));
}

#[tokio::test]
async fn a_password_is_fetched_again_if_the_server_rejected_it() {
    let mut server = Postgres::start();
    {
        let base = Base::on(&server).await;
        base.client.batch_execute("CREATE ROLE payer LOGIN SUPERUSER PASSWORD 'new'").await.unwrap();
    }
    server.put("pg_hba.conf", b"host all payer 127.0.0.1/32 scram-sha-256\nhost all app 127.0.0.1/32 trust\n");
    server.restart_with(&[]);
    let base = Base::on(&server).await;
    base.client.batch_execute(&migration()).await.unwrap();
    base.client.batch_execute("CREATE TABLE effects (key text NOT NULL, fence bigint NOT NULL)").await.unwrap();
    let source = Arc::new(Replaced::default());
    let with_url = |url: &str| {
        let settings = with!(database_settings(url), credentials = Some(source.clone() as Arc<dyn CredentialsSource>));
        inbox(Pay::default(), Database::new(&settings))
    };
    try_run(&flushed(), &with_url(&base.url_by(closed_port()))).await.unwrap_err();
    assert_eq!(source.rejected.load(Ordering::SeqCst), 0);
    done(&run(&flushed(), &with_url(&base.url())).await);
    assert_eq!(source.rejected.load(Ordering::SeqCst), 1);
    // The error of another host does not hide it.
    for (ports, rejected) in [([base.port, closed_port()], 2), ([closed_port(), base.port], 3)] {
        let url = url_by_ports(&base, ports);
        done(&deliver(&flushed(), &with_url(&url), &format!("pay_{rejected}")).await);
        assert_eq!(source.rejected.load(Ordering::SeqCst), rejected);
    }
}

/// A server that rejects each login with this SQLSTATE and message.
async fn server_that_rejects(code: &'static str, message: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let length = client.read_u32().await.unwrap();
            client.read_exact(&mut vec![0; length as usize - 4]).await.unwrap();
            let fields = format!("SFATAL\0C{code}\0M{message}\0\0");
            let length = u32::try_from(fields.len()).unwrap() + 4;
            let reply = [b"E", length.to_be_bytes().as_slice(), fields.as_bytes()].concat();
            client.write_all(&reply).await.unwrap();
        }
    });
    port
}

#[tokio::test]
async fn a_password_is_fetched_again_if_a_pooler_rejected_it() {
    let base = base().await;
    for (message, rejected) in [
        ("SASL authentication failed", 1),
        ("password authentication failed", 1),
        ("no such database: payments", 0),
        ("query_wait_timeout", 0),
    ] {
        // The errors of PgBouncer at the login have this code.
        let url = base.url_by(server_that_rejects("08P01", message).await);
        let source = Arc::new(Replaced::default());
        let credentials = Some(source.clone() as Arc<dyn CredentialsSource>);
        let settings = with!(database_settings(&url), credentials = credentials);
        let error = try_run(&flushed(), &inbox(Pay::default(), Database::new(&settings))).await.unwrap_err();
        assert!(error.is_unavailable() && reason(&error).contains(message), "{error:?}");
        assert_eq!(source.rejected.load(Ordering::SeqCst), rejected, "{message}");
    }
}

/// Returns an old password until it is rejected.
#[derive(Debug, Default)]
struct Replaced {
    rejected: AtomicUsize,
}

impl CredentialsSource for Replaced {
    fn login<'a>(&'a self, rejected: Option<&'a Login>) -> LoginFuture<'a> {
        self.rejected.fetch_add(rejected.iter().count(), Ordering::SeqCst);
        let password = if rejected.is_some() { "new" } else { "old" };
        Box::pin(async move { Ok(Login { user: Some("payer".into()), password: password.into() }) })
    }
}

#[tokio::test]
async fn a_dropped_attempt_closes_its_session_during_a_statement() {
    let base = base().await;
    let sleeps = Pay { also: Some("SELECT pg_sleep(600)"), ..Pay::default() };
    let (inbox, idempotency) = (inbox(sleeps, impatient(&base.url(), SECOND)), flushed());
    let asleep = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND \
                  query LIKE 'SELECT pg_sleep(600)%' AND pid <> pg_backend_pid()";
    tokio::select! {
        report = run(&idempotency, &inbox) => panic!("{report:?}"),
        () = until_count(&base, asleep, 1) => {}
    }
    until_count(&base, asleep, 0).await;
}

/// Takes this long, as a secret may that is read over a new connection.
#[derive(Debug)]
struct Slow(Duration);

impl CredentialsSource for Slow {
    fn login<'a>(&'a self, _: Option<&'a Login>) -> LoginFuture<'a> {
        Box::pin(async move {
            tokio::time::sleep(self.0).await;
            Ok(Login { user: None, password: String::new() })
        })
    }
}

#[tokio::test]
async fn fetching_a_password_may_exceed_the_timeout_of_the_database() {
    let base = base().await;
    let mut settings = database_settings(&base.url());
    settings.timeout = SECOND;
    settings.credentials = Some(Arc::new(Slow(3 * SECOND / 2)));
    done(&run(&flushed(), &inbox(Pay::default(), Database::new(&settings))).await);
}

/// Returns the password that the test has set.
#[derive(Debug)]
struct Rotated {
    password: Mutex<Result<&'static str, &'static str>>,
    asked: AtomicUsize,
}

impl Default for Rotated {
    fn default() -> Self {
        Self { password: Mutex::new(Ok("")), asked: AtomicUsize::new(0) }
    }
}

impl CredentialsSource for Rotated {
    fn login<'a>(&'a self, _: Option<&'a Login>) -> LoginFuture<'a> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let password = *self.password.lock().unwrap();
        Box::pin(async move { Ok(Login { user: Some("payer".into()), password: password?.into() }) })
    }
}

/// As the AWS SDK does if no certificate can be loaded.
#[derive(Debug)]
struct Panics;

impl CredentialsSource for Panics {
    fn login<'a>(&'a self, _: Option<&'a Login>) -> LoginFuture<'a> {
        panic!("no certificate")
    }
}

#[tokio::test]
async fn a_login_that_panics_is_no_attempt_because_nothing_began() {
    let base = base().await;
    let mut settings = database_settings(&base.url());
    settings.credentials = Some(Arc::new(Panics));
    let idempotency = flushed();
    let first = try_run(&idempotency, &inbox(Pay::default(), Database::new(&settings))).await;
    assert!(format!("{first:?}").contains("check that SSL_CERT_FILE"), "{first:?}");
    let second = run(&idempotency, &inbox(Pay::default(), Database::new(&database_settings(&base.url())))).await;
    assert_eq!((second.attempts, second.recovery), (Some(1), false), "{first:?} {second:?}");
}
