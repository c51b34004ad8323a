//! Real connections: axum's server on loopback over HTTP/1.1 and HTTP/2, a real Redis, and reqwest as the client.

use std::convert::Infallible;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use bytes::Bytes;
use futures_util::StreamExt;
use harness::front::Front;
use harness::redis::Redis;
use harness::{soon, until};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use idempotent_sqs::{RedisStore, Store};
use idempotent_sqs_http::{IdempotencyLayer, IdempotencyLayerBuilder, RequestBody};
use reqwest::{Client, RequestBuilder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tower::Layer;

use crate::api::*;

/// A server of this router. It ends with its test.
struct Server {
    port: u16,
    process: JoinHandle<()>,
}

impl Server {
    async fn start<S, F, Fut>(layer: &IdempotencyLayer<S>, handler: F) -> Self
    where
        S: Store + 'static,
        F: Fn(Seen) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Response<Body>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = axum::serve(listener, router(layer.clone(), handler)).into_future();
        Self { port, process: tokio::spawn(async move { serve.await.unwrap() }) }
    }

    /// `POST /payments` with this key.
    fn pay(&self, client: &Client, key: &str) -> RequestBuilder {
        let request = client.post(format!("http://127.0.0.1:{}/payments", self.port));
        request.header("idempotency-key", key).header("content-type", "application/json").body(r#"{"amount":1250}"#)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.abort();
    }
}

/// A client of each version of HTTP.
fn clients() -> [Client; 2] {
    [Client::builder().http1_only(), Client::builder().http2_prior_knowledge()]
        .map(|builder| builder.no_proxy().build().unwrap())
}

fn on(redis: &Redis) -> IdempotencyLayerBuilder<RedisStore> {
    builder_on(redis.store())
}

#[tokio::test]
async fn of_200_concurrent_requests_with_one_key_exactly_one_runs() {
    let redis = Redis::start().await;
    for (version, client) in clients().into_iter().enumerate() {
        let runs = Runs::default();
        let counted = runs.clone();
        let server = Server::start(&on(&redis).build(), move |_| {
            let run = counted.add();
            async move {
                tokio::time::sleep(Duration::from_millis(100)).await;
                response(StatusCode::CREATED, format!("run {run}"))
            }
        })
        .await;
        let mut requests = JoinSet::new();
        for _ in 0..200 {
            let request = server.pay(&client, &format!("concurrent-{version}"));
            requests.spawn(async move {
                let answer = request.send().await.unwrap();
                let (status, retry_after) = (answer.status().as_u16(), answer.headers().contains_key("retry-after"));
                (status, retry_after, answer.bytes().await.unwrap())
            });
        }
        for (status, retry_after, body) in soon(requests.join_all()).await {
            assert!(status == 201 && body == "run 1" || status == 409 && retry_after, "{status} {body:?}");
        }
        assert_eq!(runs.count(), 1);
        let again = server.pay(&client, &format!("concurrent-{version}")).send().await.unwrap();
        assert_eq!(
            (again.status().as_u16(), again.headers()["idempotent-replayed"].as_bytes()),
            (201, b"true".as_slice())
        );
    }
}

#[tokio::test]
async fn a_client_that_is_gone_in_mid_work_does_not_cut_it_off() {
    let redis = Redis::start().await;
    for (version, client) in clients().into_iter().enumerate() {
        let [started, open] = [Arc::new(Notify::new()), Arc::new(Notify::new())];
        let (starts, opens) = (Arc::clone(&started), Arc::clone(&open));
        let layer = on(&redis).build();
        let server = Server::start(&layer, move |_| {
            starts.notify_one();
            let opens = Arc::clone(&opens);
            async move {
                opens.notified().await;
                response(StatusCode::CREATED, "done")
            }
        })
        .await;
        let key = format!("gone-{version}");
        let request = tokio::spawn(server.pay(&client, &key).send());
        soon(started.notified()).await;
        request.abort();
        assert!(request.await.unwrap_err().is_cancelled());
        // The server has noticed once it has handled a later request on the same connection or on a new one.
        assert_eq!(server.pay(&client, &key).send().await.unwrap().status(), 409);
        open.notify_one();
        soon(layer.drained()).await;
        let again = server.pay(&client, &key).send().await.unwrap();
        assert_eq!((again.status().as_u16(), again.bytes().await.unwrap()), (201, Bytes::from("done")));
    }
}

#[tokio::test]
async fn a_request_body_that_arrives_slowly_holds_no_lease_and_runs_when_it_is_whole() {
    let redis = Redis::start().await;
    let runs = Runs::default();
    let counted = runs.clone();
    let server = Server::start(&on(&redis).build(), move |seen: Seen| {
        counted.add();
        async { response(StatusCode::CREATED, seen.body) }
    })
    .await;
    let mut slow = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
    slow.write_all(b"POST /payments HTTP/1.1\r\nhost: a\r\nidempotency-key: slow\r\ncontent-length: 4\r\n\r\nab")
        .await
        .unwrap();
    let client = &clients()[0];
    let fast = server.pay(client, "slow").body("abcd").send().await.unwrap();
    // Another content type, so another request: it runs first, and the slow one does not match.
    assert_eq!((fast.status().as_u16(), runs.count()), (201, 1));
    slow.write_all(b"cd").await.unwrap();
    let mut head = [0; 12];
    slow.read_exact(&mut head).await.unwrap();
    assert_eq!((&head, runs.count()), (b"HTTP/1.1 422", 1));
    // A client that gives up in the middle of its body has no effect.
    let mut gone = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
    gone.write_all(b"POST /payments HTTP/1.1\r\nhost: a\r\nidempotency-key: gone\r\ncontent-length: 4\r\n\r\nab")
        .await
        .unwrap();
    drop(gone);
    assert_eq!(server.pay(client, "gone").send().await.unwrap().status(), 201);
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn a_slow_response_is_kept_whole_and_an_endless_one_is_not_run_again() {
    let redis = Redis::start().await;
    for (version, client) in clients().into_iter().enumerate() {
        let runs = Runs::default();
        let counted = runs.clone();
        let server = Server::start(&on(&redis).build(), move |seen: Seen| {
            counted.add();
            let is_endless = seen.attempt.unwrap().client_key.starts_with("endless");
            let chunks = futures_util::stream::unfold(0, move |number| async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                (is_endless || number < 20).then(|| (Ok::<_, std::io::Error>(Bytes::from("data: 1\n\n")), number + 1))
            });
            let content_type = if is_endless { "text/event-stream" } else { "text/plain" };
            let response = Response::builder().header("content-type", content_type).body(Body::from_stream(chunks));
            async { response.unwrap() }
        })
        .await;
        let [slow, endless] = [format!("slow-{version}"), format!("endless-{version}")];
        for _ in 0..2 {
            let answer = soon(server.pay(&client, &slow).send()).await.unwrap();
            assert_eq!(answer.bytes().await.unwrap().len(), 20 * 9);
        }
        let events = soon(server.pay(&client, &endless).send()).await.unwrap();
        assert_eq!(events.bytes_stream().next().await.unwrap().unwrap(), "data: 1\n\n");
        let again = soon(server.pay(&client, &endless).send()).await.unwrap();
        assert_eq!(again.headers()["idempotent-body-omitted"], "true");
        assert_eq!((again.status().as_u16(), again.bytes().await.unwrap().len(), runs.count()), (200, 0, 2));
    }
}

#[tokio::test]
async fn lost_replies_of_redis_run_nothing_twice() {
    let redis = Redis::start().await;
    let front = Front::to(redis.port()).await;
    let store = harness::redis::store(&format!("redis://127.0.0.1:{}", front.port), false);
    let runs = Runs::default();
    let counted = runs.clone();
    let layer = builder_on(store).store_timeout(Duration::from_secs(4)).build();
    let server = Server::start(&layer, move |_| {
        counted.add();
        async { response(StatusCode::CREATED, "done") }
    })
    .await;
    let client = &clients()[0];
    assert_eq!(server.pay(client, "before").send().await.unwrap().status(), 201);
    front.drop_replies(true);
    let lost = server.pay(client, "lost").send().await.unwrap();
    assert_eq!((lost.status().as_u16(), runs.count()), (503, 1));
    front.drop_replies(false);
    // Until the lost acquire is released, the key may be in flight.
    until(|| async { server.pay(client, "lost").send().await.unwrap().status() == 201 }).await;
    assert_eq!(runs.count(), 2);
    let again = server.pay(client, "lost").send().await.unwrap();
    assert_eq!((again.headers()["idempotent-replayed"].as_bytes(), runs.count()), (b"true".as_slice(), 2));
}

#[tokio::test]
async fn the_layer_serves_hyper_without_axum() {
    let inner = tower::service_fn(async |request: Request<RequestBody<Incoming>>| {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Ok::<_, Infallible>(Response::new(Full::new(body)))
    });
    let service = TowerToHyperService::new(builder().build().layer(inner));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let process = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let service = service.clone();
            connections.spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                // A client may close its connection at any time.
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    let server = Server { port, process };
    for (version, client) in clients().into_iter().enumerate() {
        for replayed in [false, true] {
            let answer = server.pay(&client, &version.to_string()).send().await.unwrap();
            assert_eq!(
                (answer.status().as_u16(), answer.headers().contains_key("idempotent-replayed")),
                (200, replayed)
            );
            assert_eq!(answer.bytes().await.unwrap(), r#"{"amount":1250}"#);
        }
        // Passed on without a key.
        let get = client.get(format!("http://127.0.0.1:{}/", server.port)).body("plain").send().await.unwrap();
        assert_eq!(get.bytes().await.unwrap(), "plain");
    }
}
