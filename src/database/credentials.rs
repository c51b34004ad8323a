//! Who gets in to the database, asked at each connect.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::identity::{Login, Secret, SecretArn, Service, Signer};

use super::DatabaseUrl;

const RDS: Service = Service { name: "RDS", id: "rds-db" };

/// Knows the password of the moment: one that is changed from time to time, or a token that soon ends. It
/// is asked before each connection.
pub trait CredentialsSource: Send + Sync {
    /// Who gets in to the server of this URL, now. `refused` is what the server has just refused, where it
    /// did: anything else that comes is tried, once.
    ///
    /// # Errors
    /// Where nothing is to be had. No connection is made then.
    fn login<'a>(&'a self, url: &'a DatabaseUrl, refused: Option<&'a Login>) -> LoginFuture<'a>;

    /// What to look at where the server refuses it.
    fn advice(&self) -> &'static str {
        "PostgreSQL refuses the user and password"
    }
}

/// What a [`CredentialsSource`] comes to.
pub type LoginFuture<'a> = Pin<Box<dyn Future<Output = Result<Login, Box<dyn Error + Send + Sync>>> + Send + 'a>>;

/// A token of RDS IAM authentication, signed afresh at every connect by the credentials that the AWS SDK
/// finds. It is for the first host of the URL, and for its user.
/// <https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/UsingWithRDS.IAMDBAuth.html>
pub struct RdsIam {
    signer: Signer,
}

impl Default for RdsIam {
    fn default() -> Self {
        Self { signer: Signer::new(RDS) }
    }
}

impl CredentialsSource for RdsIam {
    fn login<'a>(&'a self, url: &'a DatabaseUrl, refused: Option<&'a Login>) -> LoginFuture<'a> {
        Box::pin(async move {
            if refused.is_some() {
                // In case the AWS credentials were taken back.
                self.signer.forget().await;
            }
            let (host, user) = url.host().zip(url.user()).ok_or("an IAM token needs a host and a user in the URL")?;
            let password = self.signer.token(&request(host, url.port(), user)).await?;
            Ok(Login { user: None, password })
        })
    }

    fn advice(&self) -> &'static str {
        "RDS refuses the IAM token: has the server IAM authentication, is the host its own name and no alias, has the \
         user the role rds_iam, and may the function's role rds-db:connect as this user?"
    }
}

impl fmt::Debug for RdsIam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdsIam").finish_non_exhaustive()
    }
}

/// A secret of AWS Secrets Manager, read at the first connect, and again once the server refuses it.
pub struct DatabaseSecret {
    secret: Secret,
}

impl DatabaseSecret {
    /// Nothing is read yet.
    #[must_use]
    pub fn new(arn: SecretArn) -> Self {
        Self { secret: Secret::new(arn, None) }
    }
}

impl CredentialsSource for DatabaseSecret {
    fn login<'a>(&'a self, _: &'a DatabaseUrl, refused: Option<&'a Login>) -> LoginFuture<'a> {
        Box::pin(async move {
            if let Some(refused) = refused {
                // Of many that were refused at once, the first one reads it anew for all.
                self.secret.forget(|known| known == refused).await;
            }
            Ok(self.secret.login().await?)
        })
    }

    fn advice(&self) -> &'static str {
        "PostgreSQL refuses the user and password of DATABASE_SECRET_ARN, which were read anew"
    }
}

impl fmt::Debug for DatabaseSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseSecret").finish_non_exhaustive()
    }
}

/// As RFC 3986 has it, and with it the signature. A form would make a plus of a space.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn request(host: &str, port: u16, user: &str) -> String {
    let user = utf8_percent_encode(user, ESCAPED);
    format!("{host}:{port}/?Action=connect&DBUser={user}")
}

#[cfg(test)]
mod tests {
    use crate::identity::assert_signed_as_botocore_does;

    use super::*;

    #[test]
    fn a_token_is_what_botocore_signs_of_the_same() {
        assert_signed_as_botocore_does(RDS, |case| {
            let port = case["port"].as_u64().unwrap().try_into().unwrap();
            request(case["host"].as_str().unwrap(), port, case["user"].as_str().unwrap())
        });
    }
}
