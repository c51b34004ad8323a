//! IAM authentication tokens. The credentials of the process expire, are missing, late or revoked.
//!
//! - <https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/auth-iam.html>
//! - <https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/UsingWithRDS.IAMDBAuth.html>

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, Result as Provided, SharedCredentialsProvider, future};
use harness::sigv4::Presigned;
use history::Rng;
use idempotent_sqs::aws::{ElastiCacheIam, ElastiCacheIamSettings, RdsIam, RdsIamSettings};
use idempotent_sqs::credentials::{CredentialsSource, Login};
use tokio::time::sleep;

use super::{Expected, HIDDEN, REGION, SOURCES, TIMES, logins};
use crate::lock;

/// Credentials that end within this time are not used any more: docs/identity.md.
const MARGIN: Duration = Duration::from_secs(60);

/// What the provider of credentials does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Provides credentials without an end, as in the environment of a function.
    Lasting,
    /// Provides credentials that end after this time.
    Ending(Duration),
    Fails,
    IsSilent,
    Panics,
}

/// Provides new credentials each time. Clones share them.
#[derive(Clone, Debug)]
struct Provider(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    answer: Answer,
    asked: u64,
}

impl ProvideCredentials for Provider {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.provide())
    }
}

impl Provider {
    async fn provide(&self) -> Provided {
        let (answer, number) = {
            let mut state = lock(&self.0);
            state.asked += 1;
            (state.answer, state.asked)
        };
        let ends = match answer {
            Answer::Lasting => None,
            Answer::Ending(after) => Some(SystemTime::now() + after),
            Answer::Fails => return Err(CredentialsError::not_loaded("no role")),
            Answer::IsSilent => pending().await,
            Answer::Panics => panic!("no certificates"),
        };
        let session = number.is_multiple_of(2).then(|| format!("session{number}"));
        Ok(Credentials::new(format!("id{number}"), secret_key(number), session, ends, "simulation"))
    }
}

fn secret_key(number: u64) -> String {
    format!("{HIDDEN}{number}")
}

/// What a token must contain.
struct Service {
    signing_name: &'static str,
    host: &'static str,
    parameters: Vec<(&'static str, &'static str)>,
    /// The user of the login, if it is not that of the URL.
    user: Option<&'static str>,
    max_session: Option<Duration>,
}

/// What is wrong with the tokens of this seed.
pub async fn sign_tokens(seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed ^ 0x1a70);
    let mut wrong = Vec::new();
    for _ in 0..SOURCES {
        sign_with_source(rng, &mut wrong).await;
    }
    wrong
}

async fn sign_with_source(rng: &mut Rng, wrong: &mut Vec<String>) {
    let provider = Provider(Arc::new(Mutex::new(State { answer: Answer::Lasting, asked: 0 })));
    let region = *rng.pick(&[Some(REGION), Some(REGION), Some(REGION), Some(""), None]);
    let has_provider = rng.happens(900);
    let mut config = SdkConfig::builder();
    config
        .set_behavior_version(Some(BehaviorVersion::latest()))
        .set_region(region.map(Region::new))
        .set_credentials_provider(has_provider.then(|| SharedCredentialsProvider::new(provider.clone())));
    let (source, service) = source(rng, config.build());
    if source.max_session() != service.max_session {
        wrong.push(format!("{source:?} has sessions of {:?}", source.max_session()));
    }
    // The number of the last credentials that end, and when.
    let mut kept: Option<(u64, SystemTime)> = None;
    let mut last = None;
    for _ in 0..TIMES {
        sleep(*rng.pick(&[Duration::ZERO, Duration::from_secs(1), MARGIN, 14 * MARGIN, 60 * MARGIN])).await;
        let answer = *rng.pick(&[
            Answer::Lasting,
            Answer::Ending(MARGIN),
            Answer::Ending(MARGIN + Duration::from_secs(1)),
            Answer::Ending(15 * MARGIN),
            Answer::Ending(60 * MARGIN),
            Answer::Fails,
            Answer::IsSilent,
            Answer::Panics,
        ]);
        let before = {
            let mut state = lock(&provider.0);
            state.answer = answer;
            state.asked
        };
        let rejected = last.as_ref().filter(|_| rng.happens(300));
        let callers = if rejected.is_none() && answer != Answer::IsSilent { *rng.pick(&[1, 1, 3]) } else { 1 };
        if rejected.is_some() {
            kept = None;
        }
        let now = SystemTime::now();
        let mut asked = before;
        let expected: Vec<_> = (0..callers)
            .map(|_| {
                let is_kept = kept.filter(|(_, ends)| *ends > now + MARGIN);
                let number = is_kept.map_or(asked + 1, |(number, _)| number);
                if is_kept.is_none() && has_provider {
                    asked += 1;
                }
                if let (None, Answer::Ending(after), true) = (is_kept, answer, has_provider) {
                    kept = Some((number, now + after));
                }
                expected_token(answer, number, is_kept.is_some(), region, has_provider)
            })
            .collect();
        let found = logins(&*source, rejected, callers, wrong).await;
        if lock(&provider.0).asked != asked {
            wrong.push(format!("{answer:?}: credentials were fetched {} times", lock(&provider.0).asked - before));
        }
        for (found, expected) in found.iter().zip(&expected) {
            if let Some(fault) = wrong_login(found, expected, &service, now) {
                wrong.push(format!("{answer:?}, {region:?}: {fault}: {found:?}"));
            }
        }
        last = found.into_iter().find_map(Result::ok).or(last);
    }
}

