//! The API of AWS Secrets Manager: `GetSecretValue`.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::http::{Answer, Request, Server};

pub const ARN: &str = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:redis-AbCdEf";

pub struct Secrets {
    server: Server,
    secret: Arc<Mutex<Option<String>>>,
    reads: Arc<Mutex<usize>>,
}

impl Secrets {
    pub async fn start(secret: &str) -> Self {
        let secret = Arc::new(Mutex::new(Some(secret.to_owned())));
        let reads = Arc::new(Mutex::new(0));
        let (kept, counted) = (Arc::clone(&secret), Arc::clone(&reads));
        let server = Server::start(move |request: Request| {
            assert_eq!(request.header("X-Amz-Target"), Some("secretsmanager.GetSecretValue"));
            assert!(request.header("Authorization").unwrap().contains("/eu-west-1/secretsmanager/aws4_request"));
            let asked: Value = serde_json::from_slice(&request.body).unwrap();
            assert_eq!(asked, json!({ "SecretId": ARN }));
            *counted.lock().unwrap() += 1;
            let answer = match &*kept.lock().unwrap() {
                Some(text) => {
                    let secret = json!({ "ARN": ARN, "Name": "redis", "SecretString": text });
                    Answer::with(200, JSON_1_1, secret.to_string().as_bytes())
                }
                None => {
                    Answer::with(400, JSON_1_1, br#"{"__type":"AccessDeniedException","Message":"not authorized"}"#)
                }
            };
            async move { answer }
        })
        .await;
        Self { server, secret, reads }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// Sets the secret. With `None`, access is denied.
    pub fn set(&self, secret: Option<&str>) {
        *self.secret.lock().unwrap() = secret.map(str::to_owned);
    }

    pub fn reads(&self) -> usize {
        *self.reads.lock().unwrap()
    }
}

const JSON_1_1: &[(&str, &str)] = &[("Content-Type", "application/x-amz-json-1.1")];
