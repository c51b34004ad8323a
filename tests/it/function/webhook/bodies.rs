use std::time::{Duration, Instant};

use super::super::Stage;
use super::told;
use crate::support::http::Answer;

#[tokio::test]
async fn an_answer_of_5_mib_is_done_at_once_and_not_kept() {
    let stage = Stage::start().await;
    let function = stage.function().await;
    let large = Answer::with(200, &[], &vec![b'x'; 5 << 20]);
    assert!(told(&stage, &function, "large", large).await.is_done());
    assert!(told(&stage, &function, "small", Answer::with(200, &[], &[b'x'; 4096])).await.is_done());

    let mut redis = stage.redis.connection().await;
    let kept: (usize, usize) =
        redis::pipe().strlen("payments:large").strlen("payments:small").query_async(&mut redis).await.unwrap();
    assert_eq!(kept.1, kept.0 + 4096);
}

#[tokio::test]
async fn an_answer_too_large_to_be_kept_is_not_waited_for() {
    let stage = Stage::start().await;
    let function = stage.function().await;
    let start = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", 5 << 20, "x".repeat(8192));
    let begun = Instant::now();
    assert!(told(&stage, &function, "pay_1", Answer::Whole(start.into())).await.is_done());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}
