//! Whose key it is.

use serde_json::{Value, json};

use crate::fixture::{Fixture, event};

/// An HTTP API event with this authorizer.
fn http_api(authorizer: Value) -> Value {
    let mut event = event("http-api");
    event["requestContext"]["authorizer"] = authorizer;
    event
}

fn jwt(issuer: &str, subject: &str) -> Value {
    http_api(json!({ "jwt": { "claims": { "iss": issuer, "sub": subject }, "scopes": null } }))
}

/// All users of an identity pool have one ARN.
const POOL_ARN: &str = "arn:aws:sts::123456789012:assumed-role/authenticated/CognitoIdentityCredentials";

fn identity_pool(identity_id: &str) -> Value {
    http_api(json!({ "iam": { "userArn": POOL_ARN, "cognitoIdentity": { "amr": [], "identityId": identity_id } } }))
}

/// A REST API event with this authorizer and IAM identity.
fn rest_api(authorizer: Value, user_arn: Value) -> Value {
    let mut event = event("rest-api");
    event["requestContext"]["authorizer"] = authorizer;
    event["requestContext"]["identity"]["userArn"] = user_arn;
    event
}

#[tokio::test]
async fn each_principal_has_its_own_keys_and_payments() {
    let fixture = Fixture::new().await;
    let function = fixture.start(0).await;
    let arn = "arn:aws:iam::123456789012:user/alice";
    let principals = [
        jwt("https://login.example.com/", "alice"),
        jwt("https://login.example.com/", "bob"),
        jwt("https://other.example.com/", "alice"),
        http_api(json!({ "iam": { "userArn": arn } })),
        identity_pool("eu-central-1:alice"),
        identity_pool("eu-central-1:bob"),
        http_api(json!({ "lambda": { "principalId": "alice" } })),
        http_api(json!({ "lambda": { "principalId": arn } })),
    ];
    let mut bodies = Vec::new();
    for request in &principals {
        let answer = function.invoke(request.clone()).await;
        assert_eq!((answer.status, answer.is_replayed()), (201, false), "{request}");
        bodies.push(answer.body);
    }
    assert_eq!(fixture.payments().len(), principals.len());
    for (request, body) in principals.iter().zip(bodies) {
        let again = function.invoke(request.clone()).await;
        assert_eq!((again.is_replayed(), again.body), (true, body), "{request}");
    }
    assert_eq!(fixture.payments().len(), principals.len());
}

#[tokio::test]
async fn a_rest_api_has_the_same_principals_in_other_fields() {
    let fixture = Fixture::new().await;
    let function = fixture.start(0).await;
    let arn = Value::from("arn:aws:iam::123456789012:user/alice");
    let claims = json!({ "claims": { "iss": "https://login.example.com/", "sub": "alice" } });
    let of_pool = ["eu-central-1:alice", "eu-central-1:bob"].map(|identity_id| {
        let mut event = rest_api(Value::Null, POOL_ARN.into());
        event["requestContext"]["identity"]["cognitoIdentityId"] = identity_id.into();
        event
    });
    let requests = [rest_api(claims, Value::Null), rest_api(Value::Null, arn), event("rest-api")];
    for request in requests.into_iter().chain(of_pool) {
        let answer = function.invoke(request.clone()).await;
        assert_eq!((answer.status, answer.is_replayed()), (201, false), "{request}");
    }
    assert_eq!(fixture.payments().len(), 5);
}

#[tokio::test]
async fn without_an_authorizer_or_with_an_empty_id_nothing_is_paid_whatever_the_headers_say() {
    let fixture = Fixture::new().await;
    let function = fixture.start(0).await;
    let requests = [
        event("alb"),
        http_api(Value::Null),
        http_api(json!({})),
        http_api(json!({ "jwt": { "claims": { "iss": "https://login.example.com/" }, "scopes": null } })),
        http_api(json!({ "iam": { "accountId": "123456789012" } })),
        http_api(json!({ "lambda": { "tenant": "alice" } })),
        rest_api(Value::Null, Value::Null),
        rest_api(json!({ "claims": null }), Value::Null),
        // All callers with an empty id would share their keys.
        jwt("https://login.example.com/", ""),
        http_api(json!({ "iam": { "userArn": "" } })),
        http_api(json!({ "lambda": { "principalId": "" } })),
        rest_api(json!({ "principalId": "" }), "".into()),
    ];
    for mut request in requests {
        for (name, value) in [("authorization", "Bearer alice"), ("x-amzn-oidc-identity", "alice")] {
            request["headers"][name] = value.into();
        }
        let answer = function.invoke(request.clone()).await;
        assert_eq!((answer.status, &*answer.problem()), (401, "principal-missing"), "{request}");
    }
    assert!(fixture.payments().is_empty());
}
