//! A pooler between the inbox and PostgreSQL, and the texts that are prepared because of it.

use std::collections::HashSet;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::outdated::deliver_until_prepared;
use super::sessions::{Sql, ask, one_connection};
use super::*;

/// Reads a message of the PostgreSQL protocol, with its type and length.
async fn message(from: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut message = vec![0; 5];
    from.read_exact(&mut message).await.unwrap();
    let length = u32::from_be_bytes(message[1..].try_into().unwrap());
    message.resize(length as usize + 1, 0);
    from.read_exact(&mut message[5..]).await.unwrap();
    message
}

/// A pooler whose session another client has started with another encoding, and in which it has executed a statement. It
/// sets the encoding of the client that gets the session, as `PgBouncer` does.
async fn pooler_of_a_latin1_session(base: &Base, executed: &'static str) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (port, server_port) = (listener.local_addr().unwrap().port(), base.port);
    let parameters = format!("user\0app\0database\0{}\0client_encoding\0LATIN1\0\0", base.name);
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let length = client.read_u32().await.unwrap();
        client.read_exact(&mut vec![0; length as usize - 4]).await.unwrap();
        let mut server = TcpStream::connect(("127.0.0.1", server_port)).await.unwrap();
        server.write_u32(u32::try_from(parameters.len()).unwrap() + 8).await.unwrap();
        server.write_all(&[b"\0\x03\0\0", parameters.as_bytes()].concat()).await.unwrap();
        let mut greeting = message(&mut server).await;
        while greeting[0] != b'Z' {
            client.write_all(&greeting).await.unwrap();
            greeting = message(&mut server).await;
        }
        for statement in [executed, "SET client_encoding = 'UTF8'"] {
            let length = u32::try_from(statement.len()).unwrap() + 5;
            let query = [b"Q".as_slice(), &length.to_be_bytes(), statement.as_bytes(), b"\0"].concat();
            server.write_all(&query).await.unwrap();
            while message(&mut server).await[0] != b'Z' {}
        }
        client.write_all(&greeting).await.unwrap();
        let _ = copy_bidirectional(&mut client, &mut server).await;
    });
    port
}

#[tokio::test]
async fn a_key_is_the_same_through_a_pooler_whose_session_has_another_encoding() {
    let base = base().await;
    let port = pooler_of_a_latin1_session(&base, "SELECT 1").await;
    let inbox = inbox(Pay::default(), one_connection(&base.url_by(port)));
    assert_eq!(done(&deliver(&flushed(), &inbox, "größe").await), "receipt of größe".as_bytes());
    assert_eq!(duplicate(&deliver(&flushed(), &inbox, "größe").await), "receipt of größe".as_bytes());
    assert_eq!(base.count(EFFECTS).await, 1);
}

#[tokio::test]
async fn a_session_keeps_a_limited_number_of_prepared_statements() {
    let base = base().await;
    let database = one_connection(&base.url());
    let statements: Vec<&'static str> = (0..700).map(|n| &*format!("SELECT '{n}'").leak()).collect();
    assert_eq!(ask(&database, statements).await, "699");
    let kept = ask(&database, vec!["SELECT count(*)::text FROM pg_prepared_statements"]).await;
    assert!(kept.parse::<u32>().unwrap() <= 260, "{kept}");
    // If the work has few statements, they stay prepared.
    let often = "SELECT count(*)::text FROM pg_prepared_statements WHERE statement LIKE '%this one%'";
    assert_eq!([ask(&database, vec![often]).await, ask(&database, vec![often]).await], ["1", "1"]);
}

/// A database whose new sessions log what they prepare.
async fn with_log() -> Base {
    let base = base().await;
    let log = format!("ALTER DATABASE {} SET log_min_duration_statement = 0", base.name);
    base.client.batch_execute(&log).await.unwrap();
    base
}

