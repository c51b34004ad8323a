//! Results that take a noticeable part of the timeout to send.

use std::sync::Arc;

use idempotent_sqs::idempotency::{Deadline, Delivery, Idempotency, Key, Outcome, Policy, WorkError, work_fn};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use super::*;

/// Forwards requests at this many bytes per second, together over all connections. Returns its port.
fn slow_network(server: u16, rate: f64) -> u16 {
    let socket = TcpSocket::new_v4().unwrap();
    // Otherwise the operating system accepts megabytes that are not forwarded yet.
    socket.set_recv_buffer_size(64 << 10).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(8).unwrap();
    let port = listener.local_addr().unwrap().port();
    let free = Arc::new(Mutex::new(Instant::now()));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (from_client, mut to_client) = client.into_split();
            let (mut from_server, to_server) = TcpStream::connect(("127.0.0.1", server)).await.unwrap().into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            tokio::spawn(forward(from_client, to_server, rate, Arc::clone(&free)));
        }
    });
    port
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, rate: f64, free: Arc<Mutex<Instant>>) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        {
            let mut free = free.lock().await;
            sleep_until(*free).await;
            let takes = Duration::from_secs(u64::try_from(read).unwrap()).div_f64(rate);
            *free = (*free).max(Instant::now()) + takes;
        }
        if to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn many_large_results_are_recorded_although_all_of_them_take_longer_than_the_timeout() {
    let redis = Redis::start().await;
    let port = slow_network(redis.port(), f64::from(16 << 20));
    let settings = RedisSettings::new(format!("redis://127.0.0.1:{port}").parse().unwrap(), "payments");
    // All results take a second.
    let store = RedisStore::new(&with!(settings, timeout = Duration::from_millis(250))).unwrap();
    let idempotency = Idempotency::new(store, with!(Policy::default(), result_max_bytes = 1 << 20));
    let work = work_fn(|_, (): &()| async { Ok::<_, WorkError>(vec![7; 512 << 10]) });
    let deadline = Deadline::within(Duration::from_secs(10));
    let deliveries: Vec<_> =
        (0..32).map(|n| Delivery::new(Key::new(&format!("pay_{n}")).unwrap()).deadline(deadline)).collect();
    let runs = deliveries.iter().map(|delivery| idempotency.run(delivery, &work, &()));
    for report in futures_util::future::join_all(runs).await {
        let outcome = report.unwrap().outcome;
        assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_result_that_is_larger_than_all_calls_in_flight_may_be_is_recorded_and_returned() {
    let redis = Redis::start().await;
    let idempotency = Idempotency::new(redis.store(), with!(Policy::default(), result_max_bytes = 4 << 20));
    let work = work_fn(|_, (): &()| async { Ok::<_, WorkError>(vec![7; 3 << 20]) });
    let delivery = || Delivery::new(Key::new("pay_1").unwrap()).deadline(Deadline::within(Duration::from_secs(10)));
    let first = idempotency.run(&delivery(), &work, &()).await.unwrap();
    assert!(matches!(first.outcome, Outcome::Done { .. }), "it is not recorded");
    let again = idempotency.run(&delivery(), &work, &()).await.unwrap();
    assert!(matches!(again.outcome, Outcome::Duplicate { result: Some(result) } if result.len() == 3 << 20));
}
