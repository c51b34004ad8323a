//! Passwords in Secrets Manager that are rotated, and replies that fail.
//! <https://docs.aws.amazon.com/secretsmanager/latest/apireference/API_GetSecretValue.html>

use std::future::pending;
use std::sync::{Arc, Mutex};

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_sqs::config::http::{HttpRequest, HttpResponse};
use aws_sdk_sqs::config::{Credentials, SharedCredentialsProvider};
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::client::result::ConnectorError;
use history::Rng;
use idempotent_sqs::aws::SecretCredentials;
use idempotent_sqs::credentials::{CredentialsSource, Login};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Expected, HIDDEN, REGION, SOURCES, TIMES, logins};
use crate::lock;
use crate::sqs::endpoint;

/// What the server rejects is explained by this.
const ADVICE: &str = "check the rotation of the secret";

/// The answer of Secrets Manager.
#[derive(Clone, Debug)]
enum Answer {
    Secret(String),
    Binary,
    Denied,
    /// The connection breaks. The SDK tries again.
    Broken,
    IsSilent,
}

/// Secrets Manager. Clones share it.
#[derive(Clone, Debug)]
struct Secrets(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    answer: Answer,
    requests: Vec<Request>,
}

#[derive(Debug)]
struct Request {
    /// Its host, and the region that it is signed for.
    endpoint: (String, String),
    target: String,
    input: Value,
}

impl HttpConnector for Secrets {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default().to_owned();
        let input = serde_json::from_slice(request.body().bytes().unwrap_or_default()).unwrap_or_default();
        let mut state = lock(&self.0);
        state.requests.push(Request { endpoint: endpoint(&request), target, input });
        let answer = state.answer.clone();
        HttpConnectorFuture::new(async move {
            let (status, body) = match answer {
                Answer::Secret(text) => (200_u16, json!({ "SecretString": text })),
                Answer::Binary => (200, json!({ "SecretBinary": "aGlkZGVu" })),
                Answer::Denied => (400, json!({ "__type": "AccessDeniedException", "Message": "not authorized" })),
                Answer::Broken => return Err(ConnectorError::io("the connection broke".into())),
                Answer::IsSilent => pending().await,
            };
            let status = status.try_into().map_err(|error| ConnectorError::other(Box::new(error), None))?;
            Ok(HttpResponse::new(status, body.to_string().into()))
        })
    }
}

/// The texts of secrets without a password.
const WITHOUT_PASSWORD: [&str; 6] =
    ["", "{}", r#"{"password":""}"#, r#"{"password":4711}"#, r#"{"username":"hidden"}"#, r#"{"Password":"hidden"}"#];

/// What is wrong with the logins that are read from the secrets of this seed.
pub async fn read_secrets(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0x5ec7);
    let mut wrong = Vec::new();
    for _ in 0..SOURCES {
        read_secret(rng, &mut wrong).await;
    }
    wrong
}