/// The number of the credentials that must have signed, or the error.
fn expected_token(
    answer: Answer,
    number: u64,
    is_kept: bool,
    region: Option<&str>,
    has_provider: bool,
) -> Expected<u64> {
    match answer {
        _ if !has_provider => Expected::Error(&["no AWS credentials to sign a token for "]),
        Answer::Fails if !is_kept => Expected::Error(&["no AWS credentials to sign a token for "]),
        Answer::IsSilent if !is_kept => {
            Expected::Error(&["no AWS credentials within the timeout to sign a token for "])
        }
        Answer::Panics if !is_kept => Expected::Error(&["check that SSL_CERT_FILE or SSL_CERT_DIR"]),
        _ if region.is_none_or(str::is_empty) => Expected::Error(&["set AWS_REGION"]),
        _ => Expected::Login(number),
    }
}

fn source(rng: &mut Rng, config: SdkConfig) -> (Box<dyn CredentialsSource>, Service) {
    if rng.happens(500) {
        let (cache, host) = *rng.pick(&[("payments", "payments"), ("Payments-2", "payments-2")]);
        let user = *rng.pick(&["payer", "Payer-1"]);
        let parse = |name: &str| name.parse().expect("this is a name in ElastiCache");
        let mut settings = ElastiCacheIamSettings::new(parse(user), parse(cache));
        settings.serverless = rng.happens(500);
        let mut parameters = vec![("Action", "connect"), ("User", user)];
        parameters.extend(settings.serverless.then_some(("ResourceType", "ServerlessCache")));
        let max_session = Some(Duration::from_hours(11));
        let service = Service { signing_name: "elasticache", host, parameters, user: Some(user), max_session };
        (Box::new(ElastiCacheIam::new(settings, config.into())), service)
    } else {
        let (user, encoded) = *rng.pick(&[
            ("payer", "payer"),
            ("a-b.c_d~e", "a-b.c_d~e"),
            ("the payer+1", "the%20payer%2B1"),
            ("größe/&=", "gr%C3%B6%C3%9Fe%2F%26%3D"),
        ]);
        let settings = RdsIamSettings::new("db.eu-central-1.rds.amazonaws.com", 5433, user);
        let service = Service {
            signing_name: "rds-db",
            host: "db.eu-central-1.rds.amazonaws.com:5433",
            parameters: vec![("Action", "connect"), ("DBUser", encoded)],
            user: None,
            max_session: None,
        };
        (Box::new(RdsIam::new(settings, config.into())), service)
    }
}

fn wrong_login(
    found: &Result<Login, String>,
    expected: &Expected<u64>,
    service: &Service,
    now: SystemTime,
) -> Option<&'static str> {
    let number = match (found, expected) {
        (Ok(_), Expected::Login(number)) => *number,
        (Err(error), Expected::Error(texts)) => {
            return (!texts.iter().any(|text| error.contains(text))).then_some("another error");
        }
        _ => return Some("a login in place of an error, or the other way round"),
    };
    let login = found.as_ref().ok()?;
    let Some(request) = Presigned::new(&login.password) else { return Some("not a presigned request") };
    let session = if number.is_multiple_of(2) { format!("session{number}") } else { String::new() };
    let expected = ["ResourceType", "Action", "User", "DBUser"].map(|name| {
        let value = service.parameters.iter().find(|(expected, _)| *expected == name);
        request.parameter(name) == value.map_or("", |(_, value)| value)
    });
    let age = now.duration_since(request.signed_at()).unwrap_or(Duration::MAX);
    [
        (login.user.as_deref() == service.user, "another user of the login"),
        (request.host == service.host, "another host"),
        (expected == [true; 4], "other parameters"),
        (request.scope().ends_with(&format!("/{REGION}/{}/aws4_request", service.signing_name)), "another scope"),
        (request.parameter("X-Amz-Credential").starts_with(&format!("id{number}%2F")), "other credentials"),
        (request.parameter("X-Amz-Security-Token") == session, "another session"),
        (request.parameter("X-Amz-Expires") == "900", "another lifetime"),
        (age < Duration::from_secs(1), "not signed now"),
        (request.is_signed_with(&secret_key(number)), "another signature"),
    ]
    .into_iter()
    .find_map(|(holds, fault)| (!holds).then_some(fault))
}
