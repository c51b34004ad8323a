//! Which requests are the same.

use axum::body::Body;
use axum::http::Request;
use axum::middleware::{Next, from_fn};
use idempotent_sqs::MemoryStore;
use idempotent_sqs_http::{IdempotencyLayer, KeyRule, Principal};

use crate::api::*;

#[tokio::test]
async fn a_retry_gets_the_first_response_and_does_not_run() {
    let (router, runs) = counting(builder().build());
    let first = send(&router, post("\"pay_1\"")).await;
    assert_eq!((first.status, &*first.body, first.is_replayed()), (201, b"run 1".as_slice(), false));
    assert_eq!(first.header("idempotency-key"), Some("\"pay_1\""));
    for key in ["\"pay_1\"", "pay_1"] {
        let again = send(&router, post(key)).await;
        assert_eq!((again.status, &*again.body, again.is_replayed()), (201, b"run 1".as_slice(), true));
        assert_eq!(again.header("idempotency-key"), Some(key));
    }
    assert_eq!(runs.count(), 1);
    assert_eq!(&*send(&router, post("pay_2")).await.body, b"run 2");
}

#[tokio::test]
async fn the_handler_gets_the_key_fence_and_attempt() {
    let router = router(builder().build(), async |seen: Seen| {
        let attempt = seen.attempt.unwrap();
        assert!(attempt.fence.0 > 0 && attempt.key.as_str().ends_with(":pay_1") && attempt.ends.elapsed().is_zero());
        let told = format!("{} {} {}", attempt.client_key, attempt.attempt, attempt.is_recovery);
        response(axum::http::StatusCode::OK, told)
    });
    assert_eq!(&*send(&router, post("\"pay_1\"")).await.body, b"pay_1 1 false");
}

