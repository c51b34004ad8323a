//! The formats of events and responses.

use serde_json::Value;

use crate::fixture::{Fixture, event};

#[tokio::test]
async fn a_binary_request_and_its_response_keep_their_bytes() {
    let fixture = Fixture::new().await;
    let function = fixture.start(0).await;
    let first = function.invoke(event("http-api-binary")).await;
    assert_eq!((first.status, first.is_base64, first.is_replayed()), (201, true, false));
    // The amount is not UTF-8.
    assert_eq!((first.body.len(), &first.body[8..]), (16, &[0, 0, 0, 0, 0, 0, 0xff, 0xfe][..]));
    let again = function.invoke(event("http-api-binary")).await;
    assert_eq!((again.status, again.is_base64, again.is_replayed()), (201, true, true));
    assert_eq!(again.body, first.body);
    // Another byte that is not UTF-8 is another request.
    let mut other = event("http-api-binary");
    other["body"] = "AAAAAAAA//0=".into();
    assert_eq!(function.invoke(other).await.problem(), "mismatch");
    assert_eq!((fixture.payments().len(), &fixture.payments()[0]["amount"]), (1, &Value::from(65534)));
}

#[tokio::test]
async fn each_source_of_events_gets_the_first_response_again() {
    for name in ["http-api", "function-url", "rest-api"] {
        let fixture = Fixture::new().await;
        let function = fixture.start(0).await;
        let first = function.invoke(event(name)).await;
        assert_eq!((first.status, first.is_replayed()), (201, false), "{name}");
        let again = function.invoke(event(name)).await;
        assert_eq!((again.status, again.is_replayed(), &again.body), (201, true, &first.body), "{name}");
        assert!(again.cookies.is_empty() && again.header("set-cookie").is_none(), "{name}");
        assert_eq!(fixture.payments().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn of_two_keys_of_a_rest_api_the_last_one_counts() {
    let fixture = Fixture::new().await;
    let function = fixture.start(0).await;
    let mut two = event("rest-api");
    two["multiValueHeaders"]["Idempotency-Key"] = serde_json::json!(["a", "pay-7f3a"]);
    two["headers"]["Idempotency-Key"] = "pay-7f3a".into();
    assert_eq!(function.invoke(two).await.status, 201);
    assert!(function.invoke(event("rest-api")).await.is_replayed());
}

#[tokio::test]
async fn the_path_is_compared_with_its_stage() {
    let fixture = Fixture::new().await;
    let function = fixture.start(0).await;
    assert_eq!(function.invoke(event("rest-api")).await.status, 201);
    let mut other = event("rest-api");
    other["requestContext"]["stage"] = "beta".into();
    assert_eq!(function.invoke(other).await.problem(), "mismatch");
}

#[tokio::test]
async fn an_unknown_path_needs_no_key_and_is_not_found() {
    let fixture = Fixture::new().await;
    let mut unknown = event("http-api-no-key");
    unknown["rawPath"] = "/refunds".into();
    unknown["requestContext"]["http"]["path"] = "/refunds".into();
    assert_eq!(fixture.start(0).await.invoke(unknown).await.status, 404);
}
