//! The routes: plain axum, with nothing of Lambda.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use idempotent_sqs_http::IdempotentRequest;
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

use crate::payments::{Payment, Payments};

/// What the routes share.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) payments: Payments,
    /// How long a payment takes.
    pub(crate) work: Duration,
}

pub(crate) fn router(api: Arc<Api>) -> Router {
    // The path of a stage other than `$default` begins with its name.
    Router::new().route("/payments", post(pay)).route("/{stage}/payments", post(pay)).with_state(api)
}

async fn pay(
    State(api): State<Arc<Api>>,
    Extension(request): Extension<IdempotentRequest>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Some((format, amount)) = Format::read(&headers, &body) else {
        return problem(StatusCode::BAD_REQUEST, "Send {\"amount\": 1250} as JSON, or the amount in 8 bytes");
    };
    match api.pay(&request, amount).await {
        Ok(payment) => format.created(&payment),
        Err(error) => {
            eprintln!("the file of payments: {error}");
            problem(StatusCode::INTERNAL_SERVER_ERROR, "The payment failed")
        }
    }
}

impl Api {
    async fn pay(&self, request: &IdempotentRequest, amount: u64) -> io::Result<Payment> {
        let key = request.key.as_str();
        if request.is_recovery {
            // An earlier attempt may have paid.
            if let Some(payment) = self.payments.find(key, amount)? {
                return Ok(payment);
            }
        }
        sleep(self.work).await;
        let (id, fence, is_recovery) = (getrandom::u64()?, request.fence.0, request.is_recovery);
        let payment = Payment { id, key: key.to_owned(), amount, fence, is_recovery };
        self.payments.make(&payment)?;
        Ok(payment)
    }
}

/// The body of a JSON request.
#[derive(Deserialize)]
struct PaymentRequest {
    /// In cents.
    amount: u64,
}

/// How the client writes a payment. It is answered in the same way.
enum Format {
    Json,
    /// The amount in 8 bytes, big-endian, as a payment terminal may send it. The answer has the id in front of it.
    Binary,
}

impl Format {
    fn read(headers: &HeaderMap, body: &Bytes) -> Option<(Self, u64)> {
        match headers.get(CONTENT_TYPE)?.as_bytes() {
            b"application/json" => Some((Self::Json, serde_json::from_slice::<PaymentRequest>(body).ok()?.amount)),
            b"application/octet-stream" => Some((Self::Binary, u64::from_be_bytes(body.as_ref().try_into().ok()?))),
            _ => None,
        }
    }

    fn created(&self, payment: &Payment) -> Response {
        let Payment { id, amount, .. } = *payment;
        // A cookie belongs to one client's session, so a retry does not get it.
        let cookie = (SET_COOKIE, format!("last_payment=pay_{id:016x}; Secure; HttpOnly"));
        let (content_type, body) = match self {
            Self::Json => {
                ("application/json", json!({ "id": format!("pay_{id:016x}"), "amount": amount }).to_string().into())
            }
            Self::Binary => ("application/octet-stream", [id.to_be_bytes(), amount.to_be_bytes()].concat()),
        };
        (StatusCode::CREATED, [cookie, (CONTENT_TYPE, content_type.to_owned())], body).into_response()
    }
}

fn problem(status: StatusCode, title: &str) -> Response {
    let body = json!({ "title": title, "status": status.as_u16() }).to_string();
    (status, [(CONTENT_TYPE, "application/problem+json")], body).into_response()
}
