//! The password that AWS Secrets Manager keeps.

use std::fmt;
use std::str::FromStr;

use aws_config::{BehaviorVersion, Region};
use aws_sdk_secretsmanager::Client;
use aws_sdk_secretsmanager::error::BoxError;
use serde::Deserialize;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::timeout;

use super::{Login, PATIENCE};

/// `arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME`. The secret is a password as it is, or a JSON
/// object with `password` and, if it has one, `username`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretArn(String);

impl SecretArn {
    fn region(&self) -> Region {
        Region::new(self.0.split(':').nth(3).unwrap_or_default().to_owned())
    }
}

impl FromStr for SecretArn {
    type Err = &'static str;

    fn from_str(arn: &str) -> Result<Self, Self::Err> {
        let parts: Vec<_> = arn.splitn(7, ':').collect();
        match parts.as_slice() {
            ["arn", partition, "secretsmanager", region, account, "secret", name]
                if [partition, region, account, name].iter().all(|part| !part.is_empty()) =>
            {
                Ok(Self(arn.to_owned()))
            }
            _ => Err("it is not the ARN of a secret"),
        }
    }
}

impl fmt::Display for SecretArn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    #[error("the secret {0} did not come in time: can the function reach Secrets Manager?")]
    TooLate(SecretArn),
    #[error(
        "the secret {0} could not be read: may the role secretsmanager:GetSecretValue, and kms:Decrypt with the \
         secret's key, and can the function reach Secrets Manager?"
    )]
    Unread(SecretArn, #[source] BoxError),
    #[error("the secret {0} has no password: set it to the password as text, or to JSON with \"password\"")]
    NoPassword(SecretArn),
}

pub(crate) struct Secret {
    arn: SecretArn,
    /// Of the URL, for a secret that is a password only.
    user: Option<String>,
    client: OnceCell<Client>,
    kept: Mutex<Option<Login>>,
}

impl Secret {
    pub(crate) fn new(arn: SecretArn, user: Option<&str>) -> Self {
        Self { arn, user: user.map(str::to_owned), client: OnceCell::new(), kept: Mutex::default() }
    }

    /// What the secret said last, or says now if it was not asked yet.
    pub(crate) async fn login(&self) -> Result<Login, SecretError> {
        let mut kept = self.kept.lock().await;
        if let Some(known) = &*kept {
            return Ok(known.clone());
        }
        let read = timeout(PATIENCE, self.read()).await;
        let text = read.unwrap_or_else(|_elapsed| Err(SecretError::TooLate(self.arn.clone())))?;
        let login = parse(&text, self.user.as_deref()).ok_or_else(|| SecretError::NoPassword(self.arn.clone()))?;
        Ok(kept.insert(login).clone())
    }

    /// Ask anew next time, where it said last what is `meant`.
    pub(crate) async fn forget(&self, meant: impl FnOnce(&Login) -> bool) {
        self.kept.lock().await.take_if(|known| meant(known));
    }

    async fn read(&self) -> Result<String, SecretError> {
        let secret = self.client().await.get_secret_value().secret_id(&self.arn.0).send().await;
        let secret = secret.map_err(|error| SecretError::Unread(self.arn.clone(), error.into()))?;
        // Bytes are no password that anybody could type or rotate.
        secret.secret_string.ok_or_else(|| SecretError::NoPassword(self.arn.clone()))
    }

    /// Made at the first use: loading certificates takes longer than starting the function.
    async fn client(&self) -> &Client {
        self.client
            .get_or_init(|| async {
                let aws = aws_config::defaults(BehaviorVersion::latest()).region(self.arn.region());
                Client::new(&aws.load().await)
            })
            .await
    }
}

/// As AWS writes it when it rotates a password of ElastiCache or RDS; what else it writes is not needed:
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
            assert_eq!(read(text), login("payments", text), "it is a password that looks like JSON");
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
    fn an_arn_is_of_a_secret_and_names_its_region() {
        let arn: SecretArn = "arn:aws-cn:secretsmanager:cn-north-1:123456789012:secret:redis-AbCdEf".parse().unwrap();
        assert_eq!(arn.region(), Region::new("cn-north-1"));
        for wrong in ["redis", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:", "arn:aws:s3:::bucket:a:b"] {
            assert!(wrong.parse::<SecretArn>().is_err(), "{wrong}");
        }
    }
}
