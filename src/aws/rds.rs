//! Tokens of RDS IAM authentication: a presigned request in place of a password.
//! <https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/UsingWithRDS.IAMDBAuth.html>

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::AwsConfig;
use super::token::{Service, Signer};
use crate::credentials::{CredentialsSource, Login, LoginFuture};

const RDS: Service = Service { name: "RDS", signing_name: "rds-db" };

/// The server and the user of RDS IAM authentication.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RdsIamSettings {
    /// Host name of the server or proxy in RDS. Another DNS name for it, such as a CNAME, does not work.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// The database user, which has the role `rds_iam`.
    pub user: String,
}

impl RdsIamSettings {
    /// This user at this server.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16, user: impl Into<String>) -> Self {
        Self { host: host.into(), port, user: user.into() }
    }
}

/// Signs a new RDS IAM token for each connection.
#[derive(Debug)]
pub struct RdsIam {
    settings: RdsIamSettings,
    signer: Signer,
}

impl RdsIam {
    /// Creates the source. AWS is not called yet.
    #[must_use]
    pub fn new(settings: RdsIamSettings, aws: AwsConfig) -> Self {
        Self { settings, signer: Signer::new(RDS, aws) }
    }
}

impl CredentialsSource for RdsIam {
    fn login<'a>(&'a self, rejected: Option<&'a Login>) -> LoginFuture<'a> {
        Box::pin(async move {
            let password = self.signer.token(&request(&self.settings), rejected.is_some()).await?;
            Ok(Login { user: None, password })
        })
    }

    fn advice(&self) -> &'static str {
        "RDS rejected the IAM token: check that the server has IAM authentication enabled, that the host is its own \
         name and not an alias, that the user has the role rds_iam, and that the function's role may call \
         rds-db:connect as this user"
    }
}

/// Characters that are escaped in the user, by RFC 3986 as in the signature. Form encoding would write a space as `+`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn request(settings: &RdsIamSettings) -> String {
    let RdsIamSettings { host, port, user } = settings;
    format!("{host}:{port}/?Action=connect&DBUser={}", utf8_percent_encode(user, ESCAPED))
}

#[cfg(test)]
mod tests {
    use super::super::token::tests::assert_matches_botocore;
    use super::*;

    #[test]
    fn a_token_equals_the_one_that_botocore_signs() {
        assert_matches_botocore(RDS, |case| {
            let text = |field: &str| case[field].as_str().unwrap().to_owned();
            let port = case["port"].as_u64().unwrap().try_into().unwrap();
            request(&RdsIamSettings { host: text("host"), port, user: text("user") })
        });
    }
}
