//! The routes. Only `pay` has to know about recoveries.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
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

/// The body of `POST /payments`.
#[derive(Deserialize)]
struct PaymentRequest {
    /// In cents.
    amount: u64,
    /// ISO 4217.
    currency: String,
}

pub(crate) fn router(api: Arc<Api>) -> Router {
    Router::new().route("/payments", post(pay)).route("/payments/{id}", get(show)).with_state(api)
}

async fn pay(
    State(api): State<Arc<Api>>,
    Extension(request): Extension<IdempotentRequest>,
    body: Bytes,
) -> Result<Response, Response> {
    let Ok(PaymentRequest { amount, currency }) = serde_json::from_slice(&body) else {
        return Err(problem(StatusCode::BAD_REQUEST, "Send {\"amount\": 1250, \"currency\": \"EUR\"}"));
    };
    if amount == 0 {
        return Err(problem(StatusCode::BAD_REQUEST, "The amount must not be 0"));
    }
    if currency.len() != 3 || !currency.bytes().all(|letter| letter.is_ascii_uppercase()) {
        return Err(problem(StatusCode::BAD_REQUEST, "The currency must have three letters, such as EUR"));
    }
    if request.is_recovery {
        // An earlier attempt may have paid.
        let record_key = request.key.as_str();
        let paid = api.payments.find(|payment| payment.record_key == record_key).map_err(|error| failed(&error))?;
        if let Some(payment) = paid {
            // Redis lost the record of another payment with this key.
            if (payment.amount, &payment.currency) != (amount, &currency) {
                return Err(problem(StatusCode::UNPROCESSABLE_ENTITY, "The key was used for another payment"));
            }
            return Ok(created(&payment));
        }
    }
    sleep(api.work).await;
    let payment = Payment {
        id: new_id(),
        amount,
        currency,
        key: request.client_key,
        record_key: request.key.as_str().to_owned(),
        fence: request.fence.0,
        attempt: request.attempt,
        is_recovery: request.is_recovery,
    };
    api.payments.make(&payment).map_err(|error| failed(&error))?;
    Ok(created(&payment))
}

async fn show(State(api): State<Arc<Api>>, Path(id): Path<String>) -> Result<Response, Response> {
    match api.payments.find(|payment| payment.id == id).map_err(|error| failed(&error))? {
        Some(payment) => Ok(json_response(StatusCode::OK, "application/json", &public(&payment))),
        None => Err(problem(StatusCode::NOT_FOUND, "There is no payment with this id")),
    }
}

fn created(payment: &Payment) -> Response {
    let location = format!("/payments/{}", payment.id);
    let response = json_response(StatusCode::CREATED, "application/json", &public(payment));
    ([(LOCATION, location)], response).into_response()
}

/// What clients see of a payment.
fn public(payment: &Payment) -> serde_json::Value {
    json!({ "id": payment.id, "amount": payment.amount, "currency": payment.currency })
}

fn problem(status: StatusCode, title: &str) -> Response {
    let problem = json!({ "title": title, "status": status.as_u16() });
    json_response(status, "application/problem+json", &problem)
}

/// The file cannot be read or written: the payment may have been made.
fn failed(error: &io::Error) -> Response {
    eprintln!("the file of payments: {error}");
    problem(StatusCode::INTERNAL_SERVER_ERROR, "The payment failed")
}

fn json_response(status: StatusCode, content_type: &'static str, body: &serde_json::Value) -> Response {
    (status, [(CONTENT_TYPE, content_type)], body.to_string()).into_response()
}

/// 128 random bits, so that no id can be guessed.
fn new_id() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system returns random bytes");
    format!("pay_{:032x}", u128::from_be_bytes(bytes))
}