#[tokio::test]
async fn another_request_under_the_key_is_rejected_and_does_not_run() {
    let (router, runs) = counting(builder().build());
    send(&router, post("pay_1")).await;
    let request = |method: &str, uri: &str, content_type: &str, body: &'static str| {
        let request = Request::builder().method(method).uri(uri).header("idempotency-key", "pay_1");
        request.header("content-type", content_type).body(Body::from(body)).unwrap()
    };
    let others = [
        request("PATCH", "/payments", "application/json", r#"{"amount":1250}"#),
        request("POST", "/refunds", "application/json", r#"{"amount":1250}"#),
        request("POST", "/payments?dry=1", "application/json", r#"{"amount":1250}"#),
        request("POST", "/payments", "text/plain", r#"{"amount":1250}"#),
        request("POST", "/payments", "application/json", r#"{"amount":1251}"#),
    ];
    for other in others {
        let answer = send(&router, other).await;
        assert_eq!((answer.status, &*answer.problem()), (422, "mismatch"));
    }
    let same = request("POST", "/payments", "application/json; charset=utf-8", "{ \"amount\": 1250 }");
    assert!(send(&router, same).await.is_replayed());
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn paths_with_other_escapes_are_other_requests() {
    let (router, runs) = counting(builder().build());
    let request = |path: &str| {
        let mut request = post("pay_1");
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    send(&router, request("/accounts/a%2Fb")).await;
    let answer = send(&router, request("/accounts/a/b")).await;
    assert_eq!((answer.status, &*answer.problem()), (422, "mismatch"));
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn the_status_of_a_mismatch_can_be_set() {
    let (router, _) = counting(builder().mismatch_status(axum::http::StatusCode::CONFLICT).build());
    send(&router, post("pay_1")).await;
    let mut other = post("pay_1");
    *other.body_mut() = Body::from("{}");
    let answer = send(&router, other).await;
    assert_eq!((answer.status, &*answer.problem()), (409, "mismatch"));
}

#[tokio::test]
async fn no_principal_gets_the_response_of_another() {
    let (router, runs) = counting(builder().build());
    let from = |principal: Option<&str>| {
        let mut request = post("pay_1");
        if let Some(principal) = principal {
            request.headers_mut().insert("authorization", principal.parse().unwrap());
        }
        request
    };
    for (run, principal) in [Some("Bearer alice"), Some("Bearer bob"), None].into_iter().enumerate() {
        let answer = send(&router, from(principal)).await;
        assert_eq!((&*answer.body, answer.is_replayed()), (format!("run {}", run + 1).as_bytes(), false));
    }
    assert_eq!(&*send(&router, from(Some("Bearer alice"))).await.body, b"run 1");
    assert_eq!(runs.count(), 3);
}

/// The subject of a token, as an authentication outside of the layer finds it.
#[derive(Clone)]
struct Subject(String);

#[tokio::test]
async fn a_retry_with_a_refreshed_token_gets_the_first_response_if_the_principal_is_the_subject() {
    let layer = IdempotencyLayer::builder(MemoryStore::default(), |request| {
        request.extensions.get::<Subject>().map(|Subject(subject)| Principal::new(subject))
    });
    let (router, runs) = counting(layer.build());
    let authenticate = async |mut request: Request<Body>, next: Next| {
        let token = request.headers()["authorization"].to_str().unwrap();
        let (subject, _) = token.strip_prefix("Bearer ").unwrap().split_once('.').unwrap();
        let subject = Subject(subject.to_owned());
        request.extensions_mut().insert(subject);
        next.run(request).await
    };
    let router = router.layer(from_fn(authenticate));
    for (token, run) in [("alice.1", "run 1"), ("alice.2", "run 1"), ("bob.1", "run 2")] {
        let mut request = post("pay_1");
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        assert_eq!(send(&router, request).await.body, run, "{token}");
    }
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn a_request_without_a_principal_is_rejected() {
    let layer = IdempotencyLayer::builder(MemoryStore::default(), |parts| {
        parts.headers.get("authorization").map(Principal::new)
    });
    let (router, runs) = counting(layer.build());
    let answer = send(&router, post("pay_1")).await;
    assert_eq!((answer.status, &*answer.problem(), runs.count()), (401, "principal-missing", 0));
}

#[tokio::test]
async fn by_default_post_and_patch_need_a_key_and_other_methods_ignore_it() {
    let (router, runs) = counting(builder().build());
    for (method, needs_key) in
        [("POST", true), ("PATCH", true), ("GET", false), ("PUT", false), ("DELETE", false), ("OPTIONS", false)]
    {
        let request = |key: Option<&str>| {
            let request = Request::builder().method(method).uri("/");
            let request = if let Some(key) = key { request.header("idempotency-key", key) } else { request };
            request.body(Body::empty()).unwrap()
        };
        let before = runs.count();
        let answer = send(&router, request(None)).await;
        if needs_key {
            assert_eq!((answer.status, &*answer.problem(), runs.count()), (400, "key-missing", before), "{method}");
        } else {
            send(&router, request(Some("pay_1"))).await;
            send(&router, request(Some("pay_1"))).await;
            assert_eq!(runs.count(), before + 3, "{method}");
        }
    }
}

#[tokio::test]
async fn a_rule_decides_by_route() {
    let layer = builder().key_rule(|parts| match parts.uri.path() {
        "/required" => KeyRule::Required,
        "/optional" => KeyRule::Optional,
        _ => KeyRule::Ignored,
    });
    let (router, runs) = counting(layer.build());
    let request = |uri: &str, key: Option<&str>| {
        let request = Request::post(uri);
        let request = if let Some(key) = key { request.header("idempotency-key", key) } else { request };
        request.body(Body::empty()).unwrap()
    };
    for (uri, key, status, replayed) in [
        ("/required", None, 400, false),
        ("/required", Some("a"), 201, true),
        ("/optional", None, 201, false),
        ("/optional", Some("b"), 201, true),
        ("/optional", Some(""), 400, false),
        ("/ignored", Some("a"), 201, false),
        ("/ignored", Some(""), 201, false),
    ] {
        let [first, again] = [send(&router, request(uri, key)).await, send(&router, request(uri, key)).await];
        assert_eq!((first.status, first.is_replayed()), (status, false), "{uri} {key:?}");
        assert_eq!((again.status, again.is_replayed()), (status, replayed), "{uri} {key:?}");
    }
    assert_eq!(runs.count(), 1 + 2 + 1 + 2 + 2);
}

#[tokio::test]
async fn a_layer_around_a_layer_has_no_effect() {
    let layer = builder().build();
    let (router, runs) = counting(layer.clone());
    let router = router.layer(layer);
    assert_eq!(send(&router, post("pay_1")).await.status, 201);
    assert!(send(&router, post("pay_1")).await.is_replayed());
    assert_eq!(runs.count(), 1);
}
