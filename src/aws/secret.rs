//! Passwords in AWS Secrets Manager.

use std::fmt;
use std::str::FromStr;

use aws_config::Region;
use aws_sdk_secretsmanager::Client;
use aws_sdk_secretsmanager::config::Builder;
use aws_sdk_secretsmanager::error::BoxError;
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::{AwsConfig, CREDENTIALS_TIMEOUT};
use crate::credentials::{CredentialsSource, Login, LoginFuture};

/// ARN of a secret: `arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME`. The secret is a password as plain text, or a
/// JSON object with `password` and optionally `username`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretArn(String);

/// The text is not the ARN of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the ARN of a secret")]
#[non_exhaustive]
pub struct SecretArnError;

impl SecretArn {
    fn region(&self) -> Region {
        Region::new(self.0.split(':').nth(3).unwrap_or_default().to_owned())
    }
}

impl FromStr for SecretArn {
    type Err = SecretArnError;

    fn from_str(arn: &str) -> Result<Self, SecretArnError> {
        let parts: Vec<_> = arn.splitn(7, ':').collect();
        match parts.as_slice() {
            ["arn", partition, "secretsmanager", region, account, "secret", name]
                if [partition, region, account, name].iter().all(|part| !part.is_empty()) =>
            {
                Ok(Self(arn.to_owned()))
            }
            _ => Err(SecretArnError),
        }
    }
}

impl fmt::Display for SecretArn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, thiserror::Error)]
enum SecretError {
    #[error("no reply with the secret {0} within the timeout: check that the function can reach Secrets Manager")]
    Timeout(SecretArn),
    #[error(
        "the secret {0} could not be read: check that the role may call secretsmanager:GetSecretValue, and kms:Decrypt \
         with the secret's key, and that the function can reach Secrets Manager"
    )]
    NotRead(SecretArn, #[source] BoxError),
    #[error("the secret {0} has no password: set it to the password as text, or to JSON with \"password\"")]
    NoPassword(SecretArn),
}

/// Reads the login from a secret at the first connection, and again when the server rejects it.
pub struct SecretCredentials {
    arn: SecretArn,
    /// The user, if the secret has none.
    user: Option<String>,
    /// Part of the error message if the server rejects the login.
    advice: &'static str,
    aws: AwsConfig,
    cached: Mutex<Option<Login>>,
}

impl fmt::Debug for SecretCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretCredentials").field("arn", &self.arn).finish_non_exhaustive()
    }
}

impl SecretCredentials {
    /// Creates the source. The secret is not read yet. `user` is the login's user if the secret has none.
    #[must_use]
    pub fn new(arn: SecretArn, user: Option<&str>, advice: &'static str, aws: AwsConfig) -> Self {
        let user = user.map(str::to_owned);
        Self { arn, user, advice, aws, cached: Mutex::default() }
    }

    async fn cached_login(&self, rejected: Option<&Login>) -> Result<Login, SecretError> {
        let mut cached = self.cached.lock().await;
        // If the logins of many connections are rejected concurrently, only the first of them reads the secret again.
        if rejected.is_some() {
            cached.take_if(|known| Some(&*known) == rejected);
        }
        if let Some(known) = &*cached {
            return Ok(known.clone());
        }
        let read = timeout(CREDENTIALS_TIMEOUT, self.read()).await;
        let text = read.unwrap_or_else(|_elapsed| Err(SecretError::Timeout(self.arn.clone())))?;
        let login = parse(&text, self.user.as_deref()).ok_or_else(|| SecretError::NoPassword(self.arn.clone()))?;
        Ok(cached.insert(login).clone())
    }

    async fn read(&self) -> Result<String, SecretError> {
        // The secret may be in another region than the function. The client is not kept: the next read may be days
        // later, and its connection would have ended.
        let client = Client::from_conf(Builder::from(self.aws.load().await).region(self.arn.region()).build());
        let secret = client.get_secret_value().secret_id(&self.arn.0).send().await;
        let secret = secret.map_err(|error| SecretError::NotRead(self.arn.clone(), error.into()))?;
        // A binary secret cannot be a password.
        secret.secret_string.ok_or_else(|| SecretError::NoPassword(self.arn.clone()))
    }
}

impl CredentialsSource for SecretCredentials {
    fn login<'a>(&'a self, rejected: Option<&'a Login>) -> LoginFuture<'a> {
        Box::pin(async move { Ok(self.cached_login(rejected).await?) })
    }

    fn advice(&self) -> &'static str {
        self.advice
    }
}

/// The fields of a secret that AWS rotates for ElastiCache or RDS. Other fields are ignored.
/// <https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/User-Secrets-Manager.html>,
/// <https://docs.aws.amazon.com/secretsmanager/latest/userguide/reference_secret_json_structure.html>
#[derive(Deserialize)]
struct Fields {
    username: Option<String>,
    password: String,
}

fn parse(secret: &str, user: Option<&str>) -> Option<Login> {
    let login = if serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(secret).is_ok() {
        let Fields { username, password } = serde_json::from_str(secret).ok()?;
        Login { user: username.or_else(|| user.map(str::to_owned)), password }
    } else {
        Login { user: user.map(str::to_owned), password: secret.to_owned() }
    };
    Some(login).filter(|login| !login.password.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_a_password_or_an_object_that_has_one() {
        let read = |secret: &str| parse(secret, Some("payments")).map(|Login { user, password }| (user, password));
        let login = |user: &str, password: &str| Some((Some(user.to_owned()), password.to_owned()));
        assert_eq!(read("open sesame"), login("payments", "open sesame"));
        for text in ["123456", "\"quoted\"", "[1]", "null", "{not JSON"] {
            assert_eq!(read(text), login("payments", text), "a password that looks like JSON");
        }
        assert_eq!(read(r#"{"password":"open sesame"}"#), login("payments", "open sesame"));
        let rotated = r#"{"username":"clone","password":"pw","user_arn":"arn:aws:elasticache"}"#;
        assert_eq!(read(rotated), login("clone", "pw"));
        let of_rds = r#"{"engine":"postgres","host":"db","port":5432,"username":"app","password":"pw"}"#;
        assert_eq!(read(of_rds), login("app", "pw"));
        for without in ["", "{}", r#"{"password":""}"#, r#"{"password":1}"#, r#"{"username":"a","pass":"b"}"#] {
            assert_eq!(read(without), None, "{without}");
        }
        assert_eq!(parse("pw", None).map(|login| login.user), Some(None));
    }

    #[test]
    fn only_the_arn_of_a_secret_is_accepted_and_its_region_is_used() {
        let arn: SecretArn = "arn:aws-cn:secretsmanager:cn-north-1:123456789012:secret:redis-AbCdEf".parse().unwrap();
        assert_eq!(arn.region(), Region::new("cn-north-1"));
        for wrong in ["redis", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:", "arn:aws:s3:::bucket:a:b"] {
            assert!(wrong.parse::<SecretArn>().is_err(), "{wrong}");
        }
    }
}
