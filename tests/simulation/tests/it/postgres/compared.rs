//! The simulated server replies as a real one.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use harness::postgres::Base;
use simulation::network;
use simulation::postgres::Server;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::client::{Client, Stream};
use super::scripts::SCRIPTS;

/// As `effects` of the simulation, and its trigger.
const DEFINITIONS: &str = "
    CREATE TABLE effects (id bigserial, consumer text, key text, fence bigint, payload text);
    CREATE FUNCTION keep_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RETURN CASE WHEN current_setting('app.keeps_row', true) = 'yes' THEN NULL ELSE NEW END;
    END $$;
    CREATE TRIGGER keep_row BEFORE UPDATE ON idempotency_inbox FOR EACH ROW EXECUTE FUNCTION keep_row();";

/// What the sessions of a script reply. A step that waits has no reply yet.
async fn replies<F: Future<Output = Client>>(steps: &[(&str, &str)], begin: impl Fn() -> F) -> Vec<String> {
    const WAIT: Duration = Duration::from_millis(250);
    const LONGEST: Duration = Duration::from_secs(30);
    let (mut clients, mut all) = (BTreeMap::new(), Vec::new());
    for (session, statement) in steps {
        let (name, how) = session.split_at(1);
        if how == "!" {
            // Its stream ends.
            clients.remove(name);
            continue;
        }
        if !clients.contains_key(name) {
            clients.insert(name, begin().await);
        }
        let client = clients.get_mut(name).unwrap();
        if how != "<" {
            client.send(statement).await;
        }
        let (longest, without) = if how == "~" { (WAIT, "waits") } else { (LONGEST, "no reply") };
        let reply = timeout(longest, client.replies()).await.unwrap_or_else(|_elapsed| without.to_owned());
        all.push(format!("{session} {statement} → {reply}"));
    }
    all
}

#[test]
fn scripts_have_the_same_replies_of_a_real_server() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let real = runtime.block_on(join_all(SCRIPTS.iter().map(async |(_, steps)| {
        let base = Base::with_inbox().await;
        base.client.batch_execute(DEFINITIONS).await.unwrap();
        let begin = async || {
            let stream = TcpStream::connect(("127.0.0.1", base.port)).await.unwrap();
            Client::begin(Box::new(stream) as Box<dyn Stream>, &base.name).await
        };
        replies(steps, begin).await
    })));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let simulated = runtime.block_on(join_all((0..).zip(SCRIPTS).map(async |(number, (_, steps))| {
        let host = format!("postgres-{number}");
        let _server = Server::start(&host);
        let begin = async || {
            let stream = network::connect(&network::address(&host, "test")).await.unwrap();
            Client::begin(Box::new(stream) as Box<dyn Stream>, "test").await
        };
        replies(steps, begin).await
    })));
    let mut wrong = Vec::new();
    for ((name, _), (real, simulated)) in SCRIPTS.iter().zip(real.iter().zip(&simulated)) {
        for (real, simulated) in real.iter().zip(simulated) {
            if real != simulated || real.ends_with("no reply") {
                wrong.push(format!("{name}\n  real:      {real}\n  simulated: {simulated}\n"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}