async fn read_secret(rng: &mut Rng, wrong: &mut Vec<String>) {
    let secrets = Secrets(Arc::new(Mutex::new(State { answer: Answer::Denied, requests: Vec::new() })));
    let connector = SharedHttpConnector::new(secrets.clone());
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        // That of the secret counts.
        .region(Region::new(REGION))
        .credentials_provider(SharedCredentialsProvider::new(Credentials::new("id", "key", None, None, "simulation")))
        .http_client(http_client_fn(move |_settings, _components| connector.clone()))
        .build();
    let (partition, region, domain) = *rng.pick(&[
        ("aws", "eu-west-1", "amazonaws.com"),
        ("aws", REGION, "amazonaws.com"),
        ("aws-cn", "cn-north-1", "amazonaws.com.cn"),
        ("aws-us-gov", "us-gov-west-1", "amazonaws.com"),
    ]);
    let arn = format!("arn:{partition}:secretsmanager:{region}:123456789012:secret:payments:a/b-AbCdEf");
    let user = *rng.pick(&[None, Some("of-the-url")]);
    let parsed = arn.parse().expect("this is the ARN of a secret");
    let source = SecretCredentials::new(parsed, user, ADVICE, config.into());
    if source.advice() != ADVICE || source.max_session().is_some() {
        wrong.push(format!("{source:?}: {}, {:?}", source.advice(), source.max_session()));
    }
    let mut cached: Option<Login> = None;
    let mut known: Vec<Login> = Vec::new();
    for time in 0..TIMES {
        sleep(rng.ms(0..3_600_000)).await;
        let (answer, expected) = answer(rng, time, user);
        let is_repeated = matches!(answer, Answer::Broken);
        {
            let mut state = lock(&secrets.0);
            state.answer = answer.clone();
            state.requests.clear();
        }
        let rejected = if known.is_empty() || rng.happens(500) { None } else { Some(rng.pick(&known).clone()) };
        let callers = *rng.pick(&[1, 1, 3]);
        let mut reads = 0;
        let expected: Vec<_> = (0..callers)
            .map(|_| {
                cached.take_if(|cached| Some(&*cached) == rejected.as_ref());
                if let Some(cached) = &cached {
                    return Expected::Login(cached.clone());
                }
                reads += 1;
                if let Expected::Login(login) = &expected {
                    cached = Some(login.clone());
                }
                expected.clone()
            })
            .collect();
        let found = logins(&source, rejected.as_ref(), callers, wrong).await;
        for (found, expected) in found.iter().zip(&expected) {
            let is_right = match (found, expected) {
                (Ok(found), Expected::Login(expected)) => found == expected,
                (Err(error), Expected::Error(texts)) => {
                    error.contains(&arn) && texts.iter().any(|text| error.contains(text))
                }
                _ => false,
            };
            if !is_right {
                wrong.push(format!("{answer:?}: {found:?}, not {expected:?}"));
            }
        }
        known.extend(found.into_iter().filter_map(Result::ok));
        let requests = &lock(&secrets.0).requests;
        let is_asked = |request: &Request| {
            request.endpoint == (format!("secretsmanager.{region}.{domain}"), region.to_owned())
                && request.target == "secretsmanager.GetSecretValue"
                && request.input == json!({ "SecretId": arn })
        };
        if requests.len() != reads && !(is_repeated && requests.len() >= reads) || !requests.iter().all(is_asked) {
            wrong.push(format!("{answer:?}: {reads} reads of {arn}: {requests:?}"));
        }
    }
}

/// An answer of Secrets Manager, and the login or the error that follows from it.
fn answer(rng: &mut Rng, time: usize, user: Option<&str>) -> (Answer, Expected<Login>) {
    const NO_PASSWORD: &[&str] = &[" has no password: set it to "];
    let (password, user) = (format!("{HIDDEN}-{time}\"\\ü"), user.map(str::to_owned));
    let quoted = json!(password);
    match rng.draw(0..10) {
        0 | 1 => (Answer::Secret(password.clone()), Expected::Login(Login { user, password })),
        2 => {
            // The text of another kind of JSON is a password.
            let password = format!("[{quoted}]");
            (Answer::Secret(password.clone()), Expected::Login(Login { user, password }))
        }
        3 => {
            let text = format!(r#"{{"engine":"postgres","port":5432,"password":{quoted}}}"#);
            (Answer::Secret(text), Expected::Login(Login { user, password }))
        }
        4 => {
            let text = format!(r#" {{"username":"rotated","password":{quoted},"more":{{}}}}"#);
            (Answer::Secret(text), Expected::Login(Login { user: Some("rotated".to_owned()), password }))
        }
        5 => (Answer::Secret((*rng.pick(&WITHOUT_PASSWORD)).to_owned()), Expected::Error(NO_PASSWORD)),
        6 => (Answer::Binary, Expected::Error(NO_PASSWORD)),
        7 => (Answer::Denied, Expected::Error(&[" could not be read: check that the role may call "])),
        8 => (Answer::Broken, Expected::Error(&[" could not be read: ", " within the timeout: "])),
        _ => (Answer::IsSilent, Expected::Error(&[" within the timeout: check that the function can reach "])),
    }
}