/// The endings of the texts under which this statement was prepared, by the log of the server.
async fn prepared(base: &Base, statement: &str) -> Vec<String> {
    let log = "SELECT pg_read_file(current_setting('data_directory') || '/../log')";
    let log: String = base.client.query_one(log, &[]).await.unwrap().get(0);
    // The name of the statement is s0, s1 and so on.
    let texts = log.split("  parse s").filter_map(|text| text.split_once(": ")?.1.strip_prefix(statement));
    texts.map(|ending| ending.split("*/").next().unwrap_or_default().to_owned()).collect()
}

/// A pooler answers a text that any client has prepared before with the old statement.
#[tokio::test]
async fn a_statement_is_prepared_once_for_each_connection_with_a_text_that_no_other_one_sends() {
    let base = with_log().await;
    for database in [one_connection(&base.url()), one_connection(&base.url())] {
        for _ in 0..2 {
            ask(&database, vec!["SELECT 'the same' -- twice"]).await;
        }
    }
    let texts = prepared(&base, "SELECT 'the same' -- twice").await;
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert_ne!(texts[0], texts[1]);
}

/// Executes a statement with a parameter, and reads the row of another one.
struct ExecutesAndReads(&'static str, &'static str);

impl TransactionalWork<Message> for ExecutesAndReads {
    async fn run(&self, transaction: &Transaction, _: &Claim, _: &Message) -> Result<Vec<u8>, WorkError> {
        transaction.execute(self.0, &[&true]).await?;
        transaction.query(self.1, &[]).await?;
        Ok(Vec::new())
    }
}

/// In another session, parameters and columns may have other types. So the types of parameters are read, and are part of
/// what is prepared. A statement with another name shows the pooler.
#[tokio::test]
async fn behind_a_pooler_a_statement_is_prepared_with_its_types_and_at_each_use_if_its_rows_are_read() {
    let base = with_log().await;
    let port = pooler_of_a_latin1_session(&base, "PREPARE PGBOUNCER_1 AS SELECT 1").await;
    let pooled = one_connection(&base.url_by(port));
    for (database, executed, read, times) in [
        (pooled, "SELECT $1::bool, 'behind a pooler'", "SELECT 'read behind a pooler'", (2, 3)),
        (one_connection(&base.url()), "SELECT $1::bool, 'directly'", "SELECT 'read directly'", (1, 1)),
    ] {
        let work = inbox(ExecutesAndReads(executed, read), database);
        for key in ["a", "b", "c"] {
            done(&deliver(&flushed(), &work, &format!("{key} {read}")).await);
        }
        assert_eq!((prepared(&base, executed).await.len(), prepared(&base, read).await.len()), times, "{read}");
    }
}

/// The look for a pooler fails the first transaction, which begins again.
#[tokio::test]
async fn a_user_who_may_not_list_prepared_statements_is_served() {
    let base = base().await;
    let user = format!("unlisted_{}", base.name);
    let rights = format!(
        "CREATE ROLE {user} LOGIN; GRANT ALL ON idempotency_inbox, effects TO {user}; \
         REVOKE SELECT ON pg_prepared_statements FROM PUBLIC"
    );
    base.client.batch_execute(&rights).await.unwrap();
    let inbox = inbox(Pay::default(), one_connection(&base.url().replace("app@", &format!("{user}@"))));
    let report = deliver(&flushed(), &inbox, "pay_1").await;
    assert_eq!((done(&report), report.attempts), (b"receipt of pay_1".as_slice(), Some(1)));
}

#[tokio::test]
async fn an_outdated_statement_is_prepared_at_each_use_with_another_text() {
    let base = with_log().await;
    let all = inbox(Sql(vec!["SELECT * FROM effects"], None), one_connection(&base.url()));
    for (key, column) in [("before", "one"), ("after", "two"), ("later", "three")] {
        deliver_until_prepared(&all, key).await;
        base.client.batch_execute(&format!("ALTER TABLE effects ADD {column} text")).await.unwrap();
    }
    let texts = prepared(&base, "SELECT * FROM effects").await;
    assert_eq!((texts.len(), texts.iter().collect::<HashSet<_>>().len()), (3, 3), "{texts:?}");
}
